"""What Keras 3 can't do under a strategy is refused in a sentence; and without the refusal it does fail."""

from __future__ import annotations

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


def trained(strategy, data=None, optimizer=None, refused=True, method="fit", **options):
    """What `fit` of a small model says, or its weights."""
    import keras

    if not refused:
        keras.Model.fit = keras.Model.fit.__wrapped__
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3, "tanh"), keras.layers.Dense(1)])
        model.compile(optimizer() if optimizer else "sgd", "mse", **options)
    data = rows() if data is None else data
    if method != "fit":
        return getattr(model, method)(data, verbose=0)
    try:
        model.fit(data, epochs=2, verbose=0)
    except dtk.ClusterConfigError:
        raise
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return [weight.tolist() for weight in model.get_weights()]


def accumulating():
    import keras

    return keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)


def overwriting():
    import keras

    return keras.optimizers.SGD(0.1, use_ema=True, ema_overwrite_frequency=2)


CAN_NOT = {
    "accumulation": (
        {"optimizer": accumulating},
        "SGD(gradient_accumulation_steps=2): Keras 3 can't accumulate gradients under a strategy; leave it out, and "
        "batch 2 times as many examples",
        "merge_call",
    ),
    "overwriting": (
        {"optimizer": overwriting},
        "SGD(ema_overwrite_frequency=2): Keras 3 can't overwrite the weights under a strategy; leave it out, and use "
        "keras.callbacks.SwapEMAWeights(swap_on_epoch=True)",
        "merge_call",
    ),
    "jit": (
        {"jit_compile": True},
        "compile(jit_compile=True): XLA can't compile an all-reduce on CPUs, which a strategy with several replicas "
        "needs; leave jit_compile out",
        "Error: ",
    ),
}


@pytest.mark.parametrize("where", WHERE, ids=["workers", "replicas"])
@pytest.mark.parametrize("what", CAN_NOT)
def test_it_is_refused_under_a_strategy_and_not_on_one_device(what, where):
    options, sentence, _ = CAN_NOT[what]
    with pytest.raises(dtk.WorkerFailed) as failure:
        dtk.run(lambda strategy: trained(strategy, **options), **where)
    assert str(failure.value) == f"worker 0 raised ClusterConfigError: {sentence}"
    assert len(dtk.baseline(lambda strategy: trained(strategy, **options)).results[0]) == 4


@pytest.mark.slow  # where it no longer fails, the refusal can go
@pytest.mark.parametrize("where", WHERE, ids=["workers", "replicas"])
@pytest.mark.parametrize("what", CAN_NOT)
def test_without_the_refusal_it_still_fails(what, where):
    options, _, words = CAN_NOT[what]
    for result in dtk.run(lambda strategy: trained(strategy, refused=False, **options), **where).results:
        assert words in result


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
    said = str(failure.value)
    assert said.startswith("worker 0 raised ClusterConfigError: train_step, line ")
    assert said.endswith(
        ": under a strategy `shape[0]` of a batch is None while the graph is made, because each replica gets a part of "
        "it; use tf.shape(x)[0]"
    )
    assert dtk.run(lambda strategy: sliced(strategy, "dynamic"), workers=2).results == ["trained"] * 2
    assert dtk.baseline(lambda strategy: sliced(strategy, "static")).results == ["trained"]


def wrong_elsewhere(strategy):
    import keras

    class Wrong(keras.Model):
        def call(self, x):
            return x

        def train_step(self, data):
            return {"loss": None + 1}

    with strategy.scope():
        model = Wrong()
        model.compile("sgd")
    model.fit(rows(), verbose=0)


def test_another_type_error_is_not_said_to_be_the_batchs():
    with pytest.raises(dtk.WorkerFailed, match="raised TypeError: unsupported operand"):
        dtk.run(wrong_elsewhere, workers=2)
