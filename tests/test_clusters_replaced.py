"""Workers that stay and are killed, replaced, held before collectives, with `fit` and with a loop of one's own."""

from __future__ import annotations

import os
import re
import signal

import pytest
from staying import BEGIN, MODEL, opened

import dtk
from dtk.errors import ClusterConfigError
from dtk.interactive.clusters import CellFailed

pytestmark = [pytest.mark.trains, pytest.mark.slow]


@pytest.fixture
def cluster():
    with opened() as cluster:
        yield cluster


def pid(cluster, worker):
    return cluster._session.started.source.started[cluster._session.peers[worker].key]


@pytest.mark.parametrize("worker", [0, 1], ids=["chief", "other"])
def test_a_killed_worker_is_replaced_and_training_goes_on(cluster, worker, capsys):
    cluster.run("kept = [float(step(next(batches))) for _ in range(3)]")
    (before, _) = cluster.run("float(tf.norm(model.weights[0]))")
    with pytest.raises(CellFailed) as error:
        cluster.run(f"import os\nif me == {worker}: os.kill(os.getpid(), 9)\nstep(next(batches))")
    assert str(error.value).startswith(f"worker {worker} was killed by SIGKILL")
    assert f"cluster.restart(worker={worker}) replaces it" in str(error.value)
    with pytest.raises(ClusterConfigError, match=f"worker {worker} has ended: cluster.restart"):
        cluster.run("1")
    said = cluster.restart(worker)
    assert re.match(
        rf"worker {worker} is a new process; \d of \d cells ran again; up to the first all-reduce: ", said
    ), said
    assert "kept from worker" in said
    assert re.search(r"replicas are equal \(\d+ variables compared\)", said), said
    assert cluster.run("me") == [0, 1]
    assert cluster.run("total(1)") == [2.0, 2.0]
    assert "unlike" not in capsys.readouterr().out, "its lines have the numbers that they have elsewhere"
    assert cluster.run("float(tf.norm(model.weights[0]))") == [pytest.approx(before, rel=0.1)] * 2
    losses = cluster.run("[float(step(next(batches))) for _ in range(3)]")
    assert losses[0] == losses[1]
    assert "equal" in cluster.free()


def test_nobody_is_asked_when_a_cell_runs_again(cluster, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda prompt: "7")
    cluster.run("count = int(input('how many? '))")
    assert "with an error: cell 3; count from worker 0" in cluster.restart(1)
    assert cluster.run("count") == [7, 7]


def test_a_worker_that_is_killed_from_outside_is_named_at_the_next_cell(cluster, capsys):
    os.kill(pid(cluster, 1), signal.SIGKILL)
    with pytest.raises((CellFailed, ClusterConfigError), match="worker 1 (was killed by SIGKILL|has ended)"):
        cluster.run("total(1)")
    cluster.free()
    cluster.restart(1)
    assert cluster.run("total(1)") == [2.0, 2.0]
    with pytest.raises(CellFailed):
        cluster.run("import os; os.kill(os.getpid(), 9)")
    assert "restart(worker=0) replaces it; worker 1 has ended" in cluster.free()
    assert "met in one collective" not in capsys.readouterr().out, "the lines there are those that were sent at first"


# ---- the session as a run


def test_workers_that_were_killed_together_are_replaced_one_by_one(capsys):
    with dtk.cluster(workers=3) as cluster:
        cluster.run(BEGIN + MODEL)
        cluster.run("class Late: trainable_variables = property(lambda self: 1 / 0)")
        with pytest.raises(CellFailed, match="worker 1 was killed by SIGKILL.*; worker 2 was killed"):
            cluster.run("import os\nif me: os.kill(os.getpid(), 9)")
        assert cluster.free().startswith("replicas are equal")
        assert cluster.restart(2).endswith("worker 1 has ended: cluster.restart(worker=1) replaces it")
        assert "replicas are equal" in cluster.restart(1)
        assert cluster.run("total(1)") == [3.0] * 3
        losses = cluster.run("float(step(next(batches)))")
        assert len({*losses}) == 1
        assert cluster.free().startswith("replicas are equal")
