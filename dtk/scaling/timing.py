"""When things happened: a step's seconds and its parts, who waits for whom, examples per second, steps computed twice.

All times come from the recorder in each worker, on one clock (see `dtk.records`): `started` is read before
Keras calls the step, `ended` after the step's loss has been read, so a step holds the input pipeline, the
computation and the all-reduce. The first step also holds tracing and compiling and is left out of throughput.

The parts of a step (`step_parts`) come from the records and the marks (`dtk.compat.marks`: when its data was there,
when each all-reduce began and ended). They divide a step's time without gap or overlap, so they add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas

    from dtk.records import RunFolder
    from dtk.records.tables import Recorded


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

    >>> from dtk.records.tables import frame
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
    table["seconds"] = table.ended - table.started
    before = table.groupby(["worker", "epoch"]).ended.shift()
    table["period"] = table.ended - before.fillna(table.started)
    last = table.groupby("step").started.transform("max")
    table["waiting"] = np.minimum(last - table.started, table.seconds)
    return table


def throughput(records: pandas.DataFrame) -> float:
    """Examples per second of all workers together: the median of examples / period over the steps after the first.

    A step's examples are those of all workers, and it ends when the last worker ends it. NaN without a second step.

    >>> from dtk.records.tables import frame
    >>> rows = [(w, w, step, 1, 0.5, 64, step * 0.5, step * 0.5 + 0.25) for step in (1, 2, 3) for w in (0, 1)]
    >>> throughput(frame(rows))
    256.0
    """
    steps = step_times(records.assign(worker=0))
    period = steps.period.where(steps.period > 0)  # a period of 0 is a clock too coarse to say anything
    return float((steps.examples / period)[steps.step > steps.step.min()].median())


def throughput_of(run: Recorded) -> float:
    """The throughput of a run, wherever one is named: after restarts of the last attempt. NaN without a folder."""
    return throughput(run.folder.own_records) if run.folder is not None else float("nan")


def within_epochs(times: pandas.DataFrame) -> pandas.DataFrame:
    """The times of steps, as `step_times` has them, with each epoch's first step from when the last worker began it.

    What a worker waits there, it waits for the end of another's validation, checkpoint or preparation. That belongs to
    the pause between two epochs, which no slow step has made. A run's first step stays as it is.
    """
    before = times.groupby("worker").epoch.shift()
    first = before.notna() & (times.epoch != before)
    apart = times.waiting.where(first, 0.0)
    less = {"started": times.started + apart, "waiting": times.waiting - apart}
    return times.assign(**less, seconds=times.seconds - apart, period=times.period - apart)


def last_to_begin(times: pandas.DataFrame) -> tuple[int, float] | None:
    """The worker that began most steps last, and in which part of them; None for one worker, or without later steps.

    The first step of all is left out: there a worker waits for another to have built its model.

    >>> from dtk.records.tables import frame
    >>> rows = [(w, w, s, 1, 0.5, 64, s + 0.5 * w, s + 1.0) for s in (1, 2, 3) for w in (0, 1)]
    >>> last_to_begin(step_times(frame(rows)))
    (1, 1.0)
    """
    later = times[times.step > times.groupby("worker").step.transform("min")]
    if later.worker.nunique() < 2:
        return None
    counted = later.loc[later.groupby("step").started.idxmax()].worker.value_counts(normalize=True)
    return int(counted.idxmax()), float(counted.max())


def typical_steps(times: pandas.DataFrame, count: int = 6) -> list[int]:
    """Steps one after the other that show how the workers step: of all workers, of one epoch, as long as most are.

    Of all stretches of `count` steps (or as many as an epoch has), the one that lasts as long as their median does. The
    first step, in which tracing hides the rest, is not among them. [] where no epoch has three steps.
    """
    later = times[times.step > times.groupby("worker").step.transform("min")]
    how = {"begin": ("started", "min"), "end": ("ended", "max"), "epoch": ("epoch", "first"), "all": ("worker", "size")}
    steps = later.groupby("step").agg(**how)
    steps = steps[steps["all"] == times.worker.nunique()].reset_index()
    part = (steps.step.diff().ne(1) | steps.epoch.diff().ne(0)).cumsum()
    size = min(count, part.value_counts().max()) if len(part) else 0
    if size < 3:
        return []
    before = size - 1
    long = (steps.end - steps.begin.shift(before)).where(part == part.shift(before))
    last = (long - long.median()).abs().idxmin()
    return [int(step) for step in steps.step[last - before : last + 1]]


def fates(folder: RunFolder) -> pandas.DataFrame:
    """What became of each step of each start of the cluster.

    A step counts as computed where a worker recorded it. It is lost where a later attempt went on from it or a step
    before it: that attempt's checkpoint did not hold it.

    Returns:
        One row for each step of each attempt. Columns: attempt (from 1), step, lost, again (an earlier attempt had
        computed the same step).
    """
    import pandas as pd

    tables = [one.own_records.assign(attempt=k) for k, one in enumerate((*folder.earlier, folder), 1)]
    found = pd.concat(tables)[["attempt", "step"]].drop_duplicates().sort_values(["attempt", "step"], ignore_index=True)
    first = found[::-1].groupby("attempt", sort=False).step.min().cummin().shift()  # of the attempts after one
    return found.assign(lost=found.step >= found.attempt.map(first), again=found.duplicated("step"))


def spans(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Numbers, of steps for example, that follow one another, as first and last.

    >>> spans([1, 2, 3, 7, 9, 10])
    [(1, 3), (7, 7), (9, 10)]
    """
    stretches = np.split(np.asarray(numbers), np.flatnonzero(np.diff(numbers) != 1) + 1)
    return [(int(each[0]), int(each[-1])) for each in stretches if len(each)]


# ---- where a step's time goes

PARTS = ("python", "input", "compute", "all_reduce", "waiting")
_LARGE = 0.05  # of a step's largest all-reduce: a pack of gradients; below, a metric or a check for the end of the data


def step_parts(run: Recorded) -> pandas.DataFrame:
    """Where the seconds of each step went.

    Args:
        run: from `dtk.run` or `dtk.baseline`, or the error of a run that failed.

    Returns:
        One row for each (worker, step), without the first step, which is traced and compiled; empty without records.
        Columns worker, step, and in seconds:

        - period: from the end of the step before to the end of this one; of an epoch's first step, from when the last
          worker began it. The parts add up to it:
        - python: from the end of the step before until this one began: callbacks, code between two steps.
        - input: from there until the step had its data, without the all-reduce that asks whether all workers have data.
        - waiting: in all-reduces, until the last worker's part was there. An all-reduce beside which the worker still
          computes its own gradients does not count. Without marks (DTK_MARKS=0): `step_times`' waiting.
        - all_reduce: in all-reduces after that.
        - compute: the rest: forward, backward, the optimizer's update, metrics.
    """
    steps, spans = _in_parts(run.folder)
    seconds = spans.assign(seconds=spans.end - spans.begin).pivot_table("seconds", "row", "part", "sum")
    return steps[["worker", "step", "period"]].join(seconds.reindex(steps.index, columns=list(PARTS)).fillna(0.0))


def step_spans(folder: RunFolder) -> pandas.DataFrame:
    """When each part of each step was, one after the other, as `step_parts` adds them up.

    Columns: worker, step, part (of PARTS), begin, end (s since the call of `dtk.run`).
    """
    steps, spans = _in_parts(folder)
    return spans.join(steps[["worker", "step"]], on="row")[["worker", "step", "part", "begin", "end"]]


def _in_parts(folder: RunFolder) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """The steps as `_recorded` has them, and the spans that they are made of: row (the step's place), part, begin, end.

    Where spans overlap, a step is waiting before it is in an all-reduce, and in either before anything else.
    """
    import pandas as pd

    steps, marks = _recorded(folder)
    takes, reductions = marks[~marks.reduce], _reductions(marks)
    asked = takes.groupby("row").begin.min().reindex(steps.index)
    start = asked.fillna(steps.started).clip(steps.lo, steps.ended)
    had = np.fmax(takes.groupby("row").end.max().reindex(steps.index).clip(upper=steps.ended), start)
    # Packs of gradients are reduced while earlier layers' gradients are computed: they count from the last pack on.
    row, begin, end = reductions.row, reductions.begin, reductions.end
    last_pack = begin.where(reductions.gradients).groupby(row).transform("max")
    begin = begin.mask(reductions.gradients, last_pack)
    waited = np.maximum(reductions.waited, begin)
    unmarked = steps if marks.empty else steps[:0]
    first_to_last = (  # where several are at once, the first counts
        ("waiting", row, begin, waited),
        ("waiting", unmarked.index, unmarked.ended - unmarked.waiting, unmarked.ended),
        ("all_reduce", row, begin, end),
        ("python", steps.index, steps.lo, start),
        ("input", steps.index, start, had),
        ("compute", steps.index, steps.lo, steps.ended),
    )
    every = pd.concat(
        pd.DataFrame({"row": of, "begin": begins, "end": ends, "rank": rank})
        for rank, (_, of, begins, ends) in enumerate(first_to_last)
    ).query("end > begin")
    edges = [every[["row", "rank"]].assign(at=every[name], open=sign) for name, sign in (("begin", 1), ("end", -1))]
    found = pd.concat(edges).sort_values(["row", "at"], ignore_index=True)
    open_now = np.stack([(found.open * (found["rank"] == rank)).cumsum() > 0 for rank in range(len(first_to_last))])
    found["end"] = found.groupby("row")["at"].shift(-1)
    found["part"] = np.array([name for name, *_ in first_to_last])[open_now.argmax(axis=0)]
    found = found[open_now.any(axis=0) & (found.end > found["at"])]
    return steps, found.rename(columns={"at": "begin"})[["row", "part", "begin", "end"]]


def step_reductions(run: Recorded) -> pandas.DataFrame:
    """The all-reduces of gradients in each step.

    Args:
        run: from `dtk.run`, or the error of a run that failed.

    Returns:
        One row for each all-reduce of gradients (or of a pack of them) in a worker's step, without the first step.
        Columns: worker, step, period (s, as in `step_parts`), bytes, and in seconds since the step before ended: begin
        (this worker has its gradients), waited (the last worker has them, too), end. Empty without marks (DTK_MARKS=0).
    """
    found = _reductions(_recorded(run.folder)[1])
    found = found[found.gradients].reset_index(drop=True)
    for name in ("begin", "waited", "end"):
        found[name] -= found.lo
    return found[["worker", "step", "period", "bytes", "begin", "waited", "end"]]


def _recorded(folder: RunFolder) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """The steps without each worker's first, and the marks in them.

    Steps, as `within_epochs` has them, with lo, when the step before ended.
    Marks: worker, reduce (or else a wait for data), begin, end, bytes; row, the step's place; and the step's columns.
    """
    import pandas as pd

    times = within_epochs(step_times(folder.own_records))
    later = times.step > times.groupby("worker").step.transform("min")
    steps = times[later].sort_values(["worker", "ended"], ignore_index=True)
    steps["lo"] = steps.ended - steps.period
    rows = [(corner.worker, kind == "reduce", *rest) for corner in folder.each for kind, *rest in corner.lines("marks")]
    marks = pd.DataFrame(rows, columns=["worker", "reduce", "begin", "end", "bytes"])
    marks = marks.astype({"worker": steps.worker.dtype, "reduce": bool, "begin": float, "end": float, "bytes": float})
    places = steps.reset_index(names="row")[["worker", "row", "step", "period", "lo", "ended"]].sort_values("ended")
    how: Any = {"by": "worker", "left_on": "end", "right_on": "ended", "direction": "forward"}
    marks = pd.merge_asof(marks.sort_values("end", kind="stable"), places, **how)
    marks = marks[marks.end > marks.lo].astype({"row": int, "step": int})  # and not what ended in the first step
    return steps, marks.assign(begin=np.maximum(marks.begin, marks.lo))


def _reductions(marks: pandas.DataFrame) -> pandas.DataFrame:
    """The all-reduces, by when they began, with two columns more: waited, until when, and gradients.

    The last worker's part of an all-reduce is there when it begins its nth of so many bytes in that step. One is of
    gradients if it is the largest of its step, or a pack like it.
    """
    found = marks[marks.reduce].sort_values("begin", kind="stable")
    nth = found.groupby(["row", "bytes"]).cumcount()
    last = found.groupby([found.step, found.bytes, nth]).begin.transform("max")
    waited = last.clip(found.begin, np.maximum(found.begin, found.end))
    most = found.groupby("row").bytes.transform("max")
    return found.assign(waited=waited, gradients=found.bytes >= _LARGE * most)
