"""Where a step's time goes: arithmetic on made-up marks, and real runs in which one part is made long on purpose."""

from __future__ import annotations

import json
import time

import estimating
import numpy as np
import pytest
from fabricate import fabricate
from training import dealt
from verifying import edit_records

import dtk
from dtk.scaling.timing import PARTS, step_parts, step_times


def with_marks(tmp_path, marks, workers=2):
    """Two steps of 1 s each, from 1.0 to 2.0 and 2.0 to 3.0, on every worker; marks: by worker, of the second step."""
    run = fabricate(tmp_path / "run", workers=workers, steps=2)

    def timed(rows):
        return [[*row[:5], row[1] + 0.1, row[1] + 1.0, *row[7:]] for row in rows]  # started, ended

    for worker in run.folder.each:
        edit_records(run, worker.worker, timed)
        text = "".join(json.dumps(mark) + "\n" for mark in marks.get(worker.worker, []))
        (worker.path / "marks.jsonl").write_text(text)
    return run


def parts_of(run, worker=0):
    table = step_parts(run)
    assert list(table.columns) == ["worker", "step", "period", *PARTS]
    assert table.step.tolist() == [2] * run.workers, "the first step is left out"
    assert table[list(PARTS)].sum(axis=1).to_numpy() == pytest.approx(table.period.to_numpy())
    return table[table.worker == worker].iloc[0]


NAN = float("nan")


def test_each_part_of_a_step(tmp_path):
    marks = {
        0: [["take", NAN, 2.25, 0], ["reduce", 2.5, 2.9, 1000]],
        1: [["take", NAN, 2.25, 0], ["reduce", 2.7, 2.9, 1000]],
    }
    run = with_marks(tmp_path, marks)
    slow, fast = parts_of(run, 1), parts_of(run, 0)
    assert [fast[name] for name in PARTS] == pytest.approx([0.1, 0.15, 0.35, 0.2, 0.2])
    assert [slow[name] for name in PARTS] == pytest.approx([0.1, 0.15, 0.55, 0.2, 0.0])


def test_the_question_whether_all_have_data_is_no_input(tmp_path):
    marks = [["reduce", 2.15, 2.25, 8], ["take", NAN, 2.3, 0], ["reduce", 2.5, 2.9, 1000]]
    row = parts_of(with_marks(tmp_path, {0: marks, 1: marks}))
    assert row["input"] == pytest.approx(0.1)
    assert row["all_reduce"] == pytest.approx(0.5)


def test_what_is_reduced_beside_the_backward_pass_is_computing(tmp_path):
    packs = [["take", NAN, 2.1, 0], ["reduce", 2.3, 2.6, 500], ["reduce", 2.5, 2.8, 500], ["reduce", 2.35, 2.4, 4]]
    row = parts_of(with_marks(tmp_path, {0: packs, 1: packs}))
    assert row["all_reduce"] == pytest.approx(0.3 + 0.05), "from the last pack on, and the small one"
    assert row["compute"] == pytest.approx(1.0 - 0.1 - 0.35)


def test_a_loop_says_when_it_asked_for_data(tmp_path):
    row = parts_of(with_marks(tmp_path, {0: [["take", 2.3, 2.4, 0]]}, workers=1))
    assert (row["python"], row["input"], row["compute"]) == pytest.approx((0.3, 0.1, 0.6))


def test_without_marks_and_without_records(tmp_path):
    assert parts_of(with_marks(tmp_path, {}, workers=1))["compute"] == pytest.approx(0.9)
    assert step_parts(fabricate(tmp_path / "empty", workers=1, steps=0)).empty


# ---- real runs

SECONDS = 0.1  # that one part is made longer by


def fitting(strategy, keras_input=0.0, callback=0.0):
    import tensorflow as tf
    from tensorflow import keras

    def slowly(x):
        time.sleep(keras_input)
        return x

    data = dealt((np.ones((96, 8), "float32"), np.ones((96, 1), "float32")), 8)
    if keras_input:
        data = data.map(lambda x, y: (tf.ensure_shape(tf.numpy_function(slowly, [x], tf.float32), (None, 8)), y))
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(16), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    rest = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: time.sleep(callback))
    model.fit(data, verbose=0, callbacks=[dtk.Recorder(), rest])


def looping(strategy):
    import tensorflow as tf

    data = dealt(np.ones((96, 8), "float32"), 8)
    with strategy.scope():
        weight = tf.Variable(tf.ones((8, 1)))

    @tf.function
    def step(batch):
        def replica(x):
            with tf.GradientTape() as tape:
                loss = tf.nn.compute_average_loss(tf.reduce_sum(x @ weight, axis=1), global_batch_size=8)
            gradient = tape.gradient(loss, weight)
            weight.assign_sub(0.01 * tf.distribute.get_replica_context().all_reduce("sum", gradient))
            return loss

        return strategy.run(replica, args=(batch,))

    for batch in strategy.experimental_distribute_dataset(data):
        dtk.record_step(step(batch), batch=batch)
        time.sleep(SECONDS)


def medians(run):
    table = step_parts(run)
    assert len(table) == len(step_times(run.records)) - run.workers
    sums = table[list(PARTS)].sum(axis=1)
    assert np.allclose(sums, table.period, rtol=1e-6)
    assert (table[list(PARTS)] >= -1e-6).all().all()
    return table.groupby("worker")[list(PARTS)].median()


@pytest.mark.parametrize(
    ("asked", "part", "worker"),
    [
        # One worker: of two, the one that is half a batch ahead waits in the all-reduce for the other's data.
        ({"kwargs": {"keras_input": SECONDS}, "workers": 1}, "input", 0),
        ({"kwargs": {"callback": SECONDS}}, "python", 1),
        ({"faults": [dtk.faults.slow(worker=0, seconds_per_step=SECONDS)]}, "waiting", 1),
    ],
    ids=["input", "callbacks", "straggler"],
)
@pytest.mark.slow  # measures
def test_a_part_that_is_made_long_is_the_one_that_shows_it(asked, part, worker):
    found = medians(dtk.run(fitting, **asked)).loc[worker]
    assert found.idxmax() == part
    assert found[part] > 0.8 * SECONDS
    assert found.drop(part).max() < 0.5 * SECONDS


@pytest.mark.trains
def test_a_loops_parts():
    found = medians(dtk.run(looping))
    assert (found.idxmax(axis=1) == "python").all()
    assert (found.all_reduce > 0).all()


@pytest.mark.trains
def test_an_estimators_parts():
    """Its graph is TensorFlow 1's, which runs nothing but what leads to the result."""
    found = medians(dtk.run(estimating.train, kwargs={"steps": 12}))
    assert (found.all_reduce > 0).all()
    assert (found.compute > 0).all()
