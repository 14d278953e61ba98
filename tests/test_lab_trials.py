"""Labs: exercises that only a run can judge: weights of two processes, eight broken functions, a choice."""

from __future__ import annotations

import linecache
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
from lessons import FOLDER, cells_of, functions_of, hint, passes

import dtk
from dtk.course.exercise import CheckFailed, NotSolved
from dtk.course.exercises import lab_2, lab_5
from dtk.course.lesson_files import read
from dtk.errors import WorkerFailed
from dtk.proof.mistakes import MISTAKES

# ---- lesson 06: weights that two processes leave

SHAPES = ((64, 32), (32,), (32, 10), (10,))


def weights(seed):
    draw = np.random.default_rng(seed)
    return [draw.normal(size=shape) for shape in SHAPES]


def left(folder, chiefs, others, more=None):
    """Writes what the two workers would have, and returns what `check` gets; None: that worker wrote nothing."""
    for place, arrays in ((folder, chiefs), (folder / "worker-1", others)):
        if arrays is not None:
            place.mkdir(parents=True, exist_ok=True)
            np.savez(place / "weights.npz", *arrays, **({"replicas": 2} if more is None else more))
    return folder, SimpleNamespace(results=[weights(0)])


def test_equal_weights_pass_up_to_rounding(tmp_path, capsys):
    assert passes(capsys, "06.train", *left(tmp_path, [weight + 1e-7 for weight in weights(0)], weights(0)))


@pytest.mark.parametrize(
    ("chiefs", "others", "more", "words"),
    [
        (None, weights(0), None, "worker 0 has left no weights.npz"),
        (weights(0), None, None, "worker 1 has left no weights.npz"),
        (weights(0)[::-1], weights(0), None, "not the weights of this model"),
        (weights(1), weights(0), None, "the workers hold different weights"),
        ([weight * math.nan for weight in weights(0)],) * 2 + (None, "hold different weights"),
        (weights(1), weights(1), None, "and not with one device"),
        (weights(0), weights(0), None, "one device's weights to the last bit"),
        (weights(0), weights(0), {"replicas": 1}, "replicas=1: two workers"),
        (weights(0), weights(0), {"rate": 1}, "not the weights of this"),
        (weights(0), weights(0), {}, "replicas=None: two workers"),
    ],
)
def test_weights_that_no_two_workers_trained(tmp_path, chiefs, others, more, words):
    assert words in hint("06.train", *left(tmp_path, chiefs, others, more))


def test_without_a_file_that_can_be_read_it_is_not_solved(tmp_path):
    folder, baseline = left(tmp_path, weights(0), weights(0))
    (tmp_path / "weights.npz").write_text("weights")
    assert "can't be read" in hint("06.train", folder, baseline)
    for answer in (None, ..., tmp_path / "nowhere"):
        with pytest.raises(NotSolved):
            dtk.check("06.train", answer, baseline)


# ---- lab 2: the name comes first; a function as it was handed out fails, the folded solution passes

LAB = read(FOLDER / "lab_2_broken_functions.ipynb")
CELLS = cells_of(LAB.name)
TASKS = {task.name: task for task in LAB.tasks}
MISTAKE = {each.name: each.hint_for.keywords["mistake"] for each in lab_2.EXERCISES}
EACH = pytest.mark.parametrize("name", MISTAKE)


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


def test_the_lab_lists_its_mistakes_and_does_not_give_them_away():
    text = "\n".join(cell.source for cell in CELLS if cell.cell_type == "markdown")
    listed = re.findall(r'^\| `"([^"]+)"` \|', text, flags=re.MULTILINE)
    assert len({*MISTAKE.values()}) == len(MISTAKE) == 8
    assert {*MISTAKE.values()} < set(listed) <= set(MISTAKES)
    assert "dtk.diagnose(" not in "".join(cell.source for cell in CELLS if cell.cell_type == "code")


@EACH
def test_nothing_runs_before_the_mistake_is_named(name, monkeypatch):
    monkeypatch.setattr(lab_2, "run", None)
    function, named = ran(TASKS[name].stub, name)
    with pytest.raises(NotSolved, match="name the mistake"):
        dtk.check(name, function, named)
    for wrong in ("wrong divisor", ["local mean"], 1):
        with pytest.raises(CheckFailed, match="no name of a mistake"):
            dtk.check(name, function, wrong)
    for other in {*MISTAKE.values()} - {MISTAKE[name]}:
        with pytest.raises(CheckFailed, match="is not what is wrong here; hint: it would be seen by this") as failed:
            dtk.check(name, function, other)
        assert repr(MISTAKE[name]) not in str(failed.value)


@pytest.mark.slow
@EACH
def test_the_broken_function_fails_and_its_solution_passes(name, capsys):
    function, _ = ran(TASKS[name].stub, name)
    with pytest.raises(CheckFailed, match=r"named rightly, and not corrected yet; hint: dtk\.diagnose says"):
        dtk.check(name, function, MISTAKE[name])
    dtk.check(name, *ran(TASKS[name].solution, name))
    assert capsys.readouterr().out.endswith(f"check {name}: PASS\n")


# ---- lab 5: the choice, which is run

START = {"workers": 1, "batch": 32, "rate": 0.02, "warm_up": 0}


def never(steps=1000, last=2.3):
    return {"seconds": math.inf, "reached": math.inf, "steps": steps, "loss": [2.3, last]}


def after(steps, seconds):
    return {"seconds": seconds, "reached": steps, "steps": steps, "loss": [2.3, 0.3]}


@pytest.fixture
def come_out(monkeypatch):
    """Has the choice's run come out as is said, and the first choice's after 400 steps in 4 s."""

    def set_up(mine):
        monkeypatch.setattr(
            lab_5, "_raced", lambda train, choice, settings: after(400, 4.0) if choice == START else mine
        )

    return set_up


def test_a_choice_that_is_soon_enough_passes(come_out, capsys):
    come_out(after(80, 4.0 / lab_5.LEAST - 0.01))
    choice = {"workers": np.int64(2), "batch": np.int32(64), "rate": np.float32(0.1), "warm_up": np.int64(0)}
    assert passes(capsys, "lab5.choice", choice, None, START, {})


@pytest.mark.parametrize(
    ("change", "mine", "words"),
    [
        ({"warm_up": 2000}, never(), "in 1000 steps the warm-up was not over"),
        ({"rate": 50.0}, never(last=math.nan), "the loss did not fall: the rate is too large"),
        ({"rate": 0.0001}, never(), "the loss hardly moved, so the rate is too small"),
        ({"batch": 4096}, never(steps=10, last=1.5), "10 steps were too few; a smaller batch"),
        ({"workers": 4}, after(400, 9.0), "it needs 1 times as many steps, and a step takes 2.2 times as long"),
        ({"rate": 0.015}, after(520, 5.2), "it needs 1.3 times as many steps"),
    ],
)
def test_a_choice_that_is_not_is_told_why(come_out, change, mine, words):
    come_out(mine)
    assert words in hint("lab5.choice", {**START, **change}, None, START, {})


@pytest.mark.parametrize(
    "change",
    [{"workers": 0}, {"batch": 32.5}, {"rate": math.nan}, {"rate": 1j}, {"warm_up": True}, {"workers": 3}, {"more": 1}],
)
def test_what_can_not_be_run_is_not(monkeypatch, change):
    monkeypatch.setattr(lab_5.runs, "run", lambda *args, **kwargs: pytest.fail("it was run"))
    for choice in ("fast", {**START, **change}):
        assert "a choice is a dictionary with workers (1 to 8)" in hint("lab5.choice", choice, None, START, {})


def test_a_worker_that_fails_is_named(monkeypatch):
    def fails(*args):
        raise WorkerFailed("worker 1 raised ValueError: mine", worker=1)

    monkeypatch.setattr(lab_5, "_raced", fails)
    assert "in a worker it fails: worker 1 raised ValueError" in hint("lab5.choice", START, None, START, {})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "words"), [({"rate": 0.2, "warm_up": 10}, ""), ({"rate": 50.0}, "rate is too large")]
)
def test_choices_that_are_really_run(change, words, monkeypatch, capsys):
    space = functions_of("lab_5_time_to_accuracy", "def train(", "def network(", "def make_step(")
    monkeypatch.setenv("DTK_LIVE", "off")
    objects = space["train"], START, {"data": {"name": "mnist", "source": "embedded"}, "target": 0.9}
    if words:
        assert words in hint("lab5.choice", {**START, **change}, *objects)
        return
    monkeypatch.setattr(lab_5, "LEAST", 0.1)  # how much faster it is, a busy machine does not show
    assert passes(capsys, "lab5.choice", {**START, **change}, *objects)
