"""In a worker: brings the faults that `dtk.run(..., faults=[...])` asked for, each at its step.

Each is written to the worker's events as it comes (`dtk.records.events.FaultCame`). A network goes dead without any
privilege: `dup2` puts a socket that nobody answers under the number of each that leads to a peer. The old one stays
open, and nobody reads it: no connection breaks that a peer could notice, but neither side hears the other any more. So
with the listening socket: the system still takes new connections, and nobody answers them.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from dtk.compat.per_replica import copies
from dtk.environment import Here
from dtk.errors import ClusterConfigError
from dtk.faults import Fault
from dtk.language import N_, _
from dtk.records import WorkerFolder
from dtk.records.events import FaultCame

SETTLE_SECONDS = 5.0  # how long a worker waits for what its peers record of the step before its end
_ENDS_OR_STOPS = ("kill", "exception", "stall", "drop_network")


class Injector:
    """The faults of this process that are still to come."""

    def __init__(self, place: Here):
        self.place = place
        asked = place.run.job["faults"] if place.role == "worker" and place.run.attempt == 1 else []
        self.due = {n: Fault(**each) for n, each in enumerate(asked) if each["worker"] == place.worker}
        self._slow = 0.0

    def before(self, first: int, last: int, weights: Callable[[], list[Any]]) -> None:
        """Brings what is due before step `first`, which begins now, or one of those up to `last` that go with it.

        weights: gives the trainable weights of the model that is trained, for `nan`.
        """
        for number in [n for n, each in self.due.items() if each.step <= last]:
            fault = self.due.pop(number)
            # Until every worker has recorded the step before: then what was recorded depends on nothing but the fault.
            if fault.kind in _ENDS_OR_STOPS and _recorded(self.place.folder) >= max(first - 1, 1):
                self.place.meet(lambda peer: _recorded(peer) >= first - 1, SETTLE_SECONDS)
            now, step = self.place.now(), max(first, fault.step)
            self.place.journal.event(FaultCame(now, kind=fault.kind, step=step, words=repr(fault), number=number))
            self._bring(fault, weights)
        if self._slow:
            time.sleep(self._slow * (last - first + 1))

    def _bring(self, fault: Fault, weights: Callable[[], list[Any]]) -> None:
        if fault.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault.kind == "exception":
            raise RuntimeError(fault.message)
        elif fault.kind == "stall":
            threading.Event().wait(fault.seconds)  # None: forever
        elif fault.kind == "slow":
            self._slow = fault.seconds or 0.0
        elif fault.kind == "nan":
            held = weights()
            if not held:
                remedy = N_("a loop has to pass model=model to dtk.record_step; an Estimator's can't be reached")
                raise ClusterConfigError(_("dtk.faults.nan: no weights are known here"), remedy=_(remedy))
            _make_nan(held)
        else:
            config = json.loads(os.environ["TF_CONFIG"])
            ports = [int(address.rsplit(":", 1)[1]) for address in config["cluster"]["worker"]]
            own = ports.pop(config["task"]["index"])
            drop_all(set(ports), own)


def _recorded(worker: WorkerFolder) -> int:
    """The last step of a worker's records; 0 before the first."""
    return max((record.step for record in worker.records), default=0)


def _make_nan(weights: list[Any]) -> None:
    """Makes the last weight of floating point NaN throughout, in this process's memory only."""
    found = [each for each in map(copies, weights) if each is not None and each.local[0].dtype.is_floating]
    if found:
        found[-1].assign([np.full_like(found[-1].arrays()[0], np.nan)])


_EVERY = 0.02  # seconds between two looks for new connections


def drop_all(ports: set[int], own: int) -> None:
    """From now on this process and its peers, at `ports`, hear nothing of each other, nor others at its port `own`.

    A thread does the same to connections that are made later.
    """
    kept: dict[int, socket.socket] = {}  # old sockets, by new numbers: the far ends of those in their places
    _silence(ports, own, kept)

    def watch() -> None:
        while True:
            time.sleep(_EVERY)  # a new descriptor is no event that anybody tells
            _silence(ports, own, kept)

    threading.Thread(target=watch, daemon=True, name="dtk.faults.drop_network").start()


def _silence(ports: set[int], own: int, kept: dict[int, socket.socket]) -> None:
    ends = {}
    for fd in {int(name) for name in os.listdir("/dev/fd")} - {*kept}:
        with contextlib.suppress(OSError):  # no socket, or closed in the meantime
            ends[fd] = _ends(fd)
    both = {*ends.values()}
    for fd, (here, there) in ends.items():
        # Of a connection with itself, which stays, both ends are here.
        if (here == own or there in ports) and (there, here) not in both:
            with contextlib.suppress(OSError):
                blocks = os.get_blocking(fd)
                dead, far = socket.socketpair()
                with dead:
                    dead.setblocking(blocks)
                    kept[os.dup(fd)] = far
                    os.dup2(dead.fileno(), fd)


def _ends(fd: int) -> tuple[int, int]:
    """The ports of a TCP socket, its own and its peer's, 0 for none; (0, 0) for another socket."""
    each, here, there = socket.socket(fileno=fd), 0, 0
    try:
        if each.family in (socket.AF_INET, socket.AF_INET6) and each.type == socket.SOCK_STREAM:
            here = each.getsockname()[1]
            with contextlib.suppress(OSError):  # not connected: it listens
                there = each.getpeername()[1]
    finally:
        each.detach()
    return here, there
