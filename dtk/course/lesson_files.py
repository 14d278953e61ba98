"""`dtk lessons` and `dtk lab`: the lessons that came with dtk, copied for a learner, and opened in JupyterLab."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dtk.errors import DtkError
from dtk.extras import REPOSITORY, with_addresses
from dtk.language import ENGLISH, _, languages

__all__ = ["Copied", "bring", "brought", "copy", "lab", "texts"]

FIRST = "00_start_here.ipynb"
NOTE = ".dtk-lessons.json"  # in the folder: which text each file had when it was copied


@dataclass(frozen=True)
class Copied:
    """folder: where the lessons are. files: how many. kept: those that a learner has changed, and that stay so."""

    folder: Path
    files: int
    kept: tuple[str, ...]

    def __str__(self) -> str:
        said = _("{files} files of lessons are in {folder}", files=self.files, folder=self.folder)
        if not self.kept:
            return said
        words = _("you have changed {files}, so they stay as they are: --overwrite replaces them")
        return f"{said}\n{words.format(files=', '.join(self.kept))}"


def brought(language: str = ENGLISH) -> Path:
    """The folder of the lessons that came with dtk: inside the package, or in a clone beside it.

    Raises:
        DtkError: there is none in this language, or none at all.
    """
    package = Path(__file__).parent.parent
    found = [place for place in (package / "notebooks", package.parent / "notebooks") if (place / FIRST).is_file()]
    if not found:
        raise DtkError(_("dtk was installed without its lessons; they are at {page}", page=f"{REPOSITORY}/tree/main"))
    folder = found[0] if language == ENGLISH else found[0] / language
    if language not in languages() or not (folder / FIRST).is_file():
        there = [name for name in languages() if name == ENGLISH or (found[0] / name / FIRST).is_file()]
        words = _("there are no lessons in the language {language!r}", language=language)
        raise DtkError(words, remedy=_("there are {languages}", languages=", ".join(there)))
    return folder


def texts(language: str = ENGLISH, edition: str = "") -> dict[str, str]:
    """{file name: text} of the lessons, or of an edition of `dtk class build`; links hold without a clone."""
    folder = brought(language)
    if edition:
        from dtk.course import build

        return build.texts(edition, build.lessons(folder), folder)
    files = sorted([*folder.glob("*.ipynb"), *folder.glob("*.md")])
    return {file.name: with_addresses(file.read_bytes().decode()) for file in files}


def bring(to: Path, language: str = ENGLISH, edition: str = "", overwrite: bool = False) -> Copied:
    """Copies the lessons into a folder: English ones to `to`, others to `to`/zh, or `to` of that name.

    The name has figures and checks speak the language (dtk/language.py).
    """
    folder = _folder(to, language)
    if folder.resolve() == brought(language).resolve():
        words = _("{folder} has the lessons that belong to dtk itself", folder=to)
        raise DtkError(words, remedy=_("name another folder"))
    return copy(texts(language, edition), folder, overwrite)


def copy(files: Mapping[str, str], folder: Path, overwrite: bool = False) -> Copied:
    """Writes files into a folder; one that was changed since it was copied, or that another made, stays.

    So a newer dtk renews what a learner has not touched.

    Args:
        overwrite: replaces the changed ones as well.

    Raises:
        DtkError: the folder can't be written.
    """
    kept = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        noted = _noted(folder)
        for name, text in files.items():
            file, new = folder / name, text.encode()
            old = file.read_bytes() if file.exists() else new
            if old != new and _digest(old) != noted.get(name) and not overwrite:
                kept.append(name)
                continue
            if old != new or not file.exists():
                _write(file, new)
            noted[name] = _digest(new)
        _write(folder / NOTE, (json.dumps(noted, indent=1) + "\n").encode())
    except OSError as error:
        words = _("the lessons can't be written into {folder}: {why}", folder=folder, why=error.strerror)
        raise DtkError(words, remedy=_("name another folder")) from None
    return Copied(folder, len(files), tuple(kept))


def lab(to: Path, language: str = ENGLISH, edition: str = "", options: Sequence[str] = ()) -> None:
    """Becomes JupyterLab, open at the first lesson; copies the lessons where there are none yet.

    Args:
        options: JupyterLab's own.

    Raises:
        DtkError: JupyterLab is not installed. Nothing was copied or installed.
    """
    if importlib.util.find_spec("jupyterlab") is None:
        words = _("JupyterLab is not installed in this environment")
        raise DtkError(words, remedy=_("install it: {command}", command="pip install jupyterlab"))
    folder = _folder(to, language)
    if not any((folder / file.name).exists() for file in brought(language).glob("*.ipynb")):
        print(f"dtk: {bring(to, language, edition)}", flush=True)
    first = [f"--LabApp.default_url=/lab/tree/{FIRST}"] if (folder / FIRST).is_file() else []
    command = [sys.executable, "-m", "jupyterlab", f"--notebook-dir={folder.resolve()}", *first, *options]
    os.execv(command[0], command)


def _folder(to: Path, language: str) -> Path:
    return to if language in (ENGLISH, to.name) else to / language


def _noted(folder: Path) -> dict[str, str]:
    try:
        return dict(json.loads((folder / NOTE).read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):  # none yet, or none that can be read: then all count as changed
        return {}


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _write(file: Path, text: bytes) -> None:
    """As a whole or not at all: half a lesson would count as a learner's change."""
    beside = file.with_name(f".{file.name}.new")
    beside.write_bytes(text)
    os.replace(beside, file)
