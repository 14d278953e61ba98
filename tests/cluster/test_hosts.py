"""Workers on hosts with addresses of their own, which a command reaches."""

from __future__ import annotations

import sys
import threading
import time

import programs
import pytest

import dtk
from dtk.environment import scratch

pytestmark = [pytest.mark.slow, pytest.mark.trains]


@pytest.fixture(scope="module")
def place(network):
    found = dtk.places.Hosts(network.commands, python=sys.executable)
    yield found
    found.close()


@pytest.fixture(scope="module")
def baseline():
    return dtk.baseline(programs.digits)


@pytest.fixture
def nothing_left(network):
    """Only agents and the processes that they keep are there afterwards, and no file of a run."""
    yield
    left = list((scratch() / "away").glob("*/*"))
    assert not left, "files of a run"


def test_the_same_function_is_the_same_run(place, baseline, network, nothing_left):
    run = dtk.run(programs.digits, workers=2, on=place, timeout=120)
    dtk.verify(run, baseline)
    assert [config["cluster"]["worker"][0].rpartition(":")[0] for config in run.tf_config] == ["10.77.0.1"] * 2
    assert run.results[0] == run.results[1]
    assert (run.dir / "saved.txt").read_text() == "by the chief"
    assert run.records.groupby("worker").size().to_dict() == {0: 12, 1: 12}
    assert run.logs[1] is not None
    again = dtk.run(programs.digits, workers=2, on=place, timeout=120)
    assert again.first_step_seconds < run.first_step_seconds + 5, "its processes are warm"


def test_who_raises_is_named_with_the_host(place, nothing_left):
    with pytest.raises(dtk.WorkerFailed) as caught:
        dtk.run(programs.raises, workers=2, on=place, timeout=60)
    assert str(caught.value) == "worker 1 on 10.77.0.2 raised ValueError: no such thing"
    assert (caught.value.worker, caught.value.host) == (1, "10.77.0.2")


def test_who_is_killed_is_named_with_the_host(place, nothing_left):
    with pytest.raises(dtk.WorkerFailed) as caught:
        dtk.run(programs.is_killed, workers=2, on=place, timeout=60)
    assert str(caught.value).startswith("worker 1 on 10.77.0.2 was killed by SIGKILL")
    assert caught.value.exitcode == -9


def when_it_runs(place, do):
    """Calls `do` in a thread as soon as the run's steps have begun; its end is waited for by `join`."""

    def wait():
        until = time.monotonic() + 60
        newest = None
        while time.monotonic() < until:
            runs = sorted((scratch() / "runs").iterdir(), key=lambda path: path.name)
            newest = runs[-1] / "worker-1" / "log.txt"
            if newest.exists() and "began" in newest.read_text():
                time.sleep(0.5)
                return do()
            time.sleep(0.05)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_a_machine_that_dies_is_named(network):
    place = dtk.places.Hosts(network.commands, python=sys.executable)
    doing = when_it_runs(place, lambda: network.kill(2))
    began = time.monotonic()
    with pytest.raises(dtk.WorkerFailed) as caught:
        dtk.run(programs.long, workers=2, on=place, timeout=100)
    doing.join()
    assert (caught.value.worker, caught.value.host, caught.value.reason) == (1, "10.77.0.2", "lost")
    assert time.monotonic() - began < 50
    assert dtk.run(lambda: 1, workers=2, on=place).results == [1, 1], "the next run asks for machines anew"
    place.close()
    assert network.processes(2) == []


def test_a_cable_that_is_cut_is_named(network, place):
    doing = when_it_runs(place, lambda: network.cut(2))
    try:
        with pytest.raises((dtk.WorkerStalled, dtk.WorkerFailed)) as caught:
            dtk.run(programs.long, workers=2, on=place, timeout=100)
    finally:
        doing.join()
        network.mend(2)
    assert "can't reach worker" in str(caught.value)
    assert "10.77.0.2" in str(caught.value)
    assert "the network between them is cut" in str(caught.value)
