"""Lesson 04's exercise that only runs can judge: whose strategy a function counts by."""

from __future__ import annotations

import pytest

from dtk.course.check import all_exercises
from dtk.course.exercise import CheckFailed, NotSolved

EXERCISE = all_exercises("04")["04.strategy"]


def handed_over(strategy):
    return strategy.num_replicas_in_sync


def as_handed_out():
    return strategy.num_replicas_in_sync  # noqa: F821  (the name that the exercise is about)


def typed_in():
    return 2


def in_no_scope():
    import tensorflow as tf

    return tf.distribute.get_strategy().num_replicas_in_sync


def workers_only():
    import json
    import os

    return len(json.loads(os.environ.get("TF_CONFIG", "{}")).get("cluster", {}).get("worker", [""]))


def from_the_environment():
    import json
    import os

    return len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])


def one_more(strategy):
    return strategy.num_replicas_in_sync + 1


@pytest.mark.trains
def test_the_strategy_that_is_handed_over_passes():
    assert EXERCISE.judge(handed_over) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (typed_in, "it says 2 wherever it runs"),
        (in_no_scope, "it says 1 wherever it runs"),
        (workers_only, "this counts workers only"),
        (from_the_environment, "in one of three places it fails: "),
        (one_more, "in places with different numbers of replicas"),
    ],
)
def test_each_wrong_answer_gets_a_hint(answer, hint):
    with pytest.raises(CheckFailed) as failed:
        EXERCISE.judge(answer)
    assert hint in failed.value.remedy


@pytest.mark.trains
def test_the_function_as_handed_out_is_not_solved():
    with pytest.raises(NotSolved, match="04.strategy is not solved yet; in a worker there is no such name"):
        EXERCISE.judge(as_handed_out)


def test_without_an_answer_nothing_is_started():
    with pytest.raises(NotSolved):
        EXERCISE.judge(None)
    with pytest.raises(CheckFailed, match="a function is asked for"):
        EXERCISE.judge(2)
