"""Data and a model that several test files train. Run in workers, so Keras is imported inside."""

from __future__ import annotations

BATCH = 64  # the global batch


def digits(count, start=0):
    from dtk.datasets import original_digits

    images, labels = original_digits()
    return (images.reshape(-1, 64)[start : start + count] / 16).astype("float32"), labels[start : start + count]


def batches(count, batch=BATCH, start=0):
    import tensorflow as tf

    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return tf.data.Dataset.from_tensor_slices(digits(count, start)).batch(batch).with_options(options)


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
