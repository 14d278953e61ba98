"""Each exercise in its lesson: the stub is not solved, the folded solution passes the check of the lesson."""

from __future__ import annotations

import ast
import json
import math

import numpy as np
import pytest
from lessons import FOLDER

import dtk
from dtk.course.exercise import NotSolved, all_exercises
from dtk.course.lesson_files import lessons

LESSONS = {each.name: each for each in lessons(FOLDER)}
SOLVED = [
    pytest.param(lesson, task, id=task.name)
    for lesson in LESSONS.values()
    for task in lesson.tasks
    if task.hidden("any word")
]


def defines_only(cell) -> bool:
    """Whether a cell runs nothing: functions for others, such as the two halves of a ring."""
    try:
        code = ast.parse(cell["source"]).body if cell["cell_type"] == "code" else [None]
        return all(isinstance(each, ast.FunctionDef) for each in code)
    except SyntaxError:
        return False  # the set-up cell's %pip


def test_each_exercise_is_in_one_lesson_and_each_lesson_has_four():
    asked = [task.name for lesson in LESSONS.values() for task in lesson.tasks]
    assert sorted(asked) == sorted(all_exercises())
    assert all(len(lesson.tasks) >= 4 for name, lesson in LESSONS.items() if name[0].isdigit())


@pytest.mark.parametrize(("lesson", "task"), SOLVED)
def test_the_stub_is_not_solved_and_the_solution_passes(lesson, task, capsys, monkeypatch):
    space = {"np": np, "math": math, "json": json, "dtk": dtk}
    for cell in filter(defines_only, lesson.cells):
        exec(cell["source"], space)
    exec(task.stub, space)
    with pytest.raises(NotSolved, match=f"{task.name} is not solved yet"):
        exec(task.call, space)
    exec(task.solution, space)
    exec(task.call, space)
    monkeypatch.setenv("DTK_VARIANT", "of another class")
    exec(task.call, space)
    exec(task.hidden("a word"), space)
    assert capsys.readouterr().out.count(f"check {task.name}: PASS (") == 3
