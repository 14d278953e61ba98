"""Workers on the nodes of a Ray cluster."""

from __future__ import annotations

from pathlib import Path

import programs
import pytest
from programs import when_it_runs

import dtk
from dtk.launch.place import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.trains, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def place(ray, tmp_path_factory):
    found = dtk.places.Ray(storage=str(tmp_path_factory.mktemp("storage")))
    yield found
    found.close()


def test_the_same_function_is_the_same_run(ray, baseline, nothing_left):
    run = dtk.run(programs.digits, workers=2, on="ray", timeout=200)
    dtk.verify(run, baseline)
    assert run.results[0] == run.results[1]
    assert (run.dir / "saved.txt").read_text() == "by the chief"
    again = dtk.run(programs.digits, workers=2, on="ray", timeout=200)
    assert again.weights[0].tolist() == run.weights[0].tolist()
    dtk.places.named("ray").close()


def test_who_raises_is_named_with_the_host(place):
    with pytest.raises(dtk.WorkerFailed, match="^worker 1 on .* raised ValueError: no such thing$"):
        dtk.run(programs.raises, workers=2, on=place, timeout=100)


def test_more_workers_than_there_is_room_for(place):
    words = "^Ray found no room for 5 workers of {'CPU': 1} in 60 s; ask for fewer workers, for less .*, or add nodes; "
    with pytest.raises(dtk.ClusterConfigError, match=words):
        dtk.run(programs.long, workers=5, on=place)


def falls(strategy):
    """Trains until a node of its dies; on those that are left, it returns."""
    import os
    import time

    import tensorflow as tf

    def one():
        return tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(1.0))

    step, again = tf.function(lambda: strategy.run(one)), (dtk.run_dir() / "first").exists()
    step()  # no worker goes on before each has looked
    if again:
        return "again"
    (dtk.run_dir() / f"raylet-{dtk.environment.here().worker}").write_text(os.environ["RAY_RAYLET_PID"])
    if dtk.is_chief():
        (dtk.run_dir() / "first").touch()
    print("began", flush=True)
    for _ in range(1200):
        step()
        time.sleep(0.05)
    return "once"


def kill_the_node_of_worker_1(ray, place):
    found = max(Path(place.storage).glob("*/raylet-1"), key=lambda path: path.stat().st_mtime)
    ray.kill(ray.node_of(int(found.read_text())))


def test_a_restart_goes_on_with_the_nodes_that_are_left(place, ray):
    doing = when_it_runs(lambda: kill_the_node_of_worker_1(ray, place))
    run = dtk.run(falls, workers=3, on=place, restarts=1, timeout=400)
    doing.join()
    ray.add()
    assert run.results == ["again"] * 3
    assert [bool(attempt.failed) for attempt in run.attempts] == [True, False]
    assert "worker 1 on" in run.attempts[0].failed


def test_where_too_few_nodes_are_left_one_sentence_says_so(place, ray):
    doing = when_it_runs(lambda: kill_the_node_of_worker_1(ray, place))
    with pytest.raises(dtk.ClusterConfigError, match="^Ray found no room for 4 workers of .* in 60 s; "):
        dtk.run(falls, workers=4, on=place, restarts=1, timeout=400)
    doing.join()
    ray.add()


def test_an_address_where_no_cluster_is(monkeypatch):
    import ray

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    port = free_ports(1)[0]
    for name, address in (("", f"127.0.0.1:{port}"), ("RAY_ADDRESS", f"ray://127.0.0.1:{port}")):
        if name:
            monkeypatch.setenv(name, address)
        said = f"^no Ray cluster answers at {address} .connection refused.; `ray start --head` on its first node prints"
        with pytest.raises(dtk.ClusterConfigError, match=said):
            dtk.run(programs.long, workers=2, on=dtk.places.Ray(None if name else address))


def test_without_ray_one_sentence(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(
        dtk.ClusterConfigError, match=r'on="ray" needs ray, not installed here; pip install "dtk-toolkit\[ray\]"'
    ):
        dtk.run(programs.long, workers=2, on=dtk.places.Ray())
