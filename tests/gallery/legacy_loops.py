"""Loops of one's own with tf_keras models and optimizers."""

from __future__ import annotations

import dtk
from gallery import program
from gallery.slips import LOOPS, average, distributed, penalized, rate, scope

BATCH = 16


def series(count=128):
    """A noisy wave, twelve values each, `(count, 12, 1)`, and the next one, `(count, 1)`."""
    import numpy as np

    rng = np.random.default_rng(121)
    waves = np.sin(np.arange(13) * 0.6 + rng.uniform(0, 6, (count, 1))) + rng.normal(0, 0.05, (count, 13))
    return waves[:, :12, None].astype("float32"), waves[:, 12:].astype("float32")


def forecasting(strategy, slip, optimizer, share, normalized=False):
    """A convolution over the wave; share(model, per_example) is what a replica's step returns."""
    import tensorflow as tf

    with scope(strategy, slip):
        layers = [tf.keras.Input((12, 1)), tf.keras.layers.Conv1D(6, 3, activation="tanh")]
        layers += [tf.keras.layers.BatchNormalization()] if normalized else []
        model = tf.keras.Sequential([*layers, tf.keras.layers.Flatten(), tf.keras.layers.Dense(1)])
        chosen = optimizer(tf.keras.optimizers)
        mae = tf.keras.metrics.MeanAbsoluteError()
        loss_object = tf.keras.losses.MeanSquaredError(reduction=tf.keras.losses.Reduction.NONE)

    def train_step(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            predictions = model(x, training=True)
            loss = share(model, loss_object(y, predictions))
        gradients = tape.gradient(loss, model.trainable_variables)
        chosen.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        mae.update_state(y, predictions)
        return loss

    @tf.function
    def distributed_train_step(inputs):
        losses = strategy.run(train_step, args=(inputs,))
        dtk.record_step(losses, batch=inputs, model=model)
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    for inputs in distributed(series(), BATCH, strategy, slip, shuffled=9):
        distributed_train_step(inputs)


@program(
    kind="tf_keras",
    source="TensorFlow tutorial distribute/custom_training (2.8), Keras 2's legacy optimizer",
    start={"keras": 2},
    slips=(*LOOPS, "regularisation"),
)
def legacy_loop(strategy, slip=None):
    """Right: losses by the global batch, the penalty by the replicas; the optimizer adds the gradients up."""

    def share(model, each):
        return penalized(average(each, BATCH, strategy, slip), model.trainable_variables, 0.01, slip)

    forecasting(strategy, slip, lambda optimizers: optimizers.legacy.Adam(rate(0.01, strategy, slip)), share)


@program(
    kind="tf_keras",
    source="TensorFlow tutorial distribute/custom_training (2.12), Keras 2's new optimizer with global_clipnorm",
    start={"keras": 2},
    slips=LOOPS,
)
def legacy_loop_clipped(strategy, slip=None):
    """Right: tf_keras's optimizer clips after the all-reduce, with all gradients in one norm."""

    def share(model, each):
        return average(each, BATCH, strategy, slip)

    def optimizer(optimizers):
        return optimizers.SGD(rate(0.2, strategy, slip), momentum=0.5, global_clipnorm=0.2)

    forecasting(strategy, slip, optimizer, share)


@program(
    kind="tf_keras",
    source="TensorFlow guide keras/writing_a_training_loop_from_scratch, its step given to strategy.run",
    start={"keras": 2},
    right="local mean",
    reason="loss",
)
def legacy_loop_local_mean(strategy, slip=None):
    """Wrong: `tf.reduce_mean` over the replica's own examples."""
    import tensorflow as tf

    forecasting(strategy, slip, lambda optimizers: optimizers.SGD(0.05), lambda model, each: tf.reduce_mean(each))


@program(
    kind="tf_keras",
    source="TensorFlow guide keras/writing_a_training_loop_from_scratch, with batch norm",
    start={"keras": 2},
)
def legacy_loop_batch_norm(strategy, slip=None):
    """Wrong by the layer alone."""

    def share(model, each):
        return average(each, BATCH, strategy, slip)

    forecasting(strategy, slip, lambda optimizers: optimizers.Adam(0.01), share, normalized=True)
