"""The kernel's end of the parent process and its guard: start it once, ask it for workers, hear how they end."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import connection
from typing import TYPE_CHECKING, Any

from dtk import environment
from dtk.compat.libraries import the_other_keras_2
from dtk.errors import DtkError, seconds
from dtk.language import N_, _
from dtk.launch import messages
from dtk.launch.messages import Incoming, Message, Speaker
from dtk.launch.place import Machine, Place, Source, free_ports
from dtk.records import RunFolder
from dtk.watch.signs import Vitals, vitals
from dtk.worker.process import WorkerSpec

if TYPE_CHECKING:
    from dtk.launch.launch import RunJob

# Imported by a warm parent, in this order; those that are not installed are passed over, except TensorFlow.
PRELOAD = ("tensorflow", "keras", "tf_keras", "tensorflow_datasets")
IDLE_SECONDS = 3600.0  # a parent that was not used for so long ends
SHARED_IDLE_SECONDS = 600.0  # the same on a JupyterHub, where its memory is other people's as well
START_SECONDS = 300.0  # importing TensorFlow takes 4 to 30 s; beyond this something is broken

# Few malloc arenas and large pages instead of an arena a thread and small ones: a further worker takes 0.35 instead of
# 0.40 of a cold process's memory, and more examples/s (docs/evidence/facts.md). glibc reads it as a process starts.
_ARENAS = 1 if environment.cores() <= 2 else 2
MALLOC = {"GLIBC_TUNABLES": f"glibc.malloc.arena_max={_ARENAS}:glibc.malloc.hugetlb=1"}


_BOOT = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from dtk.launch import parent; parent.main()"


class ParentProcess(Source):
    """One parent, warm or cold. Events are kept until their run fetches them, so that two runs can share it.

    A parent that was killed between two runs, or ended because it was not used, is replaced in the next `wait_ready`.
    """

    def __init__(self, fork: bool):
        super().__init__()
        self.fork, self.isolated = fork, environment.isolated()
        self._lock = threading.RLock()
        self._begin()

    def _begin(self) -> None:
        self.ready = False
        self._problem = ""  # why it can't start workers
        self._incoming = Incoming()
        self._answered = 0.0  # when a question was answered last
        self.log = environment.scratch() / f"parent-{os.getpid()}-{time.monotonic_ns()}.log"
        modules = [name for name in PRELOAD if name != the_other_keras_2()] if self.fork else []
        options = {"fork": self.fork, "isolated": self.isolated, "idle": idle_seconds(), "log": str(self.log)}
        command = [sys.executable, "-c", _BOOT, json.dumps(sys.path), json.dumps({**options, "preload": modules})]
        env = {**MALLOC, **os.environ, "DTK_SCRATCH": str(self.log.parent)}
        self._speaker = Speaker(command, env, self.log)

    @property
    def pid(self) -> int:
        return self._speaker.process.pid

    def fileno(self) -> int:
        """Can be read when there is something to poll."""
        return self._speaker.out.fileno()

    def lives(self) -> bool:
        return self._speaker.process.poll() is None

    def wait_ready(self, tick: Callable[[], None]) -> None:
        """Returns when workers can be started; calls `tick` about ten times a second while it waits."""
        pid = self.pid
        if self.ready and not self._answers(pid, tick):
            self.replace(pid)
        deadline = time.monotonic() + START_SECONDS
        while not self.ready:
            self.poll(0.1)
            tick()
            if self._problem or time.monotonic() > deadline or not self.lives():
                why = self._problem = self._problem or _("it ended, or took too long")
                self.close()
                words = N_("the process that starts workers could not start: {why}; its output is in {log}")
                raise DtkError(_(words, why=why, log=self.log))

    def _answers(self, pid: int, tick: Callable[[], None]) -> bool:
        """Whether it is still there, asked and not guessed; a question counts as use, and puts off its end."""
        asked = time.monotonic()
        deadline = asked + self.answer_seconds
        self._send(messages.Query(0, "alive"))
        while self._answered < asked and self.pid == pid:  # another thread may replace it meanwhile
            if not self.lives() or time.monotonic() > deadline:
                return False
            self.poll(0.1)
            tick()
        return True

    def replace(self, pid: int) -> None:
        """Starts another in the place of the parent with that pid, if that is still the present one."""
        with self._lock:
            if self.pid == pid:
                self.close()
                self._begin()

    def addresses(self, count: int) -> list[str]:
        return [f"127.0.0.1:{port}" for port in free_ports(count)]

    def machine(self, member: int, folder: RunFolder, share: int) -> Machine:
        return Machine(
            host="",
            env=os.environ,
            cores=environment.cores(),
            share=share,
            dir=folder.path,
            cwd=os.getcwd(),
            # "" means the directory one is in: after a change of directory modules beside the notebook were lost.
            sys_path=[path or os.getcwd() for path in sys.path],
        )

    def start(self, key: str, spec: WorkerSpec) -> None:
        self._send(messages.Start(key, spec))

    def kill(self, keys: list[str]) -> None:
        self.exited.update({key: (-9, time.monotonic()) for key in keys if key in self.refused})
        self._send(messages.Kill(keys))

    def vitals(self, key: str) -> Vitals | None:
        return vitals(self.started[key])

    def ask(self, key: str) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.started[key], signal.SIGUSR1)  # its handler writes its Python stacks to its stacks.txt

    def _send(self, message: Message) -> None:
        with self._lock:  # where the parent is dead or closed, its workers are with it: `lives` tells the caller
            self._speaker.send(message)

    def poll(self, timeout: float) -> None:
        with self._lock:
            if self._speaker.out.closed or not connection.wait([self.fileno()], timeout):
                return
            data = os.read(self.fileno(), 1 << 16)
            if not data:  # the parent closed its end: don't spin until its death is seen
                time.sleep(min(timeout, 0.02))
            for message in self._incoming.take(data):
                self._take(message)

    def _take(self, message: Message) -> None:
        match message:
            case messages.WorkerStarted(key, pid):
                self.started[key] = pid
            case messages.Exited(key, code, at):
                self.exited[key] = (code, at)
            case messages.Refused(key, number, words):
                self.refused[key] = (number, words)
            case messages.Ready(problem):
                self.ready, self._problem = not problem, problem
            case messages.Answer():
                self._answered = time.monotonic()

    def close(self) -> None:
        """Ends the parent, and with it any worker that is left."""
        with self._lock:
            self._speaker.close()
            self._speaker.out.close()
            if not self._problem:
                with contextlib.suppress(OSError):  # it is gone already
                    self.log.unlink()


def idle_seconds() -> float:
    """Seconds without use after which a parent ends; `DTK_WARM_IDLE` decides where it is set."""
    stated = os.environ.get("DTK_WARM_IDLE")
    if stated is None:
        return SHARED_IDLE_SECONDS if "JUPYTERHUB_USER" in os.environ else IDLE_SECONDS
    value: Any = stated
    with contextlib.suppress(ValueError):
        value = float(stated)
    return seconds("DTK_WARM_IDLE", value)


# By (process that owns it, fork or not, isolated or not): a fork of the kernel must not talk to the kernel's parent.
_parents: dict[tuple[int, bool, bool], ParentProcess] = {}


def parent(fork: bool) -> ParentProcess:
    """The parent of this process for that way of starting; a new one where there is none or it could not start."""
    key = (os.getpid(), fork, environment.isolated())
    known = _parents.get(key)
    if known is None:
        known = _parents[key] = ParentProcess(fork)
    elif not known.lives():
        known.replace(known.pid)
    return known


def is_warm(fork: bool) -> bool:
    """Whether this process's parent for that way of starting is there, with its imports behind it."""
    known = _parents.get((os.getpid(), fork, environment.isolated()))
    return known is not None and known.ready and known.lives()


class Localhost(Place):
    """This machine, the only place that forks its workers from the kernel's own warm parent."""

    def open(self, job: RunJob, folder: RunFolder, tick: Callable[[], None]) -> ParentProcess:
        source = parent(job.fork)
        source.wait_ready(tick)
        return source


def warm() -> None:
    """Starts the warm parent process in the background, so that the first `dtk.run` need not wait for its imports.

    Returns at once. Does nothing where workers can't be forked, where the parent runs already, or with DTK_WARM=0.
    """
    if environment.forks():
        parent(fork=True)


@atexit.register
def _close_all() -> None:
    for (owner, *_rest), process in list(_parents.items()):
        if owner == os.getpid():
            process.close()
