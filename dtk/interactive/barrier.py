"""Before each collective: where the worker is, who may go on, and who is to stop.

A worker that stops here loses nothing: the collective has not begun, on no worker if all stop at the same one. The
kernel sees to that: it holds all of them, looks at their counters, and lets those behind go on to the highest.
"""

from __future__ import annotations

import os
import sys
import threading
import zlib
from collections import deque
from types import FrameType
from typing import Any

from dtk.interactive import frames as stands
from dtk.interactive.own_files import Files
from dtk.language import _

__all__ = ["Gate", "Stopped"]

_REMEMBERED = 256  # collectives of a cell of which the lines are kept

# Where the learner's own code is: the innermost file and line, and the outermost, in the cell that runs; "" for none.
Place = tuple[str, int, str, int]


class Stopped(Exception):
    """Raised in a thread of TensorFlow's pool, which passes on no KeyboardInterrupt; the cell's end translates it.

    And in a thread that only looks.
    """


class Gate:
    """What the hook of `dtk.compat.collectives` calls.

    met: (counter, number, place) of the cell's last collectives. sum: a checksum of all of them.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._closed = False  # whether anything is to be checked at all
        self._raises = False
        self._limits: dict[str, int] = {}
        self._pid = os.getpid()
        self._main = threading.main_thread().ident
        self.working = True  # whether the worker does something for the kernel
        self.lookers: set[int] = set()  # threads that only look, and take part in nothing
        self.held: dict[int, str] = {}  # the counters at which threads are held: each of several replicas has its own
        self.files = Files()
        self._checksums: dict[str, int] = {}
        self.begin()

    def begin(self) -> None:
        """A cell begins."""
        self.met: deque[tuple[str, int, Place]] = deque(maxlen=_REMEMBERED)
        self.sum = self.count = 0

    def arrive(self, counter: str, number: int) -> None:
        """A collective is about to get this number of its counter: returns when it may."""
        if os.getpid() != self._pid:
            raise RuntimeError(
                _(
                    "a process that a cell has forked can't take part in an all-reduce: the other workers "
                    "know this worker alone; call the strategy in the cell itself"
                )
            )
        if not self.working:
            raise RuntimeError(
                _(
                    "a thread that a cell has left behind can't take part in an all-reduce: in no cell, the "
                    "other workers don't wait for it; join the thread in its cell"
                )
            )
        if threading.get_ident() in self.lookers:
            raise Stopped
        if self._closed:
            self._wait(counter, number)

    def _wait(self, counter: str, number: int) -> None:
        with self._condition:
            try:
                while self._closed and number >= self._limits.get(counter, 0):
                    self.held[threading.get_ident()] = counter
                    if self._raises:
                        raise KeyboardInterrupt if threading.get_ident() == self._main else Stopped
                    self._condition.wait()
            finally:
                self.held.pop(threading.get_ident(), None)

    def took(self, counter: str, number: int) -> None:
        """A collective has this number now."""
        where = self.place()
        self.count += 1
        of_line = self._checksum(where[0]) + 7 * where[1] + 13 * self._checksum(where[2]) + 11 * where[3]
        self.sum = (1000003 * self.sum + self._checksum(counter) + 31 * number + of_line) & 0xFFFFFFFF
        self.met.append((counter, number, where))

    def _checksum(self, text: str) -> int:
        """The same in each process, unlike `hash`."""
        if text not in self._checksums:
            self._checksums[text] = zlib.crc32(text.encode())
        return self._checksums[text]

    def place(self) -> Place:
        """Where the main thread is in the learner's code."""
        frame = self._frame()
        inner = outer = None
        known = self.files.known
        while frame is not None:
            own = known.get(frame.f_code.co_filename)
            if own or (own is None and frame.f_code.co_filename in self.files):
                outer = (frame.f_code.co_filename, frame.f_lineno)
                inner = inner or outer
            frame = frame.f_back
        return ("", 0, "", 0) if inner is None or outer is None else (*inner, *outer)

    def _frame(self) -> FrameType | None:
        """The main thread's innermost."""
        if threading.get_ident() == self._main:
            return sys._getframe()
        return stands.current().get(self._main or 0)

    def hold(self, limits: dict[str, int], raises: bool = False) -> None:
        """From now on no collective begins from these numbers on (of a counter that is not named: none at all).

        raises: whoever comes there is not held but stopped.
        """
        with self._condition:
            self._closed, self._raises, self._limits = True, raises, dict(limits)
            self._condition.notify_all()

    def open(self) -> None:
        """Everyone goes on."""
        with self._condition:
            self._closed = self._raises = False
            self._condition.notify_all()

    def report(self) -> dict[str, Any]:
        """The last collectives, and a checksum of all, to be compared with the other workers'."""
        return {"met": list(self.met), "sum": self.sum, "count": self.count}
