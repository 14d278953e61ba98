"""The live view as text: what each worker prints, labelled, and every few seconds how far the run is."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence

from dtk.language import _
from dtk.live import Live
from dtk.live.follow import Follower
from dtk.live.lines import Fold, LogLines
from dtk.records import RunFolder
from dtk.view.palette import member_name
from dtk.watch.explain import is_chatter
from dtk.watch.reader import Reader
from dtk.watch.waiting import Line, clauses

__all__ = ["Printer", "TextView"]

_CHARACTERS = 20_000  # of one worker's output that are printed; the log file has the rest
_PIECE = 1 << 16  # bytes read from a log at once
_EVERY = 2.0  # seconds between lines of progress
_LASTING = 4.5  # seconds of silence that are worth a line: shown as 5 s


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
                        yield _("... more is not shown here; all of it is in {path}", path=log.path)


class TextView(Live):
    """Prints what each worker does: 20,000 characters at most or, with `whole`, as for a program, all; and progress."""

    def __init__(self, reader: Reader, replicas: int, title: str, whole: bool = False):
        self.reader, folder = reader, reader.folder
        self.follower = Follower(folder, replicas * folder.workers)
        reader.following = self.follower
        self.output = Printer(folder, sys.maxsize if whole else _CHARACTERS)
        self.names = [member_name(k, folder.workers) for k in range(len(folder.members))]
        self.title = title
        self._step, self._evaluated = 0, ""  # that were printed
        self._at = time.monotonic()
        self._waited: list[tuple[str, str]] = []
        print(_("dtk: {words}", words=title), flush=True)

    def update(self, states: Sequence[Line | str]) -> None:
        self.output.show()
        now = time.monotonic()
        if now - self._at >= _EVERY:
            self._at = now
            self.reader.look()
            if self.follower.step > self._step:
                self._step = self.follower.step
                print(_("dtk: {words}", words=self.follower.words()), flush=True)
            self._tell_evaluation()
            self._tell_waits(states)

    def close(self, outcome: str, finished: bool = False) -> None:
        self.output.show(last=True)
        self.reader.look()
        self._tell_evaluation()
        if self.follower.step:
            outcome = _("{first}; {more}", first=self.follower.words(ended=True), more=outcome)
        print(_("dtk: {title}: {words}", title=self.title, words=outcome), flush=True)

    def _tell_waits(self, states: Sequence[Line | str]) -> None:
        """Print who is where, once for each silence that lasts; that it goes on is no news."""
        lines = [state if isinstance(state, Line) else Line(_(state)) for state in states]
        lasting = any(line.seconds is not None and line.seconds >= _LASTING for line in lines)
        silence = [(line.words, line.waits) for line in lines] if lasting else []
        if silence and silence != self._waited:
            pairs = zip(self.names, lines, strict=True)
            words = clauses([_("{name} {words}", name=name, words=line) for name, line in pairs])
            print(_("dtk: {words}", words=words), flush=True)
        self._waited = silence

    def _tell_evaluation(self) -> None:
        """The last evaluation, where there is a new one."""
        if self.follower.evaluated != self._evaluated:
            self._evaluated = self.follower.evaluated
            print(_("dtk: {title}: {words}", title=_("evaluator"), words=self.follower.evaluated), flush=True)
