"""Where the workers of a run are, and the TF_CONFIGs that tell them: what `launch` asks of a place.

This machine is one; others are in `dtk.places`.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dtk import environment
from dtk.language import _
from dtk.launch.warm import ParentProcess, parent
from dtk.records import RunFolder
from dtk.worker.process import Vitals, WorkerSpec

if TYPE_CHECKING:
    from dtk.launch.launch import Job

__all__ = [
    "LocalSite",
    "Localhost",
    "Machine",
    "Place",
    "Site",
    "Source",
    "chief_config",
    "free_ports",
    "kill_and_wait",
    "say_ignored",
    "tf_configs",
]


@dataclass(frozen=True)
class Machine:
    """What the machine of one worker gives it.

    host: its name; "" for this one. env: the environment there, as far as it counts. cores: that this user may use.
    share: processes that they are divided among. dir: the run's directory there. ahead: its `time.monotonic()` minus
    this machine's, in seconds. cwd, sys_path: of the worker; elsewhere they are the agent's.
    """

    host: str
    env: Mapping[str, str]
    cores: int
    share: int
    dir: Path
    ahead: float = 0.0
    cwd: str = ""
    sys_path: Sequence[str] = ()


class Source(Protocol):
    """Starts processes for a run and ends them. By a worker's key:

    started: its pid on its machine. exited: (exit code, `time.monotonic()` here).
    """

    started: dict[str, int]
    exited: dict[str, tuple[int, float]]

    def start(self, key: str, spec: WorkerSpec) -> None:
        """Asks for a worker."""

    def wait_started(self, keys: list[str]) -> None:
        """Returns when all are there; OSError where the system refused a further process."""

    def poll(self, timeout: float) -> None:
        """Takes in what has happened, for up to `timeout` seconds, returning at the first."""

    def lives(self) -> bool:
        """Whether it can still start and end processes; where not, all of them are gone."""

    def kill(self, keys: list[str]) -> None: ...
    def forget(self, keys: list[str]) -> None: ...
    def close(self) -> None:
        """Ends everything."""

    def vitals(self, key: str) -> Vitals | None: ...
    def ask(self, key: str) -> None: ...


class Site(Protocol):
    """The machines of one start of a cluster.

    grace: seconds that a failure which reads like a consequence waits for its cause to show itself.
    """

    @property
    def source(self) -> Source: ...
    @property
    def grace(self) -> float: ...

    def addresses(self) -> list[str]:
        """ "host:port" for each member: a port that is free there now."""

    def machine(self, member: int) -> Machine: ...

    def lost(self) -> dict[int, str]:
        """Members whose machine can't be reached any more, each with what is said of it."""

    def training_ended(self) -> None:
        """Lets the evaluator know that every worker has finished."""

    def cut(self) -> list[tuple[int, int, str]]:
        """Asks the machines anew: (who, whom, the system's words) of members that can't reach another's server."""


class Place(Protocol):
    """Where the workers of a run are started. name: in words, "" for this machine."""

    name: str

    def open(self, job: Job, folder: RunFolder, tick: Callable[[], None]) -> Site:
        """Machines for the members of the run in `folder`, ready to start them.

        tick: called about ten times a second meanwhile.
        """

    def end(self, folder: RunFolder) -> None:
        """After the run: brings back what is left of its directory elsewhere, and removes it there."""


class Localhost:
    """This machine, the only place that forks its workers from the kernel's own warm parent."""

    name = ""

    def open(self, job: Job, folder: RunFolder, tick: Callable[[], None]) -> LocalSite:
        source = parent(job.fork)
        source.wait_ready(tick)
        return LocalSite(source, folder, job.share)

    def end(self, folder: RunFolder) -> None:
        pass  # the run's directory is where it was made


@dataclass(frozen=True)
class LocalSite:
    """This machine, for one start of a cluster. share: processes that its cores are divided among."""

    source: ParentProcess
    folder: RunFolder
    share: int
    grace: float = 0.6

    def addresses(self) -> list[str]:
        return [f"127.0.0.1:{port}" for port in free_ports(len(self.folder.members))]

    def machine(self, member: int) -> Machine:
        return Machine(
            host="",
            env={**os.environ, environment.ISOLATED: "1"} if self.source.isolated else os.environ,
            cores=environment.cores(),
            share=self.share,
            dir=self.folder.path,
            cwd=os.getcwd(),
            # "" means the directory one is in; a worker that changes directory would lose the modules beside the
            # notebook.
            sys_path=[path or os.getcwd() for path in sys.path],
        )

    def lost(self) -> dict[int, str]:
        return {}

    def training_ended(self) -> None:
        pass  # it sees the workers' events itself

    def cut(self) -> list[tuple[int, int, str]]:
        return []


def kill_and_wait(source: Source, keys: list[str], seconds: float) -> bool:
    """SIGKILL to these workers; whether they are gone within so many seconds."""
    source.kill(keys)
    deadline = time.monotonic() + seconds
    while not all(key in source.exited for key in keys) and source.lives():
        if time.monotonic() > deadline:
            return False
        source.poll(0.05)
    return True


def free_ports(count: int) -> list[int]:
    """Ports that are free now on every interface (TensorFlow binds them all); another program may still be quicker."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("", 0))
        return [int(each.getsockname()[1]) for each in sockets]


# ---- TF_CONFIG: who is in the cluster, and which of them one process is


def tf_configs(addresses: Sequence[int | str], evaluator: bool = False) -> list[dict[str, Any]]:
    """One TF_CONFIG for each member: the same `cluster` in each worker's, its own `task`.

    addresses: "host:port" of each, or ports of this machine; evaluator: whether the last is the evaluator's.

    >>> [config["task"] for config in tf_configs([4001, 4002])]
    [{'type': 'worker', 'index': 0}, {'type': 'worker', 'index': 1}]
    >>> tf_configs([4001, 4002])[1]["cluster"]
    {'worker': ['127.0.0.1:4001', '127.0.0.1:4002']}
    >>> tf_configs([4001, 4002, 4003], evaluator=True)[2]["task"]
    {'type': 'evaluator', 'index': 0}

    Worker 0 is the chief: without a task of type "chief" TensorFlow gives worker 0 that part, see
    https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable.

    The workers don't know of an evaluator, and it is none of them. Its own entry in its cluster is for
    MultiWorkerMirroredStrategy, which looks its task up there and raises KeyError otherwise (TensorFlow 2.15 and 2.21);
    with it the strategy has one replica and waits for no other.
    """
    whole = [f"127.0.0.1:{each}" if isinstance(each, int) else each for each in addresses]
    workers = whole[: len(whole) - evaluator]
    found: list[dict[str, Any]] = [
        {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}} for index in range(len(workers))
    ]
    if evaluator:
        cluster = {"worker": workers, "evaluator": whole[-1:]}
        found.append({"cluster": cluster, "task": {"type": "evaluator", "index": 0}})
    return found


def chief_config(workers: int) -> str:
    """The chief's TF_CONFIG for one process in the cluster's place: the numbers count, the ports are not used."""
    return json.dumps(tf_configs([1024 + worker for worker in range(workers)])[0])


def say_ignored() -> None:
    """Says that a TF_CONFIG which is set in this process is ignored."""
    if "TF_CONFIG" in os.environ:
        environment.say(_("the TF_CONFIG that is set in this process is ignored; each worker gets one of its own"))
