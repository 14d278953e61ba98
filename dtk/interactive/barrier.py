"""Where workers are in the learner's code, who waits for whom, and whether one may begin its next collective.

In a worker: its place, and a gate. A worker that stops before a collective loses nothing: the collective has not begun,
on no worker if all stop at the same one. The kernel sees to that: it holds all of them, compares their counters, and
lets those behind go on to the highest.

In the kernel, by the counters of collectives that each worker has: one that has taken number k of a counter waits there
until all others have taken it. One that is idle, or that itself waits for the first, won't come: that is certain, and
needs no time-out.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from dtk.errors import DtkError, library_of
from dtk.language import _

# Where the learner's own code is: the innermost file and line, and the outermost, in the cell that runs; "" for none.
Place = tuple[str, int, str, int]
NOWHERE: Place = ("", 0, "", 0)

_BUSY = 0.2  # of a core: above, a worker computes and does not wait
_REMEMBERED = 256  # collectives of a cell of which the lines are kept
_reading_frames = threading.Lock()


class Files(dict[str, bool]):
    """By its name, as a frame's code has it, whether a file is the learner's own.

    So are cells and functions that were sent, which are entered here, and scripts and modules that are not installed.
    """

    def __missing__(self, file: str) -> bool:
        script = os.path.isabs(file) and file.endswith(".py")
        self[file] = script and not library_of(file) and "__autograph_generated_file" not in file
        return self[file]

    def place(self, frames: Iterable[tuple[FrameType, int]]) -> Place:
        """The learner's own lines among these, which begin with the innermost."""
        own = [(frame.f_code.co_filename, line) for frame, line in frames if self[frame.f_code.co_filename]]
        return (*own[0], *own[-1]) if own else NOWHERE


def _innermost_frames() -> dict[int, FrameType]:
    """The innermost frame of each thread."""
    with _reading_frames:  # Python below 3.12 hangs if it collects garbage in `_current_frames`
        collects = gc.isenabled()
        gc.disable()
        try:
            return sys._current_frames()
        finally:
            if collects:
                gc.enable()


class Stopped(Exception):
    """Raised before a collective in a thread of TensorFlow's pool, which passes on no KeyboardInterrupt."""


class Gate:
    """Called before and after each collective, by the hook of `dtk.compat.collectives`.

    met: (counter, number, place) of the cell's last collectives. count: of all of them.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._limits: dict[str, int] | None = None  # None: all collectives may begin
        self._raises = False
        self._main = threading.main_thread().ident
        self.working = True  # whether the worker does something for the kernel
        self.held: dict[int, str] = {}  # by thread the counter at which it is held: each replica has its own
        self.files = Files()
        self.begin()

    def begin(self) -> None:
        """Forgets the collectives of the last cell."""
        self.met: deque[tuple[str, int, Place]] = deque(maxlen=_REMEMBERED)
        self.count = 0

    def arrive(self, counter: str, number: int) -> None:
        """Returns when the collective that takes this number of its counter may begin."""
        if not self.working:  # in `pull`, or in a thread that a cell has left behind
            raise DtkError(_("outside of a cell no other worker takes part in an all-reduce: run it in a cell on all"))
        thread = threading.get_ident()
        with self._condition:
            try:
                while self._limits is not None and number >= self._limits.get(counter, 0):
                    self.held[thread] = counter
                    if self._raises:
                        raise KeyboardInterrupt if thread == self._main else Stopped
                    self._condition.wait()
            finally:
                self.held.pop(thread, None)

    def took(self, counter: str, number: int) -> None:
        """Remembers that a collective has this number, and the line that called it."""
        self.count += 1
        self.met.append((counter, number, self.place()))

    def place(self) -> Place:
        """The main thread's innermost and outermost line in the learner's code."""
        main = threading.get_ident() == self._main
        frame = sys._getframe() if main else _innermost_frames().get(self._main or 0)
        return self.files.place(traceback.walk_stack(frame))

    def hold(self, limits: dict[str, int] | None, raises: bool = False) -> None:
        """Lets no collective begin from these numbers on; none at all for a counter that is not named; None: lets all.

        raises: threads that come there are not held but stopped.
        """
        with self._condition:
            self._raises, self._limits = raises, limits
            self._condition.notify_all()


# ---- in the kernel: who waits for whom, and who met in unlike collectives


@dataclass(frozen=True)
class Where:
    """What a worker reported of itself. at, cpu: seconds (monotonic; of its processor time).

    cell: that it is in; None between cells. held: the counters before which the gate holds it. keys: the next number of
    each counter. met: (counter, number, place) of its last collectives in this cell, of which there were `count`.
    within: threads that are in an eager collective.
    """

    cell: int | None
    place: Place
    at: float = 0.0
    held: Sequence[str] = ()
    keys: Mapping[str, int] = field(default_factory=dict)
    met: Sequence[tuple[str, int, Place]] = ()
    count: int = 0
    cpu: float = 0.0
    within: int = 0

    @classmethod
    def of(cls, report: Mapping[str, Any], at: float = 0.0) -> Where:
        """From a worker's message, or from the end of its cell; an empty one is that of a worker between cells."""
        met = [(counter, number, tuple(place)) for counter, number, place in report.get("met", ())]
        place = tuple(report.get("place", NOWHERE))
        facts = {name: report[name] for name in ("held", "keys", "count", "cpu", "within") if name in report}
        return cls(report.get("cell"), place, at, met=met, **facts)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Wait:
    """A worker that waits in a collective, at this place, for others that won't come."""

    worker: int
    place: Place
    awaited: tuple[int, ...]


def stuck(before: Mapping[int, Where], now: Mapping[int, Where], broken: Collection[int] = ()) -> list[Wait]:
    """The workers that wait for what can't come, by two looks at all of them.

    broken: workers whose cell ended because a collective failed there: they have taken its number, and are gone.
    """
    waiting = {
        worker: awaited
        for worker, where in now.items()
        if worker in before and _sits(before[worker], where) and (awaited := _awaited(where, now, broken))
    }
    idle = {worker for worker, where in now.items() if where.cell is None}
    while True:  # who waits only for workers that may still come is not stuck
        freed = [worker for worker, awaited in waiting.items() if not {*awaited} & (idle | {*waiting})]
        if not freed:
            return [Wait(worker, now[worker].place, tuple(awaited)) for worker, awaited in sorted(waiting.items())]
        for worker in freed:
            del waiting[worker]


def _sits(before: Where, now: Where) -> bool:
    """In the same collective as before, without computing."""
    same = now.cell is not None and (now.cell, now.count, now.place) == (before.cell, before.count, before.place)
    quiet = now.cpu - before.cpu < _BUSY * (now.at - before.at)
    return same and quiet and not now.held and bool(now.met) and now.met[-1][2] == now.place


def _awaited(where: Where, now: Mapping[int, Where], broken: Collection[int]) -> list[int]:
    counter, number, _ = where.met[-1]  # which it has taken itself
    return [other for other, theirs in now.items() if other in broken or theirs.keys.get(counter, -1) <= number]


def unlike(now: Mapping[int, Where], line: Callable[[Place], str]) -> list[tuple[int, Place]]:
    """Two workers, each with its place, that met in one collective from lines with another text; [] for none.

    line: the text at a place.
    """
    met: dict[tuple[int, str], list[tuple[int, Place]]] = {}
    for worker, where in sorted(now.items()):  # so that the same cells give the same words
        for counter, number, place in where.met:
            if place[0]:
                met.setdefault((number, counter), []).append((worker, place))
    for _key, (first, *others) in sorted(met.items()):
        for other in others:
            if first[1] != other[1] and line(first[1]) != line(other[1]):
                return [first, other]
    return []
