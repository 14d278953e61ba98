"""What the system says of a process that dtk started: processor time, bytes of disks, whether it is stopped."""

from __future__ import annotations

import contextlib
import os
import signal
from functools import lru_cache
from typing import NamedTuple

import psutil

__all__ = ["Vitals", "ask", "vitals"]

_STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


class Vitals(NamedTuple):
    """used: processor seconds since the process began. stopped: by SIGSTOP or its like.

    disk: bytes that it has read from disks and written to them.
    """

    used: float
    stopped: bool
    disk: int = 0


@lru_cache(maxsize=64)
def _process(pid: int) -> psutil.Process:
    return psutil.Process(pid)


def vitals(pid: int) -> Vitals | None:
    """Of a process that lives; None where there is none."""
    try:
        process = _process(pid)
        with process.oneshot():
            times, status = process.cpu_times(), process.status()
        disk = _disk(process)
    except psutil.Error:
        _process.cache_clear()  # the number may be another process's by now
        return None
    return Vitals(float(times.user + times.system), status in _STOPPED, disk)


def _disk(process: psutil.Process) -> int:
    try:
        counted = process.io_counters()
    except (AttributeError, psutil.AccessDenied):  # macOS; a process with another's rights
        return 0
    return int(counted.read_bytes + counted.write_bytes)


def ask(pid: int) -> None:
    """Has a worker write its Python stacks to its stacks.txt."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGUSR1)
