"""The live view as text: what each worker prints, labelled, and every few seconds how far the run is."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence

from dtk.language import _
from dtk.live import Live
from dtk.live.fold import Fold
from dtk.live.follow import Follower
from dtk.live.log_lines import LogLines
from dtk.view.palette import member_name
from dtk.watch.explain import is_chatter
from dtk.watch.reader import Reader
from dtk.watch.waiting import Line, clauses

__all__ = ["TextView"]

_CHARACTERS = 20_000  # of one worker's output that are printed; the log file has the rest
_PIECE = 1 << 16  # bytes read from a log at once
_EVERY = 2.0  # seconds between lines of progress
_LASTING = 4.5  # seconds of silence that are worth a line: shown as 5 s


class TextView(Live):
    """Prints complete lines as `[worker 0] ...`, and equal lines of several workers once: `[worker 0-3] ...`.

    Of each worker at most 20,000 characters; with `whole`, as for a program, all. A progress bar that is redrawn by
    carriage returns is printed once, in its last state. Empty lines and the notes of TensorFlow's C++ start-up
    (`dtk.watch.explain.is_chatter`) are left out here; the log file has them.
    """

    def __init__(self, reader: Reader, replicas: int, title: str, whole: bool = False):
        self.reader, folder = reader, reader.folder
        self.follower = Follower(folder, replicas * folder.workers)
        reader.follow(self.follower)
        self.logs = [LogLines(member.path / "log.txt") for member in folder.members]
        self.room = [sys.maxsize if whole else _CHARACTERS] * len(self.logs)  # for each one's characters
        self.names = [member_name(k, folder.workers) for k in range(len(self.logs))]
        self.fold = Fold(folder.workers, [_("evaluator")] * folder.has_evaluator)
        self.title = title
        self._step, self._evaluated = 0, ""  # that were printed
        self._at = time.monotonic()
        self._waited: list[tuple[str, str]] = []
        print(_("dtk: {words}", words=title), flush=True)

    def update(self, states: Sequence[Line | str]) -> None:
        self._print_all(last=False)
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
        self._print_all(last=True)
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

    def _print_all(self, last: bool) -> None:
        for member in range(len(self.logs)):
            self.fold.add(member, self._new(member, last))
        if lines := self.fold.ready(last):
            print("\n".join(lines), flush=True)

    def _new(self, member: int, last: bool) -> Iterator[str]:
        """A member's new lines while there is room; at the `last` call all that is left, with an unfinished line."""
        log, ended = self.logs[member], False
        while self.room[member] > 0 and not ended:
            lines, ended = log.read(_PIECE), not last or log.caught_up
            for line in [*lines, log.partial] if last and ended else lines:
                room = self.room[member]
                if room > 0 and line.strip() and not is_chatter(line):
                    yield line[:room]
                    self.room[member] -= len(line)
                    if self.room[member] <= 0:
                        yield _("... more is not shown here; all of it is in {path}", path=log.path)
