"""Waiting for what processes do, with a deadline; for tests of real processes."""

from __future__ import annotations

import os
import time

import psutil

import dtk
from dtk.environment import scratch


def wait_gone(pids, seconds=3.0):
    """The pids that still run after `seconds` (zombies don't run)."""
    deadline = time.monotonic() + seconds
    while True:
        left = []
        for pid in pids:
            try:
                if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                    left.append(pid)
            except psutil.NoSuchProcess:
                pass
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.02)


def started_by(pid):
    """The pids of all that runs below a process; orphans are there, too, as those above adopt them (Linux)."""
    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


def workers_of(pid):
    """The pids of the workers below a process, and of what they started: all that writes into a worker's log."""
    return [each for each in started_by(pid) if os.path.realpath(f"/proc/{each}/fd/1").endswith("/log.txt")]


def wait_for(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def newest_run():
    """The directory of the run that began last."""
    return max((scratch() / "runs").iterdir(), key=lambda path: path.name)


def meet(members: int) -> None:
    """Called in a run's function: waits until so many members of the run are here. Processes start one by one."""
    place = dtk.run_dir() / "met"
    place.mkdir(exist_ok=True)
    (place / str(os.getpid())).touch()
    wait_for(lambda: len(list(place.iterdir())) == members)
