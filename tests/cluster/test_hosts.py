"""Workers on hosts with addresses of their own, which a command reaches."""

from __future__ import annotations

import sys
import time

import programs
import pytest
from programs import when_it_runs

import dtk

pytestmark = [pytest.mark.slow, pytest.mark.trains]


@pytest.fixture(scope="module")
def place(network):
    found = dtk.places.Hosts(network.commands, python=sys.executable)
    yield found
    found.close()


def test_the_same_function_is_the_same_run(place, baseline, network, nothing_left):
    run = dtk.run(programs.digits, workers=2, on=place, timeout=120)
    dtk.verify(run, baseline)
    assert [config["cluster"]["worker"][0].rpartition(":")[0] for config in run.tf_config] == [network.address(1)] * 2
    assert run.results[0] == run.results[1]
    assert (run.dir / "saved.txt").read_text() == "by the chief"
    assert run.records.groupby("worker").size().to_dict() == {0: 12, 1: 12}
    assert run.logs[1] is not None
    again = dtk.run(programs.digits, workers=2, on=place, timeout=120)
    assert again.first_step_seconds < run.first_step_seconds + 5, "its processes are warm"


def test_who_raises_is_named_with_the_host(place, network, nothing_left):
    with pytest.raises(dtk.WorkerFailed) as caught:
        dtk.run(programs.raises, workers=2, on=place, timeout=60)
    assert str(caught.value) == f"worker 1 on {network.address(2)} raised ValueError: no such thing"
    assert (caught.value.worker, caught.value.host) == (1, network.address(2))


def test_a_machine_that_dies_is_named(network):
    place = dtk.places.Hosts(network.commands, python=sys.executable)
    doing = when_it_runs(lambda: network.kill(2))
    began = time.monotonic()
    with pytest.raises(dtk.WorkerFailed) as caught:
        dtk.run(programs.long, workers=2, on=place, timeout=100)
    doing.join()
    assert (caught.value.worker, caught.value.host, caught.value.reason) == (1, network.address(2), "lost")
    assert time.monotonic() - began < 50
    assert dtk.run(lambda: 1, workers=2, on=place).results == [1, 1], "the next run asks for machines anew"
    place.close()
    assert network.processes(2) == []


def test_a_cable_that_is_cut_is_named(network, place):
    doing = when_it_runs(lambda: network.cut(2))
    try:
        with pytest.raises((dtk.WorkerStalled, dtk.WorkerFailed)) as caught:
            dtk.run(programs.long, workers=2, on=place, timeout=100)
    finally:
        doing.join()
        network.join(2)
    assert dtk.plot.wait_for(caught.value).patches
    assert "can't reach worker" in str(caught.value)
    assert network.address(2) in str(caught.value)
    assert "the network between them is cut" in str(caught.value)


def test_a_blocked_port_is_named_before_a_start(network):
    network.block(2, 1)
    one, two = network.address(1), network.address(2)
    words = (
        f"^worker 0 on {one} can't reach worker 1 on {two} at {two}, a port that is open there "
        r"\(timed out\); TensorFlow needs every port above 1023 open between workers$"
    )
    try:
        with pytest.raises(dtk.ClusterConfigError, match=words):
            dtk.run(programs.raises, workers=2, on=dtk.places.Hosts(network.commands, python=sys.executable))
    finally:
        network.unblock(2, 1)


def test_a_host_without_the_data_is_named(network, tmp_path):
    cache = tmp_path / "mnist" / "3.0.1"
    cache.mkdir(parents=True)
    for file in ("dataset_info.json", "features.json"):
        (cache / file).write_text("{}")
    commands = {
        network.address(1): network.command(1, f"TFDS_DATA_DIR={tmp_path}"),
        network.address(2): network.command(2, f"TFDS_DATA_DIR={tmp_path / 'none'}"),
    }

    def load():
        import time

        if not dtk.is_chief():
            dtk.datasets.load("mnist")
        time.sleep(60)

    two = network.address(2)
    words = f"^worker 1 on {two} raised DatasetUnavailable: mnist is not in the cache and can't"
    with pytest.raises(dtk.WorkerFailed, match=words):
        dtk.run(load, workers=2, on=dtk.places.Hosts(commands, python=sys.executable), timeout=90)


def test_restarts_take_a_shared_directory(network, place, tmp_path):
    with pytest.raises(dtk.ClusterConfigError, match="have no directory in common, .* pass storage="):
        dtk.run(programs.raises, workers=2, on=place, restarts=1)
    shared = dtk.places.Hosts(network.commands, python=sys.executable, storage=str(tmp_path))

    def twice():
        if (dtk.run_dir() / "first").exists():
            return "again"
        import time

        time.sleep(1)
        (dtk.run_dir() / "first").touch()
        raise ValueError("once")

    assert dtk.run(twice, workers=2, on=shared, restarts=1, timeout=90).results == ["again", "again"]
    assert not list(tmp_path.iterdir()), "the run's directory is removed there"
