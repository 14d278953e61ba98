"""Which files are the learner's own: cells, functions that were sent, scripts and modules that are not installed."""

from __future__ import annotations

import os
import re
import sysconfig
from pathlib import Path

__all__ = ["Files"]

_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]|__autograph_generated_file")
_PLACES = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib"))
_DTK = str(Path(__file__).parent.parent) + os.sep


class Files:
    """`file in files`, by the name that a frame's code has. known: what was asked for so far, for those in a hurry."""

    def __init__(self) -> None:
        self.known: dict[str, bool] = {}

    def add(self, file: str) -> None:
        self.known[file] = True

    def __contains__(self, file: str) -> bool:
        found = self.known.get(file)
        if found is None:
            found = self.known[file] = _is_own(file)
        return found


def _is_own(file: str) -> bool:
    """
    >>> _is_own("/home/me/train.py"), _is_own(os.__file__), _is_own("<string>")
    (True, False, False)
    """
    if not (os.path.isabs(file) and file.endswith(".py")):
        return False
    return not _INSTALLED.search(file) and not file.startswith((*_PLACES, _DTK))
