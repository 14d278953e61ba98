"""A worker process: what it is started with, and how it ends with its parent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from multiprocessing import parent_process
from typing import TypedDict

import psutil

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


class WorkerSpec(TypedDict):
    """What starts a worker, of JSON's types: it travels in a line to the parent, and to an agent elsewhere.

    `dtk.launch.launch.spec` makes it; what is the same for all workers, they read in the run's job.json. `clock`:
    `time.monotonic()`, on the worker's machine, at the call of `dtk.run`.
    """

    dir: str  # the run's directory on its machine
    worker: int  # its number; the evaluator's is the number of workers
    clock: float
    alone: bool  # an evaluator with a function of its own
    env: dict[str, str]
    host: str  # its machine's name; "" for the kernel's
    listen: str | None  # the name or address that its own server listens on
    core: int | None  # that it keeps to
    cwd: str  # this and sys_path an agent fills in
    sys_path: list[str]
    again: bool  # in the place of another process, whose files stay


def die_with(parent: int) -> None:
    """This process does not outlive the one that started it, even if that one is killed with SIGKILL.

    Linux kills it when the thread that started it ends; elsewhere one of multiprocessing's own watches its parent.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before we asked
            os._exit(1)
        return
    forked_by = parent_process()
    if forked_by is not None:

        def watch() -> None:
            forked_by.join()
            os.killpg(0, signal.SIGKILL)

        threading.Thread(target=watch, daemon=True).start()


def signal_below(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Sends a signal to a process and to all that descend from it."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):  # gone already, or another user's (sudo)
                each.send_signal(number)
