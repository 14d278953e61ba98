"""A run while it goes: a dashboard in a notebook, labeled lines elsewhere, nothing in CI.

Runs in the kernel. `show` chooses; `follow` keeps what the workers write as numbers; `dashboard` shows it in a
notebook, and `text` elsewhere.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Sequence
from typing import Any

from dtk.environment import live_mode
from dtk.language import _, ngettext
from dtk.watch.reader import Reader
from dtk.watch.waiting import Line


class Live:
    """What `dtk.run` calls while it waits, from the thread that it was called in. This one shows nothing."""

    def update(self, states: Sequence[Line]) -> None:
        """Take each member's state."""

    def close(self, outcome: str, finished: bool = False) -> None:
        """Draw for the last time, with how the run ended ("finished in 3.2 s", "worker 1 raised ...").

        finished: whether it ended without an error.
        """


class Counting(Live):
    """Shows how far a run is that does its work beside others, in a line that vanishes at its end.

    A file or a pipe, from which nothing vanishes, gets no such line.

    title: what it does; steps: how many it will make.
    """

    SOONEST, EVERY = 2.0, 0.5  # seconds: what is over by then needs no line, and how often the line is renewed

    def __init__(self, reader: Reader, title: str, steps: int):
        self._reader, self._title, self._steps = reader, title, steps
        self._next, self._shown = time.monotonic() + self.SOONEST, ""
        self._handle: Any = None  # of the line in a notebook, whose stderr keeps all

    def update(self, states: Sequence[Line]) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self.EVERY
        words = _("step {step} of {total}", step=self._reader.members[0].step, total=self._steps)
        self._write(_("{name}: {words}", name=self._title, words=words))

    def close(self, outcome: str, finished: bool = False) -> None:
        self._write("")

    def _write(self, words: str) -> None:
        if words == self._shown:
            return
        if live_mode() == "widgets":
            from IPython.display import display

            put = self._handle.update if self._handle else functools.partial(display, display_id=True)
            self._handle = put({"text/plain": words}, raw=True) or self._handle
        elif sys.stderr.isatty():
            print("\r" + words.ljust(len(self._shown)), end="" if words else "\r", file=sys.stderr, flush=True)
        self._shown = words


def show(workers: int, replicas: int, mode: str, reader: Reader, note: str = "", program: str = "") -> Live:
    """Return a view of the run that `reader` reads, as `live_mode` has it.

    replicas: in each worker. mode: "cluster", "mirrored" or "single". note: what is added to the heading. program: its
    name, in the run of one, whose lines are all printed.
    """
    if (which := live_mode()) == "off":
        return Live()
    label = heading(workers, replicas, mode, program)
    if reader.folder.has_evaluator:
        label = _("{run} and an evaluator", run=label)
    label += note
    if which == "widgets":
        from dtk.live.dashboard import Dashboard

        return Dashboard(reader, replicas, label, mode)
    from dtk.live.text import TextView

    return TextView(reader, replicas, label, whole=bool(program))


def heading(workers: int, replicas: int, mode: str, program: str = "") -> str:
    """Describe a run in a few words.

    >>> heading(2, 1, "cluster"), heading(1, 4, "mirrored"), heading(1, 1, "single", "train.py")
    ('cluster of 2 workers', '1 worker with 4 replicas', 'train.py: baseline on one device')
    """
    if mode == "single":
        words = _("baseline on one device")
    elif mode == "apart":
        words = ngettext("{n} worker without communication", "{n} workers without communication", workers)
    elif mode == "mirrored":
        words = _("{workers} worker with {replicas} replicas", workers=workers, replicas=replicas)
    elif replicas > 1:
        words = ngettext(
            "cluster of {n} worker with {replicas} replicas each",
            "cluster of {n} workers with {replicas} replicas each",
            workers,
            replicas=replicas,
        )
    else:
        words = ngettext("cluster of {n} worker", "cluster of {n} workers", workers)
    return _("{name}: {words}", name=program, words=words) if program else words
