"""`dtk.record_step` called wrongly: one sentence each, in the worker and as WorkerFailed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from looping import parts

import dtk

pytestmark = pytest.mark.trains


def wrong(strategy, mistake):
    import tensorflow as tf

    data, model, optimizer, step = parts(strategy)
    for batch in data:
        losses = strategy.run(step, args=(batch,))
        if mistake == "reduced":
            losses = strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)
        if mistake == "batch dimension":
            losses = strategy.run(lambda pair: tf.cast(pair[1], tf.float32), args=(batch,))
        if mistake == "inside":
            strategy.run(lambda loss, seen: dtk.record_step(loss, batch=seen, model=model), args=(losses, batch))
        if mistake == "no batch":
            dtk.record_step(losses, batch=None, model=model)
        if mistake == "no model":
            dtk.record_step(losses, batch=batch, model="model")
        dtk.record_step(losses, batch=batch, model=model, step=optimizer.iterations)
        if mistake == "twice":
            dtk.record_step(losses, batch=batch, model=model, step=optimizer.iterations)


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        ("reduced", "got 1 loss for the 2 replicas of this process; pass what strategy.run returned"),
        ("batch dimension", "`loss` of replica 0 has the shape (8,), but should be one number"),
        ("inside", "was called inside of strategy.run"),
        ("no batch", "the batch has no part for each of the 2 replicas"),
        ("no model", "model= is a str, which has neither weights nor variables"),
        ("twice", "step 1 came after step 1"),
    ],
)
def test_a_wrong_call_is_one_sentence(mistake, said):
    with pytest.raises(dtk.WorkerFailed) as failure:
        dtk.run(lambda strategy: wrong(strategy, mistake), workers=1, replicas=2)
    assert "worker 0 raised ClusterConfigError: dtk.record_step" in str(failure.value)
    assert said in str(failure.value)


def twice_in_a_graph(strategy, rank):
    import tensorflow as tf

    data, model, optimizer, step = parts(strategy)

    @tf.function
    def run():
        for batch in data:
            losses = strategy.run(step, args=(batch,))
            if rank:
                losses = strategy.run(lambda pair: tf.cast(pair[1], tf.float32), args=(batch,))
            dtk.record_step(losses, batch=batch, model=model, step=optimizer.iterations)
            if not rank:
                dtk.record_step(losses, batch=batch, model=model, step=optimizer.iterations)

    run()


@pytest.mark.parametrize(("rank", "said"), [(0, "step 1 came after step 1"), (1, "has the shape (None,)")])
def test_a_wrong_call_in_a_graph_is_the_same_sentence(rank, said):
    with pytest.raises(dtk.WorkerFailed) as failure:
        dtk.run(lambda strategy: twice_in_a_graph(strategy, rank), workers=2)
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
