"""Who guesses: answers that once passed without being right, right ones that once failed, and values of any kind."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest

import dtk
from dtk.course.check import all_exercises
from dtk.course.exercise import CheckFailed, Exercise, NotSolved, same
from dtk.course.exercises import lab_5, lesson_04
from dtk.course.rehearsal import rehearse
from dtk.errors import DtkError

FUNCTIONS = {n: e for n, e in all_exercises().items() if isinstance(e, Exercise) and e.has_cases}
PLAIN = {name: exercise for name, exercise in FUNCTIONS.items() if exercise.play is None}


class Hostile:
    """Equal to everything where it is asked, and refuses the rest."""

    __hash__ = None

    def __eq__(self, other):
        return True

    def _refuse(self, *given):
        raise RuntimeError("refused")

    __len__ = __array__ = __iter__ = __repr__ = _refuse
    numpy = property(_refuse)


VALUES = [math.nan, math.inf, True, "2", b"12", {0}, {1: 2}, 10**400, 1j, np.array("2"), np.ma.masked, Hostile(), print]


@pytest.mark.parametrize("exercise", FUNCTIONS.values(), ids=FUNCTIONS)
def test_any_value_gets_a_hint(exercise):
    for value in VALUES:
        with pytest.raises(CheckFailed, match="which is not right|raises|no chunk is sent"):
            exercise.judge(lambda *case, value=value: value)


@pytest.mark.parametrize("exercise", FUNCTIONS.values(), ids=FUNCTIONS)
def test_no_misconception_passes_with_the_numbers_of_another_class(exercise):
    for seed in map(str, range(60)):
        cases = exercise.cases(seed)
        right = [exercise.tried(exercise.answer, case) for case in cases]
        assert exercise.judge(exercise.answer, seed=seed) == len(cases)
        for answer, hint in exercise.misconceptions:
            try:
                made = [exercise.tried(answer, case) for case in cases]
            except Exception:
                continue
            alike = [same(its, mine, exercise.close) for its, mine in zip(made, right, strict=True)]
            assert not all(alike), (seed, hint)


@pytest.mark.parametrize("exercise", PLAIN.values(), ids=PLAIN)
def test_the_right_answer_in_a_wrong_shape_does_not_pass(exercise):
    shapes = [lambda right: [right], lambda right: {0: right}, lambda right: np.array(str(right)), lambda right: repr]
    if not isinstance(exercise.answer(*exercise.cases()[0]), list | dict | str | tuple):
        shapes += [
            str,
            lambda right: np.array([right]),
            lambda right: complex(right, 1),
            lambda right: right * 1.001 + 1,
        ]
    for shaped in shapes:
        with pytest.raises(CheckFailed):
            exercise.judge(lambda *case, shaped=shaped: shaped(exercise.answer(*case)))


@pytest.mark.parametrize("exercise", PLAIN.values(), ids=PLAIN)
def test_right_in_the_first_three_cases_is_not_enough(exercise):
    known = {repr(case): exercise.answer(*case) for case in exercise.cases()[:3]}
    first = exercise.answer(*exercise.cases()[0])
    with pytest.raises(CheckFailed):
        exercise.judge(lambda *case: known.get(repr(case), first))


def with_a_chief(workers, index):
    task = {"type": "worker", "index": index - 1} if index else {"type": "chief", "index": 0}
    return {"cluster": {"chief": workers[:1], "worker": workers[1:]}, "task": task}


OTHER_FORMS = [
    ("04.config", with_a_chief),
    ("02.shares", lambda losses: (sum(mine) / sum(map(len, losses)) for mine in losses)),
    ("06.kept", lambda steps, every: iter(sorted({*range(0, steps + 1, every), steps})[-5:])),
    ("09.amdahl", lambda serial, workers: Fraction(1) / (Fraction(serial) + (1 - Fraction(serial)) / workers)),
    ("00.share", lambda losses, batch: np.float32(np.sum(losses) / batch)),
    ("11.zero", lambda weights, workers: 4 * weights + 12 * weights // workers),
    ("lab1.place", lambda folder, index: Path(folder) / f"worker-{index}" if index else Path(folder)),
    ("lab1.place", lambda folder, index: f"./{folder}" + (f"/worker-{index}" if index else "/")),
    (
        "lab1.environment",
        lambda base, config: (
            {name: value for name, value in base.items() if "proxy" not in name.lower()}
            | {"TF_CONFIG": json.dumps(config, indent=2)}
        ),
    ),
]


@pytest.mark.parametrize(("name", "answer"), OTHER_FORMS)
def test_another_way_to_write_it_passes(name, answer):
    assert FUNCTIONS[name].judge(answer) >= 4


@pytest.mark.parametrize(
    ("got", "right"),
    [
        (np.array("2"), 2),
        (np.array(["1", "2"]), np.array([1, 2])),
        (np.array(True), 1),
        (np.complex128(2 + 1j), 2),
        ({0, 20}, [0, 20]),
        (b"\x00\x14", [0, 20]),
        (np.array(3), [3]),
        (Hostile(), [1, 2]),
        (Hostile(), 1.0),
        (Hostile(), {"a": 1}),
    ],
)
def test_what_only_looks_equal_is_not(got, right):
    assert not same(got, right)


def test_a_generator_without_an_end_ends():
    def endless(losses):
        while True:
            yield 1.0

    with pytest.raises(CheckFailed, match="not right"):
        FUNCTIONS["02.shares"].judge(endless)


def test_a_way_through_without_return_is_named_with_its_case():
    def warm_up(epoch, warm, rate):
        if epoch < warm:
            return rate * (epoch + 1) / warm

    with pytest.raises(
        CheckFailed, match=r"warm_up\(4, 4, 0.1\) returns nothing; is there a `return` on each"
    ) as failed:
        FUNCTIONS["03.warm_up"].judge(warm_up)
    assert not isinstance(failed.value, NotSolved)


def test_the_default_hint_is_about_the_case_that_is_shown():
    square = Exercise(
        "99.square",
        given="number",
        right="number**2",
        wrong={"-number": "a square is not negative"},
        drawn=lambda draw: [(2,), (7,)],
    )
    with pytest.raises(
        CheckFailed, match=r"\(7\) is 14, .* right in 1 of 2 cases; hint: work out the case that is shown"
    ):
        square.judge(lambda number: 2 * number)


def test_an_array_in_a_message_takes_one_line():
    with pytest.raises(CheckFailed) as failed:
        FUNCTIONS["02.any_shape"].judge(lambda losses, batch: losses.mean(axis=-1).mean() if losses.ndim > 1 else 1.25)
    assert "\n" not in str(failed.value)

    with pytest.raises(CheckFailed) as failed:
        FUNCTIONS["02.shares"].judge(lambda losses: np.ones((3, 3)))
    assert "\n" not in str(failed.value)


@pytest.mark.parametrize(("name", "objects"), [("00.apart", (1,)), ("lab5.choice", ()), ("05.penalty", (1,))])
def test_without_the_objects_of_the_cell_a_check_says_so(name, objects):
    with pytest.raises(DtkError, match="call dtk.check as the lesson's cell does"):
        dtk.check(name, 1, *objects)


def test_messages_are_counted_beside_bytes():
    def in_two(ring):
        return [float(ring.swap(1 - ring.worker, [part])[0]) for part in (1.0, 2.0)]

    outcome = rehearse(in_two, [(), ()])
    assert (outcome["bytes"], outcome["messages"]) == ([16, 16], [2, 2])


def test_workers_do_not_share_their_weights():
    """Each process has its own; a step in place that gathers nothing would be seen by all threads."""
    seen = {}

    def step(ring, weights, gradient, update):
        seen.setdefault((ring.workers, ring.worker), weights)
        return ring.join(ring.split(weights))

    with pytest.raises(CheckFailed):
        FUNCTIONS["lab3.update"].judge(step)
    assert seen[2, 0] is not seen[2, 1]


@pytest.mark.parametrize("named", [["local mean"], {}, 1, ("local mean",)])
def test_a_mistake_is_named_by_a_text(named):
    with pytest.raises(CheckFailed, match="is no name of a mistake"):
        dtk.check("lab2.first", print, named)


def test_a_choice_takes_numpy_numbers():
    choice = {"workers": np.int64(2), "batch": np.int32(64), "rate": np.float32(0.1), "warm_up": np.int64(0)}
    assert lab_5._not_possible(choice) == ""
    for wrong in ({"rate": math.nan}, {"workers": 2.0}, {"warm_up": True}, {"batch": "64"}, {"rate": 1j}):
        assert "takes a" in lab_5._not_possible({**choice, **wrong})


def test_a_count_that_is_equal_to_everything_is_no_count(monkeypatch):
    monkeypatch.setattr(
        lesson_04, "_started", lambda answer, replicas: [(MagicMock(__eq__=lambda *_: True), at) for at in (2, 3)]
    )
    with pytest.raises(CheckFailed):
        dtk.check("04.strategy", lambda: None)
    monkeypatch.setattr(lesson_04, "_started", lambda answer, replicas: [(np.int64(2), 2), (3, 3)])
    dtk.check("04.strategy", lambda: None)


# ---- weights that two processes leave


def leave(folder, weights, **more):
    for place in (folder, folder / "worker-1"):
        place.mkdir(parents=True, exist_ok=True)
        np.savez(place / "weights.npz", *weights, **more)


@pytest.mark.parametrize(
    ("change", "replicas", "hint"),
    [
        (lambda weight: weight * math.nan, 2, "hold different weights"),
        (lambda weight: weight, 2, "one device's weights to the last bit"),
        (lambda weight: weight + 1e-7, 4, "replicas=4: two workers"),
    ],
)
def test_weights_that_no_two_workers_trained(tmp_path, change, replicas, hint):
    weights = [np.linspace(0, 1, 12).reshape(3, 4), np.arange(4.0)]
    leave(tmp_path, [change(weight) for weight in weights], replicas=replicas)
    with pytest.raises(CheckFailed, match=hint):
        dtk.check("lab1.train", tmp_path, SimpleNamespace(results=[weights]))


def test_a_file_that_is_none_of_numpys_gets_a_hint(tmp_path):
    leave(tmp_path, [np.zeros(2)], replicas=2)
    (tmp_path / "weights.npz").write_text("weights")
    with pytest.raises(CheckFailed, match="can't be read"):
        dtk.check("lab1.train", tmp_path, SimpleNamespace(results=[[np.zeros(2)]]))
