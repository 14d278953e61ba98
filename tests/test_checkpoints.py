"""Two workers that save checkpoints to one place are told so at the first save; others are left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

import dtk
from dtk.compat import saves
from dtk.environment import Here
from dtk.records import RunFolder

COLLIDE = "worker 1 raised ClusterConfigError: workers 0 and 1 both save checkpoints to {}, where their files collide"


def saving(strategy, place, how="save", apart=False):
    import tensorflow as tf

    with strategy.scope():
        variable = tf.Variable(1.0)
    checkpoint = tf.train.Checkpoint(variable=variable)
    own = Path(place) / (f"worker-{dtk.is_chief()}" if apart else "")
    if how == "manager":
        return tf.train.CheckpointManager(checkpoint, str(own), max_to_keep=1).save()
    return getattr(checkpoint, how)(str(own / "ckpt"))


@pytest.mark.trains
@pytest.mark.parametrize(("how", "named"), [("save", "place"), ("write", "ckpt"), ("manager", "place")])
def test_one_place_for_two_workers_is_refused(tmp_path, how, named):
    with pytest.raises(dtk.WorkerFailed) as failure:
        dtk.run(saving, workers=2, kwargs={"place": str(tmp_path / "place"), "how": how})
    assert COLLIDE.format(named) in str(failure.value)


@pytest.mark.trains
@pytest.mark.parametrize("how", ["save", "write", "manager"])
def test_a_place_for_each_is_fine(tmp_path, how):
    run = dtk.run(saving, workers=2, kwargs={"place": str(tmp_path), "how": how, "apart": True})
    assert len(set(run.results)) == 2
    assert all(Path(f"{prefix}.index").exists() for prefix in run.results)


@pytest.mark.trains
def test_replicas_of_one_process_and_a_baseline_save_where_they_like(tmp_path):
    assert dtk.run(saving, workers=1, replicas=2, kwargs={"place": str(tmp_path)}).results
    assert dtk.baseline(saving, kwargs={"place": str(tmp_path)}).results


def place_of(run, worker):
    run.worker(worker).path.mkdir(parents=True, exist_ok=True)
    return Here(run, worker, 2, 1, "cluster", 0.0)


def test_a_chief_that_never_saves_is_waited_for_once(tmp_path, monkeypatch):
    monkeypatch.setattr(saves, "WAIT_SECONDS", 0.05)
    monkeypatch.setattr(saves, "_silent", set())
    place = place_of(RunFolder(tmp_path, 2), 1)
    saves._claim("/somewhere", place)
    assert saves._silent == {0}
    saves._claim("/somewhere", place)


def test_the_place_is_named_without_directories_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = place_of(RunFolder(tmp_path / "run", 2), 1)
    assert saves._called(str(tmp_path / "a" / "b"), place) == "a/b"
    assert saves._called(str(tmp_path / "run" / "b"), place) == "run/b"
    assert saves._called("/elsewhere/c/d", place) == "d"
