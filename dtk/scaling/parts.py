"""Where a step's time goes: Python and callbacks, input, computation, all-reduce, waiting for the slowest worker.

From the records (when a step began and ended) and the marks (`dtk.compat.steps.marks`: when its data was there, when
each all-reduce began and ended), all on one clock. The parts divide a step's time without gap or overlap, so they add
up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dtk.scaling.timing import step_times

if TYPE_CHECKING:
    import pandas

    from dtk.records import RunFolder
    from dtk.records.tables import Recorded

__all__ = ["PARTS", "step_messages", "step_parts", "step_reductions"]

PARTS = ("python", "input", "compute", "all_reduce", "waiting")
_LARGE = 0.05  # of a step's largest all-reduce: a pack of gradients; below, a metric or a check for the end of the data
# Added to a worker's times, once for each worker before it, so that one sweep over all times keeps workers apart.
_APART = 1e7


class Steps(NamedTuple):
    """Steps, an array for each field, sorted by worker, then by time. lo: when the step before ended."""

    worker: np.ndarray
    step: np.ndarray
    lo: np.ndarray
    started: np.ndarray
    ended: np.ndarray


class Marks(NamedTuple):
    """Waits for data and all-reduces, an array for each field, in any order; see `dtk.compat.steps.marks`."""

    worker: np.ndarray
    reduce: np.ndarray  # whether it is an all-reduce
    begin: np.ndarray
    end: np.ndarray
    bytes: np.ndarray


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
    table, steps, marks = _recorded(run.folder, records)
    edges = np.stack([steps.lo, steps.ended], axis=1) + _APART * steps.worker[:, None]
    found = _parts(steps, marks, edges)
    return table[["worker", "step", "period"]].assign(**{name: found[name][:, 0] for name in PARTS})


def step_reductions(run: Recorded) -> pandas.DataFrame:
    """The all-reduces of gradients in each step.

    Args:
        run: from `dtk.run`, or the error of a run that failed.

    Returns:
        One row for each all-reduce of gradients (or of a pack of them) in a worker's step, without the first step.
        Columns: worker, step, period (s, as in `step_parts`), bytes, and in seconds since the step before ended: begin
        (this worker has its gradients), waited (the last worker has them, too), end. Empty without marks (DTK_MARKS=0).
    """
    found = _reductions(run.folder)
    found = found[found.gradients]
    return found[["worker", "step", "period", "bytes", "begin", "waited", "end"]].reset_index(drop=True)


def step_messages(run: Recorded) -> pandas.DataFrame:
    """All all-reduces in each step: those of gradients, and small ones, of metrics or of the question who has data.

    Args:
        run: from `dtk.run`, or the error of a run that failed.

    Returns:
        One row for each all-reduce in a worker's step, without the first step. Columns: worker, step, bytes, gradients
        (whether it is one of gradients: the largest of its step, and packs like it). Empty without marks (DTK_MARKS=0).
    """
    return _reductions(run.folder)[["worker", "step", "bytes", "gradients"]]


def _recorded(folder: RunFolder, records: pandas.DataFrame | None = None) -> tuple[pandas.DataFrame, Steps, Marks]:
    """The times of the steps, without each worker's first; the same as arrays; the marks."""
    times = step_times(folder.own_records if records is None else records)
    later = times.step > times.groupby("worker").step.transform("min")
    table = times[later].sort_values(["worker", "ended"], ignore_index=True)
    columns = (table.worker, table.step, table.ended - table.period, table.started, table.ended)
    rows = [(worker.worker, kind == "reduce", *rest) for worker in folder.each for kind, *rest in worker.marks]
    marks = np.array(rows, float).reshape(-1, 5).T
    return table, Steps(*(each.to_numpy() for each in columns)), Marks(marks[0].astype(int), marks[1] > 0, *marks[2:])


def _reductions(folder: RunFolder) -> pandas.DataFrame:
    """All all-reduces in the steps, sorted by when they began; times in seconds since the step before ended."""
    import pandas as pd

    table, steps, marks = _recorded(folder)
    row, marks = _of_steps(steps, marks)
    kept = np.flatnonzero(marks.reduce)[np.argsort(marks.begin[marks.reduce], kind="stable")]
    row, begin, end, size = row[kept], marks.begin[kept], marks.end[kept], marks.bytes[kept]
    last = _last(row, steps, begin, size)
    found = {
        "worker": steps.worker[row],
        "step": steps.step[row],
        "period": table.period.to_numpy()[row],
        "bytes": size,
        "begin": begin - steps.lo[row],
        "waited": np.clip(last, begin, np.maximum(begin, end)) - steps.lo[row],
        "end": end - steps.lo[row],
        "gradients": _large(row, size, len(steps.worker)),
    }
    return pd.DataFrame(found)


def _parts(steps: Steps, marks: Marks, edges: np.ndarray) -> dict[str, np.ndarray]:
    """The seconds of each part between each two edges, `(rows, edges - 1)`; edges are `_APART` by worker."""
    row, marks = _of_steps(steps, marks)
    marks, waited = _exposed(row, marks, steps)
    lag = steps.worker * _APART
    lo, started, ended = steps.lo + lag, steps.started + lag, steps.ended + lag
    asked, had = _taken(row, marks, len(steps.worker))
    start = np.clip(np.where(np.isfinite(asked), asked, started), lo, ended)
    had = np.maximum(np.minimum(had, ended), start)
    kept = marks.reduce
    row, begin, end, waited = row[kept], marks.begin[kept], marks.end[kept], waited[kept]
    in_input = _covered(np.maximum(begin, start[row]), np.minimum(end, had[row]), edges)
    found = {"waiting": _covered(begin, waited, edges)}
    found["all_reduce"] = _covered(begin, end, edges) - found["waiting"]
    found["input"] = _covered(start, had, edges) - in_input
    found["python"] = _covered(lo, start, edges)
    found["compute"] = _covered(lo, ended, edges) - sum(found.values())
    return found


def _of_steps(steps: Steps, marks: Marks) -> tuple[np.ndarray, Marks]:
    """The step that each mark lies in, as a row of `steps`, and the marks that lie in one, from its beginning on."""
    row = np.searchsorted(steps.ended + steps.worker * _APART, marks.end + marks.worker * _APART)
    inside = row < len(steps.worker)
    row, marks = row[inside], Marks(*(column[inside] for column in marks))
    inside = (steps.worker[row] == marks.worker) & (marks.end > steps.lo[row])
    row, marks = row[inside], Marks(*(column[inside] for column in marks))
    return row, marks._replace(begin=np.maximum(marks.begin, steps.lo[row]))  # NaN stays NaN


def _exposed(row: np.ndarray, marks: Marks, steps: Steps) -> tuple[Marks, np.ndarray]:
    """The marks, all-reduces from where they are exposed on; until when each mark waited.

    Packs of gradients are reduced while earlier layers' gradients are computed: they are exposed from the last pack on.
    Times from here on are `_APART`.
    """
    lag, reduce = marks.worker * _APART, marks.reduce
    last = np.full(len(row), -np.inf)
    last[reduce] = _last(row[reduce], steps, marks.begin[reduce], marks.bytes[reduce])
    begin, end = marks.begin + lag, marks.end + lag
    large, there = np.zeros(len(row), dtype=bool), np.full(len(steps.worker), -np.inf)
    large[reduce] = _large(row[reduce], marks.bytes[reduce], len(steps.worker))
    np.maximum.at(there, row[large], begin[large])
    begin[large] = np.maximum(begin, there[row])[large]
    waited = np.clip(last + lag, begin, np.maximum(begin, end))
    return marks._replace(begin=begin, end=end), waited


def _taken(row: np.ndarray, marks: Marks, count: int) -> tuple[np.ndarray, np.ndarray]:
    """When each of `count` steps asked for data first, infinite where that is not known, and had it last."""
    asked, had = np.full(count, np.inf), np.full(count, -np.inf)
    np.fmin.at(asked, row[~marks.reduce], marks.begin[~marks.reduce])
    np.maximum.at(had, row[~marks.reduce], marks.end[~marks.reduce])
    return asked, had


def _large(row: np.ndarray, size: np.ndarray, count: int) -> np.ndarray:
    """Whether each all-reduce is one of gradients: the largest of its step, and packs like it."""
    most = np.zeros(count)
    np.maximum.at(most, row, size)
    return np.asarray(size >= _LARGE * most[row])


def _last(row: np.ndarray, steps: Steps, begin: np.ndarray, size: np.ndarray) -> np.ndarray:
    """When the last worker began each all-reduce, the nth of so many bytes in that step."""
    order = np.lexsort((begin, size, row))
    nth = np.empty(len(row), dtype=int)
    nth[order] = _places(_changes(row[order], size[order]))
    step = steps.step[row]
    order = np.lexsort((nth, size, step))
    new = _changes(step[order], size[order], nth[order])
    starts, group = np.flatnonzero(new), np.cumsum(new) - 1
    last = np.empty(len(row))
    if len(row):
        last[order] = np.maximum.reduceat(begin[order], starts)[group]
    return last


def _changes(*columns: np.ndarray) -> np.ndarray:
    """True where a row differs from the one before, and for the first."""
    new = np.ones(len(columns[0]), dtype=bool)
    new[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return new


def _places(new: np.ndarray) -> np.ndarray:
    """Each row's place in its group, from 0. new: where a group begins."""
    at = np.arange(len(new))
    return at - np.maximum.accumulate(np.where(new, at, 0))


def _covered(begin: np.ndarray, end: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """How much of each span between two edges the given spans cover together: `(rows, edges - 1)`."""
    kept = end > begin
    begin, end = begin[kept], end[kept]
    if not len(begin):
        return np.zeros((len(edges), edges.shape[1] - 1))
    order = np.argsort(begin)
    begin, end = begin[order], np.maximum.accumulate(end[order])
    begin[1:] = np.maximum(begin[1:], end[:-1])
    length = np.cumsum(end - begin)
    known = np.stack([begin, end], axis=1).ravel()
    total = np.stack([length - (end - begin), length], axis=1).ravel()
    return np.diff(np.interp(edges, known, total), axis=1)
