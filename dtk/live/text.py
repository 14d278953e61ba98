"""The live view as text: what each worker prints, labelled, and every few seconds how far the run is."""

from __future__ import annotations

import time
from collections.abc import Sequence

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

_LINES, _CHARACTERS = 100, 20_000  # of one worker's output that are printed; the log file has the rest
_PIECE = 1 << 16  # bytes read from a log at once
_EVERY = 2.0  # seconds between lines of progress
_LASTING = 4.5  # seconds of silence that are worth a line: shown as 5 s


class _Voice:
    """One member's output on its way to the reader."""

    def __init__(self, name: str, log: LogLines, whole: bool):
        self.name, self.log, self.whole = name, log, whole
        self.lines = self.characters = 0

    @property
    def full(self) -> bool:
        return not self.whole and (self.lines >= _LINES or self.characters >= _CHARACTERS)

    def speak(self, last: bool = False) -> list[str]:
        """New lines; at the `last` call all that is left, an unfinished line included."""
        said: list[str] = []
        while not self.full:
            said += self._shown(self.log.read(_PIECE))
            if not last or self.log.caught_up:
                break
        if last and not self.full:
            said += self._shown([self.log.partial])
        return said

    def _shown(self, lines: list[str]) -> list[str]:
        """Lines as they are printed, up to the cap, and the notice where it is reached."""
        said = []
        for line in lines:
            if self.full or not line.strip() or is_chatter(line):
                continue
            said.append(line if self.whole else line[: _CHARACTERS - self.characters])
            self.lines, self.characters = self.lines + 1, self.characters + len(line)
            if self.full:
                said.append(_("... more is not shown here; all of it is in {path}", path=self.log.path))
        return said


class TextView(Live):
    """Prints complete lines as `[worker 0] ...`, at most 100 lines or 20,000 characters per worker.

    With `whole`, as for a program, it prints them all, and equal lines of several workers once: `[worker 0-3] ...`.
    A progress bar that is redrawn by carriage returns is printed once, in its last state. Empty lines and the
    notes of TensorFlow's C++ start-up (`dtk.watch.explain.is_chatter`) are left out here; the log file has them.
    """

    def __init__(self, reader: Reader, replicas: int, title: str, whole: bool = False):
        self.reader, folder = reader, reader.folder
        self.follower = Follower(folder, replicas * folder.workers)
        reader.follow(self.follower)
        logs = [LogLines(member.path / "log.txt") for member in folder.members]
        self.voices = [_Voice(member_name(k, folder.workers), log, whole) for k, log in enumerate(logs)]
        self.fold = Fold(folder.workers, [_("evaluator")] * folder.has_evaluator) if whole else None
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
            pairs = zip(self.voices, lines, strict=True)
            words = clauses([_("{name} {words}", name=voice.name, words=line) for voice, line in pairs])
            print(_("dtk: {words}", words=words), flush=True)
        self._waited = silence

    def _tell_evaluation(self) -> None:
        """The last evaluation, where there is a new one."""
        if self.follower.evaluated != self._evaluated:
            self._evaluated = self.follower.evaluated
            print(_("dtk: {title}: {words}", title=_("evaluator"), words=self.follower.evaluated), flush=True)

    def _print_all(self, last: bool) -> None:
        if self.fold is None:
            lines = [f"[{voice.name}] {line}" for voice in self.voices for line in voice.speak(last)]
        else:
            for member, voice in enumerate(self.voices):
                self.fold.add(member, voice.speak(last))
            lines = self.fold.ready(last)
        if lines:
            print("\n".join(lines), flush=True)
