"""Processes that end with others: to die with a parent, to adopt orphans, to end what is below."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

import psutil

__all__ = ["adopt_orphans", "die_with", "end_children", "kill_below", "kill_tree"]

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # <linux/prctl.h>
END_SECONDS = 2.5


def adopt_orphans() -> None:
    """Descendants whose own parent dies become children of this process; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with(parent: int) -> bool:
    """Asks the system to kill this process when the thread that started it ends; False where it can't be asked."""
    if sys.platform != "linux":
        return False
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before we asked
        os._exit(1)
    return True


def end_children(spared: set[int], seconds: float = END_SECONDS) -> None:
    """Kills the children of this process and all below them, except those `spared`, until there are none."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and _has_children():
        try:
            found = [child for child in psutil.Process().children() if child.pid not in spared]
        except psutil.Error:
            return
        if not found:
            return
        for child in found:
            kill_below(child.pid)
        for child in found:
            _reap(child.pid, deadline)


def _has_children() -> bool:
    """Whether there is any child, also one that has ended: cheaper than to look through all processes."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    except (AttributeError, OSError):
        pass  # a system without waitid
    return True


def kill_below(pid: int) -> None:
    """SIGKILL to a process and to all that descend from it."""
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.Error:
        return
    for each in family:
        try:
            each.kill()
        except psutil.Error:
            pass  # gone already, or another user's (sudo): nothing that could be done


def _reap(pid: int, deadline: float) -> None:
    while time.monotonic() < deadline:
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return
        except ChildProcessError:
            return
        time.sleep(0.002)


def kill_tree(pid: int) -> None:
    """Kills a worker, its process group, and descendants that left the group."""
    kill_below(pid)
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # the worker had not made its group yet, or all of it is gone
