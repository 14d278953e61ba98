"""Workers on the nodes of a Slurm cluster."""

from __future__ import annotations

import threading
import time
from _thread import interrupt_main

import programs
import pytest
from programs import when_it_runs

import dtk

pytestmark = [pytest.mark.slow, pytest.mark.trains]


@pytest.fixture(scope="module")
def place(slurm, tmp_path_factory):
    """From a login node: an allocation of its own for each run."""
    found = dtk.places.Slurm(partition="short", storage=str(tmp_path_factory.mktemp("storage")))
    yield found
    found.close()


def gone(slurm):
    until = time.monotonic() + 20
    while slurm.jobs() and time.monotonic() < until:
        time.sleep(0.2)
    return not slurm.jobs()


def test_the_same_function_is_the_same_run(place, slurm, baseline):
    run = dtk.run(programs.digits, workers=2, on=place, timeout=120)
    dtk.verify(run, baseline)
    assert (run.dir / "saved.txt").read_text() == "by the chief"
    assert gone(slurm), "its allocation is given back"
    assert not list(place.storage.glob("0*")), "no run's directory is left in the storage"


def test_who_raises_is_named_with_the_node(place, slurm):
    with pytest.raises(dtk.WorkerFailed, match="^worker 1 on n2 raised ValueError: no such thing$"):
        dtk.run(programs.raises, workers=2, on=place, timeout=60)
    assert gone(slurm)


def test_an_interrupt_cancels_the_job(place, slurm):
    threading.Timer(12, interrupt_main).start()
    with pytest.raises(KeyboardInterrupt):
        dtk.run(programs.long, workers=2, on=place, timeout=60)
    assert gone(slurm)


def test_more_workers_than_nodes(place, slurm):
    few = "3 processes on 2 machines; give as many machines, or ask for fewer workers"
    with pytest.raises(dtk.ClusterConfigError, match=few):
        dtk.run(programs.long, workers=3, on=dtk.places.Slurm(nodes=2, storage=str(place.storage)))
    with pytest.raises(dtk.ClusterConfigError, match="^on Slurm: .*Invalid partition name specified$"):
        dtk.run(programs.long, workers=2, on=dtk.places.Slurm(partition="none", storage=str(place.storage)))
    assert gone(slurm)
    assert not list(place.storage.glob("alive-*"))


def test_a_node_that_dies_is_named(place, slurm):
    doing = when_it_runs(lambda: slurm.kill("n2"))
    with pytest.raises(dtk.WorkerFailed) as caught:
        dtk.run(programs.long, workers=2, on=place, timeout=100)
    doing.join()
    slurm.start("n2")
    assert (caught.value.worker, caught.value.host, caught.value.reason) == (1, "n2", "lost")
    assert gone(slurm)
