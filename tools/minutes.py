"""How long a lesson takes, counted: `python tools/minutes.py notebooks/*.ipynb` prints it beside what its head says.

Careful reading of technical text: 130 words a minute, and 20 lines of code. A prediction takes a minute. A run takes
15 s, as measured on two cores; a study a minute; what a lab starts by itself, half a minute. An exercise takes 3 to 8
minutes: 2, and half a minute for each line of its solution. tests/test_minutes.py holds each
head and both tables to it.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat

__all__ = ["counted", "main", "stated"]

WORDS, LINES = 130, 20  # that are read in a minute
SECONDS = {r"\bdtk\.(?:run|baseline)\(": 15, r"\bdtk\.study\(": 60, r"(?<!def )\b(?:both|race)\(": 30}
SHORTEST, LONGEST = 3.0, 8.0  # minutes of an exercise
FOLDED = re.compile(r"<summary><b>Solution.*?</details>", flags=re.DOTALL)
BLOCK = re.compile(r"```python\n(.*?)```", flags=re.DOTALL)
NOT_READ = re.compile(r"```.*?```|\]\([^)]*\)|<[^>]+>|^[|:\- ]+$", flags=re.DOTALL | re.MULTILINE)
HEAD = re.compile(r"\*\*Time\.\*\*\s+(\d+)\s+minutes")

Notebook = Any  # nbformat's NotebookNode has no types


def stated(notebook: Notebook) -> int:
    """The minutes that a lesson's head says; ValueError where it says none."""
    found = HEAD.search(notebook.cells[0].source)
    if found is None:
        raise ValueError("no head says **Time.** N minutes")
    return int(found[1])


def counted(notebook: Notebook) -> float:
    """The minutes that a lesson takes, from its words, lines, runs, predictions and exercises."""
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    codes = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    code = "\n".join(codes)
    words = sum(len(NOT_READ.sub(" ", text).split()) for text in texts)
    lines = sum(bool(line.strip()) for line in code.splitlines())
    seconds = sum(each * len(re.findall(call, code)) for call, each in SECONDS.items())
    solved = [_exercise(solution) for text in texts for solution in FOLDED.findall(text)]
    return words / WORDS + lines / LINES + seconds / 60 + code.count("dtk.ask(") + sum(solved)


def _exercise(solution: str) -> float:
    """The minutes of one exercise, from its folded solution."""
    lines = sum(bool(line.strip()) for code in BLOCK.findall(solution) for line in code.splitlines())
    return min(LONGEST, max(SHORTEST, 2 + lines / 2))


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line for each lesson: its name, the minutes that its head says, the minutes counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path)
    for path in parser.parse_args(arguments).paths:
        notebook = nbformat.read(path, as_version=4)
        print(f"{path.stem}: says {stated(notebook)}, counted {counted(notebook):.0f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
