"""Who sets the pace: who waits for whom within the steps, and which steps show it. From `timing.step_times`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pandas

__all__ = ["Pace", "pace", "typical_steps", "within_epochs"]

_ALIKE = 0.1  # of the median: stretches of steps that differ by less are equally typical


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

    >>> from dtk.scaling.timing import step_times
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

    Of all stretches of `count` steps (or as many as an epoch has), the one that lasts as long as their median does; of
    several such the one nearest to the middle. The first step, in which tracing hides the rest, is not among them.

    Args:
        times: from `timing.step_times`.
        count: how many at most.
    """
    later = times[times.step > times.groupby("worker").step.transform("min")]
    how = {
        "begin": ("started", "min"),
        "end": ("ended", "max"),
        "epoch": ("epoch", "first"),
        "seen": ("worker", "nunique"),
    }
    steps = later.groupby("step").agg(**how)
    steps = steps[steps.seen == times.worker.nunique()].reset_index()
    found = _stretches(steps, count, "epoch") or _stretches(steps, count, None)
    if not found:
        return []
    firsts, lasts = np.array(found).T
    long = steps.end.to_numpy()[lasts] - steps.begin.to_numpy()[firsts]
    middle = np.abs(firsts + lasts - (len(steps) - 1))
    off = np.abs(long / np.median(long) - 1) if np.median(long) > 0 else np.zeros(len(long))
    first, last = found[int(np.lexsort((middle, np.maximum(off, _ALIKE)))[0])]
    return [int(step) for step in steps.step[first : last + 1]]


def _stretches(steps: pandas.DataFrame, count: int, within: str | None) -> list[tuple[int, int]]:
    """First and last rows of all stretches of equal length, at most `count`; [] where none has three steps."""
    cut = steps.step.diff().ne(1)
    if within is not None:
        cut |= steps[within].ne(steps[within].shift())
    rows = [list(part.index) for _, part in steps.groupby(cut.cumsum())]
    size = min(count, max(map(len, rows), default=0))
    if size < 3:
        return []
    return [(part[k], part[k + size - 1]) for part in rows for k in range(len(part) - size + 1)]
