"""What a graph says of clipped gradients, in branches and functions of its own, too (`dtk.compat.updates`)."""

from __future__ import annotations

import pytest

from dtk.compat import updates

pytestmark = pytest.mark.trains


def seen(step):
    """What is known of clipping where `step` applies its gradients: step(take, apply)."""
    import tensorflow as tf

    found = []

    def take(loss):
        updates._remember(loss)  # as a tape does of which the worker has wrapped the class
        return loss * 2

    def apply(gradient):
        found.append(updates.clips())
        return gradient

    tf.function(lambda x: step(take, apply, x))(tf.constant([3.0, 4.0]))
    return found[0]


def plain(take, apply, x):
    return apply(take(x))


def clipped(take, apply, x):
    import tensorflow as tf

    return apply(tf.clip_by_norm(take(x), 1.0))


def clipped_before(take, apply, x):
    import tensorflow as tf

    return apply(take(tf.clip_by_value(x, 0.0, 1.0)))  # in the loss, such as a probability


def in_a_branch(take, apply, x):
    """As an optimizer for float16 applies only what is finite."""
    import tensorflow as tf

    gradient = tf.clip_by_norm(take(x), 1.0)
    return tf.cond(tf.reduce_sum(gradient) > 0, lambda: apply(gradient), lambda: gradient)


def clipped_in_a_branch(take, apply, x):
    import tensorflow as tf

    gradient = take(x)
    return tf.cond(tf.reduce_sum(gradient) > 0, lambda: apply(tf.clip_by_norm(gradient, 1.0)), lambda: gradient)


def in_a_function(take, apply, x):
    import tensorflow as tf

    return tf.function(apply)(tf.clip_by_norm(take(x), 1.0))


def nowhere(take, apply, x):
    import tensorflow as tf

    return apply(tf.clip_by_norm(x, 1.0))


def elsewhere(take, apply, x):
    import tensorflow as tf

    return apply(tf.clip_by_norm(tf.function(take)(x), 1.0))


@pytest.mark.parametrize(
    ("step", "known"),
    [
        (plain, []),
        (clipped, ["clip_by_norm"]),
        (clipped_before, []),
        (in_a_branch, ["clip_by_norm"]),
        (clipped_in_a_branch, ["clip_by_norm"]),
        (in_a_function, ["clip_by_norm"]),
        (nowhere, None),
        (elsewhere, None),
    ],
)
def test_clipping_is_seen_or_not_known(step, known):
    assert seen(step) == known


def test_without_a_graph_nothing_is_known():
    assert updates.clips() is None
