"""Where a step's time goes: Python and callbacks, input, computation, all-reduce, waiting for the slowest worker.

From the records (when a step began and ended) and the marks (`dtk.worker.marks`: when its data was there, when each
all-reduce began and ended), all on one clock. The parts divide a step's time without gap or overlap, so they add up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dtk.scaling.timing import step_times

if TYPE_CHECKING:
    import pandas

    from dtk.records import RunFolder
    from dtk.records.tables import Recorded


__all__ = ["LARGE", "PARTS", "step_messages", "step_parts", "step_reductions"]

PARTS = ("python", "input", "compute", "all_reduce", "waiting")
LARGE = 0.05  # of a step's largest all-reduce: a pack of gradients; below, a metric or a check for the end of the data


def step_parts(run: Recorded, records: pandas.DataFrame | None = None) -> pandas.DataFrame:
    """Where the seconds of each step went.

    Args:
        run: from `dtk.run` or `dtk.baseline`, or the error of a run that failed.
        records: the records of the run's last start, where they have been read already.

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
    import pandas as pd

    table = _steps(run.folder.own_records if records is None else records)
    marks = _of_steps(table, _marks(run.folder))
    key = ["worker", "step"]
    reduce = _exposed(marks[marks.kind == "reduce"].copy(), key)
    take = marks[marks.kind == "take"].groupby(key).agg(asked=("begin", "min"), had=("end", "max"))
    table = table.join(take, on=key)
    start = np.clip(table.asked.fillna(table.started), table.lo, table.ended)
    had = np.clip(table.had.fillna(start), start, table.ended)
    bounds = pd.DataFrame({"worker": table.worker, "step": table.step, "start": start, "had": had})
    reduce = reduce.merge(bounds, on=key)
    in_input = reduce.assign(begin=np.maximum(reduce.begin, reduce.start), end=np.minimum(reduce.end, reduce.had))
    keyed = table.set_index(key).index
    table["python"] = start - table.lo
    table["input"] = had - start - _union(in_input, key, keyed)
    table["waiting"] = _union(reduce.assign(end=reduce.waited), key, keyed)
    table["all_reduce"] = _union(reduce, key, keyed) - table.waiting
    table["compute"] = table.period - table[["python", "input", "all_reduce", "waiting"]].sum(axis=1)
    return table[["worker", "step", "period", *PARTS]].reset_index(drop=True)


def step_reductions(run: Recorded) -> pandas.DataFrame:
    """The all-reduces of gradients in each step.

    Args:
        run: from `dtk.run`, or the error of a run that failed.

    Returns:
        One row for each all-reduce of gradients (or of a pack of them) in a worker's step, without the first step.
        Columns: worker, step, period (s, as in `step_parts`), bytes, and in seconds since the step before ended: begin
        (this worker has its gradients), waited (the last worker has them, too), end. Empty without marks (DTK_MARKS=0).
    """
    table = _steps(run.folder.own_records)
    marks = _of_steps(table, _marks(run.folder))
    reduce = marks[marks.kind == "reduce"].sort_values("begin")
    reduce = _with_last(reduce[_large(reduce)])
    reduce = reduce.merge(table[["worker", "step", "period", "lo"]], on=["worker", "step"])
    reduce["waited"] = np.clip(reduce["last"], reduce.begin, reduce.end)
    for name in ("begin", "waited", "end"):
        reduce[name] -= reduce.lo
    return reduce[["worker", "step", "period", "bytes", "begin", "waited", "end"]].reset_index(drop=True)


def step_messages(run: Recorded) -> pandas.DataFrame:
    """All all-reduces in each step: those of gradients, and small ones, of metrics or of the question who has data.

    Args:
        run: from `dtk.run`, or the error of a run that failed.

    Returns:
        One row for each all-reduce in a worker's step, without the first step. Columns: worker, step, bytes, gradients
        (whether it is one of gradients: the largest of its step, and packs like it). Empty without marks (DTK_MARKS=0).
    """
    marks = _of_steps(_steps(run.folder.own_records), _marks(run.folder))
    reduce = marks[marks.kind == "reduce"].sort_values("begin")
    return reduce.assign(gradients=_large(reduce))[["worker", "step", "bytes", "gradients"]].reset_index(drop=True)


def _steps(records: pandas.DataFrame) -> pandas.DataFrame:
    """`step_times` without each worker's first step, and with `lo`: when the step before ended."""
    times = step_times(records)
    table = times[times.step > times.groupby("worker").step.transform("min")].copy()
    table["lo"] = table.ended - table.period
    return table


def _marks(folder: RunFolder) -> pandas.DataFrame:
    import pandas as pd

    rows = [(worker.worker, *mark) for worker in folder.each for mark in worker.marks]
    table = pd.DataFrame(rows, columns=["worker", "kind", "begin", "end", "bytes"])
    return table.astype({"worker": int, "begin": float, "end": float, "bytes": float})


def _of_steps(steps: pandas.DataFrame, marks: pandas.DataFrame) -> pandas.DataFrame:
    """The marks that lie in a step's time, with that step; what lies between, such as a validation, is left out."""
    import pandas as pd

    found = []
    for worker, mine in marks.groupby("worker"):
        own = steps[steps.worker == worker].sort_values("ended")
        if not len(own):
            continue
        at = np.searchsorted(own.ended.to_numpy(), mine.end.to_numpy())
        inside = at < len(own)
        mine, at = mine[inside], at[inside]
        lo = own.lo.to_numpy()[at]
        begin = mine.begin.to_numpy()
        mine = mine.assign(step=own.step.to_numpy()[at], begin=np.maximum(begin, lo))  # NaN stays NaN
        found.append(mine[mine.end.to_numpy() > lo])
    return pd.concat(found) if found else marks.assign(step=pd.Series(dtype=int))


def _exposed(reduce: pandas.DataFrame, key: list[str]) -> pandas.DataFrame:
    """The all-reduces from where nothing was computed beside them, with `waited`: when the last worker had begun."""
    reduce = _with_last(reduce)
    large = _large(reduce)
    # Packs of gradients are reduced while earlier layers' gradients are computed: exposed from the last pack on.
    all_there = reduce.begin.where(large).groupby([reduce[each] for each in key]).transform("max")
    hidden = large & (reduce.begin < all_there)
    reduce["begin"] = reduce.begin.where(~hidden, all_there)
    reduce["waited"] = np.clip(reduce["last"], reduce.begin, np.maximum(reduce.begin, reduce.end))
    return reduce[reduce.end > reduce.begin]


def _with_last(reduce: pandas.DataFrame) -> pandas.DataFrame:
    """With `last`: when the last worker began the same all-reduce, the nth of so many bytes in that step."""
    nth = reduce.sort_values("begin").groupby(["worker", "step", "bytes"]).cumcount()
    reduce = reduce.assign(nth=nth)
    return reduce.assign(last=reduce.groupby(["step", "bytes", "nth"]).begin.transform("max"))


def _large(reduce: pandas.DataFrame) -> pandas.Series[bool]:
    return reduce.bytes >= LARGE * reduce.groupby(["worker", "step"]).bytes.transform("max")


def _union(spans: pandas.DataFrame, key: list[str], index: Any) -> np.ndarray:
    """The length that a group's spans cover together, for each group of the index; 0 for one without spans."""
    spans = spans[spans.end > spans.begin].sort_values([*key, "begin"])
    before = spans.groupby(key).end.cummax().groupby([spans[each] for each in key]).shift()
    new = spans.end - np.maximum(spans.begin, before.fillna(-np.inf))
    covered = new.clip(lower=0.0).groupby([spans[each] for each in key]).sum()
    return np.asarray(covered.reindex(index, fill_value=0.0), dtype=float)
