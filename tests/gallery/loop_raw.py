"""Loops without a Keras model or optimizer: tf.Module, tf.Variable, updates by hand, derivatives of derivatives."""

from __future__ import annotations

import dtk
from gallery import program
from gallery.made_up import dense
from gallery.slips import LOOPS, average, distributed, looped, rate, scope

BATCH = 16


def line(count=128):
    """Points near the line 3x + 2: `(count, 1)` each."""
    import numpy as np

    rng = np.random.default_rng(51)
    x = rng.normal(size=(count, 1))
    return x.astype("float32"), (3 * x + 2 + rng.normal(0, 0.5, (count, 1))).astype("float32")


@program(kind="loop", source="TensorFlow guide basic_training_loops, its step given to strategy.run", slips=LOOPS)
def line_by_hand(strategy, slip=None):
    """Eager, on raw variables. Right: each replica applies the sum of all replicas' gradients itself."""
    import tensorflow as tf

    class MyModel(tf.Module):
        def __init__(self):
            super().__init__()
            mean = tf.VariableAggregation.MEAN
            self.w = tf.Variable(5.0, aggregation=mean)
            self.b = tf.Variable(0.0, aggregation=mean)

        def __call__(self, x):
            return self.w * x + self.b

    with scope(strategy, slip):
        model = MyModel()
    learning_rate = rate(0.05, strategy, slip)

    def train(x, y):
        with tf.GradientTape() as tape:
            loss = average(tf.square(y - model(x))[:, 0], BATCH, strategy, slip)
        gradients = tape.gradient(loss, [model.w, model.b])
        dw, db = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        model.w.assign_sub(learning_rate * dw)
        model.b.assign_sub(learning_rate * db)
        return loss

    for epoch in range(2):
        for batch in distributed(line(), BATCH, strategy, slip):
            losses = strategy.run(train, args=batch)
            dtk.record_step(losses, batch=batch, model=model, epoch=epoch + 1)


@program(kind="loop", source="TensorFlow guide distributed_training, aggregation of variables", slips=LOOPS)
def line_summed_by_its_variables(strategy, slip=None):
    """Right: a variable with aggregation SUM adds up what all replicas assign to it."""
    import tensorflow as tf

    with scope(strategy, slip):
        w, b = (tf.Variable(value, aggregation=tf.VariableAggregation.SUM) for value in (5.0, 0.0))
    learning_rate = rate(0.05, strategy, slip)

    def train(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            loss = average(tf.square(y - w * x - b)[:, 0], BATCH, strategy, slip)
        for variable, gradient in zip((w, b), tape.gradient(loss, (w, b)), strict=True):
            variable.assign_add(-learning_rate * gradient)
        return loss

    looped(train, [w, b], distributed(line(), BATCH, strategy, slip), strategy)


def layers_and_adam():
    """A network and an optimizer, each a tf.Module."""
    import numpy as np
    import tensorflow as tf

    def variable(value):
        return tf.Variable(value, aggregation=tf.VariableAggregation.MEAN)

    class Dense(tf.Module):
        def __init__(self, inputs, outputs, seed):
            super().__init__()
            limit = np.sqrt(6 / (inputs + outputs))
            start = np.random.default_rng(seed).uniform(-limit, limit, (inputs, outputs))
            self.w, self.b = variable(start.astype("float32")), variable(np.zeros(outputs, "float32"))

        def __call__(self, x):
            return x @ self.w + self.b

    class MLP(tf.Module):
        def __init__(self):
            super().__init__()
            self.layers = [Dense(1, 12, 1), Dense(12, 1, 2)]

        def __call__(self, x):
            return self.layers[1](tf.tanh(self.layers[0](x)))

    class Adam(tf.Module):
        def __init__(self, variables, learning_rate):
            super().__init__()
            self.rate, self.t = learning_rate, variable(0.0)
            self.slots = [(v, variable(tf.zeros(v.shape)), variable(tf.zeros(v.shape))) for v in variables]

        def apply(self, gradients):
            gradients = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradients)
            self.t.assign_add(1.0)
            for gradient, (v, m, s) in zip(gradients, self.slots, strict=True):
                m.assign(0.9 * m + 0.1 * gradient)
                s.assign(0.999 * s + 0.001 * gradient**2)
                v.assign_sub(self.rate * m / (1 - 0.9**self.t) / (tf.sqrt(s / (1 - 0.999**self.t)) + 1e-7))

    return MLP, Adam


@program(kind="loop", source="TensorFlow guide core/mlp_core: layers and Adam from scratch", slips=LOOPS)
def mlp_from_scratch(strategy, slip=None):
    """Right: moments and weights are made of the gradients' sum, so all replicas hold the same."""
    import tensorflow as tf

    MLP, Adam = layers_and_adam()
    with scope(strategy, slip):
        mlp = MLP()
        adam = Adam(mlp.trainable_variables, rate(0.02, strategy, slip))

    def train(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            loss = average(tf.square(y - mlp(x))[:, 0], BATCH, strategy, slip)
        adam.apply(tape.gradient(loss, mlp.trainable_variables))
        return loss

    looped(train, mlp, distributed(line(), BATCH, strategy, slip), strategy)


@program(kind="loop", source="DeepXDE and keras.io-style PINNs: a damped oscillator, u'' + u' + 4u = 0", slips=LOOPS)
def physics_informed(strategy, slip=None):
    """Right: the equation's residual, from the network's second derivative, is a number for each point. The losses at
    the start of time don't depend on the batch: each replica has its share of them.
    """
    import keras
    import numpy as np
    import tensorflow as tf

    with scope(strategy, slip):
        network = dense(1, 16, 1)
        optimizer = keras.optimizers.Adam(rate(5e-3, strategy, slip))

    def motion(t):
        with tf.GradientTape() as outer:
            outer.watch(t)
            with tf.GradientTape() as inner:
                inner.watch(t)
                u = network(t)
            speed = inner.gradient(u, t)
        return u, speed, outer.gradient(speed, t)

    def train(t):
        with tf.GradientTape() as tape:
            u, speed, acceleration = motion(t)
            each = tf.square(acceleration + speed + 4 * u)[:, 0]
            at_zero, speed_at_zero, _ = motion(tf.zeros_like(t))
            each += 10 * (tf.square(at_zero - 1) + tf.square(speed_at_zero))[:, 0]
            loss = average(each, BATCH, strategy, slip)
        gradients = tape.gradient(loss, network.trainable_variables)
        optimizer.apply_gradients(zip(gradients, network.trainable_variables, strict=True))
        return loss

    times = np.random.default_rng(61).uniform(0, 3, (128, 1)).astype("float32")
    looped(train, network, distributed(times, BATCH, strategy, slip), strategy)


@program(kind="loop", source="Kendall, Gal, Cipolla: multi-task learning by uncertainty, a loop", slips=LOOPS)
def two_tasks_weighed_by_uncertainty(strategy, slip=None):
    """Right: a class and a number from one body. The log variances, raw variables that Keras's optimizer trains with
    the model's weights, stand in each example's loss.
    """
    import keras
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(71)
    x = rng.normal(size=(128, 6)).astype("float32")
    values, classes = (x[:, 0] - x[:, 1] ** 2).astype("float32"), (x[:, 2] > 0).astype("int64")
    with scope(strategy, slip):
        features = keras.Input((6,))
        body = keras.layers.Dense(12, activation="tanh")(features)
        model = keras.Model(features, {"class": keras.layers.Dense(2)(body), "value": keras.layers.Dense(1)(body)})
        log_variances = tf.Variable([0.0, 0.0], name="log_variances")
        optimizer = keras.optimizers.SGD(rate(0.1, strategy, slip), momentum=0.9, nesterov=True)
    variables = [*model.trainable_variables, log_variances]

    def train(inputs):
        x, targets = inputs
        with tf.GradientTape() as tape:
            outputs = model(x, training=True)
            first = keras.losses.sparse_categorical_crossentropy(targets["class"], outputs["class"], from_logits=True)
            second = keras.losses.huber(targets["value"][:, None], outputs["value"])
            weights = tf.exp(-log_variances)
            each = weights[0] * first + weights[1] * second + tf.reduce_sum(log_variances)
            loss = average(each, BATCH, strategy, slip)
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    looped(
        train,
        [model, log_variances],
        distributed((x, {"class": classes, "value": values}), BATCH, strategy, slip),
        strategy,
    )
