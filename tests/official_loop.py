"""TensorFlow's custom training loop as a dtk function: the tutorial's structure and names, the listed diff applied.

After "Custom training with tf.distribute.Strategy" (tensorflow.org/tutorials/distribute/custom_training, code
Apache-2.0), written anew. The data are a part of MNIST in the place of Fashion-MNIST, as arrays of the same shape.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np

import dtk

# What the tutorial says, and what stands below instead, by the name of the change. "" stands for no line.
DIFF = {
    "strategy": (
        "def train(global_batch=128, epochs=1, activation='relu'):\n"
        "    import tensorflow as tf\n\n"
        "    strategy = tf.distribute.MirroredStrategy()\n",
        'def train(strategy, global_batch=128, epochs=1, activation="relu"):\n    import tensorflow as tf\n\n',
    ),
    "global batch": ("GLOBAL_BATCH_SIZE = 64 * strategy.num_replicas_in_sync", "GLOBAL_BATCH_SIZE = global_batch"),
    "divisor": (
        "tf.nn.compute_average_loss(per_example_loss)",
        "tf.nn.compute_average_loss(per_example_loss, global_batch_size=GLOBAL_BATCH_SIZE)",
    ),
    "directory": (
        "'./training_checkpoints'",
        'str(dtk.run_dir() / "checkpoints") if dtk.is_chief() else tempfile.mkdtemp()',
    ),
    "reset": ("reset_states()", "reset_state()"),
    "record": ("", "        dtk.record_step(per_replica_losses, batch=dataset_inputs, model=model)\n"),
}


def without(change: str) -> str:
    """This file's text with one change of DIFF taken back."""
    text = Path(__file__).read_text(encoding="utf-8")
    head, body = text.split("# ---- the loop", 1)
    official, ours = DIFF[change]
    assert ours in body, f"the loop has no {ours!r}"
    return head + "# ---- the loop" + body.replace(ours, official)


def fashion():
    images, labels = dtk.datasets.digits()
    images = images / np.float32(255)
    return (images[:1497], labels[:1497]), (images[-300:], labels[-300:])


def create_model(activation):
    import tensorflow as tf

    regularizer = tf.keras.regularizers.L2(1e-5)
    return tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(32, 3, activation=activation, kernel_regularizer=regularizer),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Conv2D(64, 3, activation=activation, kernel_regularizer=regularizer),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(64, activation=activation, kernel_regularizer=regularizer),
            tf.keras.layers.Dense(10, kernel_regularizer=regularizer),
        ]
    )


# ---- the loop --------------------------------------------------------------------------------------------------


def distributed(strategy, GLOBAL_BATCH_SIZE):
    import tensorflow as tf

    (train_images, train_labels), (test_images, test_labels) = fashion()
    BUFFER_SIZE = len(train_images)
    train_dataset = tf.data.Dataset.from_tensor_slices((train_images, train_labels))
    train_dataset = train_dataset.shuffle(BUFFER_SIZE).batch(GLOBAL_BATCH_SIZE)
    test_dataset = tf.data.Dataset.from_tensor_slices((test_images, test_labels)).batch(GLOBAL_BATCH_SIZE)
    return [strategy.experimental_distribute_dataset(dataset) for dataset in (train_dataset, test_dataset)]


def average(per_example_loss, model_losses, GLOBAL_BATCH_SIZE):
    import tensorflow as tf

    loss = tf.nn.compute_average_loss(per_example_loss, global_batch_size=GLOBAL_BATCH_SIZE)
    if model_losses:
        loss += tf.nn.scale_regularization_loss(tf.add_n(model_losses))
    return loss


def in_scope(strategy, activation):
    import tensorflow as tf

    with strategy.scope():
        loss_object = tf.keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction=tf.keras.losses.Reduction.NONE
        )
        metrics = (
            tf.keras.metrics.Mean(name="test_loss"),
            tf.keras.metrics.SparseCategoricalAccuracy(name="train_accuracy"),
            tf.keras.metrics.SparseCategoricalAccuracy(name="test_accuracy"),
        )
        return loss_object, metrics, create_model(activation), tf.keras.optimizers.Adam(learning_rate=0.001)


def train(strategy, global_batch=128, epochs=1, activation="relu"):
    import tensorflow as tf

    GLOBAL_BATCH_SIZE = global_batch
    train_dist_dataset, test_dist_dataset = distributed(strategy, GLOBAL_BATCH_SIZE)
    checkpoint_dir = str(dtk.run_dir() / "checkpoints") if dtk.is_chief() else tempfile.mkdtemp()
    checkpoint_prefix = os.path.join(checkpoint_dir, "ckpt")
    loss_object, (test_loss, train_accuracy, test_accuracy), model, optimizer = in_scope(strategy, activation)
    checkpoint = tf.train.Checkpoint(optimizer=optimizer, model=model)

    def train_step(inputs):
        images, labels = inputs
        with tf.GradientTape() as tape:
            predictions = model(images, training=True)
            loss = average(loss_object(labels, predictions), model.losses, GLOBAL_BATCH_SIZE)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # noqa: B905  (as it stands there)
        train_accuracy.update_state(labels, predictions)
        return loss

    def test_step(inputs):
        images, labels = inputs
        predictions = model(images, training=False)
        test_loss.update_state(loss_object(labels, predictions))
        test_accuracy.update_state(labels, predictions)

    @tf.function
    def distributed_train_step(dataset_inputs):
        per_replica_losses = strategy.run(train_step, args=(dataset_inputs,))
        dtk.record_step(per_replica_losses, batch=dataset_inputs, model=model)
        return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None)

    @tf.function
    def distributed_test_step(dataset_inputs):
        return strategy.run(test_step, args=(dataset_inputs,))

    for epoch in range(epochs):
        total_loss, num_batches = 0.0, 0
        for x in train_dist_dataset:
            total_loss += distributed_train_step(x)
            num_batches += 1
        for x in test_dist_dataset:
            distributed_test_step(x)
        if epoch % 2 == 0:
            checkpoint.save(checkpoint_prefix)
        print(f"Epoch {epoch + 1}, Loss: {total_loss / num_batches}, Test Accuracy: {test_accuracy.result() * 100}")
        for metric in (test_loss, train_accuracy, test_accuracy):
            metric.reset_state()
    return checkpoint_dir
