"""What workers print and display, as one stream: by worker, equal output of several shown once."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dtk import environment
from dtk.interactive.labels import colored
from dtk.language import _
from dtk.live.fold import Fold
from dtk.live.log_lines import clean
from dtk.records import RunFolder
from dtk.watch.explain import is_chatter

__all__ = ["Output", "shell"]

MOST_BYTES = 1 << 18  # of a worker's text that a cell shows; all of it is in its log
_PIECE = 1 << 18
# What TensorFlow's C++ code logs of collectives that end early: the error itself says it once more.
_ABORTS = re.compile(
    r"[EWI]\d{4} .*(_collective_executor|ring_alg|collective_param_resolver|rendezvous|coordination)"
    r"|The error could be from a previous operation\. Restart your program"
    r"|Additional GRPC error information from remote target|:UNKNOWN:Error received from peer|\t \[\["
)
_RICH = "\x00"  # begins what stands for a display among lines


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
        self.folder = folder
        self._tails = [_Tail(worker.path) for worker in folder.each]
        self._fold = Fold(folder.workers)
        self._rich: dict[str, dict[str, Any]] = {}
        self.begin()

    def begin(self) -> None:
        """A cell begins."""
        for tail in self._tails:
            tail.text = tail.left_out = 0

    def skip(self) -> None:
        """What was printed so far is not shown: TensorFlow's words at the start."""
        for tail in self._tails:
            for _item in tail.items(None, None):
                pass
            tail.part = b""

    def look(self) -> None:
        for number in range(len(self._tails)):
            self._take(number, None, None)
        self._show(last=False)

    def end(self, sizes: dict[int, tuple[int, int]]) -> None:
        """The rest: of each worker up to (bytes of log, bytes of shown)."""
        for number, size in sizes.items():
            self._take(number, *size)
            self._add(number, self._tails[number].rest())
        self._show(last=True)
        for number, tail in enumerate(self._tails):
            if tail.left_out:
                words = _("... {n:,} further lines in {file}", n=tail.left_out, file=tail.folder / "log.txt")
                print(f"{colored([number])} {words}")

    def _take(self, number: int, log: int | None, shown: int | None) -> None:
        self._add(number, self._tails[number].items(log, shown))

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
        data = item["data"]
        if item["kind"] == "result" and set(data) <= {"text/plain"}:
            return str(data.get("text/plain", ""))
        key = _RICH + json.dumps([item["kind"], data, item["metadata"]], sort_keys=True)
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
        data, metadata = item["data"], item["metadata"]
        if item["kind"] == "clear":
            return  # what other workers have shown stays
        if environment.live_mode() == "text" or not shell():
            _print(members, data.get("text/plain", ", ".join(data)))
            return
        from IPython.display import display

        print(colored(members), flush=True)
        display(data, metadata=metadata, raw=True)


def _print(members: Sequence[int], text: str) -> None:
    """A text of several lines, a table for one, begins below its label."""
    print(f"{colored(members)}\n{text}" if "\n" in text else f"{colored(members)} {text}")


def shell() -> Any:
    """The IPython that runs here; None without one."""
    found = sys.modules.get("IPython")
    return found.get_ipython() if found is not None else None


def _read(path: Path, begin: int, end: int | None, most: int | None = None) -> tuple[bytes, int]:
    """Bytes of a file from `begin` to `end`, at most so many, and where that ended."""
    want = None if end is None else max(0, end - begin)
    want = most if want is None else want if most is None else min(want, most)
    try:
        with path.open("rb") as file:
            file.seek(begin)
            data = file.read(want)
    except FileNotFoundError:
        return b"", begin
    return data, begin + len(data)


def _text(line: bytes) -> str:
    return clean(line.decode("utf-8", "backslashreplace").rstrip("\r"))
