"""What each cell of a lesson is in a talk: `python tools/slides.py notebooks/[01]*.ipynb` writes it where it is not.

`jupyter nbconvert --to slides` reads it in the cells' metadata: slideshow, slide_type. A section is a slide; what does
not fit on it goes to slides below. Left out are the set-up cell and what is for the learner alone: exercises, their
checks, solutions, the report. What a lesson says of a picture, and the text of a section that begins behind a solution,
are the speaker's notes; reveal.js shows one cell of notes a slide. docs/teaching/slides.md says how to make the talks.
"""

from __future__ import annotations

import argparse
import base64
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import nbformat
from heads import IS_SETUP

__all__ = ["HEIGHT", "SHOWN", "TYPES", "height", "is_talk", "kind", "main", "private", "slides", "write"]

HEIGHT = 1050  # of a slide that is 1600 wide, as in docs/teaching/slides.md
TYPES = {"slide", "subslide", "fragment", "-", "skip", "notes"}
SHOWN = TYPES - {"skip", "notes"}
FITS = HEIGHT - 80  # the heights below are estimates
SECTION = re.compile(r"^##? (?!Exercise|What you keep)", flags=re.MULTILINE)

# What nbconvert's page makes of a cell in Chromium, in pixels of such a slide
LINE, FRAME, OUTPUT, PICTURE = 22.8, 36, 20, 55
TEXT_LINE, CHARACTERS, PARAGRAPH, HEADING, TITLE, ROW = 26.5, 138, 20, 84, 280, 37
CODE_CHARACTERS = 126

Notebook = Any  # nbformat's NotebookNode has no types


def is_talk(name: str) -> bool:
    """Whether a talk is made of the notebook of this file name: of lessons, not of labs and appendices."""
    return re.match(r"\d\d_", name) is not None


def kind(cell: Any) -> str | None:
    """A cell's slide type; None where it has none."""
    found = cell.metadata.get("slideshow", {}).get("slide_type")
    return None if found is None else str(found)


def private(cell: Any) -> bool:
    """Whether a cell has no place on a slide: set-up, exercise, check, report, or a solution in its text."""
    if cell.cell_type == "markdown":
        return "### BEGIN SOLUTION" in cell.source
    tags = {"exercise", "check"} & {*cell.metadata.get("tags", ())}
    return bool(tags) or IS_SETUP in cell.source or "dtk.report()" in cell.source


def height(cell: Any) -> float:
    """How many pixels of a slide a cell takes, with its outputs."""
    if cell.cell_type == "markdown":
        return sum(map(_block, re.split(r"\n{2,}(?![^`]*```(?:\n|$))", cell.source)))
    code = sum(max(1, -(-len(line) // CODE_CHARACTERS)) for line in cell.source.splitlines())
    return FRAME + LINE * code + sum(map(_output, cell.outputs))


def _block(text: str) -> float:
    """A block of Markdown: heading, table, fenced code, list or paragraph."""
    lines = text.splitlines()
    if text.startswith("```"):
        return LINE * (len(lines) - 2) + OUTPUT
    if text.startswith("|"):
        return sum(ROW + TEXT_LINE * (max(map(len, line.split("|"))) // 60) for line in lines) + PARAGRAPH
    if text.startswith("#"):
        return HEADING if text.startswith("##") else TITLE
    items = re.split(r"\n(?=- |\d+\. )", re.sub(r"\]\([^)]*\)", "]", text))
    return PARAGRAPH + TEXT_LINE * sum(-(-len(item) // CHARACTERS) for item in items)


def _output(output: Any) -> float:
    data = output.get("data", {})
    if "image/png" in data:
        high = int.from_bytes(base64.b64decode(data["image/png"][:32])[20:24], "big")  # as a PNG's head says
        return float(high + PICTURE)
    if "text/html" in data:
        return ROW * max(3, len(re.findall(r"<tr|<text", data["text/html"]))) + OUTPUT
    text = "\n".join(output.get("traceback", ())) or output.get("text", "") or data.get("text/plain", "")
    return LINE * sum(max(1, -(-len(line) // CODE_CHARACTERS)) for line in text.splitlines()) + OUTPUT


def slides(notebook: Notebook) -> Iterator[list[Any]]:
    """The cells of each slide, notes among them, without those that are left out."""
    slide: list[Any] = []
    for cell in notebook.cells:
        if kind(cell) in ("slide", "subslide") and slide:
            yield slide
            slide = []
        if kind(cell) != "skip":
            slide.append(cell)
    if slide:
        yield slide


def write(notebook: Notebook) -> None:
    """Gives each cell that has none its slide type, in place."""
    used, noted, due = (
        0.0,
        True,
        True,
    )  # of the slide so far: pixels, whether it has notes; whether a section is to begin
    for cell in notebook.cells:
        said = kind(cell) or _proposed(cell, used, noted, due)
        cell.metadata["slideshow"] = {"slide_type": said}
        if said in SHOWN:
            begins = said in ("slide", "subslide")
            used, noted, due = (0.0 if begins else used) + height(cell), noted and not begins, False
        noted = noted or said == "notes"
        due = due or (said not in SHOWN and _section(cell))


def _section(cell: Any) -> bool:
    return cell.cell_type == "markdown" and SECTION.search(cell.source) is not None


def _proposed(cell: Any, used: float, noted: bool, due: bool) -> str:
    """used, noted, due: as in `write`."""
    hidden = "skip" if noted or cell.cell_type == "code" else "notes"
    if private(cell):
        return hidden if _section(cell) else "skip"
    if height(cell) > HEIGHT:
        return hidden
    if cell.cell_type == "markdown" and not _section(cell):  # it says what was seen, or asks for code
        return hidden if not noted or "## Exercise" in cell.source else "fragment"
    if due or _section(cell):
        return "slide"
    return "-" if used + height(cell) <= FITS else "subslide"


def main(argv: Sequence[str] | None = None) -> int:
    """Writes the slide types into notebooks that lack them, and nothing else."""
    parser = argparse.ArgumentParser(description="Says of each cell of a lesson what it is in a talk.")
    parser.add_argument("--fresh", action="store_true", help="forget what the cells say, and say it anew")
    parser.add_argument("paths", nargs="+", type=Path)
    options = parser.parse_args(argv)
    for path in options.paths:
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells if options.fresh else ():
            cell.metadata.pop("slideshow", None)
        write(notebook)
        path.write_text(nbformat.writes(notebook).rstrip("\n") + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
