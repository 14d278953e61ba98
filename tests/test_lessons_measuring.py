"""Exercises of the lessons 07 to 10: each folded solution passes its check, and what only a run can judge is run."""

from __future__ import annotations

import re

import pytest
from lessons import cells_of, tags

from dtk.course.check import all_exercises
from dtk.course.exercise import CheckFailed, Exercise, NotSolved
from dtk.course.exercises import lesson_07, lesson_08
from dtk.model import Cluster, Job, Link, predict

LESSONS = ("07_fault_tolerance", "appendix_checkpoints", "08_measuring", "09_predicting", "10_batch_and_rate")


def solutions(lesson):
    """By exercise, the function that a lesson's folded solution defines."""
    cells = cells_of(lesson)
    names = [
        re.search(r'dtk\.check\("([^"]+)", (\w+)\)', cell.source).groups() for cell in cells if "check" in tags(cell)
    ]
    folded = [cell.source for cell in cells if cell.cell_type == "markdown" and "<summary><b>Solution" in cell.source]
    found = {}
    for (name, function), text in zip(names, folded, strict=True):
        space: dict = {}
        exec(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1], space)
        found[name] = space[function]
    return found


SOLVED = {name: answer for lesson in LESSONS for name, answer in solutions(lesson).items()}
EXERCISES = {name: each for lesson in ("07", "08", "09", "10") for name, each in all_exercises(lesson).items()}


def test_each_exercise_is_in_one_lesson_and_each_lesson_has_four():
    assert set(SOLVED) == set(EXERCISES)
    assert all(len(solutions(lesson)) >= 4 for lesson in LESSONS if lesson[0].isdigit())


@pytest.mark.parametrize("name", [name for name, each in EXERCISES.items() if isinstance(each, Exercise)])
def test_the_folded_solution_passes(name):
    exercise = EXERCISES[name]
    assert exercise.judge(SOLVED[name]) == len(exercise.cases())


def test_a_step_is_what_the_model_predicts():
    for workers, compute, size, latency, bandwidth in EXERCISES["09.step"].cases():
        job = Job(per_example=compute / 1000, batch=1000, gradient_bytes=size)
        row = predict(job, Cluster(Link("a wire", latency, bandwidth)), [workers], scaling="strong").iloc[0]
        assert EXERCISES["09.step"].answer(workers, compute, size, latency, bandwidth) == pytest.approx(row.seconds)


# ---- what only a run can judge: (answer, a word of its hint)

PIPELINES = [
    (lambda images, decoded, batch: images.map(decoded).repeat().batch(batch), "each epoch decodes every image again"),
    (lambda images, decoded, batch: images.cache().map(decoded).repeat().batch(batch), "before they are decoded"),
    (lambda images, decoded, batch: images.cache().repeat().batch(batch), "nothing decodes them any more"),
    (lambda images, decoded, batch: images.map(decoded).cache().batch(batch), "ends after one epoch"),
    (lambda images, decoded, batch: images.map(decoded).cache().batch(batch).repeat(), "too small"),
    (
        lambda images, decoded, batch: images.map(decoded).cache().shuffle(6, seed=1).repeat().batch(batch),
        "in another order",
    ),
    (lambda images, decoded, batch: images.cache(), "is `batch` missing"),
    (lambda images, decoded, batch: images.mapp(decoded), "it raises"),
    ("images.cache()", "a function is asked for"),
]
RESTS = [
    (lambda data, epochs, done, steps: data.repeat(epochs), "these are all epochs"),
    (lambda data, epochs, done, steps: data.repeat(epochs - done), "in the order of the first epochs"),
    (lambda data, epochs, done, steps: data.repeat(epochs).skip(done), "counts batches"),
    (lambda data, epochs, done, steps: data.skip(done * steps).repeat(epochs), "nothing is left"),
    (lambda data, epochs, done, steps: data.repeat(epochs).skip(11 * done), "how many steps has an epoch"),
    (lambda data, epochs, done, steps: data.repeat(epochs).skip(steps), "compare them"),
    (lambda data, epochs, done, steps: data.repeat(epochs).skip(2 * steps), "compare them"),
    (lambda data, epochs, done, steps: data.repeat(epochs).skip(epochs * done), "compare them"),
    (lambda data, epochs, done, steps: data.repeat(epochs).skip((epochs - done) * steps), "compare them"),
    (lambda data, epochs, done, steps: data.rep(epochs), "it raises"),
    (22, "a function is asked for"),
]


@pytest.mark.slow
@pytest.mark.trains
@pytest.mark.parametrize(
    ("name", "answers"), [("08.pipeline", PIPELINES), ("07.rest", RESTS)], ids=["08.pipeline", "07.rest"]
)
def test_runs_tell_right_from_wrong(name, answers):
    trial = EXERCISES[name]
    assert trial.judge(SOLVED[name]) == 1
    for answer, word in answers:
        with pytest.raises(CheckFailed) as failed:
            trial.judge(answer)
        assert word in failed.value.remedy
    for stub in (None, ..., lambda *given: None):
        with pytest.raises(NotSolved):
            trial.judge(stub)


def test_a_pipeline_is_judged_by_what_comes_out_and_what_was_read():
    numbers = [[0, 1, 2, 3], [4, 5, 0, 1], [2, 3, 4, 5]] * 2
    halves = [[number + 0.5 for number in batch] for batch in numbers]
    right = [list(pair) for pair in zip(halves, numbers, strict=True)]
    assert lesson_08._said_of(right, 6, 6, 6) == ""
    assert "again in each" not in lesson_08._said_of(right, 24, 24, 6)
    assert "before they are decoded" in lesson_08._said_of(right, 6, 24, 6)
    assert "one epoch" in lesson_08._said_of(right[:2], 6, 6, 6)
    assert "is `batch` missing" in lesson_08._said_of([[0.5, 0], [1.5, 1]], 6, 6, 6)
    twice = [[[image + 0.5 for image in images], labels] for images, labels in right]
    assert "is it called once" in lesson_08._said_of(twice, 6, 12, 6)


def test_what_is_left_is_compared_with_the_whole():
    whole = [[number] for number in range(16)]
    assert lesson_07._said_of(whole[8:], whole, 2, 4) == ""
    assert "all epochs" in lesson_07._said_of(whole, whole, 2, 4)
    assert "first epochs" in lesson_07._said_of(whole[:8], whole, 2, 4)
    assert "nothing" in lesson_07._said_of([], whole, 2, 4)
