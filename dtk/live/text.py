"""Workers' output as text: the lines of their growing logs, labeled, and every few seconds how far the run is.

Lines are clean: no escape sequences, progress bars in their last state. Equal lines of several workers stand once:
"[worker 0-3] Epoch 1/3".
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from dtk.language import N_, _, ngettext
from dtk.live import Live
from dtk.live.run_progress import RunProgress
from dtk.records import RunFolder, clean
from dtk.scaling.timing import spans
from dtk.watch.explain import is_chatter
from dtk.watch.reader import Reader, size
from dtk.watch.waiting import Line, called, clauses

_PENDING = 1 << 14  # bytes of a line that are kept, the last, as the first are the oldest states of a progress bar
_HOLD = 0.5  # seconds that a line waits for the same line of the other workers
_CHARACTERS = 20_000  # of one worker's output that are printed; the log file has the rest
NOT_ALL = N_("... not all is shown here; all of it is in {path}")
_PIECE = 1 << 16  # bytes read from a log at once
_EVERY = 2.0  # seconds between lines of progress
_LASTING = 4.5  # seconds of silence that are worth a line: shown as 5 s


class LogLines:
    """Reads a log that another process writes. caught_up: whether the last read came to the end."""

    def __init__(self, path: Path):
        self.path = path
        self.caught_up = True
        self._offset = self._inode = 0
        self._pending = b""  # an unfinished last line

    def read(self, limit: int) -> list[str]:
        """Return new complete lines, from at most `limit` bytes."""
        try:
            with self.path.open("rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                if inode != self._inode:  # the first look, or a cluster that started again on other ports
                    self._offset, self._pending, self._inode = 0, b"", inode
                file.seek(self._offset)
                data = file.read(limit)
        except FileNotFoundError:
            return []
        self._offset += len(data)
        self.caught_up = len(data) < limit
        *lines, rest = (self._pending + data).split(b"\n")
        self._pending = rest[-_PENDING:]
        return [clean(line[-_PENDING:]) for line in lines]

    def rest(self) -> list[str]:
        """Return the unfinished last line, where there is one, and go on behind it."""
        partial, self._pending = clean(self._pending), b""
        return [partial] if partial else []

    def skip(self) -> None:
        """Leave out all that is written so far."""
        self._offset, self._pending = size(self.path), b""


class Fold:
    """Keeps the order of each member's lines. workers: how many; further: the names of members after them."""

    def __init__(self, workers: int, further: Sequence[str] = ()):
        self._queues: list[deque[tuple[float, str]]] = [deque() for _ in range(workers + len(further))]
        self._counts: list[Counter[str]] = [Counter() for _ in self._queues]  # how often each line is in a queue
        self._names = dict(enumerate(further, workers))

    def add(self, member: int, lines: Iterable[str]) -> None:
        now = time.monotonic()
        for line in lines:
            self._queues[member].append((now, line))
            self._counts[member][line] += 1

    def ready(self, last: bool = False) -> list[tuple[str, str]]:
        """Return (label, line) of lines that need not wait any longer; with `last` of all that are left."""
        said: list[tuple[str, str]] = []
        now = time.monotonic()
        while waiting := [member for member, queue in enumerate(self._queues) if queue]:
            at, line = min(self._queues[member][0] for member in waiting)
            first = [member for member in waiting if self._queues[member][0][1] == line]
            if len(first) < len(self._queues) and not last and now - at < _HOLD:
                break
            alike = [member for member in waiting if line in self._counts[member]]
            for member in alike:
                while (before := self._pop(member)) != line:  # in another's queue, what stands before it comes first
                    said.append((self._label([member]), before))
            said.append((self._label(alike), line))
        return said

    def _pop(self, member: int) -> str:
        line = self._queues[member].popleft()[1]
        counts = self._counts[member]
        counts[line] -= 1
        if not counts[line]:
            del counts[line]
        return line

    def _label(self, members: list[int]) -> str:
        workers = [member for member in members if member not in self._names]
        return named(workers, [self._names[member] for member in members if member in self._names])


def named(workers: Sequence[int], further: Sequence[str] = ()) -> str:
    """Label what members have in common. further: names of those that are no workers.

    >>> named([0, 1, 3], ["evaluator"])
    '[worker 0-1,3, evaluator]'
    """
    names = [_("worker {worker}", worker=label(workers))] if workers else []
    return f"[{', '.join([*names, *further])}]"


def workers_in_words(numbers: Sequence[int]) -> str:
    """Name workers within a sentence.

    >>> workers_in_words([1]), workers_in_words([2, 0, 1])
    ('worker 1', 'workers 0-2')
    """
    return ngettext("worker {workers}", "workers {workers}", len(numbers), workers=label(sorted(numbers)))


def label(numbers: Sequence[int]) -> str:
    """Join numbers in their order, with runs of them shortened.

    >>> label([0]), label([0, 1, 2, 3]), label([0, 2, 3, 7])
    ('0', '0-3', '0,2-3,7')
    """
    return ",".join(f"{first}" if first == end else f"{first}-{end}" for first, end in spans(numbers))


class Printer:
    """What members write to their logs: `[worker 0] ...`, and equal lines of several workers once, `[worker 0-3] ...`.

    A progress bar that is redrawn by carriage returns is printed once, in its last state. Empty lines and the notes of
    TensorFlow's C++ start-up (`dtk.watch.explain.is_chatter`) are left out here; the log file has them.
    """

    def __init__(self, folder: RunFolder, most: int):
        """most: characters of each member that are printed, until `begin` is called."""
        self.logs = [LogLines(member.path / "log.txt") for member in folder.members]
        self._most, self._room = most, [most] * len(self.logs)
        self._fold = Fold(folder.workers, [_("evaluator")] * folder.has_evaluator)

    def begin(self) -> None:
        """Give each member room again. What it wrote when it had none any more is left out."""
        for member, log in enumerate(self.logs):
            if self._room[member] <= 0:
                log.skip()
            self._room[member] = self._most

    def show(self, last: bool = False) -> None:
        """Print the lines that need not wait for another member's; with `last` all, unfinished ones too."""
        for member, log in enumerate(self.logs):
            self._fold.add(member, self._new(member, log, last))
        for label, line in self._fold.ready(last):
            self.print_line(label, line)
        sys.stdout.flush()

    def print_line(self, label: str, line: str) -> None:
        """Print what `shown` made of a line."""
        print(f"{label} {line}")

    def shown(self, member: int, line: str) -> str:
        """Return what is printed of a line of a member's log, "" for nothing."""
        return line if line.strip() and not is_chatter(line) else ""

    def _new(self, member: int, log: LogLines, last: bool) -> Iterator[str]:
        """A member's new lines while there is room."""
        ended = False
        while self._room[member] > 0 and not ended:
            lines, ended = log.read(_PIECE), not last or log.caught_up
            for line in [*lines, *(log.rest() if last and ended else [])]:
                room, shown = self._room[member], self.shown(member, line)
                if room > 0 and shown:
                    yield shown[:room]
                    self._room[member] -= len(shown)
                    if self._room[member] <= 0:
                        yield _(NOT_ALL, path=log.path)


class TextView(Live):
    """Prints what each worker does: 20,000 characters at most or, with `whole`, as for a program, all; and progress."""

    def __init__(self, reader: Reader, replicas: int, title: str, whole: bool = False):
        self.reader, folder = reader, reader.folder
        self.progress = RunProgress(reader, replicas)
        self.output = Printer(folder, sys.maxsize if whole else _CHARACTERS)
        self.names = [called(member.name, member.worker) for member in folder.members]
        self.title = title
        self._step, self._evaluated = 0, ""  # that were printed
        self._at = time.monotonic()
        self._waited: list[tuple[str, str]] = []
        self._say(title)

    def update(self, states: Sequence[Line]) -> None:
        self.output.show()
        now = time.monotonic()
        if now - self._at >= _EVERY:
            self._at = now
            self.reader.look()
            if self.progress.step > self._step:
                self._step = self.progress.step
                self._say(self.progress.words())
            self._tell_evaluation()
            self._tell_waits(states)

    def close(self, outcome: str, finished: bool = False) -> None:
        self.output.show(last=True)
        self.reader.look()
        self._tell_evaluation()
        if self.progress.step:
            outcome = _("; ").join([self.progress.words(ended=True), outcome])
        self._say(_("{name}: {words}", name=self.title, words=outcome))

    def _tell_waits(self, lines: Sequence[Line]) -> None:
        """Print who is where, once for each silence that lasts; that it goes on is no news."""
        lasting = any(line.seconds is not None and line.seconds >= _LASTING for line in lines)
        silence = [(line.words, line.waits) for line in lines] if lasting else []
        if silence and silence != self._waited:
            pairs = zip(self.names, lines, strict=True)
            self._say(clauses([_("{name} {words}", name=name, words=line) for name, line in pairs]))
        self._waited = silence

    def _tell_evaluation(self) -> None:
        """The last evaluation, where there is a new one."""
        if self.progress.evaluated != self._evaluated:
            self._evaluated = self.progress.evaluated
            self._say(_("{name}: {words}", name=_("evaluator"), words=self.progress.evaluated))

    def _say(self, words: str) -> None:
        print(_("{name}: {words}", name="dtk", words=words), flush=True)
