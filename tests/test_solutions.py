"""Each folded solution of a function's exercise passes the check that the lesson calls; the others need a run."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
from lessons import FOLDER

from dtk.course.build import lessons
from dtk.course.exercise import Exercise

USE_A_CELL = {"lab3.update"}  # what an earlier cell defines, which its notebook runs


def solved():
    """(lesson, exercise, the answer's name, the solution's code) of each exercise that is tried on cases."""
    for lesson in lessons(FOLDER):
        for task in lesson.tasks:
            for question in task.questions:
                tried = isinstance(question.exercise, Exercise) and question.exercise.has_cases
                if tried and question.name not in USE_A_CELL:
                    (answer,) = re.findall(r'dtk\.check\("[\w.]+", (\w+)', question.call)
                    yield lesson.name, question.exercise, answer, task.solution


SOLVED = list(solved())


@pytest.mark.parametrize(("lesson", "exercise", "name", "code"), SOLVED, ids=[f"{s[0]}-{s[1].name}" for s in SOLVED])
def test_the_solution_passes_its_own_check(lesson, exercise, name, code):
    given = {"np": np, "json": json, "math": math}
    exec(code, given)
    assert exercise.judge(given[name]) >= 4
    assert exercise.judge(given[name], seed="of another class") >= 4


def test_the_lessons_with_exercises_of_this_kind_are_read():
    assert {"05_custom_loop", "06_estimator"} <= {lesson for lesson, *_ in SOLVED}
