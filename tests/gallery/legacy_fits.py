"""tf_keras's fit: compiled losses, losses that a model adds, a train_step of one's own, clipping, batch norm."""

from __future__ import annotations

import dtk
from gallery import program
from gallery.made_up import slices
from gallery.slips import FITS, batches, fitted, rate, scope

BATCH = 16


def houses(count=128):
    """Made-up houses: nine numbers each, `(count, 9)`, and a price, `(count, 1)`, with a class of three, `(count,)`."""
    import numpy as np

    rng = np.random.default_rng(111)
    x = rng.normal(size=(count, 9)).astype("float32")
    price = x[:, 0] + 0.5 * x[:, 1] * x[:, 2] + rng.normal(0, 0.1, count)
    return x, price[:, None].astype("float32"), np.digitize(price, [-0.5, 0.5]).astype("int64")


@program(kind="tf_keras", source="TensorFlow tutorial keras/classification", start={"keras": 2}, slips=FITS)
def legacy_classification(strategy, slip=None):
    """Right: tf_keras's fit divides each replica's mean by the number of replicas, the L2 penalties as well."""
    import tensorflow as tf

    x, _, kind = houses()
    with scope(strategy, slip):
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Dense(12, activation="tanh", kernel_regularizer=tf.keras.regularizers.L2(1e-2)),
                tf.keras.layers.Dense(3, kernel_regularizer=tf.keras.regularizers.L2(1e-2)),
            ]
        )
        model.build((None, 9))
        model.compile(
            optimizer=tf.keras.optimizers.Adam(rate(0.01, strategy, slip)),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    fitted(model, slices(x, kind), BATCH, strategy, slip, epochs=2)


@program(
    kind="tf_keras", source="TensorFlow guide keras/customizing_what_happens_in_fit", start={"keras": 2}, slips=FITS
)
def legacy_train_step(strategy, slip=None):
    """Right: `compiled_loss` divides by the replicas, the optimizer adds up. Keras counts a step where data end."""
    import tensorflow as tf

    class CustomModel(tf.keras.Model):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                y_pred = self(x, training=True)
                loss = self.compiled_loss(y, y_pred, regularization_losses=self.losses)
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            self.compiled_metrics.update_state(y, y_pred)
            return {m.name: m.result() for m in self.metrics}

    x, price, _ = houses()
    with scope(strategy, slip):
        inputs = tf.keras.Input((9,))
        hidden = tf.keras.layers.Dense(12, activation="tanh")(inputs)
        model = CustomModel(inputs, tf.keras.layers.Dense(1)(hidden))
        model.compile(tf.keras.optimizers.RMSprop(rate(0.005, strategy, slip)), loss="mse", metrics=["mae"])
    data = batches(slices(x, price), BATCH, strategy, slip).filter(lambda *_: True)
    model.fit(data, epochs=2, verbose=0, callbacks=[dtk.Recorder()])


@program(
    kind="tf_keras",
    source="TensorFlow guide keras/train_and_evaluate (2.x): losses by add_loss",
    start={"keras": 2},
    slips=FITS,
)
def legacy_add_loss(strategy, slip=None):
    """Right: what a layer and the model add are means over the replica's examples, and fit divides them by the
    replicas. There is no other loss: the target is an input.
    """
    import tensorflow as tf

    class Rate(tf.keras.layers.Layer):
        def call(self, inputs):
            mean, logvar = inputs
            divergence = 0.5 * tf.reduce_sum(tf.square(mean) + tf.exp(logvar) - logvar - 1, axis=-1)
            self.add_loss(0.1 * tf.reduce_mean(divergence))
            return mean

    x, price, _ = houses()
    with scope(strategy, slip):
        inputs, target = tf.keras.Input((9,), name="house"), tf.keras.Input((1,), name="price")
        hidden = tf.keras.layers.Dense(8, activation="tanh")(inputs)
        code = Rate()([tf.keras.layers.Dense(3)(hidden), tf.keras.layers.Dense(3)(hidden)])
        outputs = tf.keras.layers.Dense(1)(code)
        model = tf.keras.Model([inputs, target], outputs)
        model.add_loss(tf.reduce_mean(tf.square(outputs - target)))
        model.compile(tf.keras.optimizers.Adam(rate(0.01, strategy, slip)))
    fitted(model, slices(({"house": x, "price": price},)), BATCH, strategy, slip)


def priced(strategy, slip, layers, optimizer):
    """A price by `layers(keras)` between the input and the output."""
    import tensorflow as tf

    x, price, _ = houses()
    with scope(strategy, slip):
        model = tf.keras.Sequential([tf.keras.Input((9,)), *layers(tf.keras), tf.keras.layers.Dense(1)])
        model.compile(optimizer(tf.keras), loss=tf.keras.losses.Huber())
    fitted(model, slices(x, price), BATCH, strategy, slip)


@program(
    kind="tf_keras", source="TensorFlow tutorial images/classification: dense, with batch norm", start={"keras": 2}
)
def legacy_batch_norm(strategy, slip=None):
    """Wrong by the layer alone: each replica normalizes by its own examples."""

    def layers(keras):
        return [keras.layers.Dense(12), keras.layers.BatchNormalization(), keras.layers.Activation("tanh")]

    priced(strategy, slip, layers, lambda keras: keras.optimizers.SGD(0.05))


@program(
    kind="tf_keras",
    source="TensorFlow tutorial images/transfer_learning: a frozen base with batch norm",
    start={"keras": 2},
    slips=FITS,
)
def legacy_frozen_base(strategy, slip=None):
    """Right: a frozen BatchNormalization uses its moving statistics, and no batch's."""

    def layers(keras):
        base = keras.Sequential([keras.Input((9,)), keras.layers.Dense(12), keras.layers.BatchNormalization()])
        base.trainable = False
        return [base, keras.layers.Dense(8, activation="tanh")]

    priced(strategy, slip, layers, lambda keras: keras.optimizers.Adam(rate(0.01, strategy, slip)))


@program(
    kind="tf_keras",
    source="TensorFlow tutorial structured_data/time_series style regression, an optimizer with clipnorm",
    start={"keras": 2},
    slips=FITS,
)
def legacy_clipped_by_the_optimizer(strategy, slip=None):
    """Right, where Keras 3 is wrong: tf_keras's optimizers clip what all replicas' gradients add up to."""

    def layers(keras):
        return [keras.layers.Dense(12, activation="tanh")]

    priced(strategy, slip, layers, lambda keras: keras.optimizers.SGD(rate(0.1, strategy, slip), clipnorm=0.1))
