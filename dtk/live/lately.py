"""What each worker did in the last seconds, from records and marks while they are written; bounded memory.

A worker says what it did when it has done it: a record stands at the end of its step, a mark at the end of a wait for
data or an all-reduce (`dtk.worker`). So of a step that goes on nothing is known yet, except where the watch has
found out that a silent worker waits for another.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from dtk.records import Record
from dtk.records.events import Event
from dtk.scaling.binned import Bins, Marks, Steps, seconds
from dtk.scaling.parts import PARTS
from dtk.watch.reader import Reader
from dtk.watch.waiting import Line

__all__ = ["BINS", "Lately", "Window"]

BINS = 40  # that a window has
_WIDTH = 0.05  # seconds of the shortest bin
_SHORT, *_SCALES = 1, 5, 25, 100  # of the windows: 2 s, for a run that took no longer, 10, 50 and 200 s
_KEPT = BINS * _SCALES[-1]  # bins of _WIDTH
_LAG = 0.5  # s: what is older is drawn. A loop in a graph may write a mark some time after the step's record
_GIVEN_UP = 3.0  # s after which a step is taken without the workers that have not recorded it
_PENDING, _MARKS = 4096, 1 << 15  # steps, and marks, of a worker that may wait for the others
_STEPS = 5  # that a window holds at least; twice as many before a shorter one takes its place


class Window(NamedTuple):
    """The last seconds, or, of a run that has `ended`, those before its end.

    shares: `(workers, len(PARTS), BINS)`, each part's share of a bin's time; what they leave of 1 is not known.
    last: how much of the last bin belongs to the window, as a run ends in the middle of one.
    """

    seconds: float
    shares: np.ndarray
    ended: bool = False
    last: float = 1.0

    @property
    def known(self) -> bool:
        """Whether there is anything to show."""
        return bool(self.shares.any())

    @property
    def parts(self) -> np.ndarray:
        """Each part's share of the whole window: `(workers, len(PARTS))`."""
        length = np.append(np.ones(BINS - 1), self.last)
        return np.asarray(self.shares @ length / length.sum())


class _Step(NamedTuple):
    step: int
    lo: float
    started: float
    ended: float


class _Worker:
    """What one worker has written and is not taken in yet."""

    def __init__(self) -> None:
        self.steps: deque[_Step] = deque(maxlen=_PENDING)
        self.before: Record | None = None  # the last record of a step that is over
        self.first = True
        self.marks = np.empty((4, 0))  # whether it is an all-reduce, begin, end, bytes
        self.reduces = self.takes = False  # whether there ever was such a mark
        self.since = 0.0  # when marks were left out last

    def take(self, record: Record) -> None:
        before, self.before = self.before, record
        if before is None or record.step == before.step:
            return  # a worker's first step is traced and compiled; a step's replicas begin and end together
        lo = before.ended if record.epoch == before.epoch else record.started  # see `step_times`
        self.steps.append(_Step(record.step, lo, record.started, record.ended))

    def read(self, lines: list[bytes], skipped: bool) -> None:
        rows = json.loads(b"[" + b",".join(lines) + b"]")
        if not rows:
            return
        kinds, begins, ends, sizes = zip(*rows, strict=True)
        self.reduces |= "reduce" in kinds
        self.takes |= "take" in kinds
        if skipped:
            self.since = ends[0]
        new = np.array([[kind == "reduce" for kind in kinds], begins, ends, sizes])
        self.marks = np.concatenate([self.marks, new], axis=1)
        over = self.marks.shape[1] - (_MARKS if self.before is not None else 0)  # without records they lie in no step
        if over > 0:
            self.since = float(self.marks[2, over - 1])
            self.marks = self.marks[:, over:]

    def settled(self, before: float) -> int:
        """How many of its steps' marks are surely all read; before: when the last reading was long enough ago."""
        before = max(before, float(self.marks[2, -1]) if self.marks.size else before)
        return sum(step.ended <= before for step in self.steps)


class Lately:
    """Follows a run's records, and on `refresh` its marks. together: whether its all-reduces are between workers."""

    def __init__(self, reader: Reader, together: bool):
        self.reader, self.together = reader, together and reader.folder.workers > 1
        self.workers = reader.folder.workers
        self._each = [_Worker() for _ in range(self.workers)]
        self._spent = np.zeros((self.workers, len(PARTS), _KEPT))
        self._first: int | None = None  # the number of the oldest bin; bins count from second 0
        self._began = float("inf")  # when the first step did of which anything may be known
        self._latest = 0.0  # of the times of events
        self._ahead = float("inf")  # this process's clock minus the run's, at most
        self._scale = 0  # of _SCALES, the present one
        self._periods: deque[float] = deque(maxlen=3 * _STEPS)  # seconds of the newest steps
        self._ended = False
        self._waits: list[float] = []  # by worker, seconds for which it has been waiting for another now
        reader.follow(self)

    def take(self, member: int, news: Event | Record) -> None:
        """Takes in what the reader has read (`dtk.watch.reader`)."""
        if not isinstance(news, Record):
            self._latest = max(self._latest, news.at)
        elif member < self.workers:
            self._each[member].take(news)

    @property
    def now(self) -> float:
        """Seconds since the call of `dtk.run`, as what was written tells: never too late, and 0 before anything was."""
        written, now = max(self._latest, self._last_end), time.monotonic()
        if written > 0:
            self._ahead = min(self._ahead, now - written)
        return max(0.0, now - self._ahead)

    @property
    def _last_end(self) -> float:
        return max((worker.before.ended for worker in self._each if worker.before is not None), default=0.0)

    def refresh(self, states: Sequence[Line | str] = (), last: bool = False) -> None:
        """Takes in what the workers have written by now. states: of the members; last: whether nothing more comes."""
        now, self._ended = self.now, last
        self._waits = [each.seconds or 0.0 if isinstance(each, Line) and each.waits else 0.0 for each in states]
        for worker, (lines, skipped) in zip(self._each, self.reader.marks(), strict=True):
            worker.read(lines, skipped)
        settled = [worker.settled(now if last else now - _LAG) for worker in self._each]
        ready = self._complete(settled, now) if self.together and not last else settled
        if any(ready):
            self._add(ready)

    def window(self, finished: bool = False) -> Window:
        """The last seconds by now, or, where the run has `finished`, before the end of its last step."""
        scale = _SCALES[self._scale]
        if finished and self._last_end - self._began <= BINS * _SHORT * _WIDTH:
            scale = _SHORT
        wide, now = _WIDTH * scale, self._last_end if finished else self.now
        end = int(now // wide) + 1 if finished else int((now - _LAG) // wide)
        begin = (end - BINS) * scale - (self._first or 0)
        spent = np.zeros((self.workers, len(PARTS), BINS * scale))
        if self._first is not None and begin < _KEPT:
            kept = self._spent[:, :, max(0, begin) : begin + BINS * scale]
            spent[:, :, max(0, -begin) : max(0, -begin) + kept.shape[2]] = kept
        shares = spent.reshape(*spent.shape[:2], BINS, scale).sum(axis=3) / wide
        last = max(now / wide - end + 1, 1e-3) if finished else 1.0
        shares[:, :, -1] /= last
        edges = (end - BINS + np.arange(BINS + 1)) * wide
        for worker, since in enumerate(self._waits[: self.workers]):
            if since > 0:
                waiting = np.clip(edges[1:] - np.maximum(edges[:-1], now - since), 0.0, wide) / wide
                shares[worker, PARTS.index("waiting")] += np.minimum(waiting, 1.0 - shares[worker].sum(axis=0))
        return Window(wide * BINS, np.clip(shares, 0.0, 1.0), self._ended, last)

    def _choose_scale(self, pace: float) -> None:
        """Such that the window holds a few steps of so many seconds."""
        holds = [BINS * _WIDTH * scale / (pace or _WIDTH) for scale in _SCALES]
        while self._scale + 1 < len(_SCALES) and holds[self._scale] < _STEPS:
            self._scale += 1
        while self._scale and holds[self._scale - 1] >= 2 * _STEPS:
            self._scale -= 1

    def _complete(self, settled: list[int], now: float) -> list[int]:
        """How many of each worker's settled steps are settled at all workers, or have waited long enough for that."""
        ends = [worker.steps[count - 1].step if count else 0 for worker, count in zip(self._each, settled, strict=True)]
        common = min(end if end else self._behind(k) for k, end in enumerate(ends))
        found = []
        for worker, count in zip(self._each, settled, strict=True):
            steps = islice(worker.steps, count)
            found.append(sum(step.step <= common or step.ended < now - _GIVEN_UP for step in steps))
        return found

    def _behind(self, k: int) -> int:
        """The step before a worker's oldest that waits."""
        worker = self._each[k]
        return worker.steps[0].step - 1 if worker.steps else worker.before.step if worker.before else 0

    def _add(self, ready: list[int]) -> None:
        steps, marks = [], []
        for k, (worker, count) in enumerate(zip(self._each, ready, strict=True)):
            taken = [worker.steps.popleft() for _ in range(count)]
            over = worker.marks[2] <= (taken[-1].ended if taken else 0.0)
            marks.append(np.insert(worker.marks[:, over], 0, k, axis=0))
            worker.marks = worker.marks[:, ~over]
            steps += [(k, *step) for step in taken if step.lo >= worker.since]
        if not steps:
            return
        columns = Steps(*(np.array(column) for column in zip(*steps, strict=True)))
        at, reduce, begin, end, size = np.concatenate(marks, axis=1)
        each = Marks(at.astype(int), reduce > 0, begin, end, size)
        alone = not self.together
        whole = np.array([worker.takes and (worker.reduces or alone) for worker in self._each])
        bins = self._bins(columns)
        self._began = min(self._began, float(columns.lo.min()))
        at = bins.first - (self._first or 0)
        self._spent[:, :, at : at + bins.number] += seconds(columns, each, bins, whole, self.together)
        self._periods.extend((columns.ended - columns.lo)[-_STEPS:].tolist())
        self._choose_scale(statistics.median(self._periods))

    def _bins(self, steps: Steps) -> Bins:
        """The bins of these steps, for which there is room then: older ones are given up."""
        newest = int(steps.ended.max() // _WIDTH)
        self._first = newest - _KEPT + 1 if self._first is None else self._first
        beyond = newest - (self._first + _KEPT - 1)
        if beyond > 0:
            kept = self._spent[:, :, beyond:]
            self._spent = np.concatenate([kept, np.zeros((*kept.shape[:2], _KEPT - kept.shape[2]))], axis=2)
            self._first += beyond
        first = max(int(steps.lo.min() // _WIDTH), self._first)
        return Bins(first, newest - first + 1, _WIDTH)
