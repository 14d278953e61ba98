"""The kernel's end of the parent process: start it once, ask it for workers, hear how they end."""

from __future__ import annotations

import atexit
import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, BinaryIO, cast

from dtk import environment
from dtk.errors import DtkError

__all__ = ["ParentProcess", "parent", "warm"]

# Imported by a warm parent, in this order; those that are not installed are passed over, except TensorFlow.
PRELOAD = ("tensorflow", "keras", "tf_keras", "tensorflow_datasets", "sklearn.datasets")
START_SECONDS = 300.0  # importing TensorFlow takes 4 to 30 s; beyond this something is broken

# Two malloc arenas and large pages instead of an arena a thread and small ones: 0.35 instead of 0.40 of a cold
# process's memory for a further worker, and 15 % more examples/s with two (docs/facts.md). Read at a process's start,
# and only by glibc; what the learner has set there stays.
_MALLOC = {"GLIBC_TUNABLES": "glibc.malloc.arena_max=2:glibc.malloc.hugetlb=1"}

_BOOT = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from dtk.cluster import parent; parent.main()"


class ParentProcess:
    """One parent, warm or cold. Events are kept until their run fetches them, so that two runs can share it."""

    def __init__(self, fork: bool):
        self.fork = fork
        self.started: dict[str, int] = {}
        self.exited: dict[str, tuple[int, float]] = {}
        self.ready = False
        self._problem: str | None = None
        self._buffer = b""
        self._lock = threading.RLock()
        self.log = environment.scratch() / f"parent-{os.getpid()}-{time.monotonic_ns()}.log"
        options = {"fork": fork, "preload": list(PRELOAD) if fork else []}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, json.dumps(sys.path), json.dumps(options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                env={**_MALLOC, **os.environ},
                start_new_session=True,  # an interrupt of the kernel's process group is not for the parent
            )
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._out, selectors.EVENT_READ)

    @property
    def _in(self) -> BinaryIO:
        return cast(BinaryIO, self._process.stdin)

    @property
    def _out(self) -> BinaryIO:
        return cast(BinaryIO, self._process.stdout)

    @property
    def pid(self) -> int:
        return self._process.pid

    def lives(self) -> bool:
        return self._process.poll() is None

    def wait_ready(self, tick: Callable[[], None]) -> None:
        """Returns when workers can be started; calls `tick` about ten times a second while it waits."""
        deadline = time.monotonic() + START_SECONDS
        while not self.ready:
            self.poll(0.1)
            tick()
            late = time.monotonic() > deadline
            if self._problem or late or not self.lives():
                why = self._problem or ("it took too long" if late else "it ended while starting")
                self.close()
                words = f"the process that starts workers could not start: {why}; its output is in {self.log}"
                raise DtkError(words)

    def start(self, key: str, spec: dict[str, Any]) -> None:
        self._send({"start": key, "spec": spec})

    def kill(self, keys: list[str]) -> None:
        self._send({"kill": keys})

    def _send(self, command: dict[str, Any]) -> None:
        try:
            with self._lock:
                self._in.write((json.dumps(command) + "\n").encode())
        except OSError:
            pass  # the parent is dead, and its workers with it: `lives` tells the caller

    def poll(self, timeout: float) -> None:
        """Takes in events for up to `timeout` seconds, returning at the first."""
        with self._lock:
            if not self._selector.select(timeout):
                return
            data = os.read(self._out.fileno(), 1 << 16)
            if not data:  # the parent closed its end: don't spin until its death is seen
                time.sleep(min(timeout, 0.02))
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for line in lines:
                self._take(json.loads(line))

    def _take(self, event: dict[str, Any]) -> None:
        if "started" in event:
            self.started[event["started"]] = event["pid"]
        elif "exited" in event:
            self.exited[event["exited"]] = (event["code"], event["at"])
        elif "ready" in event:
            self.ready = True
        else:
            self._problem = event["failed"]

    def forget(self, keys: list[str]) -> None:
        for key in keys:
            self.started.pop(key, None)
            self.exited.pop(key, None)

    def close(self) -> None:
        """Ends the parent, and with it any worker that is left."""
        self._in.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its workers ask the system to be killed with it
            self._process.wait()
        self._selector.close()
        self._out.close()


# By (process that owns it, fork or not): a fork of the kernel must not talk to the kernel's parent.
_parents: dict[tuple[int, bool], ParentProcess] = {}


def parent(fork: bool) -> ParentProcess:
    """The parent of this process for that way of starting; a new one where there is none or it has died."""
    key = (os.getpid(), fork)
    known = _parents.get(key)
    if known is None or not known.lives():
        if known is not None:
            known.close()
        _parents[key] = ParentProcess(fork)
    return _parents[key]


def warm() -> None:
    """Starts the warm parent in the background, so that the first `dtk.run` need not wait for its imports.

    Returns at once. Does nothing where workers can't be forked, or where it is warm already.
    """
    if environment.can_fork():
        parent(fork=True)


@atexit.register
def _close_all() -> None:
    for (owner, _), process in list(_parents.items()):
        if owner == os.getpid():
            process.close()
