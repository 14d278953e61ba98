"""Where the workers of a run are, and the TF_CONFIGs that tell them: what `launch` asks of a place.

This machine is one, in `dtk.launch.warm`; others are in `dtk.places`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dtk import environment
from dtk.errors import DtkError
from dtk.language import _
from dtk.records import RunFolder
from dtk.watch.signs import Vitals
from dtk.worker.process import WorkerSpec

if TYPE_CHECKING:
    from dtk.launch.launch import RunJob


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
    """The machines of one start of a cluster: starts processes there for a run, and ends them.

    By a worker's key: started: its pid on its machine. exited: (exit code, `time.monotonic()` here). refused: the
    error's number, 0 for none, and the words. grace: seconds that a failure which reads like a consequence waits for
    its cause to show itself. answer_seconds: how long a start may take.
    """

    grace: float = 0.6
    answer_seconds: float = 30.0
    started: dict[str, int]
    exited: dict[str, tuple[int, float]]
    refused: dict[str, tuple[int, str]]

    def __init__(self) -> None:
        self.started, self.exited, self.refused = {}, {}, {}

    def addresses(self, count: int) -> list[str]:
        """ "host:port" for each of so many members: a port that is free there now."""

    def machine(self, member: int, folder: RunFolder, share: int) -> Machine:
        """The machine of a member of the run in `folder`. share: processes that this machine's cores are for."""

    def start(self, key: str, spec: WorkerSpec) -> None:
        """Asks for a worker; `wait_started` tells whether there is one."""

    def wait_started(self, keys: list[str]) -> None:
        """Returns when all have been started; OSError, or DtkError, where a further process was refused."""
        deadline = time.monotonic() + self.answer_seconds
        while not {*keys} <= {*self.started, *self.refused} and self.lives() and not self.lost():
            if time.monotonic() > deadline:
                break
            self.poll(0.1)
        for number, words in (self.refused[key] for key in keys if key in self.refused):
            raise OSError(number, words) if number else DtkError(words)

    def poll(self, timeout: float) -> None:
        """Takes in what has happened, for up to `timeout` seconds, returning at the first."""

    def lives(self) -> bool:
        """Whether it can still start and end processes; where not, all of them are gone."""
        return True

    def ends(self, keys: Collection[str]) -> dict[str, tuple[int, float]]:
        """How those of the processes ended that have: where it does not live, the system has killed them with it."""
        now, lives = time.monotonic(), self.lives()
        return {key: self.exited.get(key, (-signal.SIGKILL, now)) for key in keys if key in self.exited or not lives}

    def lost(self) -> dict[int, str]:
        """Members whose machine can't be reached any more, each with what is said of it."""
        return {}

    def kill(self, keys: list[str]) -> None:
        """Kills workers that were asked for; those that were refused count as ended at once."""

    def kill_and_wait(self, keys: list[str], seconds: float) -> bool:
        """Kills workers; whether they are gone within so many seconds."""
        self.kill(keys)
        deadline = time.monotonic() + seconds
        while len(self.ends(keys)) < len(keys) and time.monotonic() <= deadline:
            self.poll(0.05)
        return len(self.ends(keys)) == len(keys)

    def forget(self, keys: list[str]) -> None:
        for key in keys:
            self.started.pop(key, None)
            self.exited.pop(key, None)
            self.refused.pop(key, None)

    def close(self) -> None:
        """Ends everything."""

    def vitals(self, key: str) -> Vitals | None: ...

    def ask(self, key: str) -> None:
        """Has a worker write its Python stacks."""

    def cut(self) -> list[tuple[int, int, str]]:
        """Asks the machines anew: (who, whom, the system's words) of workers that can't reach another's server."""
        return []


class Place(Protocol):
    """Where the workers of a run are started. name: what it is called in sentences, marked to be translated there."""

    name: str = ""

    def open(self, job: RunJob, folder: RunFolder, tick: Callable[[], None]) -> Source:
        """Machines for the members of the run in `folder`, ready to start them.

        tick: called about ten times a second meanwhile.
        """

    def end(self, folder: RunFolder) -> None:
        """After the run: brings back what is left of its directory elsewhere, and removes it there."""
        return  # on this machine the run's directory is where it was made


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
