"""`fit`, `evaluate` and `predict` in a cluster against one device, and what the Recorder writes down of them."""

from __future__ import annotations

import json
from types import SimpleNamespace

import lanes
import numpy as np
import pytest
from training import BATCH, batches, classifier, digits

import dtk
from dtk.records.events import Training, of_kind
from dtk.watch.explain import is_chatter
from dtk.worker.recorded import RecordedStates

pytestmark = pytest.mark.trains


def everything(strategy, arrays, steps_per_execution):
    """Ten steps an epoch; validation of 3 whole batches and one of 9 examples, which two replicas share as 5 and 4."""
    model = classifier(strategy, steps_per_execution=steps_per_execution, built=not arrays)
    if arrays:
        train, test = digits(640), digits(201, start=640)
        history = model.fit(*train, BATCH, 2, verbose=0, validation_data=test, callbacks=[dtk.Recorder()])
        measures = model.evaluate(*test, BATCH, verbose=0)
        outputs = model.predict(test[0], BATCH, verbose=0)
    else:
        train, test = batches(640), batches(201, start=640)
        history = model.fit(train, epochs=2, verbose=0, validation_data=test, callbacks=[dtk.Recorder()])
        measures = model.evaluate(test, verbose=0)
        outputs = model.predict(test.map(lambda x, y: x), verbose=0)
    return {"history": history.history, "measures": measures, "outputs": outputs}


def global_losses(run):
    return run.records.groupby("step").loss.sum().to_numpy()


def test_what_fit_returns_needs_no_keras_in_the_kernel():
    run = dtk.run(lambda strategy: classifier(strategy).fit(batches(128), epochs=2, verbose=0), workers=2)
    for history in run.results:
        assert type(history) is SimpleNamespace
        assert (len(history.history["loss"]), history.epoch, history.params["epochs"]) == (2, [0, 1], 2)


@pytest.mark.slow
@pytest.mark.parametrize(("arrays", "steps_per_execution"), [(False, 1), (True, 3)])
def test_a_cluster_computes_what_one_device_does(arrays, steps_per_execution):
    given = (arrays, steps_per_execution)
    run = dtk.run(lambda strategy: everything(strategy, *given), workers=2)
    baseline = dtk.baseline(lambda strategy: everything(strategy, *given))
    assert (run.records.groupby("step").examples.sum() == baseline.records.groupby("step").examples.sum()).all()
    np.testing.assert_allclose(global_losses(run), global_losses(baseline), rtol=1e-4)
    assert len(baseline.weights) == 4
    for corner in run.folder.each:
        for ours, other in zip(corner.weights.arrays, baseline.weights, strict=True):
            np.testing.assert_allclose(ours, other, atol=1e-4)
    assert run.records.step.max() == 20
    assert run.records.groupby("epoch").step.nunique().to_dict() == {1: 10, 2: 10}
    expected = baseline.results[0]
    for result in run.results:
        for name, values in expected["history"].items():
            np.testing.assert_allclose(result["history"][name], values, rtol=1e-4)
        np.testing.assert_allclose(result["measures"], expected["measures"], rtol=1e-4)
        np.testing.assert_allclose(result["outputs"], expected["outputs"], atol=1e-4)
    printed = [line for log in (*run.logs, *baseline.logs) for line in log.splitlines()]
    assert [line for line in printed if not is_chatter(line)] == [], "a silent fit shows nothing of its start"


def normalized(strategy, count):
    from tensorflow import keras

    middle = keras.layers.BatchNormalization(), keras.layers.Dropout(0.3)
    model = classifier(strategy, *middle)
    model.fit(batches(count), epochs=2, verbose=0, validation_data=batches(100), callbacks=[dtk.Recorder()])
    assert all(np.isfinite(weight).all() for weight in model.get_weights())
    return [getattr(weight, "path", weight.name) for weight in model.trainable_variables]


@pytest.mark.slow
def test_batch_normalization_and_dropout():
    run = dtk.run(lambda strategy: normalized(strategy, 2 * BATCH), workers=2, stall_timeout=30)
    a, b = (corner.weights for corner in run.folder.each)
    alike = [name for name, x, y in zip(a.names, a.arrays, b.arrays, strict=True) if np.array_equal(x, y)]
    assert set(run.results[0]) <= set(alike)
    # Keras 3 keeps the moving statistics per replica. When this fails, docs/explanation/compat.md has a line to lose.
    differing = {f"sequential/batch_normalization/moving_{x}" for x in ("mean", "variance")} if lanes.KERAS_3 else set()
    assert set(a.names) - set(alike) == differing


@pytest.mark.parametrize("where", [{"workers": 2}, {"workers": 1, "replicas": 2}])
def test_batch_normalization_of_no_examples_is_refused(where):
    if not lanes.KERAS_3:  # Keras 2 leaves an empty share out of the mean; `normalized` looks for NaN
        assert dtk.run(lambda strategy: normalized(strategy, BATCH + 1), **where).records.examples.min() == 0
        return
    with pytest.raises(dtk.WorkerFailed) as failure:
        dtk.run(lambda strategy: normalized(strategy, BATCH + 1), **where)
    assert "ClusterConfigError" in failure.value.traceback
    assert "one replica got 0 examples" in str(failure.value)
    assert len(failure.value.records) > 0  # the steps before are not lost


def several_fits(strategy):
    model = classifier(strategy)
    plain = model.train_step, model.compute_loss
    recorder = dtk.Recorder()
    model.fit(batches(256), epochs=2, verbose=0, callbacks=[recorder, dtk.Recorder()])
    function = model.train_function
    model.fit(batches(256), verbose=0, callbacks=[recorder])
    model.fit(batches(256), verbose=0, epochs=5, initial_epoch=4, callbacks=[dtk.Recorder()])
    assert isinstance(recorder, dtk.Recorder)
    return (model.train_step, model.compute_loss) == plain and model.train_function is function


def test_recorders_count_on_and_leave_the_model_as_it_was():
    run = dtk.run(several_fits, workers=2)
    assert run.results == [True, True]
    chief = run.records[run.records.worker == 0]
    assert chief.step.tolist() == list(range(1, 17))
    assert chief.epoch.tolist() == [1] * 4 + [2] * 4 + [3] * 4 + [5] * 4
    announced = of_kind(run.folder.worker(1).events, Training)
    assert [(event.steps, event.epochs) for event in announced] == [(4, 2), (4, 1), (4, 1)]
    assert (run.records.started < run.records.ended).all()


def interrupted_once(strategy):
    from tensorflow import keras

    def stop(batch, logs):
        if batch == 2:
            raise KeyError("enough")

    model = classifier(strategy)
    with pytest.raises(KeyError):
        model.fit(
            batches(256), verbose=0, callbacks=[dtk.Recorder(), keras.callbacks.LambdaCallback(on_batch_end=stop)]
        )
    model.fit(batches(256), verbose=0, callbacks=[dtk.Recorder()])


def test_an_exception_loses_no_record():
    run = dtk.run(interrupted_once, workers=2)
    assert run.records[run.records.worker == 1].step.tolist() == list(range(1, 3 + 4 + 1))


def own_step(strategy):
    import keras

    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(10)

        def call(self, x):
            return self.dense(x)

        def train_step(self, data):
            import tensorflow as tf

            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(x, y, self(x))
            gradients = tape.gradient(loss, self.trainable_weights)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
            return {"loss": loss}

    with strategy.scope():
        model = Own()
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    model.fit(batches(256), verbose=0, callbacks=[dtk.Recorder()])


def test_a_train_step_of_the_learners_own():
    run, baseline = dtk.run(own_step, workers=2), dtk.baseline(own_step)
    lines = (run.dir / "worker-1" / "records.jsonl").read_text().splitlines()
    assert [json.loads(line)[0:2] for line in lines] == [[1, 1], [1, 2], [1, 3], [1, 4]], "JSON, a line for each step"
    np.testing.assert_allclose(global_losses(run), global_losses(baseline), rtol=1e-4)
    before = RecordedStates(run.folder).before(0).values()  # built by dtk before the first step
    assert [copies[0].shape for copies in before if copies[0].ndim] == [(64, 10), (10,)]


def alone():
    import tensorflow as tf

    classifier(tf.distribute.MirroredStrategy()).fit(batches(128), verbose=0, callbacks=[dtk.Recorder()])


def test_workers_that_train_alone_are_told_so():
    with pytest.raises(dtk.WorkerFailed, match="the model was made under MirroredStrategy"):
        dtk.run(alone, workers=2)
    assert len(dtk.baseline(alone).records) > 0


def nowhere(strategy):
    from dtk import environment

    environment.enter(None)
    classifier(strategy).fit(batches(128), verbose=0, callbacks=[dtk.Recorder()])


def test_outside_of_a_run_it_says_so():
    baseline = dtk.baseline(nowhere)
    assert baseline.logs[0].count("dtk.Recorder: this process was not started by dtk.run") == 1
    assert len(baseline.records) == 0
