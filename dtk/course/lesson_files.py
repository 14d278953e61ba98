"""`dtk lessons` and `dtk lab`: the lessons that came with dtk, copied for a learner, and opened in JupyterLab."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from dtk.errors import DtkError
from dtk.language import ENGLISH, N_, _, languages
from dtk.published import REPOSITORY, with_addresses

__all__ = ["bring", "brought", "copy", "lab", "texts"]

FIRST = "00_start_here.ipynb"


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
        raise DtkError(words, remedy=_("there are {names}", names=", ".join(there)))
    return folder


def texts(language: str = ENGLISH) -> dict[str, str]:
    """{file name: text} of the lessons; links hold without a clone."""
    folder = brought(language)
    files = sorted([*folder.glob("*.ipynb"), *folder.glob("*.md")])
    return {file.name: with_addresses(file.read_bytes().decode()) for file in files}


def bring(to: Path, language: str = ENGLISH, overwrite: bool = False) -> Path:
    """Copies the lessons into a folder: English ones to `to`, others to `to`/zh, or `to` of that name.

    In a folder of that name, figures and checks are in that language (dtk/language.py).

    Returns:
        The folder.
    """
    folder = _folder(to, language)
    if folder.resolve() == brought(language).resolve():
        words = _("{folder} has the lessons that belong to dtk itself", folder=to)
        raise DtkError(words, remedy=_("name another folder"))
    copy(texts(language), folder, overwrite)
    return folder


def copy(files: Mapping[str, str], folder: Path, overwrite: bool = False) -> list[str]:
    """Writes files into a folder, and prints how many; one that is there and differs is a learner's own, and stays.

    Args:
        overwrite: replaces these as well.

    Returns:
        The names of those that stayed.

    Raises:
        DtkError: the folder can't be written.
    """
    kept = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            file, new = folder / name, text.encode()
            if file.exists() and file.read_bytes() != new and not overwrite:
                kept.append(name)
            else:
                file.write_bytes(new)
    except OSError as error:
        words = _("the lessons can't be written into {folder}: {why}", folder=folder, why=error.strerror)
        raise DtkError(words, remedy=_("name another folder")) from None
    print(_("{files} files of lessons are in {folder}", files=len(files), folder=folder), flush=True)
    if kept:
        words = N_("{files} differ from dtk's, so they stay as they are: --overwrite replaces them")
        print(_(words, files=", ".join(kept)), flush=True)
    return kept


def lab(to: Path, language: str = ENGLISH, options: Sequence[str] = ()) -> None:
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
        bring(to, language)
    first = [f"--LabApp.default_url=/lab/tree/{FIRST}"] if (folder / FIRST).is_file() else []
    command = [sys.executable, "-m", "jupyterlab", f"--notebook-dir={folder.resolve()}", *first, *options]
    os.execv(command[0], command)


def _folder(to: Path, language: str) -> Path:
    return to if language in (ENGLISH, to.name) else to / language
