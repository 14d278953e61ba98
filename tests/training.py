"""Data and a model that several test files train. Run in workers, so Keras is imported inside."""

from __future__ import annotations

BATCH = 64  # the global batch


def digits(count, start=0):
    """Images of 8×8, flat, each pixel the mean of 3×3 of MNIST's without the two at its edges, as bright as 0 to 1."""
    from dtk.datasets import digits

    images, labels = (array[start : start + count] for array in digits())
    small = images[:, 2:26, 2:26].reshape(-1, 8, 3, 8, 3).mean(axis=(2, 4))
    return (small.reshape(-1, 64) / 255).astype("float32"), labels


def batches(count, batch=BATCH, start=0):
    return dealt(digits(count, start), batch)


def dealt(arrays, batch, seed=None):
    """Batches of arrays, which workers divide by examples; seed: of their order, another one in each pass."""
    import tensorflow as tf

    data = tf.data.Dataset.from_tensor_slices(arrays)
    data = data if seed is None else data.shuffle(len(data), seed)
    return sharded(data.batch(batch))


def sharded(data, policy="DATA"):
    """A dataset that a strategy divides among its workers in that way."""
    import tensorflow as tf

    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy[policy]
    return data.with_options(options)


def classifier(strategy, *middle, steps_per_execution=1, built=True):
    from tensorflow import keras

    with strategy.scope():
        head = [keras.layers.Input((64,))] if built else []
        hidden = keras.layers.Dense(32, activation="relu", kernel_regularizer=keras.regularizers.L2(1e-3))
        model = keras.Sequential([*head, hidden, *middle, keras.layers.Dense(10)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, metrics=["accuracy"], steps_per_execution=steps_per_execution)
    return model


def is_keras_3(keras):
    return ".engine." not in keras.Model.__module__  # Keras 2's home of Model, in `keras` as in `tf_keras`
