"""When things happened: a step's seconds, who waits for whom, examples per second, steps that were computed twice.

All times come from the recorder in each worker, on one clock (see `dtk.records`): `started` is read before
Keras calls the step, `ended` after the step's loss has been read, so a step holds the input pipeline, the
computation and the all-reduce. The first step also holds tracing and compiling and is left out of throughput.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pandas

    from dtk.records import RunFolder

__all__ = [
    "Pace",
    "fates",
    "pace",
    "spans",
    "step_times",
    "throughput",
    "typical_steps",
    "within_epochs",
]


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


def throughput(records: pandas.DataFrame) -> float:
    """Examples per second of all workers together: the median of examples / period over the steps after the first.

    A step's examples are those of all workers, and it ends when the last worker ends it. NaN without a step after the
    first.

    >>> from dtk.records import frame
    >>> rows = [(w, w, step, 1, 0.5, 64, step * 0.5, step * 0.5 + 0.25) for step in (1, 2, 3) for w in (0, 1)]
    >>> throughput(frame(rows))
    256.0
    """
    steps = step_times(records.assign(worker=0))
    period = steps.period.where(steps.period > 0)  # a period of 0 is a clock too coarse to say anything
    return float((steps.examples / period)[steps.step > steps.step.min()].median())


class Pace(NamedTuple):
    """Who waits most. worker: that one; share: of its time in steps; last: who began most steps last; often: of all."""

    worker: int
    share: float
    last: int
    often: float


def within_epochs(times: pandas.DataFrame) -> pandas.DataFrame:
    """The times of steps, with each epoch's first step from when the last worker began it.

    What a worker waits there, it waits for the end of another's validation, checkpoint or preparation. That belongs to
    the pause between two epochs, which no slow step has made. A run's first step stays as it is.

    Args:
        times: from `timing.step_times`, whose columns the result has.
    """
    before = times.groupby("worker").epoch.shift()
    first = before.notna() & (times.epoch != before)
    apart = times.waiting.where(first, 0.0)
    less = {"started": times.started + apart, "waiting": times.waiting - apart}
    return times.assign(**less, seconds=times.seconds - apart, period=times.period - apart)


def pace(times: pandas.DataFrame) -> Pace | None:
    """Who waits most for the last worker, and who that is; None for one worker, or without steps after the first.

    The first step of all is left out: there a worker waits for another to have built its model.

    >>> from dtk.records import frame
    >>> rows = [(w, w, s, 1, 0.5, 64, s + 0.5 * w, s + 1.0) for s in (1, 2, 3) for w in (0, 1)]
    >>> pace(step_times(frame(rows)))
    Pace(worker=0, share=0.5, last=1, often=1.0)
    """
    later = times[times.step > times.groupby("worker").step.transform("min")]
    if later.worker.nunique() < 2 or not later.period.sum() > 0:
        return None
    by_worker = later.groupby("worker")
    shares = by_worker.waiting.sum() / by_worker.period.sum()
    began_last = later.loc[later.groupby("step").started.idxmax()].worker.value_counts(normalize=True)
    most, last = int(shares.idxmax()), int(began_last.idxmax())
    return Pace(most, float(shares[most]), last, float(began_last[last]))


def typical_steps(times: pandas.DataFrame, count: int = 6) -> list[int]:
    """Steps one after the other that show how the workers step: of all workers, of one epoch, as long as most are.

    Of all stretches of `count` steps (or as many as an epoch has), the one that lasts as long as their median does. The
    first step, in which tracing hides the rest, is not among them. [] where no epoch has three steps.

    Args:
        times: from `timing.step_times`.
        count: how many at most.
    """
    later = times[times.step > times.groupby("worker").step.transform("min")]
    how = {"begin": ("started", "min"), "end": ("ended", "max"), "epoch": ("epoch", "first"), "all": ("worker", "size")}
    steps = later.groupby("step").agg(**how)
    steps = steps[steps["all"] == times.worker.nunique()].reset_index()
    part = (steps.step.diff().ne(1) | steps.epoch.diff().ne(0)).cumsum().to_numpy()
    size = min(count, int(np.bincount(part).max())) if len(part) else 0
    if size < 3:
        return []
    first = np.flatnonzero(part[size - 1 :] == part[: len(part) - size + 1])
    long = steps.end.to_numpy()[first + size - 1] - steps.begin.to_numpy()[first]
    best = first[np.argmin(np.abs(long - np.median(long)))]
    return [int(step) for step in steps.step[best : best + size]]


def fates(folder: RunFolder) -> pandas.DataFrame:
    """What became of each step of each start of the cluster.

    A step counts as computed where a worker recorded it. It is lost where a later attempt went on from it or a step
    before it: that attempt's checkpoint did not hold it.

    Returns:
        One row for each step of each attempt. Columns: attempt (from 1), step, lost, again (an earlier attempt had
        computed the same step).
    """
    import pandas as pd

    each = [sorted(set(one.own_records.step)) for one in (*folder.earlier, folder)]
    rows, seen = [], set[int]()
    for k, steps in enumerate(each):
        first = min((later[0] for later in each[k + 1 :] if later), default=float("inf"))
        rows += [(k + 1, int(step), bool(step >= first), step in seen) for step in steps]
        seen.update(steps)
    table = pd.DataFrame(rows, columns=["attempt", "step", "lost", "again"])
    return table.astype({"attempt": int, "step": int, "lost": bool, "again": bool})


def spans(steps: list[int]) -> list[tuple[int, int]]:
    """Steps that follow one another, as first and last.

    >>> spans([1, 2, 3, 7, 9, 10])
    [(1, 3), (7, 7), (9, 10)]
    """
    found: list[tuple[int, int]] = []
    for step in steps:
        if found and step == found[-1][1] + 1:
            found[-1] = (found[-1][0], step)
        else:
            found.append((step, step))
    return found
