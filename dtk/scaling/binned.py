"""The parts of steps (`dtk.scaling.parts`) by time: how many seconds of each lie in each of many short spans of time.

For a view that is drawn while a run goes, of which every bit counts: arrays in, arrays out, no tables. What it adds up
to is what `step_parts` says of the same steps, as far as it is known; what is not is left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dtk.scaling.parts import LARGE, PARTS

__all__ = ["Bins", "Marks", "Steps", "seconds"]

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
    """Waits for data and all-reduces, an array for each field, in any order; see `dtk.worker.marks`."""

    worker: np.ndarray
    reduce: np.ndarray  # whether it is an all-reduce
    begin: np.ndarray
    end: np.ndarray
    bytes: np.ndarray


class Bins(NamedTuple):
    """`number` spans of time of `width` seconds, the first from `first * width` on."""

    first: int
    number: int
    width: float


def seconds(steps: Steps, marks: Marks, bins: Bins, whole: np.ndarray, together: bool) -> np.ndarray:
    """How long each worker was at each part in each bin: `(workers, len(PARTS), bins.number)`, in seconds.

    whole: for each worker whether its marks show all waits for data and all all-reduces. Where they don't, what is left
    of a step may be any of these: it is not called computing. together: whether the workers' all-reduces are with each
    other. Then a step of which one is missing at some worker is left out, as nothing says who waited there.
    """
    row, marks = _of_steps(steps, marks)
    marks, good, waited = _reductions(row, marks, steps, len(whole) if together else 0)
    lag = steps.worker * _APART
    lo, started, ended = steps.lo + lag, steps.started + lag, steps.ended + lag
    asked, had = _taken(row, marks, len(steps.worker))
    start = np.clip(np.where(np.isfinite(asked), asked, started), lo, ended)
    had = np.maximum(np.minimum(had, ended), start)
    edges = (bins.first + np.arange(bins.number + 1)) * bins.width
    edges = np.add.outer(np.arange(len(whole)) * _APART, edges)
    kept = marks.reduce & good[row]
    row, begin, end, waited = row[kept], marks.begin[kept], marks.end[kept], waited[kept]
    in_input = _covered(np.maximum(begin, start[row]), np.minimum(end, had[row]), edges)
    lo, start, had, ended = lo[good], start[good], had[good], ended[good]
    found = {"waiting": _covered(begin, waited, edges)}
    found["all_reduce"] = _covered(begin, end, edges) - found["waiting"]
    found["input"] = _covered(start, had, edges) - in_input
    found["python"] = _covered(lo, start, edges)
    found["compute"] = (_covered(lo, ended, edges) - sum(found.values())) * whole[:, None]
    return np.maximum(0.0, np.stack([found[name] for name in PARTS], axis=1))


def _of_steps(steps: Steps, marks: Marks) -> tuple[np.ndarray, Marks]:
    """The step that each mark lies in, as a row of `steps`, and the marks that lie in one, from its beginning on."""
    row = np.searchsorted(steps.ended + steps.worker * _APART, marks.end + marks.worker * _APART)
    inside = row < len(steps.worker)
    row = np.minimum(row, len(steps.worker) - 1)
    inside &= (steps.worker[row] == marks.worker) & (marks.end > steps.lo[row])
    row, marks = row[inside], Marks(*(column[inside] for column in marks))
    return row, marks._replace(begin=np.maximum(marks.begin, steps.lo[row]))  # NaN stays NaN


def _reductions(row: np.ndarray, marks: Marks, steps: Steps, workers: int) -> tuple[Marks, np.ndarray, np.ndarray]:
    """The marks, all-reduces from where they are exposed on; which steps are good; until when each mark waited.

    workers: how many take part in each all-reduce; a step in which one has fewer is not good. Times from here on are
    `_APART`.
    """
    lag = marks.worker * _APART
    good, last = np.ones(len(steps.worker), dtype=bool), np.full(len(row), -np.inf)
    reduce = marks.reduce
    last[reduce], count = _last(row[reduce], steps, marks.begin[reduce], marks.bytes[reduce])
    good[row[reduce][count < workers]] = False
    begin, end = marks.begin + lag, marks.end + lag
    begin[reduce] = _exposed(row[reduce], begin[reduce], marks.bytes[reduce], len(good))
    waited = np.clip(last + lag, begin, np.maximum(begin, end))
    return marks._replace(begin=begin, end=end), good, waited


def _taken(row: np.ndarray, marks: Marks, count: int) -> tuple[np.ndarray, np.ndarray]:
    """When each of `count` steps asked for data first, infinite where that is not known, and had it last."""
    asked, had = np.full(count, np.inf), np.full(count, -np.inf)
    np.fmin.at(asked, row[~marks.reduce], marks.begin[~marks.reduce])
    np.maximum.at(had, row[~marks.reduce], marks.end[~marks.reduce])
    return asked, had


def _last(row: np.ndarray, steps: Steps, begin: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """When the last worker began each all-reduce, the nth of so many bytes in that step; how many workers have it."""
    order = np.lexsort((begin, size, row))
    nth = np.empty(len(row), dtype=int)
    nth[order] = _places(_changes(row[order], size[order]))
    step = steps.step[row]
    order = np.lexsort((nth, size, step))
    new = _changes(step[order], size[order], nth[order])
    starts, group = np.flatnonzero(new), np.cumsum(new) - 1
    last, count = np.empty(len(row)), np.zeros(len(row), dtype=int)
    if len(row):
        last[order] = np.maximum.reduceat(begin[order], starts)[group]
        count[order] = np.diff(np.append(starts, len(row)))[group]
    return last, count


def _changes(*columns: np.ndarray) -> np.ndarray:
    """True where a row differs from the one before, and for the first."""
    new = np.ones(len(columns[0]), dtype=bool)
    new[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return new


def _places(new: np.ndarray) -> np.ndarray:
    """Each row's place in its group, from 0. new: where a group begins."""
    at = np.arange(len(new))
    return at - np.maximum.accumulate(np.where(new, at, 0))


def _exposed(row: np.ndarray, begin: np.ndarray, size: np.ndarray, count: int) -> np.ndarray:
    """From where on nothing is computed beside each all-reduce: see `dtk.scaling.parts`."""
    most, there = np.zeros(count), np.full(count, -np.inf)
    np.maximum.at(most, row, size)
    large = size >= LARGE * most[row]
    np.maximum.at(there, row[large], begin[large])
    return np.where(large, np.maximum(begin, there[row]), begin)


def _covered(begin: np.ndarray, end: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """How much of each span between two edges the given spans cover together: `(workers, bins)`."""
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
