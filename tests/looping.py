"""A small model and a step of its training, for loops of one's own."""

from __future__ import annotations

import numpy as np

STEPS = 6


def parts(strategy, shuffled=True, count=STEPS * 16, built=True):
    """A small model, its optimizer and 6 global batches of 16 examples, the last one shorter for other counts."""
    import keras
    import tensorflow as tf

    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, 8)).astype("float32")
    y = (x[:, 0] > 0).astype("int64")
    data = tf.data.Dataset.from_tensor_slices((x, y))
    data = (data.shuffle(count, seed=3) if shuffled else data).batch(16)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    data = strategy.experimental_distribute_dataset(data.with_options(options))
    with strategy.scope():
        model = keras.Sequential(
            [
                *([keras.layers.Input((8,))] if built else []),
                keras.layers.Dense(16, activation="tanh"),
                keras.layers.Dense(2),
            ]
        )
        optimizer = keras.optimizers.SGD(0.5)
        criterion = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def step(batch):
        features, labels = batch
        with tf.GradientTape() as tape:
            each = criterion(labels, model(features, training=True))
            loss = tf.nn.compute_average_loss(each, global_batch_size=16)
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )
        return loss

    return data, model, optimizer, step
