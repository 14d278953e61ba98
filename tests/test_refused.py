"""What Keras 3 can't do under a strategy, and data without an end: one sentence says it."""

from __future__ import annotations

import functools
import re

import lanes
import numpy as np
import pytest

import dtk

pytestmark = [
    pytest.mark.trains,
    pytest.mark.skipif(not lanes.KERAS_3, reason="Keras 2 refuses these itself, or has them"),
]

TWO_WORKERS = {"workers": 2}
WHERE = [TWO_WORKERS, pytest.param({"workers": 1, "replicas": 2}, marks=pytest.mark.slow)]


def rows(count=64, batch=16, **options):
    import tensorflow as tf

    x = np.random.RandomState(0).normal(size=(count, 4)).astype("float32")
    return tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True))).batch(batch, **options)


def trained(strategy, data=None, optimizer=None, method="fit", **options):
    """A small model's weights after `fit`, or what another method returns."""
    import keras

    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3, "tanh"), keras.layers.Dense(1)])
        model.compile(optimizer() if optimizer else "sgd", "mse", **options)
    data = rows() if data is None else data
    if method != "fit":
        return getattr(model, method)(data, verbose=0)
    model.fit(data, epochs=2, verbose=0)
    return [weight.tolist() for weight in model.get_weights()]


def sgd(**more):
    import keras

    return keras.optimizers.SGD(0.1, **more)


MERGED = r"RuntimeError: an all-reduce .* with gradient_accumulation_steps or ema_overwrite_frequency put it there"
CAN_NOT = {
    "accumulation": ({"optimizer": functools.partial(sgd, gradient_accumulation_steps=2)}, MERGED),
    "overwriting": ({"optimizer": functools.partial(sgd, use_ema=True, ema_overwrite_frequency=2)}, MERGED),
    "jit": ({"jit_compile": True}, r"\w+Error: XLA can't compile a.*; leave jit_compile=True out"),
}


@pytest.mark.parametrize("where", WHERE, ids=["workers", "replicas"])
@pytest.mark.parametrize("what", CAN_NOT)
def test_it_fails_under_a_strategy_and_not_on_one_device(what, where):
    options, sentence = CAN_NOT[what]
    with pytest.raises(dtk.WorkerFailed) as failure:
        dtk.run(lambda strategy: trained(strategy, **options), **where)
    assert re.match(f"worker 0 raised {sentence}", str(failure.value))
    assert len(dtk.baseline(lambda strategy: trained(strategy, **options)).results[0]) == 4


def test_averages_that_are_written_at_the_end_are_those_of_one_device():
    def function(strategy):
        import keras

        return trained(strategy, optimizer=lambda: keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5))

    (expected,) = dtk.baseline(function).results
    for result in dtk.run(function, workers=2).results:
        for ours, theirs in zip(result, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)


ENDLESS = "the dataset has no end (.repeat())"


@pytest.mark.parametrize(
    ("start", "method", "said"),
    [
        (dtk.baseline, "fit", f"fit: {ENDLESS}; pass steps_per_epoch"),
        (dtk.run, "fit", f"fit: {ENDLESS}; pass steps_per_epoch"),
        (dtk.baseline, "evaluate", f"evaluate: {ENDLESS}; pass steps"),
        (dtk.baseline, "predict", f"predict: {ENDLESS}; pass steps"),
    ],
)
def test_data_without_an_end(start, method, said):
    where = TWO_WORKERS if start is dtk.run else {}
    with pytest.raises(dtk.WorkerFailed) as failure:
        start(lambda strategy: trained(strategy, rows().repeat(), method=method), timeout=60, **where)
    assert str(failure.value) == f"worker 0 raised ClusterConfigError: {said}"


def with_an_end(strategy):
    import keras

    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    endless = rows().repeat()
    history = model.fit(endless, steps_per_epoch=2, validation_data=endless, validation_steps=1, verbose=0)
    try:
        model.fit(rows(), validation_data=endless, verbose=0)
    except dtk.ClusterConfigError as error:
        return len(history.history["val_loss"]), str(error)


def test_data_without_an_end_and_with_steps():
    said = "fit: validation_data has no end (.repeat()); pass validation_steps"
    assert dtk.run(with_an_end, workers=2).results == [(1, said)] * 2


def sliced(strategy, count):
    """A batch whose halves are used apart, as in a GAN's step; count: how many examples a half has."""
    import keras
    import tensorflow as tf

    class Halves(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, x):
            return self.dense(x)

        def train_step(self, data):
            x, y = data
            half = x.shape[0] // 2 if count == "static" else tf.shape(x)[0] // 2
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self(x[:half]) - y[:half]) ** 2) + tf.reduce_mean(
                    (self(x[half:]) - y[half:]) ** 2
                )
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            return {"loss": loss}

    with strategy.scope():
        model = Halves()
        model.compile("sgd")
    model.fit(rows(drop_remainder=True), verbose=0)
    return "trained"


def test_a_batch_of_unknown_size_in_a_train_step():
    with pytest.raises(dtk.WorkerFailed) as failure:
        dtk.run(lambda strategy: sliced(strategy, "static"), workers=2)
    assert str(failure.value) == (
        "worker 0 raised TypeError: unsupported operand type(s) for //: 'NoneType' and 'int'; if it is a batch's "
        "x.shape[0]: under a strategy that is None while the graph is made; use tf.shape(x)[0]"
    )
    assert dtk.run(lambda strategy: sliced(strategy, "dynamic"), workers=2).results == ["trained"] * 2
    assert dtk.baseline(lambda strategy: sliced(strategy, "static")).results == ["trained"]
