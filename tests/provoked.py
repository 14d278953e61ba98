"""Functions that do what TensorFlow or Keras answers with an error, for a worker of dtk: `dtk.run(fn)`.

`error_cases.py` says what is to be said of each, and `tools/error_texts.py` keeps the texts.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from training import sharded

import dtk

# ---- data that can't be divided


def dealt_out(strategy: Any, data: Any) -> None:
    next(iter(strategy.experimental_distribute_dataset(sharded(data, "FILE"))))


def lines(strategy: Any, files: int) -> None:
    import tensorflow as tf

    folder = Path(tempfile.mkdtemp())
    for number in range(files):
        (folder / f"{number}.txt").write_text("a\nb\n")
    names = [str(file) for file in sorted(folder.iterdir())]
    dealt_out(strategy, tf.data.TextLineDataset(names).batch(2))


def no_files(strategy: Any) -> None:
    import tensorflow as tf

    dealt_out(strategy, tf.data.Dataset.from_tensor_slices([1.0, 2.0, 3.0, 4.0]).batch(2))


# ---- strategy, scope and replicas


def strategy_made_late(_: Any) -> None:
    import tensorflow as tf

    tf.add(1.0, 2.0)
    tf.distribute.MultiWorkerMirroredStrategy()


def small(strategy: Any, *layers: Any, **options: Any) -> Any:
    from tensorflow import keras

    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), *[layer() for layer in layers], keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse", **options)
    return model


def rows() -> Any:
    import numpy as np
    import tensorflow as tf

    x = np.ones((16, 4), "float32")
    return tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True))).batch(4)


def gradients(model: Any, x: Any, y: Any) -> list[tuple[Any, Any]]:
    import tensorflow as tf

    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    weights = model.trainable_variables
    return list(zip(tape.gradient(loss, weights), weights, strict=True))


def stepping_directly(strategy: Any) -> None:
    from tensorflow import keras

    model = small(strategy)
    with strategy.scope():
        for x, y in rows():
            keras.optimizers.SGD(0.1).apply_gradients(gradients(model, x, y))


def optimizer_built_outside(strategy: Any) -> None:
    from tensorflow import keras

    model = small(strategy)
    with strategy.scope():
        optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    optimizer.build(model.trainable_variables)


def model_made_outside(strategy: Any) -> None:
    import tensorflow as tf
    from tensorflow import keras

    model = small(tf.distribute.get_strategy())
    with strategy.scope():
        keras.optimizers.SGD(0.1, momentum=0.9).build(model.trainable_variables)


def per_replica(use: Callable[[Any, Any], Any]) -> Callable[[Any], None]:
    """use: what is done with a batch of which each replica has a part, and with a model."""

    def raises(strategy: Any) -> None:
        model = small(strategy)
        for x, _ in strategy.experimental_distribute_dataset(rows()):
            use(x, model)

    return raises


def reduced(x: Any, _: Any) -> None:
    import tensorflow as tf

    tf.reduce_sum(x)


def multiplied(x: Any, _: Any) -> None:
    import tensorflow as tf

    tf.matmul(x, tf.ones([4, 1]))


def run_in_each(strategy: Any, step: Callable[[Any, Any], Any], **options: Any) -> None:
    import tensorflow as tf

    function = tf.function(lambda batch: strategy.run(step, args=batch), **options)
    for batch in strategy.experimental_distribute_dataset(rows()):
        function(batch)


def updating_in_a_condition(strategy: Any) -> None:
    import tensorflow as tf

    model = small(strategy)

    def step(x: Any, y: Any) -> None:
        found = gradients(model, x, y)
        tf.cond(tf.reduce_sum(x) > 0, lambda: [model.optimizer.apply_gradients(found), 1][1], lambda: 0)

    run_in_each(strategy, step)


def variables_made_in_the_step(strategy: Any) -> None:
    from tensorflow import keras

    with strategy.scope():
        model, optimizer = keras.Sequential([keras.layers.Dense(1)]), keras.optimizers.Adam(0.1)
    run_in_each(strategy, lambda x, y: optimizer.apply_gradients(gradients(model, x, y)))


def compiling_the_step(strategy: Any) -> None:
    model = small(strategy)
    run_in_each(strategy, lambda x, y: model.optimizer.apply_gradients(gradients(model, x, y)), jit_compile=True)


# ---- Keras 3


def without_a_call(strategy: Any) -> None:
    from tensorflow import keras

    class Wrong(keras.Model):
        pass

    with strategy.scope():
        model = Wrong()
        model.compile("sgd", "mse")
    model.fit(rows(), verbose=0)


def with_lr(_: Any) -> None:
    from tensorflow import keras

    keras.optimizers.SGD(lr=0.1)


def asked_for_lr(_: Any) -> None:
    from tensorflow import keras

    keras.optimizers.SGD(0.1).lr.numpy()


def reset(_: Any) -> None:
    from tensorflow import keras

    keras.metrics.Mean().reset_states()


def saved_as_by_keras_2(_: Any) -> None:
    from tensorflow import keras

    keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]).save("model")


def choosing(strategy: Any) -> None:
    """Its error is raised while Keras builds the model, where Keras puts words of its own around it."""
    import tensorflow as tf
    from tensorflow import keras

    class Choosing(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            return [x * 2.0 if bool(tf.reduce_sum(x) > 0) else x][0]

    small(strategy, Choosing)


def sizes_that_differ(_: Any) -> None:
    import tensorflow as tf
    from tensorflow import keras

    layer = keras.layers.Dense(3)
    layer.build((None, 4))
    layer.input_spec = None
    layer(tf.ones([8, 5]))


def default_reduction(strategy: Any) -> None:
    """Keras 2 refuses it, in a function that AutoGraph has converted."""
    import tensorflow as tf
    from tensorflow import keras

    with strategy.scope():
        loss = keras.losses.MeanSquaredError()

    @tf.function
    def whole() -> Any:
        return strategy.run(lambda: loss(tf.ones([4, 1]), tf.zeros([4, 1])))

    whole()


def strings_compiled(_: Any) -> None:
    import tensorflow as tf

    tf.function(lambda: tf.strings.length(tf.strings.as_string(tf.random.uniform([]))), jit_compile=True)()


# ---- dtk's own errors, which TensorFlow raises anew


def refused_while_traced(_: Any) -> None:
    import tensorflow as tf

    @tf.function
    def step(x: Any) -> Any:
        if x > 0:
            raise dtk.ClusterConfigError("a step was recorded twice")
        return x

    step(tf.constant(1.0))


def refused_while_running(_: Any) -> None:
    import tensorflow as tf

    def refuse() -> None:
        raise dtk.ClusterConfigError("a step was recorded twice")

    tf.function(lambda: tf.numpy_function(refuse, [], tf.float32))()


# ---- names that are gone, and Estimator


def asked_tensorflow_for_estimator(_: Any) -> None:
    import tensorflow as tf

    tf.estimator.RunConfig()


def config_without_a_strategy(_: Any) -> None:
    import estimating

    config = dtk.estimator.RunConfig()
    classifier = dtk.estimator.Estimator(estimating.model_fn_of, config=config, params={"rate": 0.1})
    classifier.train(lambda: estimating.input_fn_of("train", 64), steps=1)


def estimator_trained_by_itself(_: Any) -> None:
    import estimating

    estimating.estimator().train(lambda: estimating.input_fn_of("train", 64), steps=1)


# ---- a port that is not free


def port_taken(_: Any) -> None:
    import tensorflow as tf

    config = json.loads(os.environ["TF_CONFIG"])
    mine = config["cluster"]["worker"][config["task"]["index"]]
    with socket.socket() as taken:
        taken.bind(("", int(mine.rsplit(":", 1)[1])))
        taken.listen()
        tf.distribute.MultiWorkerMirroredStrategy()
