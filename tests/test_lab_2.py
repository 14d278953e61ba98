"""Lab 2's eight functions: the name comes first; a function as it was handed out fails, the folded solution passes."""

from __future__ import annotations

import linecache
import re

import pytest
from lessons import cells_of, tags

import dtk
from dtk.course.exercise import CheckFailed, NotSolved
from dtk.course.exercises import lab_2
from dtk.proof.mistakes import MISTAKES

EXERCISES = lab_2.EXERCISES
CELLS = cells_of("lab_2_broken_functions")
STUBS = [cell.source for cell in CELLS if "exercise" in tags(cell)]
TEXT = "\n".join(cell.source for cell in CELLS if cell.cell_type == "markdown")
SOLUTIONS = re.findall(r"<summary><b>Solution</b></summary>.*?```python\n(.*?)```", TEXT, re.DOTALL)
EACH = pytest.mark.parametrize("number", range(8), ids=[each.name for each in EXERCISES])


def ran(source, name):
    """(function, the mistake's name) of a cell of the lab, after the cells that all functions use."""
    common = [cell.source for cell in CELLS if cell.cell_type == "code" and "def build" in cell.source]
    common += [cell.source for cell in CELLS if cell.cell_type == "code" and "def loop" in cell.source]
    space = {"dtk": dtk, "__name__": "__main__"}
    for number, code in enumerate([*common, source]):
        file = f"<{name} {number}>"
        linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)  # workers are sent the source
        exec(compile(code, file, "exec"), space)
    return space[name.partition(".")[2]], space["named"]


def test_the_lab_has_eight_functions_and_their_solutions():
    assert len(STUBS) == len(SOLUTIONS) == len(EXERCISES) == 8
    assert len({each.mistake for each in EXERCISES}) == 8
    listed = re.findall(r'^\| `"([^"]+)"` \|', TEXT, flags=re.MULTILINE)
    assert {each.mistake for each in EXERCISES} < set(listed) <= set(MISTAKES)
    assert "dtk.diagnose(" not in "".join(cell.source for cell in CELLS), "the lab does not give it away"


@EACH
def test_nothing_runs_before_the_mistake_is_named(number, monkeypatch):
    exercise = EXERCISES[number]
    monkeypatch.setattr(lab_2, "run", None)
    function, named = ran(STUBS[number], exercise.name)
    with pytest.raises(NotSolved, match="name the mistake"):
        dtk.check(exercise.name, function, named)
    with pytest.raises(CheckFailed, match="no name of a mistake"):
        dtk.check(exercise.name, function, "wrong divisor")
    for other in {each.mistake for each in EXERCISES} - {exercise.mistake}:
        with pytest.raises(CheckFailed, match="is not what is wrong here; hint: it would be seen by this") as failed:
            dtk.check(exercise.name, function, other)
        assert repr(exercise.mistake) not in str(failed.value)


@pytest.mark.slow
@pytest.mark.trains
@EACH
def test_the_broken_function_fails_and_its_solution_passes(number, capsys):
    exercise = EXERCISES[number]
    function, _ = ran(STUBS[number], exercise.name)
    with pytest.raises(CheckFailed, match=r"named rightly, and not corrected yet; hint: dtk\.diagnose says"):
        dtk.check(exercise.name, function, exercise.mistake)
    function, named = ran(SOLUTIONS[number], exercise.name)
    dtk.check(exercise.name, function, named)
    assert capsys.readouterr().out.endswith(f"check {exercise.name}: PASS\n")


@pytest.mark.slow
@pytest.mark.trains
def test_another_training_does_not_pass():
    """The workers agree with one device, but on something else than was asked for."""
    slower = SOLUTIONS[1].replace("SGD(0.1)", "SGD(0.05)")
    typed_in = SOLUTIONS[1].replace("batch(global_batch)", "batch(64)")
    shorter = SOLUTIONS[1].replace("take(steps)", "take(steps - 2)")
    raising = SOLUTIONS[1].replace("build()", "build(2)")
    for source, hint in (
        (slower, "something else"),
        (typed_in, "something else"),
        (shorter, r"it takes \d steps where \d were asked for"),
        (raising, "run"),
    ):
        function, named = ran(source, "lab2.second")
        with pytest.raises(CheckFailed, match=hint):
            dtk.check("lab2.second", function, named)
