"""The lessons in other languages: `python tools/translations.py` renews `notebooks/zh/` from `notebooks/`.

A lesson there has its own texts; its code cells, their order and their tags are the English lesson's, to the byte. Each
text remembers which English it translates. So the tool says what a language lacks, and what changed in English since:

    python tools/translations.py                   # code from the English lessons; says what is to be translated
    python tools/translations.py --check           # changes nothing; prints what it would say, or nothing
    python tools/translations.py --done notebooks/zh/02_*.ipynb   # its texts translate the English as it stands now

A text that is new is put in in English, to be translated in place, in JupyterLab or an editor. Outputs are stored by
tools/notebooks.py, as for the English lessons. A new language: a folder of its name in notebooks/, and --done.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import nbformat
from heads import IS_BADGE, badge, place_of

ROOT = Path(__file__).parent.parent
NOTEBOOKS = ROOT / "notebooks"
STAMP = "translates"  # in a text's metadata, under "dtk", and in the first line of a page
# Of the guide, what lessons and READMEs send a learner to; the rest is for engineers and administrators.
GUIDE = ("install", "colab", "use", "programs", "troubleshooting", "without_dtk")
PAGES = {  # the English page: where a language has it
    "README.md": "README.{}.md",
    "docs/in_the_page.md": "docs/in_the_page.{}.md",
    "docs/teaching/README.md": "docs/teaching/README.{}.md",
    **{f"docs/guide/{name}.md": f"docs/guide/{name}.{{}}.md" for name in GUIDE},
    "notebooks/README.md": "notebooks/{}/README.md",
    "notebooks/AI_GUIDE.md": "notebooks/{}/AI_GUIDE.md",
    "notebooks/glossary.md": "notebooks/{}/glossary.md",
}
IS_STAMP = re.compile(r"^<!-- translates (\w+) -->\n")

Notebook = Any  # nbformat's NotebookNode has no types


def languages() -> list[str]:
    return sorted(file.parent.name for file in NOTEBOOKS.glob("*/glossary.md"))


def lessons() -> list[str]:
    return sorted(file.name for file in NOTEBOOKS.glob("*.ipynb"))


def stamp(english: str) -> str:
    """Which English a text translates; the badge names a version, which changes without the text."""
    return hashlib.sha256(IS_BADGE.sub("", english).strip().encode()).hexdigest()[:12]


def read(file: Path) -> Notebook:
    return nbformat.read(file, as_version=4)


def renewed(english: Notebook, translated: Notebook | None, name: str) -> Notebook:
    """The English lesson with the texts of the translated one. name: "zh/02_loss_scaling.ipynb"."""
    known = {cell.id: cell for cell in translated.cells} if translated is not None else {}
    cells = []
    for cell in english.cells:
        mine = known.get(cell.id)
        if cell.cell_type == "code":
            outputs = mine.outputs if mine is not None and mine.get("source") == cell.source else []
            cells.append(nbformat.from_dict({**cell, "outputs": outputs}))
        else:
            source = mine.source if mine is not None else cell.source
            said = mine.metadata.get("dtk", {}).get(STAMP, "") if mine is not None else ""
            metadata = {**cell.metadata, "dtk": {STAMP: said}}
            cells.append(
                nbformat.from_dict({**cell, "source": IS_BADGE.sub(badge(name), source), "metadata": metadata})
            )
    return nbformat.from_dict({**english, "cells": cells})


def lacks(language: str) -> Iterator[str]:
    """What is not translated, or not any more, in sentences."""
    for name in lessons():
        file = NOTEBOOKS / language / name
        if not file.exists():
            yield f"{language}: {name} is not there"
            continue
        english, translated = read(NOTEBOOKS / name), read(file)
        if _without_outputs(renewed(english, translated, f"{language}/{name}")) != _without_outputs(translated):
            yield f"{language}/{name}: its code is not the English lesson's; run python tools/translations.py"
        for cell, its in zip(english.cells, translated.cells, strict=False):
            if cell.cell_type == "markdown" and its.metadata.get("dtk", {}).get(STAMP) != stamp(cell.source):
                yield f"{language}/{name}: cell {cell.id} is to be translated: {cell.source.splitlines()[0][:60]!r}"
            for page, to in PAGES.items():
                if f"](../../{page}" in its.source:
                    yield f"{language}/{name}: cell {its.id} links to {page} instead of {to.format(language)}"
    for page, translated in PAGES.items():
        file = ROOT / translated.format(language)
        found = IS_STAMP.match(file.read_text(encoding="utf-8")) if file.exists() else None
        if found is None or found[1] != stamp((ROOT / page).read_text(encoding="utf-8")):
            yield f"{translated.format(language)} is to be translated"


def _without_outputs(notebook: Notebook) -> list[Any]:
    kept = ("cell_type", "id", "source", "metadata")
    return [{key: cell[key] for key in kept} for cell in notebook.cells]


def write(notebook: Notebook, file: Path) -> None:
    file.write_text(nbformat.writes(notebook).rstrip("\n") + "\n", encoding="utf-8")


def renew(language: str) -> None:
    for name in lessons():
        file = NOTEBOOKS / language / name
        write(renewed(read(NOTEBOOKS / name), read(file) if file.exists() else None, f"{language}/{name}"), file)


def done(file: Path) -> None:
    """All texts of a translated lesson or page translate the English as it stands."""
    if file.suffix == ".md":
        ways = {
            (ROOT / to.format(language)).resolve(): ROOT / page
            for page, to in PAGES.items()
            for language in languages()
        }
        text = IS_STAMP.sub("", file.read_text(encoding="utf-8"))
        said = stamp(ways[file.resolve()].read_text(encoding="utf-8"))
        file.write_text(f"<!-- {STAMP} {said} -->\n{text}", encoding="utf-8")
        return
    english = read(NOTEBOOKS / file.name)
    translated = renewed(english, read(file), place_of(file))
    for cell, its in zip(english.cells, translated.cells, strict=True):
        if cell.cell_type == "markdown":
            its["metadata"]["dtk"] = {STAMP: stamp(cell.source)}
    write(translated, file)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0, or 1 where something is to be translated."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--done", nargs="+", type=Path, metavar="FILE")
    options = parser.parse_args(argv)
    for file in options.done or ():
        done(file)
    wrong = []
    for language in languages():
        if not options.check:
            renew(language)
        wrong += lacks(language)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
