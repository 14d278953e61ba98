"""Loops of TensorFlow's and Keras's own tutorials and guides, on small made-up images."""

from __future__ import annotations

import dtk
from gallery import program
from gallery.slips import DATA, LOOPS, average, distributed, looped, penalized, rate, scope

BATCH = 16


def images(count=128):
    """Noisy squares, bright in one of four corners: `(count, 8, 8, 1)` and the corner's number."""
    import numpy as np

    rng = np.random.default_rng(7)
    labels = rng.integers(0, 4, count)
    pictures = rng.normal(0, 0.3, (count, 8, 8, 1)).astype("float32")
    for picture, label in zip(pictures, labels, strict=True):
        row, column = 4 * (label // 2), 4 * (label % 2)
        picture[row : row + 4, column : column + 4] += 0.7
    return pictures, labels


@program(kind="loop", source="TensorFlow tutorial distribute/custom_training", slips=(*LOOPS, "regularisation"))
def distribute_custom_training(strategy, slip=None):
    """Right: the sum of the losses is divided by the global batch, the penalty by the number of replicas."""
    import keras
    import tensorflow as tf

    with scope(strategy, slip):
        model = keras.Sequential(
            [
                keras.layers.Input((8, 8, 1)),
                keras.layers.Conv2D(4, 3, activation="tanh"),
                keras.layers.AveragePooling2D(2),
                keras.layers.Flatten(),
                keras.layers.Dense(16, activation="tanh"),
                keras.layers.Dense(4),
            ]
        )
        loss_object = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
        accuracy = keras.metrics.SparseCategoricalAccuracy()
        optimizer = keras.optimizers.Adam(rate(0.003, strategy, slip))

    def train_step(inputs):
        pictures, labels = inputs
        with tf.GradientTape() as tape:
            predictions = model(pictures, training=True)
            loss = average(loss_object(labels, predictions), BATCH, strategy, slip)
            loss = penalized(loss, model.trainable_variables, 0.01, slip)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        accuracy.update_state(labels, predictions)
        return loss

    @tf.function
    def distributed_train_step(inputs):
        losses = strategy.run(train_step, args=(inputs,))
        dtk.record_step(losses, batch=inputs, model=model)
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    for inputs in distributed(images(), BATCH, strategy, slip, shuffled=3):
        distributed_train_step(inputs)


@program(kind="loop", source="TensorFlow tutorial distribute/multi_worker_with_ctl", slips=LOOPS)
def multi_worker_ctl(strategy, slip=None):
    """The step takes its batch from an iterator itself. Right: its shares are divided by the global batch."""
    import keras
    import tensorflow as tf

    with scope(strategy, slip):
        model = keras.Sequential(
            [keras.layers.Flatten(), keras.layers.Dense(12, activation="gelu"), keras.layers.Dense(4)]
        )
        model.build((None, 8, 8, 1))
        optimizer = keras.optimizers.RMSprop(rate(0.002, strategy, slip))
        loss_object = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    dataset = distributed(images(), BATCH, strategy, slip, shuffled=3)

    @tf.function
    def train_step(iterator):
        def step_fn(inputs):
            x, y = inputs
            with tf.GradientTape() as tape:
                loss = average(loss_object(y, model(x, training=True)), BATCH, strategy, slip)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        inputs = next(iterator)
        losses = strategy.run(step_fn, args=(inputs,))
        dtk.record_step(losses, batch=inputs, model=model, step=optimizer.iterations)
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    extra = slip == "steps" and strategy.num_replicas_in_sync > 1
    iterator = iter(dataset)
    for _ in range(8 // (strategy.num_replicas_in_sync if slip == "global batch" else 1) + extra):
        train_step(iterator)


@program(
    kind="loop", source="TensorFlow tutorial distribute/custom_training, iterating inside a tf.function", slips=LOOPS
)
def epoch_in_one_function(strategy, slip=None):
    """The graph holds the loop over the batches. Right: as the loop outside of it."""
    import keras
    import tensorflow as tf

    with scope(strategy, slip):
        model = keras.Sequential(
            [
                keras.layers.Input((8, 8, 1)),
                keras.layers.Flatten(),
                keras.layers.Dense(8, activation="tanh"),
                keras.layers.Dense(4),
            ]
        )
        optimizer = keras.optimizers.SGD(rate(0.1, strategy, slip), momentum=0.9)

    def train_step(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            each = keras.losses.sparse_categorical_crossentropy(y, model(x, training=True), from_logits=True)
            loss = average(each, BATCH, strategy, slip)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def distributed_train_epoch(dataset, epoch):
        total, count = 0.0, 0
        for inputs in dataset:
            losses = strategy.run(train_step, args=(inputs,))
            dtk.record_step(losses, batch=inputs, model=model, epoch=epoch)
            total += strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)
            count += 1
        return total / tf.cast(count, tf.float32)

    dataset = distributed(images(), BATCH, strategy, slip, shuffled=3)
    for epoch in range(2):
        distributed_train_epoch(dataset, tf.constant(epoch + 1))


@program(
    kind="loop",
    source="keras.io guide: writing a training loop from scratch in TensorFlow",
    slips=(*DATA, "learning rate"),
)
def keras_loop_from_scratch(strategy, slip=None):
    """Right, though it looks wrong: Keras 3's loss object divides its mean by the replicas itself, and what the layer
    adds is a sum over its examples, of which two replicas have half each.
    """
    import keras
    import tensorflow as tf

    class ActivityRegularization(keras.layers.Layer):
        def call(self, inputs):
            self.add_loss(1e-3 * tf.reduce_sum(tf.square(inputs)))
            return inputs

    with scope(strategy, slip):
        inputs = keras.Input((8, 8, 1))
        hidden = keras.layers.Dense(12, activation="softplus")(keras.layers.Flatten()(inputs))
        model = keras.Model(inputs, keras.layers.Dense(4)(ActivityRegularization()(hidden)))
        optimizer = keras.optimizers.Adam(rate(1e-2, strategy, slip))
        loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            logits = model(x, training=True)
            loss_value = loss_fn(y, logits) + sum(model.losses)
        gradients = tape.gradient(loss_value, model.trainable_weights)
        optimizer.apply(gradients, model.trainable_weights)
        return loss_value

    for step, batch in enumerate(distributed(images(), BATCH, strategy, slip, shuffled=3)):
        losses = strategy.run(train_step, args=batch)
        dtk.record_step(losses, batch=batch, model=model, step=step + 1)


def quickstart(strategy, slip, synchronized=None):
    """The step of the quickstart for experts; `synchronized`: whether its batch normalization is, None without."""
    import keras
    import tensorflow as tf

    class MyModel(keras.Model):
        def __init__(self):
            super().__init__()
            self.conv1 = keras.layers.Conv2D(4, 3, activation="tanh")
            self.norm = None
            if synchronized is not None:
                self.norm = keras.layers.BatchNormalization(synchronized=synchronized)
            self.flatten = keras.layers.Flatten()
            self.d1 = keras.layers.Dense(12, activation="tanh")
            self.d2 = keras.layers.Dense(4)

        def call(self, x, training=False):
            x = self.conv1(x)
            x = self.norm(x, training=training) if self.norm else x
            return self.d2(self.d1(self.flatten(x)))

    with scope(strategy, slip):
        model = MyModel()
        optimizer = keras.optimizers.Adam(rate(0.005, strategy, slip))

    def train_step(inputs):
        pictures, labels = inputs
        with tf.GradientTape() as tape:
            predictions = model(pictures, training=True)
            each = keras.losses.sparse_categorical_crossentropy(labels, predictions, from_logits=True)
            local = synchronized is None
            loss = tf.reduce_mean(each) if local else average(each, BATCH, strategy, slip)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    looped(train_step, model, distributed(images(), BATCH, strategy, slip, shuffled=3), strategy)


@program(
    kind="loop",
    source="TensorFlow tutorial quickstart/advanced, its step given to strategy.run",
    right="local mean",
    reason="loss",
)
def quickstart_for_experts(strategy, slip=None):
    """Wrong: each replica takes the mean over its own half, and both are added up. Its model is built in the step."""
    quickstart(strategy, slip)


@program(kind="loop", source="TensorFlow tutorial quickstart/advanced, with batch norm")
def quickstart_batch_norm(strategy, slip=None):
    """Wrong by the layer alone: each replica normalizes by the mean and variance of its own 8 examples."""
    quickstart(strategy, slip, synchronized=False)


@program(kind="loop", source="TensorFlow tutorial quickstart/advanced, with synchronized batch norm", slips=LOOPS)
def quickstart_synchronized(strategy, slip=None):
    """Right: the layer's mean and variance are all replicas' together."""
    quickstart(strategy, slip, synchronized=True)
