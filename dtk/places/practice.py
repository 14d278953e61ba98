"""Machines to practise on, each of which is really this one: nodes of a Ray cluster, or agents with addresses."""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import shutil
import signal
import sys
import tempfile
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from dtk import environment, faults
from dtk.errors import ClusterConfigError
from dtk.faults import Fault
from dtk.language import N_, _
from dtk.places.engine import Engine
from dtk.places.hosts import Hosts
from dtk.places.machines import Heard, Lent
from dtk.places.ray import Ray
from dtk.places.ray_nodes import RayNodes

if TYPE_CHECKING:
    from dtk.launch.launch import Job
    from dtk.launch.place import Site
    from dtk.records import RunFolder

__all__ = ["Practice"]

MOST = 16


class Practice(Engine):
    """Machines to practise on: they are lent, examined and lost as others are, but each is really this one.

        machines = dtk.places.Practice(3)
        dtk.run(train, workers=2, on=machines)

    They are nodes of a Ray cluster that is started here, where Ray is installed. Elsewhere each is an agent with an
    address of its own, 127.0.0.1 and so on. They are called node-0, node-1, ..., and share a directory. `close()` ends
    them; so does the end of this process.

    Args:
        count: how many. Those beyond a run's workers are spare ones: a restart takes them in the place of lost ones.
        engine: "ray", "hosts", or None: Ray where it is installed and this process uses no other cluster of Ray's.
    """

    name = N_("practice machines")

    def __init__(self, count: int = 2, engine: str | None = None):
        super().__init__()
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST:
            words = N_("Practice(count={given!r}): it takes a whole number from 1 to {most}")
            raise ClusterConfigError(_(words, given=count, most=MOST))
        if engine not in (None, "ray", "hosts"):
            raise ClusterConfigError(_("Practice(engine={given!r}): it takes 'ray', 'hosts', or None", given=engine))
        self.count, self.engine = count, engine or _engine()
        self._machines: list[_Machine] = []
        self._taken: list[_Machine] = []  # by member of the run
        self._traps: dict[int, signal.Signals] = {}  # by worker: what its machine gets when it stands still
        self._address = ""  # of Ray's cluster
        self._storage = ""
        self._ends = contextlib.ExitStack()  # of the machines; `given_back` is of those that are lent
        weakref.finalize(self, self._ends.close)

    def power_off(self, worker: int, step: int) -> Fault:
        """A fault for `dtk.run(..., faults=[...])`: the worker's machine loses its power, once.

        The worker first stands still, so that what it has recorded does not depend on chance; then every process of
        its machine is killed at once, the agent's and the engine's included.

        Args:
            worker: its index. On Ray not 0, whose machine has the head of Ray's cluster.
            step: the step before which it happens, from 1.
        """
        return self._trap(worker, step, signal.SIGKILL)

    def fall_silent(self, worker: int, step: int) -> Fault:
        """A fault for `dtk.run(..., faults=[...])`: the worker's machine answers no more, as behind a cut cable, once.

        Every process of its machine is stopped (SIGSTOP): its connections stay open, and nothing comes through them.

        Args:
            worker: its index. On Ray not 0, whose machine has the head of Ray's cluster.
            step: the step before which it happens, from 1.
        """
        return self._trap(worker, step, signal.SIGSTOP)

    def _trap(self, worker: int, step: int, how: signal.Signals) -> Fault:
        fault = faults.stall(worker=worker, step=step)
        if worker == 0 and self.engine == "ray":
            raise ClusterConfigError(_("worker 0's machine has the head of Ray's cluster, which ends with it"))
        self._traps[worker] = how
        return fault

    # ---- what an engine does

    def open(self, job: Job, folder: RunFolder, tick: Callable[[], None]) -> Site:
        self._clear()
        return super().open(job, folder, tick)

    def end(self, folder: RunFolder) -> None:
        super().end(folder)
        self._traps.clear()
        self._clear()

    def close(self) -> None:
        """Ends the agents and the machines; the next run starts others."""
        super().close()
        self._machines, self._taken = [], []
        self._ends.close()

    def lend(self, heard: Sequence[Heard], tick: Callable[[], None]) -> list[Lent]:
        self._start()
        left = [machine for machine in self._machines if not machine.broken]
        if len(left) < len(heard):
            words = N_("{processes} processes on {machines} practice machines")
            if len(left) < self.count:
                words = N_("{processes} processes on {machines} practice machines, as {lost} of {count} are lost")
            lost = {"lost": self.count - len(left), "count": self.count}
            what = _(words, processes=len(heard), machines=len(left), **lost)
            remedy = _("make a dtk.places.Practice of more, or ask for fewer workers")
            raise ClusterConfigError(what, remedy=remedy)
        self._taken = left[: len(heard)]
        watched = [
            _watched(each, member, machine, self._traps)
            for member, (each, machine) in enumerate(zip(heard, self._taken, strict=True))
        ]
        inner = self._inner()
        lent = inner.lend(watched, tick)
        self.given_back.enter_context(inner.given_back.pop_all())
        for each, machine in zip(lent, self._taken, strict=True):
            each.name, machine.lent = machine.name, each
        return lent

    def _inner(self) -> Engine:
        if self.engine == "ray":
            return _OnNodes(self._address, self._storage, [machine.name for machine in self._taken])
        commands = {machine.address: "env" for machine in self._taken}
        return Hosts(commands, python=sys.executable, storage=self._storage)

    def _start(self) -> None:
        if self._machines:
            return
        self._storage = tempfile.mkdtemp(prefix="practice-", dir=environment.scratch())
        self._ends.callback(shutil.rmtree, self._storage, ignore_errors=True)
        self._machines = [_Machine(f"node-{k}", f"127.0.0.{k + 1}", self.engine == "ray") for k in range(self.count)]
        try:
            if self.engine == "ray":
                nodes = RayNodes([machine.name for machine in self._machines])
                self._ends.callback(nodes.end)
                self._address = nodes.start()
        except BaseException:
            self.close()
            raise
        self._ends.callback(_end_stopped, self._machines)

    def _clear(self) -> None:
        """Machines that were broken are gone for good, and those that are left are asked for anew."""
        if any(machine.broken and machine.lent for machine in self._taken):
            for machine in self._taken:
                machine.end_stopped()
                machine.lent = None
            self._give_back()


def _engine() -> str:
    """Ray, where it is installed and not in use for something else."""
    if importlib.util.find_spec("ray") is None:
        return "hosts"
    used = "ray" in sys.modules and sys.modules["ray"].is_initialized()
    return "hosts" if used else "ray"


class _OnNodes(Ray):
    """Workers on these nodes, in this order: each node has a resource of its own name."""

    def __init__(self, address: str, storage: str, nodes: Sequence[str]):
        super().__init__(address=address, storage=storage)
        self.nodes = list(nodes)

    def _bundles(self, count: int) -> list[dict[str, float]]:
        return [{**self.resources, node: 1} for node in self.nodes[:count]]


@dataclass
class _Machine:
    """One machine. by_ray: the agent's parent is Ray's own process of that node. stopped: by SIGSTOP."""

    name: str
    address: str
    by_ray: bool
    lent: Lent | None = None
    broken: bool = False
    stopped: bool = False

    def processes(self) -> list[psutil.Process]:
        """Those that run there, the one that started the others first."""
        if self.lent is None:
            return []
        with contextlib.suppress(psutil.Error):
            agent = psutil.Process(self.lent.facts["pid"])
            first = agent.parent() if self.by_ray else agent
            return [] if first is None else [first, *first.children(recursive=True)]
        return []

    def breaks(self, how: signal.Signals) -> None:
        self.broken, self.stopped = True, how == signal.SIGSTOP
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.send_signal(how)

    def end_stopped(self) -> None:
        if self.stopped:
            self.breaks(signal.SIGKILL)


def _end_stopped(machines: Sequence[_Machine]) -> None:
    for machine in machines:
        machine.end_stopped()


def _watched(heard: Heard, member: int, machine: _Machine, traps: dict[int, signal.Signals]) -> Heard:
    """Passes on what a machine's agent says, and breaks the machine where its worker stands still and a trap waits."""
    events = str(Path(f"worker-{member}") / "events.jsonl")

    def takes(message: dict[str, Any]) -> None:
        if "gone" in message and machine.stopped:
            return  # of a real one the engine would not know sooner
        if "gone" in message and machine.broken:
            message = {"gone": _("the connection to it has ended")}  # in the same words, whatever the engine's are
        heard(message)
        if member in traps and message.get("file") == events and b'"stall"' in base64.b64decode(message["data"]):
            machine.breaks(traps.pop(member))

    return takes
