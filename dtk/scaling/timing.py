"""When things happened: a step's seconds, what a worker waited, examples per second. Pure arithmetic on records.

All times come from the recorder in each worker, on one clock (see `dtk.records`): `started` is read before
Keras calls the step, `ended` after the step's loss has been read, so a step holds the input pipeline, the
computation and the all-reduce. The first step also holds tracing and compiling and is left out of throughput.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pandas

__all__ = ["Throughput", "parts_of_examples", "step_times", "throughput"]


class Throughput(NamedTuple):
    """Examples per second: `per_worker` is a Series with the worker as index, `total` is the cluster's."""

    per_worker: pandas.Series
    total: float


def step_times(records: pandas.DataFrame) -> pandas.DataFrame:
    """One row a (worker, step), sorted by worker, then step; replicas of a worker are put together.

    Columns: worker, step, epoch; examples, summed over the worker's replicas; started (the first replica's) and
    ended (the last one's), in seconds since the call of `dtk.run`; and in seconds:

    - seconds: ended minus started.
    - period: from the end of the step before to the end of this one. It holds what lies between two steps
      (callbacks) as well. An epoch's first step counts from its own start, because validation may lie before it.
    - waiting: the last worker's start of this step minus this worker's start, at most `seconds`. No all-reduce
      can end before the last worker has begun, so a worker that computes as fast as the last one waits at least
      this long. 0 for the last worker to begin, and with one worker.

    >>> from dtk.records import frame
    >>> rows = [(0, 0, 1, 1, 0.5, 64, 1.0, 1.5), (1, 1, 1, 1, 0.5, 64, 1.25, 1.5),
    ...         (0, 0, 2, 1, 0.4, 64, 1.5, 2.0), (1, 1, 2, 1, 0.4, 64, 1.75, 2.0)]
    >>> step_times(frame(rows))[["worker", "step", "seconds", "period", "waiting"]]
       worker  step  seconds  period  waiting
    0       0     1     0.50    0.50     0.25
    1       0     2     0.50    0.50     0.25
    2       1     1     0.25    0.25     0.00
    3       1     2     0.25    0.50     0.00
    """
    how = {"epoch": "first", "examples": "sum", "started": "min", "ended": "max"}
    table = records.groupby(["worker", "step"], as_index=False).agg(how)
    table = table.sort_values(["worker", "step"], ignore_index=True)
    table["seconds"] = table.ended - table.started
    before = table.groupby(["worker", "epoch"]).ended.shift()
    table["period"] = table.ended - before.fillna(table.started)
    last = table.groupby("step").started.transform("max")
    table["waiting"] = np.minimum(last - table.started, table.seconds)
    return table


def throughput(records: pandas.DataFrame) -> Throughput:
    """Examples per second, per worker and together: the median of examples / period over the steps after the first.

    For the total, a step's examples are those of all workers, and it ends when the last worker ends it; so the
    total is a median of its own and need not be the exact sum of the workers' medians. NaN where a worker has no
    step after its first; an empty Series and NaN without records.

    >>> from dtk.records import frame
    >>> rows = [(w, w, step, 1, 0.5, 64, step * 0.5, step * 0.5 + 0.25) for step in (1, 2, 3) for w in (0, 1)]
    >>> throughput(frame(rows)).per_worker.to_dict(), throughput(frame(rows)).total
    ({0: 128.0, 1: 128.0}, 256.0)
    """
    together = step_times(records.assign(worker=0))
    total = _rates(together)
    return Throughput(_rates(step_times(records)), float(total.iloc[0]) if len(total) else float("nan"))


def parts_of_examples(records: pandas.DataFrame) -> pandas.Series:
    """Which part of all examples each worker contributed, after its first step; index worker. They add up to 1.

    >>> from dtk.records import frame
    >>> rows = [(w, w, step, 1, 0.5, (48, 16)[w], step * 0.5, step * 0.5 + 0.25) for step in (1, 2, 3) for w in (0, 1)]
    >>> parts_of_examples(frame(rows)).to_dict()
    {0: 0.75, 1: 0.25}
    """
    later = records[records.step > records.groupby("worker").step.transform("min")]
    seen = later.groupby("worker").examples.sum()
    return (seen / seen.sum()).rename("part")


def _rates(table: pandas.DataFrame) -> pandas.Series:
    first = table.groupby("worker").step.transform("min")
    period = table.period.where(table.period > 0)  # a period of 0 is a clock too coarse to say anything
    rate = (table.examples / period).where(table.step > first)
    return rate.groupby(table.worker).median().rename("examples/s")
