"""Workers on the nodes of a Ray cluster."""

from __future__ import annotations

import programs
import pytest
import ray_here
from programs import when_it_runs

import dtk

pytestmark = [pytest.mark.slow, pytest.mark.trains]


@pytest.fixture(scope="module")
def cluster():
    """Two nodes with a core each."""
    why = ray_here.reason_to_skip()
    if why:
        pytest.skip(why)
    with ray_here.Ray(2) as found:
        yield found


@pytest.fixture(scope="module")
def place(cluster, tmp_path_factory):
    found = dtk.places.Ray(storage=str(tmp_path_factory.mktemp("storage")))
    yield found
    found.close()


def test_the_same_function_is_the_same_run(cluster, baseline, nothing_left):
    run = dtk.run(programs.digits, workers=2, on="ray", timeout=120)
    dtk.verify(run, baseline)
    assert run.results[0] == run.results[1]
    assert (run.dir / "saved.txt").read_text() == "by the chief"
    again = dtk.run(programs.digits, workers=2, on="ray", timeout=120)
    assert again.weights[0].tolist() == run.weights[0].tolist()
    dtk.places.named("ray").close()


def test_who_raises_is_named_with_the_host(place):
    with pytest.raises(dtk.WorkerFailed, match="^worker 1 on .* raised ValueError: no such thing$"):
        dtk.run(programs.raises, workers=2, on=place, timeout=60)


def test_more_workers_than_there_is_room_for(place):
    words = "5 workers with 1 CPU each on Ray: its 2 nodes have 2; ask for fewer workers, for less .*, or add nodes"
    with pytest.raises(dtk.ClusterConfigError, match=words):
        dtk.run(programs.long, workers=5, on=place)


def test_a_restart_goes_on_with_the_nodes_that_are_left(place, cluster):
    def train():
        import tensorflow as tf

        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        step = tf.function(
            lambda: strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(1.0)))
        )
        step()
        if (dtk.run_dir() / "first").exists():
            return "again"
        if dtk.is_chief():
            (dtk.run_dir() / "first").touch()
        print("began", flush=True)
        for _ in range(1200):
            step()
            tf.timestamp()
            import time

            time.sleep(0.05)
        return "once"

    cluster.add()
    doing = when_it_runs(cluster.kill)
    run = dtk.run(train, workers=2, on=place, restarts=1, timeout=200)
    doing.join()
    assert run.results == ["again", "again"]
    assert len(run.attempts) == 2


def test_without_ray_one_sentence(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(dtk.ClusterConfigError, match=r'Ray is not installed here; pip install "dtk\[ray\]"'):
        dtk.run(programs.long, workers=2, on=dtk.places.Ray())
