"""Iterators of datasets end at once in a worker, and in plain TensorFlow some do not."""

from __future__ import annotations

import pytest

import dtk

pytestmark = pytest.mark.trains


def tuned():
    """Whether datasets are tuned: by default, and where their own options say so or say how."""
    import tensorflow as tf

    found = []
    for change in ({}, {"enabled": True}, {"cpu_budget": 1}):
        options = tf.data.Options()
        for name, value in change.items():
            setattr(options.autotune, name, value)
        data = tf.data.Dataset.range(3).with_options(options)
        found.append(iter(data)._dataset.options().autotune.enabled)
    return found


def test_a_dataset_is_tuned_where_its_options_say_so():
    assert dtk.run(tuned).results[0] == [False, True, None]


def slow_end(enabled):
    """Whether one of 60 iterators, that have lived for 0.7 s and more, takes over 0.2 s to go."""
    import time

    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = enabled
    data = tf.data.Dataset.range(10).repeat().map(lambda x: x + 1, tf.data.AUTOTUNE).with_options(options)
    tf.left = [iter(data) for _ in range(60)]  # those that are not tried stay to the end of this process
    until = time.monotonic() + 0.7
    while time.monotonic() < until:
        for each in tf.left:
            next(each)
    while tf.left:
        began = time.monotonic()
        each = tf.left.pop()  # the last reference to the one before goes
        if time.monotonic() - began > 0.2:
            tf.left.append(each)
            return True
    return False


@pytest.mark.slow
def test_without_the_correction_some_iterators_take_long_to_go():
    found = (dtk.run(slow_end, args=(True,), workers=1, stall_timeout=None).results[0] for _ in range(8))
    assert any(found)
    assert dtk.run(slow_end, args=(False,), workers=1).results == [False]
