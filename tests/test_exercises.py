"""Every exercise takes its right answer, however it is written, and none of the wrong ones, nor any guess."""

from __future__ import annotations

import inspect
import json
import math
import os
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from fabricate import fabricate, losses

import dtk
from dtk.course.exercise import CheckFailed, Exercise, NotSolved, all_exercises, same
from dtk.errors import DtkError
from dtk.model import Cluster, Job, Link, predict

ALL = {name: exercise for name, exercise in all_exercises().items() if isinstance(exercise, Exercise)}
FUNCTIONS = {name: exercise for name, exercise in ALL.items() if exercise.drawn}
each = pytest.mark.parametrize("exercise", FUNCTIONS.values(), ids=FUNCTIONS)


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


@each
def test_the_right_answer_passes_and_each_misconception_gets_its_own_hint(exercise):
    assert exercise.judge(exercise.right) == len(exercise.cases()) >= 4
    assert len(exercise.misconceptions) >= 3
    for answer, hint in exercise.misconceptions:
        with pytest.raises(CheckFailed) as failed:
            exercise.judge(answer)
        assert failed.value.remedy == f"hint: {hint}"


@each
def test_who_guesses_does_not_pass(exercise):
    cases = exercise.cases()
    rights = [exercise.tried(exercise.right, case) for case in cases]
    arguments = [lambda *case, at=at: case[at] for at in range(len(cases[0]))]
    for guess in [*(lambda *case, value=value: value for value in [0, 1, 2, -1, "", [], *rights]), *arguments]:
        with pytest.raises(CheckFailed):
            exercise.judge(guess)
    for value in VALUES:
        with pytest.raises(CheckFailed, match="which is not right|raises|no chunk is sent"):
            exercise.judge(lambda *case, value=value: value)
    for stub in (None, ..., lambda *case: None, lambda *case: ...):
        with pytest.raises(NotSolved):
            exercise.judge(stub)


@each
def test_no_misconception_passes_with_the_numbers_of_another_class(exercise):
    for seed in map(str, range(60 if os.environ.get("DTK_THOROUGH") else 12)):
        cases = exercise.cases(seed)
        right = [exercise.tried(exercise.right, case) for case in cases]
        assert exercise.judge(exercise.right, seed=seed) == len(cases)
        for answer, hint in exercise.misconceptions:
            try:
                pairs = zip(cases, right, strict=True)
                alike = all(same(exercise.tried(answer, case), its, exercise.close) for case, its in pairs)
            except Exception:
                continue
            assert not alike, (seed, hint)


@pytest.mark.parametrize("name", [name for name, exercise in FUNCTIONS.items() if exercise.play is None])
def test_the_right_answer_in_a_wrong_shape_or_for_the_first_three_cases_alone_does_not_pass(name):
    exercise = FUNCTIONS[name]
    cases = exercise.cases()
    first = exercise.right(*cases[0])
    shapes = [lambda right: [right], lambda right: {0: right}, lambda right: np.array(str(right)), lambda right: repr]
    if not isinstance(first, list | dict | str | tuple):
        shapes += [str, lambda right: np.array([right]), lambda right: complex(right, 1)]
    known = {repr(case): exercise.right(*case) for case in cases[:3]}
    answers = [lambda *case, shaped=shaped: shaped(exercise.right(*case)) for shaped in shapes]
    for answer in [*answers, lambda *case: known.get(repr(case), first)]:
        with pytest.raises(CheckFailed):
            exercise.judge(answer)


@pytest.fixture
def runs(tmp_path):
    """A run and its baseline: 20 steps, the last short, the cluster's loss the smaller at step 12."""
    curve = losses(20)
    noise = 1e-7 * np.cos(np.arange(20))
    noise[11] = -3e-7
    shares = np.stack([0.4 * curve, (0.6 + noise) * curve], axis=1)
    examples = np.tile([48, 80], (20, 1))
    examples[-1] = 20, 13
    weights = [np.zeros((3, 4)), np.zeros(4), np.zeros((4, 3))]
    run = fabricate(tmp_path / "run", steps=20, shares=shares, examples=examples, final=[weights] * 2)
    return run, fabricate(tmp_path / "alone", mode="single", workers=1, steps=20, shares=curve[:, None])


@pytest.mark.parametrize("name", sorted(set(ALL) - set(FUNCTIONS)))
def test_a_value_is_judged_by_the_learners_own_run(name, runs):
    exercise = ALL[name]
    objects = runs if "baseline" in inspect.signature(exercise.right).parameters else runs[:1]
    right = exercise.tried(exercise.right, objects)
    assert all(exercise.judge(answer, *objects) == 1 for answer in [right, *otherwise(right)])
    for answer, hint in exercise.misconceptions:
        with pytest.raises(CheckFailed) as failed:
            exercise.judge(exercise.tried(answer, objects), *objects)
        assert failed.value.remedy == f"hint: {hint}"
    for guess in (0, 1, 64, "PASS", [1]):
        with pytest.raises(CheckFailed):
            exercise.judge(guess, *objects)
    with pytest.raises(NotSolved):
        exercise.judge(None, *objects)
    with pytest.raises(DtkError, match="call dtk.check as the lesson's cell does"):
        dtk.check(name, 1)


def with_a_chief(workers, index):
    task = {"type": "worker", "index": index - 1} if index else {"type": "chief", "index": 0}
    return {"cluster": {"chief": workers[:1], "worker": workers[1:]}, "task": task}


def passed_on(ring, chunks, first=1):
    """The second half of a ring, in place; with first=0 the first half. What came is what is sent next."""
    number = (ring.worker + first) % ring.workers
    for _ in chunks[1:]:
        number, values = ring.exchange(number, chunks[number])
        chunks[number][:] = values if first else chunks[number] + values


def updated(ring, weights, gradient, update):
    parts, sums = (ring.split(each.copy()) for each in (weights, gradient))
    passed_on(ring, sums, 0)
    own = (ring.worker + 1) % ring.workers
    parts[own][:] = update(parts[own], sums[own])
    passed_on(ring, parts)
    return np.hstack(parts).tolist()


def hypotenuse(ring, part):
    ring.split(part)
    norms = [np.linalg.norm(part)]
    while len(norms) < ring.workers:
        norms += list(ring.exchange(0, np.array(norms[-1:]))[1])
    return math.hypot(*norms)


def doubled(ring, numbers, far=1):
    return numbers if far == ring.workers else doubled(ring, numbers + ring.swap(ring.worker ^ far, numbers), 2 * far)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("01.all_gather", passed_on),
        ("lab3.norm", hypotenuse),
        ("lab3.update", updated),
        ("lab4.doubling", doubled),
        ("04.config", with_a_chief),
        ("00.share", lambda losses, batch: np.float32(np.sum(losses) / batch)),
        ("06.place", lambda folder, index: f"./{folder}" + (f"/worker-{index}" if index else "/")),
        ("06.place", lambda folder, index: Path(folder) / f"worker-{index}" if index else Path(folder)),
        (
            "06.environment",
            lambda base, config: (
                {name: value for name, value in base.items() if "proxy" not in name.lower()}
                | {"TF_CONFIG": json.dumps(config, indent=2)}
            ),
        ),
        ("14.weights", lambda counts: (Fraction(count, sum(counts)) for count in counts)),
        ("14.clip", lambda shares, limit: list(np.sum(shares, 0) / max(1, math.hypot(*np.sum(shares, 0)) / limit))),
        ("14.variance", lambda n, m, v: np.dot(n, v + np.square(m - np.dot(n, m) / sum(n))) / sum(n)),
    ],
)
def test_another_way_to_write_it_passes(name, answer):
    assert FUNCTIONS[name].judge(answer) >= 4


def otherwise(right):
    """A right answer as other learners return it: NumPy's numbers, exact ones, tuples, arrays, iterators."""
    if isinstance(right, int | float) and not isinstance(right, bool):
        return [np.float64(right), np.array(right), Fraction(right) if math.isfinite(right) else right]
    if isinstance(right, list | tuple) and not isinstance(right[:1], str):
        return [tuple(right), list(right), iter(right)]
    return [dict(reversed(right.items()))] if isinstance(right, dict) else [right]


@each
def test_a_right_answer_of_another_type_passes_and_one_that_is_half_right_does_not(exercise):
    cases = exercise.cases()
    for called in (1, len(cases) - 1):
        calls = iter(range(1000))

        def half(*case, calls=calls, called=called):
            assert next(calls) != called, "an error in one case alone"
            return exercise.right(*case)

        with pytest.raises(CheckFailed, match="an error in one case alone"):
            exercise.judge(half)
    if exercise.play is None:
        for at in range(len(otherwise(exercise.right(*cases[0])))):
            assert exercise.judge(lambda *case, at=at: otherwise(exercise.right(*case))[at]) == len(cases)


@pytest.mark.parametrize(
    ("got", "right", "equal"),
    [
        (1, 1.0, True),
        (True, 1, False),
        ([1, 2], (1.0, 2.0), True),
        ([1, 2], [1, 2, 3], False),
        ({"a": 1}, {"a": 1.0}, True),
        (math.nan, math.nan, True),
        (1.0001, 1.0, False),
        ("ab", ["a", "b"], False),
        (np.array(["1", "2"]), np.array([1, 2]), False),
        (np.array(True), 1, False),
        (np.complex128(2 + 1j), 2, False),
        (b"\x00\x14", [0, 20], False),
        (np.array(3), [3], False),
        (Hostile(), 1.0, False),
    ],
)
def test_same(got, right, equal):
    assert same(got, right) is equal


SQUARE = Exercise(
    "99.square",
    right=lambda number: number**2,
    wrong={"2 * number": "that doubles it"},
    drawn=lambda draw: [(2,), (7,)],
)


def endless(number):
    while True:
        yield 1.0


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            lambda number: 3 * number,
            "<lambda>(2) is 6, which is not right, right in 0 of 2 cases; hint: work out the case",
        ),
        (lambda number: number / 0, "99.square: <lambda>(2) raises ZeroDivisionError: division by zero"),
        ({2: 4}.get, "99.square: get(7) is None, which is not right, right in 1 of 2 cases"),
        (endless, "99.square: endless(2) is [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, ...], which is not right"),
        (lambda number: np.ones((3, 3)), "[1., 1., 1.]]), which is not right"),
        (49, "99.square: a function is asked for, not 49"),
    ],
)
def test_a_wrong_answer_is_shown_with_its_case_and_the_hint_below(answer, words):
    with pytest.raises(CheckFailed) as failed:
        SQUARE.judge(answer)
    assert words in str(failed.value)
    assert not isinstance(failed.value, NotSolved)
    lines = failed.value._render_traceback_()
    assert " ".join(lines).split() == f"CheckFailed: {failed.value}".replace("; hint", "  hint").split()
    assert all(line.startswith("  hint") for line in lines if "hint" in line)


def test_a_function_that_changes_its_arguments_changes_no_case():
    drop = Exercise("99.first", right=lambda values: values[0], wrong={}, drawn=lambda draw: [([1, 2],), ([3, 4],)])
    assert drop.judge(lambda values: values.pop(0)) == 2


def test_workers_do_not_share_their_weights():
    """Each process has its own; a step in place that gathers nothing would be seen by all threads."""
    seen = {}

    def step(ring, weights, gradient, update):
        seen.setdefault((ring.workers, ring.worker), weights)
        return ring.join(ring.split(weights))

    with pytest.raises(CheckFailed):
        FUNCTIONS["lab3.update"].judge(step)
    assert seen[2, 0] is not seen[2, 1]


def test_a_step_of_lesson_09_is_what_the_model_predicts():
    for workers, compute, size, latency, bandwidth in FUNCTIONS["09.step"].cases():
        job = Job(per_example=compute / 1000, batch=1000 / workers, gradient_bytes=size)
        row = predict(job, Cluster(Link("a wire", latency, bandwidth)), [workers]).iloc[0]
        assert FUNCTIONS["09.step"].right(workers, compute, size, latency, bandwidth) == pytest.approx(row.seconds)
