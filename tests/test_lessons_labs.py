"""The labs' exercises as they stand in the notebooks: stubs look unsolved, folded solutions pass."""

from __future__ import annotations

import ast
import math
import re

import numpy as np
import pytest
from lessons import cells_of, tags

import dtk
from dtk.course.check import all_exercises
from dtk.course.exercise import Exercise, NotSolved

LABS = ["lab_3_sharded_optimizer", "lab_4_another_all_reduce", "lab_5_time_to_accuracy"]


def exercises_of(lab):
    """(name, stub, check, solution) of each, in their order."""
    cells = cells_of(lab)
    for at, cell in enumerate(cells):
        if "check" in tags(cell):
            name = re.search(r'dtk\.check\("([\w.]+)"', cell.source)[1]
            solution = re.search(r"<summary><b>Solution</b>.*?```python\n(.*?)```", cells[at + 1].source, re.DOTALL)[1]
            yield name, cells[at - 1].source, cell.source, solution


def defines_only(source):
    """Whether a cell runs nothing: functions for others, such as the two halves of a ring."""
    try:
        return all(isinstance(node, ast.FunctionDef) for node in ast.parse(source).body)
    except SyntaxError:
        return False  # the set-up cell's %pip


@pytest.mark.parametrize("lab", LABS)
def test_each_exercise_stands_in_its_lab(lab):
    assert {name for name, *_ in exercises_of(lab)} == set(all_exercises("".join(lab.split("_")[:2])))


@pytest.mark.parametrize(
    ("lab", "name", "stub", "check", "solution"),
    [
        pytest.param(lab, *each, id=each[0])
        for lab in LABS
        for each in exercises_of(lab)
        if isinstance(all_exercises()[each[0]], Exercise)
    ],
)
def test_the_stub_is_not_solved_and_the_solution_passes(lab, name, stub, check, solution, capsys):
    space = {"np": np, "math": math, "dtk": dtk}
    for cell in cells_of(lab):
        if cell.cell_type == "code" and defines_only(cell.source):
            exec(cell.source, space)
    exec(stub, space)
    with pytest.raises(NotSolved):
        exec(check, space)
    exec(solution, space)
    exec(check, space)
    assert capsys.readouterr().out.startswith(f"check {name}: PASS (")
