"""What the workers did in the last seconds: each part's share of the time, bin by bin.

A worker writes what it did when it has done it: a record at the end of its step, a mark at the end of a wait for data
or an all-reduce (`dtk.worker`). So the activity of the step in progress is not known yet, except where the watch has
found out that a silent worker waits for another.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dtk.records import Record
from dtk.records.events import Event
from dtk.scaling.parts import PARTS, Bins, Marks, Steps, seconds
from dtk.watch.reader import Reader
from dtk.watch.waiting import Line

__all__ = ["BINS", "RecentActivity", "Window"]

BINS = 40  # that a window has
_SHORT, *_SECONDS = 2.0, 10.0, 50.0, 200.0  # of a window; 2 s for a run that took no longer
_LAG = 0.5  # s: what is older is drawn. A loop in a graph may write a mark some time after the step's record
_STEPS, _MARKS = 4096, 1 << 15  # of each worker that are kept
_HOLDS = 5  # steps that a window holds at least


class Window(NamedTuple):
    """The last seconds, or, of a run that has `ended`, those before its end.

    shares: `(workers, len(PARTS), BINS)`, each part's share of a bin's time; what they leave of 1 is not known.
    """

    seconds: float
    shares: np.ndarray
    ended: bool = False

    @property
    def known(self) -> bool:
        """Whether there is anything to show."""
        return bool(self.shares.any())

    @property
    def parts(self) -> np.ndarray:
        """Each part's share of the whole window: `(workers, len(PARTS))`."""
        return np.asarray(self.shares.mean(axis=2))


class RecentActivity:
    """Follows a run's records, and on `refresh` its marks. together: whether its all-reduces are between workers."""

    def __init__(self, reader: Reader, together: bool):
        self.reader, self.workers = reader, reader.folder.workers
        self.together = together and self.workers > 1
        self._last: list[Record | None] = [None] * self.workers
        self._new: list[list[tuple[float, ...]]] = [[] for _ in range(self.workers)]  # steps since the last `refresh`
        self._steps = [np.empty((4, 0))] * self.workers  # number, begin, when its function was called, end
        self._marks = [np.empty((4, 0))] * self.workers  # whether it is an all-reduce, begin, end, bytes
        self._since = [0.0] * self.workers  # when marks were left out last
        self._latest = 0.0  # of the times that were written
        self._ahead = float("inf")  # this process's clock minus the run's, at most
        self._ended = False
        self._waits: list[float] = []  # by worker, seconds for which it has been waiting for another now
        reader.follow(self)

    def take(self, member: int, news: Event | Record) -> None:
        """Take in what the reader has read (`dtk.watch.reader`)."""
        self._latest = max(self._latest, news.ended if isinstance(news, Record) else news.at)
        if not isinstance(news, Record) or member >= self.workers:
            return
        before, self._last[member] = self._last[member], news
        # A worker's first step is traced and compiled; a step's replicas begin and end together.
        if before is not None and news.step != before.step:
            begun = before.ended if news.epoch == before.epoch else news.started  # see `step_times`
            self._new[member].append((news.step, begun, news.started, news.ended))

    @property
    def now(self) -> float:
        """Seconds since the call of `dtk.run`, as what was written tells: never too late, and 0 before anything was."""
        return max(0.0, time.monotonic() - self._ahead)

    def refresh(self, states: Sequence[Line | str] = (), last: bool = False) -> None:
        """Take in the marks written by now. states: of the members; last: whether nothing more comes."""
        self._ended = last
        if self._latest > 0:
            self._ahead = min(self._ahead, time.monotonic() - self._latest)
        self._waits = [each.seconds or 0.0 if isinstance(each, Line) and each.waits else 0.0 for each in states]
        for k, (lines, skipped) in enumerate(self.reader.marks()):
            self._steps[k] = _joined(self._steps[k], self._new[k])[:, -_STEPS:]
            self._new[k] = []
            rows = json.loads(b"[" + b",".join(lines) + b"]")
            marks = _joined(self._marks[k], [(kind == "reduce", *times) for kind, *times in rows])
            if skipped and rows:
                self._since[k] = rows[0][2]
            elif marks.shape[1] > _MARKS:
                self._since[k] = marks[2, -_MARKS]
            self._marks[k] = marks[:, -_MARKS:]

    def window(self, finished: bool = False) -> Window:
        """Return the last seconds by now, or, where the run has `finished`, those before the end of its last step."""
        length, end = self._length(), max((each[3, -1] for each in self._steps if each.size), default=0.0)
        if finished and end - min((each[1, 0] for each in self._steps if each.size), default=end) <= _SHORT:
            length = _SHORT
        wide, now = length / BINS, self.now
        end = end if finished else (now - _LAG) // wide * wide
        edges = end - length + np.arange(BINS + 1) * wide
        shares = self._seconds(edges[0], now if self._ended else now - _LAG, wide) / wide
        for worker, since in enumerate(self._waits[: self.workers]):
            if since > 0:
                waiting = np.clip(edges[1:] - np.maximum(edges[:-1], now - since), 0.0, wide) / wide
                shares[worker, PARTS.index("waiting")] += np.minimum(waiting, 1.0 - shares[worker].sum(axis=0))
        return Window(length, np.clip(shares, 0.0, 1.0), self._ended)

    def _length(self) -> float:
        """Seconds of the shortest window that holds a few steps."""
        newest = np.concatenate([each[3, -3 * _HOLDS :] - each[1, -3 * _HOLDS :] for each in self._steps])
        holding = _HOLDS * np.median(newest) if len(newest) else 0.0
        return next((length for length in _SECONDS if length >= holding), _SECONDS[-1])

    def _seconds(self, begin: float, until: float, wide: float) -> np.ndarray:
        """Seconds of each part in each bin, from the steps that had ended at `until`; see `dtk.scaling.parts`."""
        kept = [
            (begin < each[3]) & (each[3] <= until) & (each[1] >= since)
            for each, since in zip(self._steps, self._since, strict=True)
        ]
        steps = [each[:, some] for each, some in zip(self._steps, kept, strict=True)]
        marks = [each[:, each[2] > begin] for each in self._marks]
        by, at = (np.repeat(np.arange(self.workers), [each.shape[1] for each in some]) for some in (steps, marks))
        if not len(by):
            return np.zeros((self.workers, len(PARTS), BINS))
        # Whether each worker marks its waits for data, and its all-reduces where they are with others.
        whole = [(m[0] == 0).any() and (not self.together or (m[0] > 0).any()) for m in self._marks]
        number, begun, started, ended = np.concatenate(steps, axis=1)
        reduce, first, last, size = np.concatenate(marks, axis=1)
        return seconds(
            Steps(by, number, begun - begin, started - begin, ended - begin),
            Marks(at, reduce > 0, first - begin, last - begin, size),
            Bins(0, BINS, wide),
            np.array(whole, bool),
            self.together,
        )


def _joined(kept: np.ndarray, rows: Sequence[Sequence[float]]) -> np.ndarray:
    return np.concatenate([kept, np.array(rows, float).T], axis=1) if rows else kept
