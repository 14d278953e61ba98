"""Workers on the nodes of a Ray cluster, each beside an actor that starts it."""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from dtk.errors import ClusterConfigError, need
from dtk.language import N_, _
from dtk.launch.agent import Agent
from dtk.launch.messages import Gone, Message
from dtk.places.engine import Engine, LentMachine, OnMessage

REACH_SECONDS = 10.0
READY_SECONDS = 60.0  # for Ray to make room, also by new nodes where it can add some
_NO_CLUSTER = N_("no Ray cluster answers at {address} ({why})")
_HEARS = "hears"  # Ray's concurrency group of `take`, by one thread, so that messages keep their order


class _Actor:
    """An agent as an actor of Ray's. Each group of calls has a thread: `take` wakes a turn that waits in the other."""

    def __init__(self, storage: str):
        os.environ.pop("PYTHONBREAKPOINT", None)  # Ray's debugger, which works in Ray's own processes alone
        self.agent = Agent(storage)
        self._heard: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._woken, self._wakes = os.pipe()

    def address(self) -> str:
        import ray

        return str(ray.util.get_node_ip_address())

    def take(self, message: Message) -> None:
        self._heard.put(message)
        os.write(self._wakes, b".")

    def turn(self) -> list[Message]:
        if self.agent.wait(self._woken):
            for _ in os.read(self._woken, 1 << 16):
                self.agent.take(self._heard.get())
        return self.agent.turn(0)

    def close(self) -> None:
        self.agent.close()


class _Calls:
    """Brings messages to an actor, and asks it for its own in a thread."""

    def __init__(self, actor: Any, heard: OnMessage):
        self._actor, self._ended = actor, False
        threading.Thread(target=self._hear, args=(heard,), daemon=True).start()

    def _hear(self, heard: OnMessage) -> None:
        import ray

        try:
            while not self._ended:
                for message in ray.get(self._actor.turn.remote()):
                    heard(message)
        except (ray.exceptions.ActorDiedError, ray.exceptions.ActorUnavailableError) as error:
            # One that is unavailable has lost an answer, and with it some of what a worker wrote.
            heard(Gone(_("Ray has lost its actor there ({error})", error=type(error).__name__)))
        except Exception as error:  # the actor's death has other names as well, and so has the end of Ray itself
            heard(Gone(_in_short(error)))

    def send(self, message: Message) -> None:
        with contextlib.suppress(Exception):  # dead: the thread says so
            self._actor.take.options(concurrency_group=_HEARS).remote(message)

    def close(self) -> None:
        import ray

        self._ended = True
        with contextlib.suppress(Exception):
            ray.get(self._actor.close.remote(), timeout=5)
        with contextlib.suppress(Exception):
            ray.kill(self._actor)


class Ray(Engine):
    """The nodes of a Ray cluster: `pip install "dtk-toolkit[ray]"`, the same dtk and TensorFlow on each node.

        dtk.run(train, workers=2, on="ray")

    The processes that start workers stay on the nodes until this one ends, with TensorFlow imported, and keep the
    resources that they were given; `close()` gives them back sooner.

    Args:
        address: of the cluster, where this process is not connected to one already; None: of RAY_ADDRESS, or of one
            that runs on this machine, or else a new one here.
        resources: of each worker, such as {"CPU": 4, "GPU": 1}.
        environment: Ray's runtime environment for the workers, such as {"pip": ["dtk-toolkit"], "working_dir": "."}.
        storage: a directory that all nodes share; needed for `restarts`.
    """

    name = "ray"

    def __init__(
        self,
        address: str | None = None,
        resources: Mapping[str, float] | None = None,
        environment: Mapping[str, Any] | None = None,
        storage: str = "",
    ):
        super().__init__()
        self.address, self.storage = address, storage
        self.resources = dict(resources or {"CPU": 1})
        self.environment = dict(environment or {})

    def lend(self, heard: Sequence[OnMessage], tick: Callable[[], None]) -> Iterator[LentMachine]:
        ray = self._connected()
        bundles = [self.resources] * len(heard)
        group = ray.util.placement_group(bundles, strategy="SPREAD")
        self.given_back.enter_context(contextlib.suppress(Exception))  # Ray's own end has been quicker
        self.given_back.callback(ray.util.remove_placement_group, group)
        if not group.wait(READY_SECONDS):
            words = N_("Ray found no room for {workers} workers of {resources} in {seconds:g} s")
            what = _(words, workers=len(heard), resources=self.resources, seconds=READY_SECONDS)
            remedy = N_("ask for fewer workers, for less (resources=), or add nodes; `ray status` shows who holds what")
            raise ClusterConfigError(what, remedy=_(remedy))
        actors = [self._actor(ray, group, place) for place in range(len(bundles))]
        try:
            addresses = ray.get([actor.address.remote() for actor in actors])
        except ray.exceptions.RayError as error:
            words = N_("{worker}: dtk's agent did not start: {why}")
            raise ClusterConfigError(_(words, worker="Ray", why=_in_short(error))) from None
        for actor, address, takes in zip(actors, addresses, heard, strict=True):
            yield LentMachine(address, _Calls(actor, takes))

    def _connected(self) -> Any:
        need("ray", 'on="ray"')
        import ray

        address = self.address or os.environ.get("RAY_ADDRESS")
        if not ray.is_initialized():
            _reach(address)
            try:
                ray.init(self.address, log_to_driver=False, logging_level="error")
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise ClusterConfigError(_(_NO_CLUSTER, address=address, why=_in_short(error))) from None
        return ray

    def _actor(self, ray: Any, group: Any, place: int) -> Any:
        resources = {name: each for name, each in self.resources.items() if name not in ("CPU", "GPU")}
        options = {
            "num_cpus": self.resources.get("CPU", 0),
            "num_gpus": self.resources.get("GPU", 0),
            "resources": resources or None,
            "scheduling_strategy": ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
                group, placement_group_bundle_index=place
            ),
            "runtime_env": self.environment or None,
        }
        actor = ray.remote(concurrency_groups={_HEARS: 1})(_Actor)
        return actor.options(**options).remote(self.storage)


def _reach(address: str | None) -> None:
    """Whether something listens there: Ray itself tries for minutes. An address such as "auto" has no port to ask."""
    try:
        at = urlsplit(f"//{(address or '').removeprefix('ray://')}")
        if at.hostname and at.port:
            socket.create_connection((at.hostname, at.port), timeout=REACH_SECONDS).close()
    except (OSError, ValueError) as error:
        why = (getattr(error, "strerror", None) or str(error)).lower()
        what = _(_NO_CLUSTER, address=address, why=why)
        raise ClusterConfigError(what, remedy=_("`ray start --head` on its first node prints the address")) from None


def _in_short(error: BaseException) -> str:
    """The last line of an error that says something."""
    return str(error).strip().rpartition("\n")[2].strip() or type(error).__name__
