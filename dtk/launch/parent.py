"""The two processes between the kernel and its workers: the parent starts workers, the guard lets nothing outlive it.

The *guard*, started by `warm.py`, takes part in no run. It waits until the kernel is gone, however it went, or until
the parent is; then it kills what is below it. Orphans are below it too: a worker's own child process that went into
another session and whose worker is dead comes to the nearest ancestor that adopts (`PR_SET_CHILD_SUBREAPER`), and not
to the system's process 1. It has no thread and imports no TensorFlow, so that it hears of a death also while the parent
is busy importing, and so that the parent may ask the system to be killed with it, which goes by the thread.

The *parent* is forked from there, belongs to one kernel, and reports how workers end. With preloading ("warm") it
imports TensorFlow and Keras once, runs no operation, and forks workers from there; without ("cold") each worker is a
fresh interpreter of its own. Both kinds are `multiprocessing` processes; multiprocessing's own fork server does not
carry us further, because a program has only one of them, shared with whatever else the learner runs on it, it prints
TensorFlow's start-up banner into the notebook, and it leaves its workers behind when the kernel is killed.

Messages (`dtk.launch.messages`) come on stdin and leave on stdout, a line each. The end of stdin means that the kernel
is gone: every worker is killed at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import multiprocessing
import os
import select
import signal
import socket
import struct
import sys
import time
import warnings
from collections.abc import Callable
from multiprocessing import connection, resource_tracker
from pathlib import Path
from typing import Any

import psutil

from dtk.errors import page
from dtk.language import N_, _
from dtk.launch import messages
from dtk.launch.messages import Incoming, Message, Ready, as_line
from dtk.worker.process import WorkerSpec, die_with, signal_below


def main() -> None:
    """The program: `python -c ... SYS_PATH OPTIONS`; see `warm.py`. The parent is forked from here."""
    options = json.loads(sys.argv[2])
    kernel = os.getppid()
    if options["isolated"]:
        try:
            isolate()
        except OSError as error:
            words = N_("DTK_ISOLATE: a network of its own is refused here ({why}); unset it, or see {page}")
            words = _(words, why=error.strerror, page=page("guide/shared_machines.md"))
            os.write(1, as_line(Ready(words)))
            return
    adopt_orphans()
    # Before the fork, or no one would end the parent at a signal in between.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_given: sys.exit(0))
    guard = os.getpid()
    child = os.fork()
    if child == 0:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        die_with(guard)
        _serve(options)
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the events' pipe: the kernel sees its end when the parent ends
    try:
        status = _watch(kernel, child)
    except SystemExit:
        status = 0  # asked to end: as if the kernel had gone
    end_children(set())
    if os.getppid() != kernel:
        Path(options["log"]).unlink(missing_ok=True)  # no kernel is left that could point to it
    code = os.waitstatus_to_exitcode(status)
    os._exit(128 - code if code < 0 else code)


def _watch(kernel: int, child: int) -> int:
    """Returns when the kernel is gone, when it has closed its end of the pipe, or when the parent has ended.

    The last gives the parent's status as `os.waitpid` has it; the others 0.
    """
    poll = select.poll()
    poll.register(0, 0)  # only whether the other end is closed; what comes through is for the parent
    while True:
        # A process that the kernel forked may hold the pipe open after the kernel's death: ask by pid as well.
        if poll.poll(100) or os.getppid() != kernel:
            return 0
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status


# ---- the parent


class _Parent:
    def __init__(self, commands: int, events: int, fork: bool, idle: float, entry: Callable[..., None]):
        self.commands, self.events, self.entry = commands, events, entry
        self.guard = os.getppid()
        self.idle = idle  # seconds without use after which it ends; the next run starts a new one
        self.context: Any = multiprocessing.get_context("fork" if fork else "spawn")
        self.fork = fork
        self.children: dict[str, Any] = {}
        self.incoming = Incoming()
        self.used = time.monotonic()

    def serve(self) -> None:
        # Where the system can't be asked to kill this process with its guard, it has to look for the guard itself.
        while os.getppid() == self.guard and (self.children or time.monotonic() - self.used <= self.idle):
            sentinels = [child.sentinel for child in self.children.values()]
            # A grandchild may hold a dead worker's sentinel open, hence the short look while workers run.
            ready = connection.wait([self.commands, *sentinels], timeout=0.05 if sentinels else 1.0)
            if self.commands in ready and not self._read():
                return
            self._report_exits()

    def _read(self) -> bool:
        data = os.read(self.commands, 1 << 20)
        for message in self.incoming.take(data):
            self.used = time.monotonic()
            match message:
                case messages.Start(key, spec):
                    self._start(key, spec)
                case messages.Query(number):
                    self._tell(messages.Answer(number, {}))
                case messages.Kill(keys):
                    self.kill([key for key in keys if key in self.children])
        return bool(data)

    def _start(self, key: str, spec: WorkerSpec) -> None:
        ours = [self.commands, self.events] if self.fork else []
        child = self.context.Process(target=self.entry, args=(spec, os.getpid(), ours), name=key)
        with warnings.catch_warnings():
            # Python 3.12 warns of forking with threads; TensorFlow's are idle here, see docs/evidence/facts.md.
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                child.start()
            except OSError as error:  # no descriptor, no memory, no further process allowed
                self._tell(messages.Refused(key, error.errno or 0, error.strerror or str(error)))
                return
        self.children[key] = child
        self._tell(messages.WorkerStarted(key, child.pid))

    def _report_exits(self) -> None:
        ended = {key: child for key, child in self.children.items() if child.exitcode is not None}
        if not ended:
            return
        at = time.monotonic()
        if len(ended) == len(self.children):
            # What the workers left in sessions of their own has come to this process (`adopt_orphans`).
            helper: Any = resource_tracker._resource_tracker  # multiprocessing's, which a cold start needs
            end_children({helper._pid})
        for key, child in ended.items():
            del self.children[key]
            self._tell(messages.Exited(key, child.exitcode, at))
            child.close()
        self.used = at

    def _tell(self, message: Message) -> None:
        os.write(self.events, as_line(message))

    def kill(self, keys: list[str]) -> None:
        """SIGKILL: a worker inside a collective ignores SIGINT and SIGTERM for 20 s and more."""
        for key in keys:
            kill_tree(self.children[key].pid)


def _serve(options: dict[str, Any]) -> None:
    """The parent's whole life, after the fork; `options` are those of `warm.py`."""
    from dtk.worker import worker  # not in the guard, which stays small

    adopt_orphans()
    commands, events = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # file descriptor 2 is this parent's log; nothing that is imported may speak on the event pipe
    parent = _Parent(commands, events, options["fork"], options["idle"], worker.main)
    problem = _preload(options["preload"])
    gc.collect()
    gc.freeze()  # what is here stays: a worker's collector must not touch, and so copy, the shared pages
    parent.used = time.monotonic()
    os.write(events, as_line(Ready(problem)))
    if problem:
        return
    try:
        parent.serve()
    finally:
        parent.kill(list(parent.children))
        os._exit(0)  # no joining of children: they have just been killed


def _preload(modules: list[str]) -> str:
    """Why they can't be imported; "" where they are."""
    for name in modules:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name or name == "tensorflow":  # an optional package may be missing
                return _("importing {name}: {why}", name=name, why=error)
        except Exception as error:  # a broken installation can raise anything; the kernel reads what
            return _("importing {name}: {why}", name=name, why=f"{type(error).__name__}: {error}")
    if modules:
        from dtk.compat import binding

        binding.patch()  # once, for all workers that are forked from here
    return ""


# ---- the end of all that is below a process

_PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>
END_SECONDS = 2.5


def adopt_orphans() -> None:
    """Descendants whose own parent dies become children of this process; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_children(spared: set[int]) -> None:
    """Kills the children of this process and all below them, except those `spared`, until there are none."""
    deadline, found = time.monotonic() + END_SECONDS, [psutil.Process()]
    while found and time.monotonic() < deadline:
        with contextlib.suppress(psutil.Error):
            found = [child for child in psutil.Process().children() if child.pid not in spared]
            for child in found:
                signal_below(child.pid)
            psutil.wait_procs(found, max(0.0, deadline - time.monotonic()))


def kill_tree(pid: int) -> None:
    """Kills a worker, its process group, and descendants that left the group."""
    signal_below(pid)
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it had made no group yet, or all of it is gone
        os.killpg(pid, signal.SIGKILL)


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
        if number := _unshare(_NEWUSER | _NEWNET):
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
