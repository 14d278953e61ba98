"""The process between the kernel and its workers: it starts them, reports their ends, and lets none outlive it.

Started by `warm.py` as a fresh interpreter that belongs to one kernel. With preloading ("warm") it imports
TensorFlow and Keras once, runs no operation, and forks workers from there; without ("cold") each worker is
a fresh interpreter of its own. Both kinds are `multiprocessing` processes; multiprocessing's own fork server
does not carry us further, because a program has only one of them, shared with whatever else the learner
runs on it, it prints TensorFlow's start-up banner into the notebook, and it leaves its workers behind when
the kernel is killed.

Commands come as JSON lines on stdin, events leave as JSON lines on stdout:

    {"start": key, "spec": {...}}    ->  {"started": key, "pid": n}
    {"kill": [key, ...]}             ->  {"exited": key, "code": c, "at": monotonic seconds}

The end of stdin means that the kernel is gone, however it went: every worker is killed at once.
"""

from __future__ import annotations

import gc
import importlib
import json
import multiprocessing
import os
import signal
import sys
import time
import warnings
from multiprocessing import connection
from typing import Any

import psutil

from dtk.cluster import worker

__all__ = ["main"]

IDLE_SECONDS = 3600.0  # a parent that nobody used for so long ends; the next run starts a new one


class _Parent:
    def __init__(self, commands: int, events: int, fork: bool):
        self.commands, self.events = commands, events
        self.kernel = os.getppid()
        self.context: Any = multiprocessing.get_context("fork" if fork else "spawn")
        self.fork = fork
        self.children: dict[str, Any] = {}
        self.buffer = b""
        self.used = time.monotonic()

    def serve(self) -> None:
        while self._kernel_lives():
            sentinels = [child.sentinel for child in self.children.values()]
            # A grandchild may hold a dead worker's sentinel open, hence the short look while workers run.
            ready = connection.wait([self.commands, *sentinels], timeout=0.05 if sentinels else 1.0)
            if self.commands in ready and not self._read():
                return
            self._report_exits()

    def _kernel_lives(self) -> bool:
        idle = not self.children and time.monotonic() - self.used > IDLE_SECONDS
        # A process that the kernel forked may hold our stdin open after the kernel's death: ask for it by pid too.
        return os.getppid() == self.kernel and not idle

    def _read(self) -> bool:
        data = os.read(self.commands, 1 << 20)
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        for line in lines:
            self._obey(json.loads(line))
        return bool(data)

    def _obey(self, command: dict[str, Any]) -> None:
        self.used = time.monotonic()
        if "start" in command:
            self._start(command["start"], command["spec"])
        else:
            self.kill([key for key in command["kill"] if key in self.children])

    def _start(self, key: str, spec: dict[str, Any]) -> None:
        ours = [self.commands, self.events] if self.fork else []
        child = self.context.Process(target=worker.main, args=(spec, os.getpid(), ours), name=key)
        with warnings.catch_warnings():
            # Python 3.12 warns of forking with threads; TensorFlow's are idle here, see docs/facts.md.
            warnings.simplefilter("ignore", DeprecationWarning)
            child.start()
        self.children[key] = child
        self._tell(started=key, pid=child.pid)

    def _report_exits(self) -> None:
        for key, child in list(self.children.items()):
            code = child.exitcode
            if code is not None:
                del self.children[key]
                self._tell(exited=key, code=code, at=time.monotonic())
                child.close()

    def _tell(self, **event: Any) -> None:
        os.write(self.events, (json.dumps(event) + "\n").encode())

    def kill(self, keys: list[str]) -> None:
        """SIGKILL: a worker inside a collective ignores SIGINT and SIGTERM for 20 s and more."""
        for key in keys:
            kill_tree(self.children[key].pid)


def kill_tree(pid: int) -> None:
    """Kills a worker, its process group, and descendants that left the group."""
    try:
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        family = []
    for process in family:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            pass
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # the worker had not made its group yet, or all of it is gone


def main() -> None:
    """The program: `python -c ... SYS_PATH OPTIONS`; see `warm.py`."""
    options = json.loads(sys.argv[2])
    commands, events = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # file descriptor 2 is this parent's log; nothing that is imported may speak on the event pipe
    problem = _preload(options["preload"])
    if problem:
        os.write(events, (json.dumps({"failed": problem}) + "\n").encode())
        return
    gc.collect()
    gc.freeze()  # what is here stays: a worker's collector must not touch, and so copy, the shared pages
    parent = _Parent(commands, events, options["fork"])
    os.write(events, (json.dumps({"ready": os.getpid()}) + "\n").encode())
    try:
        parent.serve()
    finally:
        parent.kill(list(parent.children))
        os._exit(0)  # no joining of children: they have just been killed


def _preload(modules: list[str]) -> str | None:
    for name in modules:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name.split(".")[0] or name == "tensorflow":
                return f"importing {name}: {error}"  # an optional package that is not there is no problem
        except Exception as error:  # a broken installation can raise anything; the kernel shall read what
            return f"importing {name}: {type(error).__name__}: {error}"
    return None
