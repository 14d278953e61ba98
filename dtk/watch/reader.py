"""The one reader of what a run's members write while it goes: it serves the watch, the signs of life, the live view.

Each line is read once. Events are handed on as soon as they are there; records too, where they are asked for.
"""

from __future__ import annotations

import os
from collections import deque
from itertools import pairwise
from pathlib import Path
from typing import Any

from dtk.records import Record, RunFolder, WorkerFolder
from dtk.records.events import Event, Tail, parse

_FILES = ("records.jsonl", "events.jsonl", "log.txt")
_ENDS = 100  # looks at which a worker's steps are timed
_STEADY = 5  # steps that may take longer, being the first


class Member:
    """What one member has written so far.

    sizes: bytes of its records, events and log. step: the last that it recorded, 0 before the first.
    """

    def __init__(self, folder: WorkerFolder):
        self.folder = folder
        self.sizes = [0] * len(_FILES)
        # As text: these are asked for so often that joining paths would be most of the work.
        self._paths = [str(folder.path / name) for name in _FILES]
        self.step = 0
        self.ends: deque[tuple[int, float]] = deque(maxlen=_ENDS)  # of a step: number, seconds
        self._records, self._events = (Tail(folder.path / name) for name in _FILES[:2])

    def look(self) -> tuple[list[Event], list[bytes]]:
        """New events, and the lines of new records."""
        self.sizes = [size(path) for path in self._paths]
        records, events, _ = self.sizes
        # Most looks find nothing new, and open no file.
        found = [parse(line) for line in self._events.lines()] if events > self._events.offset else []
        lines = self._records.lines() if records > self._records.offset else []
        if lines:
            (last,) = self.folder.records_of(lines[-1:])
            self.step = last.step
            self.ends.append((last.step, last.ended))
        return found, lines

    def pace(self) -> float | None:
        """Seconds of a step, at most, by the last looks that found new ones; None where these are the first steps."""
        found = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(list(self.ends)) if b[0] > a[0] >= _STEADY]
        return max(found, default=None)


class Reader:
    """Reads what a run's members write. members: the workers by index, then the evaluator where there is one.

    watching: takes the events, `take_event(member, event)`, in the order in which they were written. following: takes
    events and records, `take(member, event or record)`, in the order of their times. None: nobody.
    """

    def __init__(self, folder: RunFolder):
        self.folder = folder
        self.following: Any = None
        self.begin(None)

    def begin(self, watching: Any) -> None:
        """Reads from the beginning: a cluster that found a port taken starts again in new directories."""
        self.watching = watching
        self.members = [Member(member) for member in self.folder.members]

    def look(self) -> None:
        """Hands on what was written since the last look."""
        for number, member in enumerate(self.members):
            events, lines = member.look()
            for event in events if self.watching is not None else ():
                self.watching.take_event(number, event)
            if self.following is None:
                continue  # then the records need not be parsed
            news: list[Event | Record] = [*events, *member.folder.records_of(lines)]
            for each in sorted(news, key=lambda each: each.ended if isinstance(each, Record) else each.at):
                self.following.take(number, each)


def size(file: Path | str) -> int:
    """Bytes of a file; 0 for none."""
    try:
        return os.stat(file).st_size
    except OSError:
        return 0
