"""The appendix's exercise that only runs can judge: clipping as one device does, tried with the lesson's own update."""

from __future__ import annotations

import pytest
from lessons import cells_of

from dtk.course.check import all_exercises
from dtk.course.exercise import CheckFailed, NotSolved

EXERCISE = all_exercises("keras")["keras.clip"]


@pytest.fixture(scope="module")
def update():
    """The function of the appendix that makes one update."""
    (source,) = [cell.source for cell in cells_of("appendix_keras") if "\ndef update(strategy" in cell.source]
    names = {"__name__": "the_appendix"}
    exec(compile(source, "<the appendix>", "exec"), names)
    return names["update"]


def clip(value):
    import tensorflow as tf

    return tf.clip_by_norm(value, 1.0)


def replicas():
    import tensorflow as tf

    return tf.distribute.get_replica_context()


def of_the_sum(optimizer, gradient, weight):
    clipped = clip(replicas().all_reduce("SUM", gradient))
    optimizer.apply_gradients([(clipped / replicas().num_replicas_in_sync, weight)])


def as_handed_out(optimizer, gradient, weight):
    optimizer.apply_gradients([(gradient, weight)])


def each_its_own(optimizer, gradient, weight):
    optimizer.apply_gradients([(clip(gradient), weight)])


def added_up_again(optimizer, gradient, weight):
    optimizer.apply_gradients([(clip(replicas().all_reduce("SUM", gradient)), weight)])


def always_normalised(optimizer, gradient, weight):
    import tensorflow as tf

    whole = replicas().all_reduce("SUM", gradient)
    optimizer.apply_gradients([(whole / tf.norm(whole) / replicas().num_replicas_in_sync, weight)])


def of_the_mean(optimizer, gradient, weight):
    optimizer.apply_gradients([(clip(replicas().all_reduce("MEAN", gradient)), weight)])


def divided_twice(optimizer, gradient, weight):
    clipped = clip(replicas().all_reduce("SUM", gradient))
    optimizer.apply_gradients([(clipped / replicas().num_replicas_in_sync ** 2, weight)])


def by_two(optimizer, gradient, weight):
    optimizer.apply_gradients([(clip(replicas().all_reduce("SUM", gradient)) / 2, weight)])


@pytest.mark.slow  # four runs
@pytest.mark.trains
def test_the_clipped_sum_passes(update):
    assert EXERCISE.judge(of_the_sum, update) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (each_its_own, "each replica clips its own part"),
        (added_up_again, "apply_gradients adds these up"),
        (always_normalised, "clipping is not normalising"),
        (of_the_mean, "their mean is smaller"),
        (divided_twice, "became updates of"),
        (by_two, "became updates of"),
    ],
)
def test_each_wrong_answer_gets_a_hint_of_its_own(update, answer, hint):
    with pytest.raises(CheckFailed) as failed:
        EXERCISE.judge(answer, update)
    assert hint in failed.value.remedy


@pytest.mark.slow  # four runs, as the answer above
def test_the_function_as_handed_out_is_not_solved(update):
    with pytest.raises(NotSolved, match="keras.clip is not solved yet; a gradient longer than 1 went through"):
        EXERCISE.judge(as_handed_out, update)


def test_without_an_answer_nothing_is_started(update):
    with pytest.raises(NotSolved):
        EXERCISE.judge(None, update)
    with pytest.raises(CheckFailed, match="two functions are asked for"):
        EXERCISE.judge(1, update)
