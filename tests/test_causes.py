"""What workers say of their failures where Keras or TensorFlow raises: real runs, and the cause in a sentence."""

from __future__ import annotations

import lanes
import numpy as np
import pytest

import dtk

pytestmark = [pytest.mark.skipif(not lanes.KERAS_3, reason="Keras 2 says these things otherwise"), pytest.mark.trains]


def small(strategy, *layers):
    import keras

    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), *[layer() for layer in layers], keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


def rows():
    import tensorflow as tf

    x = np.ones((64, 4), "float32")
    return tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True))).batch(16)


def made_while_building(strategy):
    import keras
    import tensorflow as tf

    class Choosing(keras.layers.Layer):
        def call(self, x):
            return x * 2.0 if tf.reduce_sum(x) > 0 else x

    small(strategy, Choosing)


def made_in_a_layer(strategy):
    import keras

    class Picky(keras.layers.Layer):
        def call(self, x):
            if x.shape[-1] == 4:
                raise ValueError("this layer takes 5 columns, and there are 4")
            return x

    model = small(strategy)
    with strategy.scope():
        Picky()(model.inputs[0])


def stepping_directly(strategy):
    import keras
    import tensorflow as tf

    model = small(strategy)
    with strategy.scope():
        for x, y in rows():
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x) - y) ** 2)
            gradients = tape.gradient(loss, model.trainable_variables)
            keras.optimizers.SGD(0.1).apply_gradients(zip(gradients, model.trainable_variables, strict=True))


def using_a_distributed_batch(strategy):
    model = small(strategy)
    for x, _ in strategy.experimental_distribute_dataset(rows()):
        model(x)


def compiling_the_step(strategy):
    import tensorflow as tf

    model = small(strategy)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    compiled = tf.function(lambda batch: strategy.run(step, args=batch), jit_compile=True)
    for batch in strategy.experimental_distribute_dataset(rows()):
        compiled(batch)


STEP = "call the step by strategy.run(step, args=(batch,))"
SAID = {
    made_while_building: "raised OperatorNotAllowedInGraphError: Using a symbolic `tf.Tensor` as a Python `bool` is "
    "not allowed. You can attempt the following resolutions to the problem: If you are running in Graph mode, use "
    "Eager execution mode or decorate this function with @tf.function.",
    made_in_a_layer: "raised ValueError: this layer takes 5 columns, and there are 4",
    stepping_directly: f"raised ValueError: a variable of the strategy was used where no replica runs; {STEP}",
    using_a_distributed_batch: "raised ValueError: a value with one part for each replica (PerReplica) was used as "
    f"one tensor; {STEP}, or take strategy.experimental_local_results(value)",
    compiling_the_step: "raised UnimplementedError: XLA can't compile an all-reduce on CPUs; leave jit_compile=True "
    "out",
}


@pytest.mark.parametrize("function", SAID, ids=lambda function: function.__name__)
def test_the_cause_is_in_the_sentence(function):
    with pytest.raises(dtk.WorkerFailed) as failure:
        dtk.run(function, workers=2)
    # XLA takes long to say no: the other worker may be stopped before it has raised the same.
    assert str(failure.value) in (f"worker 0 {SAID[function]}", f"worker 1 {SAID[function]}")
    assert failure.value.traceback.startswith("Traceback"), "what Keras said is there in full"
