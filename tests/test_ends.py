"""How runs end: interrupts, time-outs, stalls, killed kernels; and that nothing is left behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from owning import kernel
from starting import mostly_warm
from waiting import newest_run, wait_for, wait_gone

import dtk
from dtk.launch.folders import start_of

pytestmark = pytest.mark.trains


def deaf():
    """Sleeps through SIGINT and SIGTERM, as a worker inside a collective does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    (dtk.run_dir() / f"pids-{os.getpid()}").write_text(str(child.pid))
    time.sleep(60)


def pids_in(folder):
    files = list(Path(folder).glob("pids-*"))
    return [int(f.name.split("-")[1]) for f in files if f.read_text()] + [
        int(f.read_text()) for f in files if f.read_text()
    ]


# An interrupt that falls between the opening of a file and its `with` leaves it to be closed when it is collected.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_stops_the_workers(start):
    before = newest_run() if dtk.run(os.getpid, start=start) else None
    seen = {}

    def interrupt():
        wait_for(lambda: newest_run() != before and len(pids_in(newest_run())) == 4)
        seen["pids"] = pids_in(newest_run())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(dtk.RunInterrupted, match="the workers are stopped, their logs and records are in ") as caught:
        dtk.run(deaf, start=start)
    thread.join()
    assert caught.value.folder.path == newest_run()
    assert wait_gone(seen["pids"]) == [], "grandchildren too"
    assert len(dtk.run(os.getpid, start=start).results) == 2, "the next run works"


@mostly_warm
def test_a_timeout_shows_where_everybody_is(start):
    seconds = 3 if start == "warm" else 10  # a process on a busy machine takes its time
    states = "states: worker 0 running, worker 1 running"
    with pytest.raises(dtk.RunTimeout, match=f"timeout of {seconds} s; {states}") as caught:
        dtk.run(deaf, timeout=seconds, start=start)
    assert caught.value.detail.count("in deaf") == 2


@mostly_warm
def test_a_stall_is_reported_with_stacks(start):
    with pytest.raises(dtk.WorkerStalled, match="no worker made progress for 1 s") as caught:
        dtk.run(deaf, stall_timeout=1, start=start)
    assert caught.value.detail.count("in deaf") == 2


def busy():
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        sum(range(1000))
    return "done"


@mostly_warm
def test_silent_work_is_no_stall(start):
    assert dtk.run(busy, workers=1, stall_timeout=1.2, start=start).results == ["done"]


def test_no_process_outlives_a_killed_kernel(start, tmp_path):
    with kernel(tmp_path, start) as (process, pids):
        process.kill()
        assert wait_gone(pids) == []


@pytest.mark.slow  # a new parent for each
def test_a_killed_parent_takes_its_workers_along_and_is_replaced(start):
    from dtk.launch import warm

    dtk.run(os.getpid, start=start)
    parent = warm.parent(start == "warm")
    before = newest_run()
    seen = {}

    def kill_parent():
        wait_for(lambda: newest_run() != before and len(pids_in(newest_run())) == 4)
        seen["pids"] = pids_in(newest_run())
        os.kill(parent.pid, signal.SIGKILL)

    thread = threading.Thread(target=kill_parent)
    thread.start()
    with pytest.raises(dtk.WorkerFailed, match="killed by SIGKILL"):
        dtk.run(deaf, start=start)
    thread.join()
    workers = [pid for pid in seen["pids"] if pid != 0][:2]
    assert wait_gone(workers) == []
    for pid in wait_gone(seen["pids"], 0):  # the learner's own grandchildren have no one left to end them
        os.kill(pid, signal.SIGKILL)
    assert len(dtk.run(os.getpid, start=start).results) == 2


@mostly_warm
def test_old_run_directories_make_room_but_those_that_somebody_holds(start, monkeypatch, tmp_path):
    from dtk.launch import folders

    monkeypatch.setenv("DTK_SCRATCH", str(tmp_path))  # not among the runs of whoever runs the tests
    monkeypatch.setattr(folders, "KEPT_RUNS", 3)
    held = dtk.run(os.getpid, workers=1, start=start)
    others = tmp_path / "runs" / "00000000-of-a-kernel-that-lives"
    others.mkdir()
    parent = os.getppid()
    (others / "kernel").write_text(f"{parent} {start_of(parent)}")
    directories = []
    for _ in range(5):
        directories.append(dtk.run(os.getpid, workers=1, start=start).dir)
        gc.collect()  # the live view of a run is let go of as a circle
    assert held.logs == [""]
    assert others.exists()
    assert [directory.exists() for directory in directories] == [False, True, True, True, True]
