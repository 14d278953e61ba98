"""Where the workers of a run are: what `launch` asks of a place. This machine is one; others are in `dtk.places`."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from dtk import environment
from dtk.launch.warm import ParentProcess, parent
from dtk.records import RunFolder
from dtk.worker.process import Vitals, WorkerSpec

if TYPE_CHECKING:
    from dtk.launch.launch import Job

__all__ = ["LocalSite", "Localhost", "Machine", "Place", "Site", "Source", "free_ports"]


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


def free_ports(count: int) -> list[int]:
    """Ports that are free now on every interface (TensorFlow binds them all); another program may still be quicker."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("", 0))
        return [int(each.getsockname()[1]) for each in sockets]
