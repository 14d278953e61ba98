"""Where a worker is in the learner's code, and whether it may begin its next collective.

A worker that stops before a collective loses nothing: the collective has not begun, on no worker if all stop at the
same one. The kernel sees to that: it holds all of them, compares their counters, and lets those behind go on to the
highest.
"""

from __future__ import annotations

import gc
import os
import re
import sys
import sysconfig
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from dtk.interactive.waits import Place
from dtk.language import N_, _

__all__ = ["Files", "Frame", "Gate", "OutsideCell", "Stopped", "frames"]

_REMEMBERED = 256  # collectives of a cell of which the lines are kept
_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]|__autograph_generated_file")
_NOT_OWN = (*(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")), f"{Path(__file__).parents[1]}/")
_reading_frames = threading.Lock()


class Files:
    """Which files are the learner's own: cells, functions that were sent, scripts and modules that are not installed.

    `file in files`, by the name that a frame's code has. known: the answers so far.
    """

    def __init__(self) -> None:
        self.known: dict[str, bool] = {}

    def add(self, file: str) -> None:
        self.known[file] = True

    def __contains__(self, file: str) -> bool:
        found = self.known.get(file)
        if found is None:
            script = os.path.isabs(file) and file.endswith(".py")
            found = script and not _INSTALLED.search(file) and not file.startswith(_NOT_OWN)
            self.known[file] = found
        return found


@dataclass(frozen=True)
class Frame:
    """One of the learner's frames. within: "step()", "train.py" at the level of a script, "" at that of a cell.

    names: local to it. replica: in whose thread; None for the main thread.
    """

    within: str
    names: Mapping[str, Any]
    replica: int | None = None


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


def frames(files: Files) -> list[Frame]:
    """The frames in the learner's files, innermost first: those of replicas' own threads, then the main thread's."""
    now = _innermost_frames()
    replicas = {thread.ident: getattr(thread, "replica_id", None) for thread in threading.enumerate()}
    own = sorted((replica, ident) for ident, replica in replicas.items() if replica is not None and ident in now)
    found = []
    for replica, ident in [*own, (None, threading.main_thread().ident)]:
        frame = now.get(ident or 0)
        while frame is not None:
            file, name = frame.f_code.co_filename, frame.f_code.co_name
            if file in files:
                script = "" if file.startswith("<") else os.path.basename(file)
                within = script if name == "<module>" else f"{name}()"
                found.append(Frame(within, frame.f_locals, replica))
            frame = frame.f_back
    return found


class Stopped(Exception):
    """Raised before a collective in a thread of TensorFlow's pool, which passes on no KeyboardInterrupt."""


class OutsideCell(RuntimeError):
    """Raised before a collective that begins while the worker is in no cell."""


class Gate:
    """Called before and after each collective, by the hook of `dtk.compat.collectives`.

    met: (counter, number, place) of the cell's last collectives. count: of all of them.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._closed = False  # whether anything is to be checked at all
        self._raises = False
        self._limits: dict[str, int] = {}
        self._pid = os.getpid()
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
        if os.getpid() != self._pid:
            words = N_(
                "a process that a cell has forked can't take part in an all-reduce: the other workers "
                "know this worker alone; call the strategy in the cell itself"
            )
            raise RuntimeError(_(words))
        if not self.working:
            words = N_(
                "a thread that a cell has left behind can't take part in an all-reduce: in no cell, the "
                "other workers don't wait for it; join the thread in its cell"
            )
            raise OutsideCell(_(words))
        if self._closed:
            self._wait(counter, number)

    def _wait(self, counter: str, number: int) -> None:
        thread = threading.get_ident()
        with self._condition:
            try:
                while self._closed and number >= self._limits.get(counter, 0):
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
        inner = outer = None
        known = self.files.known
        while frame is not None:
            own = known.get(frame.f_code.co_filename)
            if own or (own is None and frame.f_code.co_filename in self.files):
                outer = (frame.f_code.co_filename, frame.f_lineno)
                inner = inner or outer
            frame = frame.f_back
        return ("", 0, "", 0) if inner is None or outer is None else (*inner, *outer)

    def hold(self, limits: dict[str, int], raises: bool = False) -> None:
        """Lets no collective begin from these numbers on; none at all for a counter that is not named.

        raises: threads that come there are not held but stopped.
        """
        with self._condition:
            self._closed, self._raises, self._limits = True, raises, dict(limits)
            self._condition.notify_all()

    def open(self) -> None:
        """Lets all collectives begin."""
        with self._condition:
            self._closed = self._raises = False
            self._condition.notify_all()
