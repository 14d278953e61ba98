"""A lesson as a class needs it: which cell is an exercise's, which check it, which code solves it.

The lessons say so themselves: a cell to be filled in is tagged `exercise`, a cell that calls `dtk.check` is tagged
`check`, and the solution is the Python in a folded text between two lines that nobody sees:

    <!-- ### BEGIN SOLUTION -->
    <!-- ### END SOLUTION -->

Cells are dicts as a notebook's file has them, `source` as one string.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtk.course.check import all_exercises
from dtk.course.exercise import Exercise, Trial
from dtk.errors import DtkError
from dtk.language import _

__all__ = ["Cell", "Lesson", "Question", "Task", "lessons", "read", "text_without_solution"]

Cell = dict[str, Any]
_DETAILS = re.compile(r"<details>\n(?:(?!</details>).)*?<!-- ### BEGIN SOLUTION -->.*?</details>\n*", flags=re.DOTALL)
_SOLUTION = re.compile(
    r"<!-- ### BEGIN SOLUTION -->\n```python\n(.*?)\n```\n<!-- ### END SOLUTION -->", flags=re.DOTALL
)


@dataclass(frozen=True)
class Question:
    """What a check asks, for one point. name: "02.shares". cell: the id of the cell that checks it. call: its code."""

    name: str
    cell: str
    call: str

    @property
    def exercise(self) -> Exercise | Trial:
        return all_exercises(self.name.partition(".")[0])[self.name]


@dataclass(frozen=True)
class Task:
    """One cell to be filled in. cell: its id. stub: as it is handed out. solution: what to have in its place."""

    cell: str
    stub: str
    solution: str
    questions: tuple[Question, ...]


@dataclass(frozen=True)
class Lesson:
    """A notebook. name: its file's, without the ending."""

    name: str
    notebook: Mapping[str, Any]
    tasks: tuple[Task, ...]

    @property
    def cells(self) -> list[Cell]:
        """Copies, which an edition changes."""
        return [dict(cell, metadata=dict(cell["metadata"])) for cell in self.notebook["cells"]]

    @property
    def questions(self) -> list[Question]:
        return [question for task in self.tasks for question in task.questions]

    @property
    def title(self) -> str:
        (first, *_) = (cell["source"] for cell in self.notebook["cells"] if cell["source"].startswith("# "))
        return first.partition("\n")[0].removeprefix("# ")


def lessons(folder: Path, names: list[str] | None = None) -> list[Lesson]:
    """The lessons in a folder, in order; of `names`, such as "02" or "lab_3", those whose files begin so.

    Raises:
        DtkError: there is none, or none of that name.
    """
    files = sorted(file for file in folder.glob("*.ipynb"))
    if not files:
        raise DtkError(f"there are no lessons in {folder}", remedy="name their folder: --lessons notebooks")
    for name in names or ():
        if not any(file.stem.startswith(name) for file in files):
            there = ", ".join(file.stem for file in files)
            raise DtkError(f"no lesson in {folder} begins with {name!r}", remedy=f"there are {there}")
    return [read(file) for file in files if not names or file.stem.startswith(tuple(names))]


def read(file: Path) -> Lesson:
    """A lesson's notebook.

    Raises:
        DtkError: it is no notebook, or its exercises, checks and solutions don't fit together; with the cell.
    """
    notebook = _opened(file)
    tasks: list[Task] = []
    stub: Cell | None = None
    checks: list[Question] = []
    for cell in notebook["cells"]:
        tags = cell["metadata"].get("tags", ())
        if "exercise" in tags:
            if stub is not None:
                raise _odd(file, stub, "has no solution behind it")
            stub, checks = cell, []
        elif "check" in tags and "dtk.check(" in cell["source"]:
            if stub is None:
                raise _odd(file, cell, "checks an exercise, of which there is none before it")
            checks.append(Question(_checked(file, cell), cell["id"], cell["source"]))
        elif found := _SOLUTION.findall(cell["source"]):
            if stub is None or not checks or len(found) != 1:
                raise _odd(file, cell, "has a solution, but not one exercise with a check before it")
            tasks.append(Task(stub["id"], stub["source"], found[0], tuple(checks)))
            stub = None
    if stub is not None:
        raise _odd(file, stub, "has no solution behind it")
    return Lesson(file.stem, notebook, tuple(tasks))


def _opened(file: Path) -> dict[str, Any]:
    """A notebook's file with each cell's source as one string. Raises a DtkError where it is none."""
    try:
        notebook = json.loads(file.read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            cell["source"] = "".join(cell["source"])
            cell.setdefault("metadata", {})
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise DtkError(_("{file} is no notebook: {why}", file=file.name, why=why)) from None
    return dict(notebook)


def text_without_solution(source: str) -> str:
    """A text cell's source without what is folded away around a solution."""
    return _DETAILS.sub("", source).strip("\n")


def _checked(file: Path, cell: Cell) -> str:
    """The name in `dtk.check("NAME", ...)`."""
    for call in ast.walk(ast.parse(cell["source"])):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "dtk.check" and call.args:
            name = call.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                return name.value
    raise _odd(file, cell, "is tagged `check` and names no exercise: dtk.check(NAME, ...)")


def _odd(file: Path, cell: Cell, what: str) -> DtkError:
    return DtkError(f"{file.name}: cell {cell['id']} {what}", remedy="dtk/course/lesson.py says how lessons are marked")
