"""A worker's growing log as clean lines: bounded pieces, no escape sequences, progress bars in their last state."""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["LogLines", "clean"]

# ECMA-48 control sequences (colours, cursor), operating-system commands (window titles), and single escapes.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_ERASED = re.compile(r"[^\x08]\x08")
_PENDING = 1 << 14  # bytes of an unfinished line that are kept


def clean(line: str) -> str:
    """Return a line as a terminal would leave it: escapes gone, carriage returns and backspaces carried out.

    >>> clean("\\x1b[1m 1/2\\x1b[0m loss 3\\r\\x1b[1m 2/2\\x1b[0m loss 1")
    ' 2/2 loss 1'
    >>> clean("10%\\x08\\x08\\x08100%")
    '100%'
    """
    if "\x1b" in line:
        line = _ESCAPES.sub("", line)
    while (erased := _ERASED.sub("", line)) != line:
        line = erased
    if "\r" in line:
        # A progress bar writes a whole line anew each time; what an empty rest would leave is the state before.
        line = next((part for part in reversed(line.split("\r")) if part.strip()), "")
    return _CONTROLS.sub("", line)


class LogLines:
    """Reads a log that another process writes.

    partial: its unfinished last line, as far as it has come. skipped: bytes left out. caught_up: whether the last read
    came to the end.
    """

    def __init__(self, path: Path):
        self.path = path
        self.skipped = 0
        self.caught_up = True
        self._offset = self._inode = 0
        self._pending = b""

    def read(self, limit: int, newest: bool = False) -> list[str]:
        """Return new complete lines, from at most `limit` bytes; with `newest` skip ahead if it is behind."""
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._inode:  # the first look, or a cluster that started again on other ports
                    self._offset, self._pending, self._inode = 0, b"", status.st_ino
                jump = status.st_size - self._offset - limit
                if newest and jump > 0:
                    self.skipped += jump + len(self._pending)
                    self._offset, self._pending = self._offset + jump, b""
                file.seek(self._offset)
                data = file.read(limit)
        except FileNotFoundError:
            return []
        self._offset += len(data)
        self.caught_up = len(data) < limit
        *lines, rest = (self._pending + data).split(b"\n")
        self._pending = rest[-_PENDING:]
        return [_text(line) for line in lines]

    @property
    def partial(self) -> str:
        return _text(self._pending)

    def rest(self) -> list[str]:
        """Return the unfinished last line, where there is one, and go on behind it."""
        partial, self._pending = self.partial, b""
        return [partial] if partial else []

    def skip(self) -> None:
        """Leave out all that is written so far."""
        self.read(0, newest=True)
        self._pending = b""


def _text(line: bytes) -> str:
    # A line without end is cut from the left, where a terminal's progress bar has its oldest states.
    return clean(line[-_PENDING:].decode("utf-8", "backslashreplace").rstrip("\r"))
