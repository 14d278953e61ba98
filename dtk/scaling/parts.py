"""Where a step's time goes: Python and callbacks, input, computation, all-reduce, waiting for the slowest worker.

From the records (when a step began and ended) and the marks (`dtk.compat.marks`: when its data was there, when
each all-reduce began and ended), all on one clock. The parts divide a step's time without gap or overlap, so they add
up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dtk.scaling.timing import step_times

if TYPE_CHECKING:
    import pandas

    from dtk.records import RunFolder
    from dtk.records.tables import Recorded

__all__ = ["PARTS", "step_parts", "step_reductions"]

PARTS = ("python", "input", "compute", "all_reduce", "waiting")
_LARGE = 0.05  # of a step's largest all-reduce: a pack of gradients; below, a metric or a check for the end of the data


def step_parts(run: Recorded) -> pandas.DataFrame:
    """Where the seconds of each step went.

    Args:
        run: from `dtk.run` or `dtk.baseline`, or the error of a run that failed.

    Returns:
        One row for each (worker, step), without the first step, which is traced and compiled; empty without records.
        Columns worker, step, and in seconds:

        - period: from the end of the step before to the end of this one. The parts add up to it:
        - python: from the end of the step before until this one began: callbacks, code between two steps.
        - input: from there until the step had its data, without the all-reduce that asks whether all workers have data.
        - waiting: in all-reduces, until the last worker's part was there. An all-reduce beside which the worker still
          computes its own gradients does not count.
        - all_reduce: in all-reduces after that.
        - compute: the rest: forward, backward, the optimizer's update, metrics.
    """
    steps, marks = _recorded(run.folder)
    takes, reductions = marks[~marks.reduce], _reductions(marks)
    asked = takes.groupby("row").begin.min().reindex(steps.index)
    start = asked.fillna(steps.started).clip(steps.lo, steps.ended)
    had = takes.groupby("row").end.max().reindex(steps.index).clip(upper=steps.ended)
    had = np.fmax(had, start)
    # Packs of gradients are reduced while earlier layers' gradients are computed: they count from the last pack on.
    row, begin, end = reductions.row, reductions.begin, reductions.end
    last_pack = begin.where(reductions.gradients).groupby(row).transform("max")
    begin = begin.mask(reductions.gradients, last_pack)
    waited = np.maximum(reductions.waited, begin)
    reducing, waiting = _covered(row, begin, end, steps.index), _covered(row, begin, waited, steps.index)
    in_input = _covered(row, np.maximum(begin, row.map(start)), np.minimum(end, row.map(had)), steps.index)

    found = steps[["worker", "step", "period"]].copy()
    found["python"], found["input"] = start - steps.lo, had - start - in_input
    found["compute"] = found.period - found.python - found["input"] - reducing
    found["all_reduce"], found["waiting"] = reducing - waiting, waiting
    return found


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
    """The steps without each worker's first, with `lo`, when the step before ended; and the marks in these steps.

    Marks: worker, reduce (or else a wait for data), begin, end, bytes; row, the step's place; and the step's columns.
    """
    import pandas as pd

    times = step_times(folder.own_records)
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


def _covered(row: pandas.Series, begin: Any, end: Any, rows: pandas.Index) -> pandas.Series:
    """How many seconds of each row the given spans of it cover together: spans may overlap."""
    import pandas as pd

    spans = pd.DataFrame({"row": row, "begin": begin, "end": end}).query("end > begin").sort_values(["row", "begin"])
    before = spans.groupby("row").end.cummax().groupby(spans.row).shift()  # until when those before it cover
    own = (spans.end - np.fmax(spans.begin, before)).clip(lower=0.0)
    return own.groupby(spans.row).sum().reindex(rows, fill_value=0.0)
