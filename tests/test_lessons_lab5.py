"""The choice of lab 5: which runs it makes, and what it says to choices that never get there, or get there late."""

from __future__ import annotations

import math

import pytest
from lessons import cells_of

import dtk
from dtk.course.check import all_exercises
from dtk.course.exercise import CheckFailed, NotSolved
from dtk.course.exercises import lab_5
from dtk.errors import WorkerFailed

CHOICE = all_exercises("lab5")["lab5.choice"]
START = {"workers": 1, "batch": 32, "rate": 0.02, "warm_up": 0}


def never(steps=1000, last=2.3):
    return {"seconds": math.inf, "reached": math.inf, "steps": steps, "loss": [2.3, last]}


def after(steps, seconds):
    return {"seconds": seconds, "reached": steps, "steps": steps, "loss": [2.3, 0.3]}


def judged(monkeypatch, choice, mine, first=None):
    """What the check says where the choice's run, and the first choice's, come out like this."""
    came = {tuple(sorted(START.items())): first or after(400, 4.0), tuple(sorted(choice.items())): mine}
    monkeypatch.setattr(lab_5, "_raced", lambda train, choice, settings: came[tuple(sorted(choice.items()))])
    CHOICE.judge(choice, None, START, {})


def test_a_choice_that_is_soon_enough_passes(monkeypatch):
    judged(monkeypatch, {**START, "rate": 0.2}, after(80, 4.0 / lab_5.LEAST - 0.01))


@pytest.mark.parametrize(
    ("change", "mine", "words"),
    [
        ({"warm_up": 2000}, never(), "in 1000 steps the warm-up was not over"),
        ({"rate": 50.0}, never(last=math.nan), "the loss did not fall: the rate is too large"),
        ({"rate": 0.0001}, never(), "the loss hardly moved, so the rate is too small"),
        ({"batch": 4096}, never(steps=10, last=1.5), "10 steps were too few; a smaller batch"),
        ({"workers": 4}, after(400, 9.0), "a step takes 2.2 times as long: more workers"),
        ({"rate": 0.015}, after(520, 5.2), "0.77 times as fast .* it needs 1.3 times as many steps"),
        ({"rate": 0.021}, after(390, 3.9), "1 times as fast .* it needs 0.97 times as many steps"),
    ],
)
def test_a_choice_that_is_not_is_told_why(monkeypatch, change, mine, words):
    with pytest.raises(CheckFailed, match=words):
        judged(monkeypatch, {**START, **change}, mine)


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ("fast", "a choice is a dictionary with workers, batch, rate, warm_up"),
        ({"workers": 1}, "a choice is a dictionary"),
        ({**START, "workers": 0}, "workers takes a whole number from 1 to 8"),
        ({**START, "batch": 32.5}, "batch takes a whole number from 1 to 8192"),
        ({**START, "rate": -1}, "rate takes a number from 0 to 1000"),
        ({**START, "rate": math.nan}, "rate takes a number"),
        ({**START, "warm_up": True}, "warm_up takes a whole number"),
        ({**START, "workers": 3}, "share the batch evenly"),
    ],
)
def test_what_can_not_be_run_is_not(monkeypatch, choice, words):
    monkeypatch.setattr(lab_5.runs, "run", lambda *args, **kwargs: pytest.fail("it was run"))
    with pytest.raises(CheckFailed, match=words):
        CHOICE.judge(choice, None, START, {})


def test_a_worker_that_fails_is_named(monkeypatch):
    def fails(*args):
        raise WorkerFailed("worker 1 raised ValueError: mine", worker=1)

    monkeypatch.setattr(lab_5, "_raced", fails)
    with pytest.raises(CheckFailed, match="a worker failed with it: worker 1 raised ValueError"):
        CHOICE.judge(START, None, START, {})


def test_no_choice_is_not_solved():
    with pytest.raises(NotSolved):
        CHOICE.judge(None, None, START, {})


@pytest.fixture(scope="module")
def train():
    """The lab's own training function, with what it needs."""
    names = ("def train(", "def network(", "def make_step(")
    space = {"__name__": "__main__", "dtk": dtk, "math": math}  # so that it travels as a cell's function does
    for cell in cells_of("lab_5_time_to_accuracy"):
        if cell.source.startswith(names):
            exec(cell.source, space)
    return space["train"]


@pytest.mark.slow
@pytest.mark.trains
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rate": 0.2, "warm_up": 10}, ""),
        ({}, "times as fast as the lab.s first choice, and 1.5 are asked for"),
        ({"rate": 50.0}, "the rate is too large"),
        ({"rate": 1e-5}, "the rate is too small"),
        ({"warm_up": 100_000}, "the warm-up was not over"),
        ({"batch": 8192}, "10 steps were too few"),
    ],
)
def test_choices_that_are_really_run(train, change, words, monkeypatch):
    monkeypatch.setenv("DTK_LIVE", "off")
    settings = {"data": {"name": "mnist", "source": "embedded"}, "target": 0.9}
    if not words:
        monkeypatch.setattr(lab_5, "LEAST", 0.1)  # how much faster it is, a busy machine does not show
        assert CHOICE.judge({**START, **change}, train, START, settings) == 1
        return
    with pytest.raises(CheckFailed, match=words):
        CHOICE.judge({**START, **change}, train, START, settings)
