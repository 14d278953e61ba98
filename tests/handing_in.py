"""Students' notebooks, made from a lesson for tests of `dtk class`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from dtk.classroom import lesson as marks
from dtk.classroom.submission import Submission

__all__ = ["FIRST", "NOTEBOOKS", "RIGHT", "SMALL", "hand_in", "notebook"]

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
FIRST = marks.read(NOTEBOOKS / "00_start_here.ipynb")
RIGHT = "def share(losses, global_batch):\n    return sum(losses) / global_batch"


def notebook(lesson, changes=(), without=(), ids=True):
    """A student's notebook: solved, but for `changes`, without some cells."""
    solved = {task.cell: task.solution for task in lesson.tasks}
    cells = []
    for cell in lesson.cells:
        if cell["id"] in without:
            continue
        cell["source"] = dict(changes).get(cell["id"], solved.get(cell["id"], cell["source"]))
        if not ids:
            del cell["id"]
        cells.append(cell)
    return {**lesson.notebook, "cells": cells}


def hand_in(folder, student, content):
    place = folder / student
    place.mkdir(parents=True)
    file = place / "mine.ipynb"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return Submission(student, file)


def _small():
    """Lesson 00's two functions alone, without a run."""
    tasks = tuple(task for task in FIRST.tasks if task.questions[0].name in ("00.share", "00.whole"))
    wanted = {cell for task in tasks for cell in (task.cell, *(question.cell for question in task.questions))}
    cells = [cell for cell in FIRST.cells if cell["id"] in wanted]
    return replace(FIRST, notebook={**FIRST.notebook, "cells": cells}, tasks=tasks)


SMALL = _small()
