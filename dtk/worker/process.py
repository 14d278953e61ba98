"""A worker process: what it is started with, how it ends with its parent or with all below it, what it uses."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import socket
import struct
import sys
import threading
import time
from multiprocessing import parent_process
from pathlib import Path
from typing import NamedTuple, TypedDict

import psutil

from dtk.language import _

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # <linux/prctl.h>
END_SECONDS = 2.5
_STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


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


def adopt_orphans() -> None:
    """Descendants whose own parent dies become children of this process; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


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


def end_children(spared: set[int]) -> None:
    """Kills the children of this process and all below them, except those `spared`, until there are none."""
    deadline, found = time.monotonic() + END_SECONDS, [psutil.Process()]
    while found and time.monotonic() < deadline:
        with contextlib.suppress(psutil.Error):
            found = [child for child in psutil.Process().children() if child.pid not in spared]
            for child in found:
                signal_below(child.pid)
            psutil.wait_procs(found, max(0.0, deadline - time.monotonic()))


def signal_below(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Sends a signal to a process and to all that descend from it."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):  # gone already, or another user's (sudo)
                each.send_signal(number)


def kill_tree(pid: int) -> None:
    """Kills a worker, its process group, and descendants that left the group."""
    signal_below(pid)
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it had made no group yet, or all of it is gone
        os.killpg(pid, signal.SIGKILL)


class Vitals(NamedTuple):
    """used: processor seconds since the process began. stopped: by SIGSTOP or its like.

    disk: bytes that it has read from disks and written to them.
    """

    used: float
    stopped: bool
    disk: int = 0


def vitals(pid: int) -> Vitals | None:
    """Of a process that lives; None where there is none."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times, status = process.cpu_times(), process.status()
        disk = 0
        with contextlib.suppress(AttributeError, psutil.AccessDenied):  # macOS; a process with another's rights
            counted = process.io_counters()
            disk = int(counted.read_bytes + counted.write_bytes)
    except psutil.Error:
        return None
    return Vitals(float(times.user + times.system), status in _STOPPED, disk)


def ask(pid: int) -> None:
    """Has a worker write its Python stacks to its stacks.txt."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGUSR1)


# ---- a network of a process's own, with loopback alone: nobody else on the machine can connect to what listens there

_NEWUSER, _NEWNET = 0x10000000, 0x40000000  # <linux/sched.h>
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1  # <linux/sockios.h>, <linux/if.h>


def isolate() -> None:
    """Moves this process, which has one thread, there. OSError where the system doesn't allow it or knows no such.

    On Linux, by namespaces (man 7 network_namespaces, user_namespaces): what is started from there is in it as well. A
    process that is not root's needs a user namespace besides, in which it is the same user as outside; many systems
    allow that to everybody, some to nobody.
    """
    if not sys.platform.startswith("linux"):
        raise OSError(0, _("{system} has no network namespaces", system=sys.platform))
    if os.geteuid() != 0 or _unshare(_NEWNET):
        user, group = os.geteuid(), os.getegid()
        number = _unshare(_NEWUSER | _NEWNET)
        if number:
            raise OSError(number, os.strerror(number))
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        (flags,) = struct.unpack_from("=H", fcntl.ioctl(asking, _GET_FLAGS, struct.pack("16sH22x", b"lo", 0)), 16)
        fcntl.ioctl(asking, _SET_FLAGS, struct.pack("16sH22x", b"lo", flags | _UP))


def _unshare(what: int) -> int:
    """The error's number; 0 where it went well."""
    libc = ctypes.CDLL(None, use_errno=True)
    return ctypes.get_errno() if libc.unshare(what) else 0
