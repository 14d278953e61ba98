"""What workers write into their corners, as messages for a kernel that can't see these files."""

from __future__ import annotations

import base64
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from dtk.records import GROWING

__all__ = ["Message", "News", "remove", "write"]

Message = dict[str, Any]

_CHUNK = 1 << 20  # bytes of a file in one message
_MOST = 8 << 20  # bytes that one look says, so that it stays short


class News:
    """Says each byte of a file once: {"run", "file", "at", "of", "data"}, `at` bytes into a file of `of`, in base64."""

    def __init__(self) -> None:
        self._files: dict[Path, tuple[int, int, int]] = {}  # (inode, bytes said, of how many)
        self._behind = False  # whether more of the file that was read last is still to be said

    def of(self, corner: Path) -> tuple[list[Message], bool]:
        """What a worker has written since the last look, and whether that is all.

        What it puts there whole (its result, an error, weights) goes before the lines that say so, and those are only
        read as far as they had come before.
        """
        grown = {corner / name: _size(corner / name) for name in GROWING}
        said: list[Message] = []
        for path in _inside(corner):
            if path not in grown:
                said += self._of_file(path, corner.parent, None, _MOST - _bytes(said))
                if self._behind:
                    return said, False
        for path, size in grown.items():
            said += self._of_file(path, corner.parent, size, max(_CHUNK, _MOST - _bytes(said)))
            if self._behind:
                return said, False
        return said, True

    def of_the_rest(self, run: Path, known: Collection[str]) -> list[Message]:
        """What the function itself wrote into the run's directory, but for names at its top that are `known`."""
        said: list[Message] = []
        for path in sorted(run.rglob("*")):
            top = path.relative_to(run).parts[0]
            if path.is_file() and top not in known and not top.startswith("worker-"):
                said += self._of_file(path, run, None, sys.maxsize)
        return said

    def forget(self, folder: Path) -> None:
        """Nothing in it has been said: it will be made anew."""
        self._files = {path: said for path, said in self._files.items() if folder not in path.parents}

    def _of_file(self, path: Path, run: Path, until: int | None, most: int) -> list[Message]:
        """A file's bytes that were not said yet, `most` of them. until: its size, for one that grows line by line."""
        self._behind = False
        found: list[Message] = []
        try:
            state = path.stat()
            known, said, whole = self._files.get(path, (0, 0, 0))
            size = state.st_size if until is None else until
            if known == state.st_ino and (said == size or (said > size and until is None)):
                return []
            anew = said >= whole if until is None else said > size  # it was whole before; or it was cut
            if known != state.st_ino or anew:
                said = 0
            with path.open("rb") as file:
                file.seek(said)
                while most > 0 and (said < size or not found):
                    data = file.read(min(_CHUNK, size - said))
                    found.append({"run": run.name, "file": str(path.relative_to(run)), "at": said, "of": size})
                    found[-1]["data"] = base64.b64encode(data).decode()
                    said, most = said + len(data), most - len(data)
                    if not data:
                        break
        except OSError:
            return []  # replaced in this very moment, or removed: the next look sees
        self._behind = said < size
        self._files[path] = (state.st_ino, said, size)
        return found


def _bytes(said: list[Message]) -> int:
    return sum(len(message["data"]) for message in said)


def _inside(corner: Path) -> list[Path]:
    try:
        return [path for path in sorted(corner.iterdir()) if path.is_file() and path.suffix != ".part"]
    except OSError:
        return []  # the worker has not made it yet


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def write(run: Path, message: Message, part: str = "coming") -> None:
    """A part of a file, as `News` says it: lines at once, all else when it is whole. part: of its name until then."""
    path = run / message["file"]
    if not _is_in(run, path):
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    data, at = base64.b64decode(message["data"]), message["at"]
    target = path if path.name in GROWING else path.with_name(f"{path.name}.{part}")
    with target.open("r+b" if at else "wb") as file:
        file.seek(at)
        file.write(data)
    if target is not path and at + len(data) >= message["of"]:
        target.replace(path)


def remove(run: Path, names: Collection[str]) -> None:
    """Files of a run that have been handed over."""
    for path in (run / name for name in names):
        if _is_in(run, path):
            path.unlink(missing_ok=True)


def _is_in(run: Path, path: Path) -> bool:
    return ".." not in path.parts and path.is_relative_to(run)
