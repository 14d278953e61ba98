"""On Colab: one worker stands in for several, and says so; its lessons are in test_lane_lessons.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from faking import steps_of
from training import BATCH, batches

import dtk
from dtk import environment, faults
from dtk.environment import Here
from dtk.launch import request
from dtk.records import RunFolder

ROOT = Path(__file__).parent.parent
STANDINS = str(ROOT / "tests" / "standins")


@pytest.fixture
def colab(monkeypatch):
    monkeypatch.setenv("DTK_COLAB", "1")


def with_strategy(strategy):
    return strategy.num_replicas_in_sync


def without():
    import json

    return len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])


def with_ring():
    return dtk.ring().workers


# ---- what is Colab


def test_colab_is_a_kernel_where_its_package_is(monkeypatch, tmp_path):
    monkeypatch.delenv("DTK_COLAB", raising=False)
    monkeypatch.setattr(environment, "in_notebook", lambda: True)
    assert not environment.on_colab(), "google.colab is not here"
    monkeypatch.syspath_prepend(STANDINS)
    assert environment.on_colab()
    monkeypatch.setenv("DTK_COLAB", "0")
    assert not environment.on_colab()
    monkeypatch.delenv("DTK_COLAB")
    monkeypatch.setattr(environment, "in_notebook", lambda: False)
    assert not environment.on_colab(), "a program that a cell starts"


def test_a_worker_is_not_on_colab(colab, tmp_path):
    environment.enter(Here(RunFolder(tmp_path, 1), 0, 1, 1, "cluster", 0.0))
    try:
        assert not environment.on_colab()
    finally:
        environment.enter(None)


# ---- what is started


@pytest.mark.parametrize(
    ("fn", "workers", "beside", "started", "said"),
    [
        (with_strategy, 2, False, (1, 2, 1), "1 worker with 2 replicas instead of 2 workers"),
        (with_strategy, 3, False, (1, 3, 1), "1 worker with 3 replicas instead of 3 workers"),
        (with_strategy, 2, True, (1, 1, 2), "1 worker with 1 replica (beside an evaluator) instead of 2 workers"),
        (without, 2, False, (1, 1, 2), "1 worker with 1 replica (the function takes no `strategy`) instead of"),
        (with_strategy, 1, False, (1, 1, 1), None),
        (with_ring, 3, False, (3, 1, 3), None),
    ],
)
def test_one_worker_stands_in_for_several(colab, fn, workers, beside, started, said):
    plan = request.layout(fn, workers, 1, (), beside, False)
    assert (plan.workers, plan.replicas, plan.share) == started
    assert [said in line and "force=True" in line for line in plan.said] == [True] * (said is not None)


def test_nothing_changes_elsewhere_or_by_force(monkeypatch, colab):
    wanted = request.Layout(2, 1, 2, (faults.kill(1, 3),))
    assert request.layout(with_strategy, 2, 1, wanted.faults, False, True) == wanted
    monkeypatch.setenv("DTK_COLAB", "0")
    assert request.layout(with_strategy, 2, 1, wanted.faults, False, False) == wanted
    with pytest.raises(dtk.ClusterConfigError, match="force='yes': it takes True"):
        request.layout(with_strategy, 2, 1, (), False, "yes")


def test_faults_of_other_workers_come_to_the_one_there_is(colab):
    asked = (faults.slow(0, 0.1), faults.slow(1, 0.1), faults.kill(1, 20))
    plan = request.layout(with_strategy, 2, 1, asked, False, False)
    assert plan.faults == (faults.slow(0, 0.1), faults.kill(0, 20)), "the same fault twice comes once"
    assert plan.said[1:] == (
        "slow(worker=1, seconds_per_step=0.1) needs two workers; here it comes to worker 0",
        "kill(worker=1, step=20) needs two workers; here it comes to worker 0",
    )
    with pytest.raises(dtk.ClusterConfigError, match="needs two workers: a single worker has no network to lose"):
        request.layout(with_strategy, 2, 1, (faults.drop_network(1, 2),), False, False)


@pytest.mark.trains
def test_a_run_says_it_in_one_line_and_a_request_that_is_refused_does_not(colab, capsys):
    with pytest.raises(dtk.ClusterConfigError, match="workers are 0 to 1"):
        dtk.run(without, workers=2, faults=[faults.kill(7, 1)], start="cold")
    assert capsys.readouterr().out == ""
    run = dtk.run(without, workers=2, start="cold")
    assert run.results == [1]
    assert len(run.tf_config) == run.workers == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if "Colab" in line]
    assert len(lines) == 1
    assert lines[0].startswith("dtk: on Colab, 1 worker with 1 replica")


@pytest.mark.trains
def test_a_fault_and_a_restart_of_the_one_worker(colab):
    run = dtk.run(lambda: steps_of(6), workers=2, faults=[faults.exception(worker=1, step=4)], restarts=1, start="cold")
    assert [attempt.steps for attempt in run.attempts] == [(1, 3), (1, 6)]
    assert run.attempts[0].failed == "worker 0 raised RuntimeError: injected by dtk.faults.exception"


def test_the_fault_lab_offers_the_worker_that_there_is(colab, monkeypatch):
    monkeypatch.setenv("DTK_LIVE", "off")
    assert "worker=0" in repr(dtk.plot.fault_lab(dtk.run, with_strategy, workers=2, steps=4))
    assert "worker=1" in repr(dtk.plot.fault_lab(dtk.run, with_strategy, workers=2, steps=4, force=True))


# ---- with TensorFlow


def train(strategy):
    import tensorflow as tf
    from tensorflow import keras

    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(10)])
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(batches(4 * BATCH), callbacks=[dtk.Recorder()], verbose=0)
    return [device.device_type for device in tf.config.list_logical_devices()]


@pytest.mark.trains
def test_shares_and_proofs_of_two_replicas_are_real(colab, capsys):
    run, baseline = dtk.run(train, workers=2), dtk.baseline(train)
    assert run.results == [["CPU", "CPU"]]
    assert (run.mode, run.workers, run.records.replica.nunique()) == ("mirrored", 1, 2)
    assert set(run.records.examples) == {BATCH // 2}
    assert list(run.records.groupby("step").loss.sum()) == pytest.approx(list(baseline.records.loss), rel=1e-4)
    capsys.readouterr()
    dtk.verify(run, baseline)
    assert capsys.readouterr().out.count("PASS") == 3


@pytest.mark.trains
@pytest.mark.slow  # the Colab lane has it, too
def test_shards_start_the_workers_that_are_asked_for(colab):
    """They train nothing, and need no GPU."""

    def sixteen():
        import tensorflow as tf

        return tf.data.Dataset.range(16).batch(4)

    seen = dtk.shards(sixteen, policy="OFF")
    assert (seen.workers, seen.replicas, seen.policy) == (2, 2, "OFF")
    assert seen.repeated == [*range(16)]
