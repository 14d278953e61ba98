"""`dtk.record_step` in loops of each kind, on several workers, several replicas and one device."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from starting import nightly
from training import dealt

import dtk

STEPS = 6


def parts(strategy):
    """A small model, its optimizer and 6 global batches of 16 examples, in another order in each pass."""
    import keras
    import tensorflow as tf

    x = np.random.default_rng(0).normal(size=(STEPS * 16, 8)).astype("float32")
    data = strategy.experimental_distribute_dataset(dealt((x, (x[:, 0] > 0).astype("int64")), 16, seed=3))
    with strategy.scope():
        layers = [keras.layers.Input((8,)), keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(2)]
        model = keras.Sequential(layers)
        optimizer = keras.optimizers.SGD(0.5)
        criterion = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def step(batch):
        features, labels = batch
        with tf.GradientTape() as tape:
            each = criterion(labels, model(features, training=True))
            loss = tf.nn.compute_average_loss(each, global_batch_size=16)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return data, model, optimizer, step


pytestmark = pytest.mark.trains


def step_by_step(strategy):
    """record_step outside of the tf.function, as in the tutorial."""
    import tensorflow as tf

    data, model, _, step = parts(strategy)
    distributed = tf.function(lambda batch: strategy.run(step, args=(batch,)))
    for epoch in (1, 2):
        for batch in data:
            dtk.record_step(distributed(batch), batch=batch, model=model, epoch=epoch)


def inside(strategy):
    """record_step inside of the tf.function, with the optimizer's own count."""
    import tensorflow as tf

    data, model, optimizer, step = parts(strategy)

    @tf.function
    def distributed(batch):
        losses = strategy.run(step, args=(batch,))
        dtk.record_step(losses, batch=batch, model=model, step=optimizer.iterations)
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    for _ in range(2):
        for batch in data:
            distributed(batch)


def iterator(strategy):
    """A fixed number of steps from an iterator, in one tf.function."""
    import tensorflow as tf

    data, model, _, step = parts(strategy)

    @tf.function
    def several(iterator, steps):
        for _ in tf.range(steps):
            batch = next(iterator)
            losses = strategy.run(step, args=(batch,))
            dtk.record_step(losses, batch=batch, model=model)

    for _ in range(2):
        several(iter(data), tf.constant(STEPS))


def whole_epoch(strategy):
    """A whole epoch in one tf.function, the epoch a tensor."""
    import tensorflow as tf

    data, model, _, step = parts(strategy)

    @tf.function
    def run(epoch):
        for batch in data:
            losses = strategy.run(step, args=(batch,))
            dtk.record_step(losses, batch=batch, model=model, epoch=epoch)

    for epoch in (1, 2):
        run(tf.constant(epoch))


# Lesson 05 has the slow two.
LOOPS = [*nightly([step_by_step], [inside]), iterator, whole_epoch]


@pytest.mark.parametrize(("workers", "replicas"), [(2, 1), *nightly((1, 2), (2, 2))])
@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_a_loop_is_recorded_and_verified(loop, workers, replicas, capsys):
    run, baseline = dtk.run(loop, workers=workers, replicas=replicas), dtk.baseline(loop)
    dtk.verify(run, baseline)
    assert "check every step vs one device: PASS" in capsys.readouterr().out
    records = run.records
    assert len(records) == 2 * STEPS * workers * replicas
    assert records.step.max() == 2 * STEPS
    assert (records.replica // replicas == records.worker).all()
    assert (records.examples * workers * replicas == 16).all()
    epochs = {1: STEPS, 2: STEPS} if loop in (step_by_step, whole_epoch) else {1: 2 * STEPS}
    assert records.groupby("epoch").step.nunique().to_dict() == epochs
    assert (records.started < records.ended).all()
    together = records.groupby("step").data.sum().to_numpy()
    np.testing.assert_allclose(together, baseline.records.data.to_numpy(), atol=1e-9)
    assert len(set(np.round(together, 6))) == 2 * STEPS, "each step has other examples"


def watched(strategy):
    """What the last weight is at the moment of each record, and after the function."""
    import tensorflow as tf

    from dtk.worker import loop

    data, model, _, step = parts(strategy)
    seen = []
    write = loop._Loop.write

    def spy(self, *args):
        seen.append(model.weights[-1].numpy().tolist())
        return write(self, *args)

    loop._Loop.write = spy

    @tf.function
    def run():
        for batch in data:
            dtk.record_step(strategy.run(step, args=(batch,)), batch=batch, model=model)

    run()
    return seen


def test_a_row_is_written_after_its_steps_update():
    for result in dtk.run(watched, workers=2).results:
        assert len(result) == STEPS
        assert result[0] != [0.0, 0.0], "the bias of the last layer starts at zero"
        assert len({tuple(weights) for weights in result}) == STEPS


def examples_as(kind):
    def loop(strategy):
        data, model, _, step = parts(strategy)
        for x, y in data:
            batch = (x.numpy(), y.numpy()) if kind == "numpy" else (x, y)
            dtk.record_step(step((x, y)), batch=batch, model=model)

    return loop


def test_a_batch_of_numpy_arrays_is_recorded_like_one_of_tensors():
    columns = ["step", "examples", "data", "loss"]
    arrays, tensors = (dtk.baseline(examples_as(kind)).records[columns] for kind in ("numpy", "tensors"))
    assert len(arrays) == STEPS
    assert arrays.equals(tensors)


def without_model(strategy):
    data, _, _, step = parts(strategy)
    for batch in data:
        dtk.record_step(strategy.run(step, args=(batch,)), batch=batch)


def test_without_the_model_what_is_trained_is_recorded(capsys):
    run = dtk.run(without_model, workers=2)
    dtk.verify(run)
    assert f"check updates: PASS ({STEPS} of {STEPS} updates recorded, 0 models)" in capsys.readouterr().out


def local_values_as_the_strategys(strategy):
    import tensorflow as tf

    from dtk.compat.per_replica import local_values

    values = strategy.run(lambda: tf.distribute.get_replica_context().replica_id_in_sync_group)
    with strategy.scope():
        mirrored = tf.Variable(1.0)
    return [
        all(a is b for a, b in zip(local_values(value), strategy.experimental_local_results(value), strict=True))
        for value in (values, mirrored)
    ]


@pytest.mark.parametrize("where", [{"workers": 2}, {"workers": 1, "replicas": 3}], ids=["workers", "replicas"])
def test_local_values(where):
    for result in dtk.run(local_values_as_the_strategys, **where).results:
        assert result == [True, True]


# ---- `dtk.record_step` called wrongly: one sentence each, in the worker and as WorkerFailed


def wrong(strategy, mistake, in_a_graph):
    import tensorflow as tf

    data, model, optimizer, step = parts(strategy)

    def run():
        for batch in data:
            losses = strategy.run(step, args=(batch,))
            if mistake == "reduced":
                losses = strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)
            if mistake == "batch dimension":
                losses = strategy.run(lambda pair: tf.cast(pair[1], tf.float32), args=(batch,))
            if mistake == "inside":
                strategy.run(lambda loss, seen: dtk.record_step(loss, batch=seen, model=model), args=(losses, batch))
            given = {"no batch": {"batch": None}, "no model": {"model": "model"}}.get(mistake, {})
            for _ in range(2 if mistake == "twice" else 1):
                dtk.record_step(losses, **{"batch": batch, "model": model, "step": optimizer.iterations, **given})

    (tf.function(run) if in_a_graph else run)()


REPLICAS, WORKERS = {"workers": 1, "replicas": 2}, {"workers": 2}


@pytest.mark.parametrize(
    ("mistake", "where", "said"),
    [
        ("reduced", REPLICAS, "`loss` has no part for each of the 2 replicas of this process; pass what strategy.run"),
        ("batch dimension", REPLICAS, "`loss` of replica 0 has the shape (8,), but should be one number"),
        ("batch dimension", WORKERS, "has the shape (None,)"),
        ("inside", REPLICAS, "was called inside of strategy.run"),
        ("no batch", REPLICAS, "`batch` has no part for each of the 2 replicas"),
        ("no model", REPLICAS, "model= is a str, which has neither weights nor variables"),
        ("twice", REPLICAS, "step 1 came after step 1"),
        ("twice", WORKERS, "step 1 came after step 1"),
    ],
)
def test_a_wrong_call_is_one_sentence_in_a_graph_of_several_workers_too(mistake, where, said):
    with pytest.raises(dtk.WorkerFailed) as failure:
        dtk.run(wrong, args=(mistake, where is WORKERS), **where)
    assert "raised ClusterConfigError: dtk.record_step" in str(failure.value)
    assert said in str(failure.value)


def not_a_number(strategy):
    import tensorflow as tf

    data, model, _, _ = parts(strategy)
    for batch in data:
        dtk.record_step(strategy.run(lambda pair: tf.constant(float("nan")), args=(batch,)), batch=batch, model=model)


def test_nan_is_recorded_as_such_and_proves_nothing():
    run = dtk.run(not_a_number, workers=2)
    assert run.records.loss.isna().all()
    with pytest.raises(dtk.VerificationError) as error:
        dtk.verify(run)
    assert error.value.reason == "not followed"  # it trains nothing


def test_outside_of_a_run_it_says_so(capsys):
    code = "import dtk; dtk.record_step(1.0, batch=[1]); dtk.record_step(1.0, batch=[1])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.count("dtk.record_step: this process was not started by dtk.run or dtk.baseline") == 1
