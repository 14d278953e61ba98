"""Lesson 05's exercises whose answer is a value or a training function: right and wrong answers, each with its hint."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas
import pytest

import dtk
from dtk.course.check import all_exercises
from dtk.course.exercise import CheckFailed, NotSolved

SHARES = [(1, 0, 1.0, 4), (1, 1, 0.5, 4), (2, 0, 0.5, 3), (2, 1, 0.25, 2)]
RUN = SimpleNamespace(
    records=pandas.DataFrame(SHARES, columns=["step", "replica", "loss", "examples"]),
    weights=[np.zeros((3, 4)), np.zeros(4), np.zeros((4, 3))],
    workers=2,
)
RIGHT = {"05.short": 0.75 * 8 / 5, "05.numbers": 28}


@pytest.mark.parametrize("name", RIGHT)
def test_a_value_is_judged_by_the_learners_own_run(name, capsys):
    dtk.check(name, RIGHT[name], RUN)
    assert capsys.readouterr().out == f"check {name}: PASS\n"
    exercise = all_exercises("05")[name]
    for answer, hint in exercise.misconceptions:
        with pytest.raises(CheckFailed) as failed:
            exercise.judge(exercise.tried(answer, (RUN,)), RUN)
        assert failed.value.remedy == f"hint: {hint}"
    for guess in (0, 1, 13, "x", [1]):
        with pytest.raises(CheckFailed, match="hint: (by what was|how many arrays)"):
            exercise.judge(guess, RUN)
    with pytest.raises(NotSolved):
        dtk.check(name, None, RUN)


def share_of(loss, weights, model, global_batch):
    import tensorflow as tf

    return tf.nn.compute_average_loss(loss * weights, global_batch_size=global_batch)


def penalty(model):
    import tensorflow as tf

    return 0.1 * tf.add_n([tf.nn.l2_loss(weight) for weight in model.trainable_variables])


def whole(labels, logits, model, global_batch):
    return share_of(labels, logits, model, global_batch) + penalty(model)


def by_hand(labels, logits, model, global_batch):
    import tensorflow as tf

    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    return share_of(labels, logits, model, global_batch) + penalty(model) / replicas


def scaled(labels, logits, model, global_batch):
    import tensorflow as tf

    return share_of(labels, logits, model, global_batch) + tf.nn.scale_regularization_loss(penalty(model))


def scaled_twice(labels, logits, model, global_batch):
    import tensorflow as tf

    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    return share_of(labels, logits, model, global_batch) + penalty(model) / replicas**2


def typed_in(labels, logits, model, global_batch):
    return share_of(labels, logits, model, global_batch) + penalty(model) / 2


def by_batch(labels, logits, model, global_batch):
    return share_of(labels, logits, model, global_batch) + penalty(model) / global_batch


def all_divided(labels, logits, model, global_batch):
    import tensorflow as tf

    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    return (share_of(labels, logits, model, global_batch) + penalty(model)) / replicas


def own_mean(labels, logits, model, global_batch):
    import tensorflow as tf

    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    return (tf.reduce_mean(labels * logits) + penalty(model)) / replicas


def own_part(labels, logits, model, global_batch):
    import tensorflow as tf

    part = tf.cast(tf.shape(labels)[0], tf.float32) / global_batch
    return share_of(labels, logits, model, global_batch) + penalty(model) * part


def without_gradient(labels, logits, model, global_batch):
    import tensorflow as tf

    return share_of(labels, logits, model, global_batch) + tf.stop_gradient(penalty(model)) / replicas_in_sync()


def replicas_in_sync():
    import tensorflow as tf

    return tf.distribute.get_strategy().num_replicas_in_sync


def unfinished(labels, logits, model, global_batch):
    return share_of(labels, logits, model, global_batch) + decay  # noqa: F821  (a name that is not there)


def train(strategy, share, global_batch=128):
    """The lesson's loop in small: two numbers an example, and a last batch that is short and unequal."""
    import keras
    import tensorflow as tf

    numbers = tf.random.Generator.from_seed(1).uniform((global_batch + 19, 2))
    data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(numbers).batch(global_batch))
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.1)

    def step(mine):
        with tf.GradientTape() as tape:
            losses = tf.square(model(mine)[:, 0] - 1)
            loss = share(losses, tf.ones_like(losses), model, global_batch)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def one(mine):
        shares = strategy.run(step, args=(mine,))
        dtk.record_step(shares, batch=mine, model=model)

    for _ in range(2):
        for mine in data:
            one(mine)


@pytest.mark.slow
@pytest.mark.trains
@pytest.mark.parametrize("share", [scaled, by_hand])
def test_a_penalty_that_counts_once_passes(share, capsys):
    dtk.check("05.penalty", share, train, whole)
    assert capsys.readouterr().out == "check 05.penalty: PASS\n"


@pytest.mark.slow
@pytest.mark.trains
@pytest.mark.parametrize(
    ("share", "hint"),
    [
        (whole, "the cluster's too large: each replica still adds the whole penalty"),
        (scaled_twice, "the cluster's too small: something is divided once too often"),
        (typed_in, "a number of replicas that is typed in holds for one cluster"),
        (share_of, "the penalty is gone, or smaller than it was"),
        (by_batch, "nothing is to be divided, the penalty should stay what it was"),
        (all_divided, "the cluster's too small: "),
        (own_mean, "are the losses divided by the global batch, also in a short batch"),
        (own_part, "the penalty is gone, or smaller than it was"),
        (without_gradient, "does the penalty reach the gradients"),
        (unfinished, "in a worker it fails: NameError: name 'decay' is not defined"),
    ],
)
def test_a_penalty_that_is_wrong_gets_its_hint(share, hint):
    with pytest.raises(CheckFailed) as failed:
        dtk.check("05.penalty", share, train, whole)
    assert hint in failed.value.remedy


def test_the_stub_is_not_solved():
    def my_share(labels, logits, model, global_batch):
        return None

    with pytest.raises(NotSolved):
        dtk.check("05.penalty", my_share, train, whole)
