"""What workers print and display, as one stream: by worker, equal output of several shown once. The live view."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtk import environment
from dtk.language import _, ngettext
from dtk.live import show
from dtk.live.fold import Fold, label
from dtk.live.log_lines import clean
from dtk.records import RunFolder
from dtk.view.palette import worker_color
from dtk.watch.explain import is_chatter
from dtk.watch.reader import Reader, size

if TYPE_CHECKING:
    from dtk.interactive.processes import Started
    from dtk.interactive.session import CellOutcome

__all__ = ["Output", "View", "colored", "named", "workers_in_words"]

MOST_BYTES = 1 << 18  # of a worker's text that a cell shows; all of it is in its log
_PIECE = 1 << 18
# What TensorFlow's C++ code logs of collectives that end early: the error itself says it once more.
_ABORTS = re.compile(
    r"[EWI]\d{4} .*(_collective_executor|ring_alg|collective_param_resolver|rendezvous|coordination)"
    r"|The error could be from a previous operation\. Restart your program"
    r"|Additional GRPC error information from remote target|:UNKNOWN:Error received from peer|\t \[\["
)
_RICH = "\x00"  # begins what stands for a display among lines
_VIEW_AFTER = 1.0  # seconds: a cell that takes less needs no live view


# ---- whose it is


def workers_in_words(numbers: Sequence[int]) -> str:
    """
    >>> workers_in_words([1]), workers_in_words([2, 0, 1])
    ('worker 1', 'workers 0-2')
    """
    return ngettext("worker {workers}", "workers {workers}", len(numbers), workers=label(sorted(numbers)))


def named(members: Sequence[int]) -> str:
    """The label of what these workers have in common.

    >>> named([0, 1])
    '[worker 0-1]'
    """
    return _("[worker {workers}]", workers=label(list(members)))


def colored(members: Sequence[int]) -> str:
    """The same as it is printed: a single worker's on its colour, in a notebook's page and in a terminal.

    Plain elsewhere (a file, CI, `%%capture`), and where DTK_LIVE is text or off, or NO_COLOR is set.
    """
    plain = environment.live_mode() == "off" or os.environ.get("DTK_LIVE", "").lower() == "text"
    of_kernel = type(sys.stdout).__module__.partition(".")[0] == "ipykernel"
    shows = of_kernel or (sys.stdout is not None and sys.stdout.isatty())
    if len(members) > 1 or plain or os.environ.get("NO_COLOR") or not shows:
        return named(members)
    color = worker_color(members[0])
    red, green, blue = (int(color[k : k + 2], 16) for k in (1, 3, 5))
    # The colour is the ground, so that the label is legible on a light and a dark page.
    text = "0;0;0" if 0.299 * red + 0.587 * green + 0.114 * blue > 100 else "255;255;255"
    return f"\x1b[48;2;{red};{green};{blue};38;2;{text}m{named(members)}\x1b[0m"


# ---- what they print and display


@dataclass
class _Tail:
    """A worker's log and what it displayed, read as far as `log` and `shown` bytes."""

    folder: Path
    log: int = 0
    shown: int = 0
    part: bytes = b""
    waiting: list[dict[str, Any]] = field(default_factory=list)  # displays whose place in the log is not reached
    text: int = 0  # bytes shown in this cell
    left_out: int = 0  # lines

    def items(self, log: int | None, shown: int | None) -> Iterator[str | dict[str, Any]]:
        """Lines and displays in their order, up to these sizes (None: to the end)."""
        data, self.shown = _read(self.folder / "shown.jsonl", self.shown, shown)
        whole = data[: data.rfind(b"\n") + 1]
        self.shown -= len(data) - len(whole)
        self.waiting += [json.loads(line) for line in whole.splitlines()]
        while True:
            end = self.waiting[0]["at"] if self.waiting else log
            data, self.log = _read(self.folder / "log.txt", self.log, end, _PIECE)
            *lines, self.part = (self.part + data).split(b"\n")
            yield from (_text(line) for line in lines)
            if self.waiting and self.log >= self.waiting[0]["at"]:
                yield from self.rest()
                yield self.waiting.pop(0)
            elif len(data) < _PIECE:
                return

    def rest(self) -> Iterator[str]:
        part, self.part = self.part, b""
        if part:
            yield _text(part)


class Output:
    """folder: of the session. `look` shows what is new, `end` the rest of a cell."""

    def __init__(self, folder: RunFolder):
        self._tails = [_Tail(worker.path) for worker in folder.each]
        self._fold = Fold(folder.workers)
        self._rich: dict[str, dict[str, Any]] = {}
        self.skip()

    def begin(self) -> None:
        """Begins a cell."""
        for tail in self._tails:
            tail.text = tail.left_out = 0

    def skip(self) -> None:
        """Leaves out what was printed so far: TensorFlow's words at the start."""
        for tail in self._tails:
            for _item in tail.items(None, None):
                pass
            tail.part = b""

    def look(self) -> None:
        for number, tail in enumerate(self._tails):
            self._add(number, tail.items(None, None))
        self._show(last=False)

    def end(self, sizes: dict[int, tuple[int, int]]) -> None:
        """Shows the rest: of each worker up to (bytes of log, bytes of shown)."""
        for number, (log, shown) in sizes.items():
            self._add(number, self._tails[number].items(log, shown))
            self._add(number, self._tails[number].rest())
        self._show(last=True)
        for number, tail in enumerate(self._tails):
            if tail.left_out:
                words = _("... {n:,} further lines in {file}", n=tail.left_out, file=tail.folder / "log.txt")
                print(f"{colored([number])} {words}")

    def _add(self, number: int, items: Iterator[str | dict[str, Any]]) -> None:
        tail, lines = self._tails[number], []
        for item in items:
            if isinstance(item, dict):
                lines.append(self._standing_for(item))
            elif not is_chatter(item) and not _ABORTS.match(item):
                tail.text += len(item) + 1
                if tail.text > MOST_BYTES:
                    tail.left_out += 1
                else:
                    lines.append(item)
        self._fold.add(number, lines)

    def _standing_for(self, item: dict[str, Any]) -> str:
        """A line that is the same for the same display."""
        if item["result"] and set(item["data"]) <= {"text/plain"}:
            return str(item["data"].get("text/plain", ""))
        key = _RICH + json.dumps([item["data"], item["metadata"]], sort_keys=True)
        self._rich[key] = item
        return key

    def _show(self, last: bool) -> None:
        for members, line in self._fold.taken(last):
            if line.startswith(_RICH):
                self._display(members, self._rich[line])
            else:
                _print(members, line)
        sys.stdout.flush()
        if last:
            self._rich.clear()

    def _display(self, members: Sequence[int], item: dict[str, Any]) -> None:
        data, ipython = item["data"], sys.modules.get("IPython")
        if environment.live_mode() == "text" or ipython is None or ipython.get_ipython() is None:
            _print(members, data.get("text/plain", ", ".join(data)))
            return
        print(colored(members), flush=True)
        ipython.display.display(data, metadata=item["metadata"], raw=True)


def _print(members: Sequence[int], text: str) -> None:
    """A text of several lines, a table for one, begins below its label."""
    print(f"{colored(members)}\n{text}" if "\n" in text else f"{colored(members)} {text}")


def _read(path: Path, begin: int, end: int | None, most: int | None = None) -> tuple[bytes, int]:
    """Bytes of a file from `begin` to `end`, at most so many, and where that ended."""
    wanted = [size for size in (None if end is None else max(0, end - begin), most) if size is not None]
    try:
        with path.open("rb") as file:
            file.seek(begin)
            data = file.read(min(wanted, default=-1))
    except FileNotFoundError:
        return b"", begin
    return data, begin + len(data)


def _text(line: bytes) -> str:
    return clean(line.decode("utf-8", "backslashreplace").rstrip("\r"))


# ---- what they record


class View:
    """The dashboard of `dtk.run`, for one cell: `look` as long as it runs, then `end`.

    Only where steps are recorded, in a notebook; elsewhere what the workers print is shown as ever.
    """

    def __init__(self, started: Started):
        self._started = started
        self._live: show.Live | None = None
        self._reader = Reader(started.folder)  # of the session, so that its curve goes on
        self._before, self._began = self._recorded(), time.monotonic()

    def look(self, outcome: CellOutcome) -> None:
        due = self._live is None and time.monotonic() - self._began >= _VIEW_AFTER
        if due and environment.live_mode() == "widgets" and self._recorded() != self._before:
            job = self._started.job
            heading = show.heading(job.workers, job.replicas, job.mode)
            title = _("{heading}, cell {cell}", heading=heading, cell=outcome.number)
            self._live = show.show(job.workers, job.replicas, job.mode, self._reader, title=title)
        if self._live is not None:
            self._reader.look()
            self._live.update(self._states(outcome))

    def end(self, outcome: CellOutcome) -> None:
        """The workers are through, or can't go on; then a cell that goes on has another view."""
        if self._live is not None:
            self._reader.look()
            states = self._states(outcome)
            self._live.update(states)
            finished = all(state == "finished" for state in states)
            self._live.close("went through" if finished else "stopped", finished=finished)

    def _recorded(self) -> list[int]:
        """Bytes of each worker's records."""
        return [size(worker.path / "records.jsonl") for worker in self._started.folder.each]

    def _states(self, outcome: CellOutcome) -> list[str]:
        failed = {*outcome.errors, *(peer.number for peer in self._started.peers if peer.lost is not None)}
        training = {peer.number for peer in self._started.peers if peer.running is not None}
        return [
            "failed" if peer.number in failed else "training" if peer.number in training else "finished"
            for peer in self._started.peers
        ]
