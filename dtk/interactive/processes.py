"""The processes of a cluster that stays: checked, started as a run's workers are, connected, replaced and ended."""

from __future__ import annotations

import select
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dtk import environment
from dtk.errors import ClusterConfigError, DtkError, WorkerFailed
from dtk.interactive import serve
from dtk.language import N_, _
from dtk.launch import launch, request
from dtk.launch.folders import on_free_ports
from dtk.launch.launch import RunJob
from dtk.launch.place import say_ignored
from dtk.launch.warm import Localhost, ParentProcess, idle_seconds
from dtk.records import RunFolder
from dtk.view.palette import worker_name
from dtk.watch.watch import Watch, blame_of, error_of
from dtk.worker import ship, wire
from dtk.worker.process import WorkerSpec
from dtk.worker.wire import Message, Wire

START_SECONDS, KILL_SECONDS = 60.0, 4.0
MOST_SECONDS = 1e8  # that `select` can wait
_HELLO_SECONDS = 5.0


@dataclass
class Peer:
    """A worker. key: its process's, for the source that started it. links: its connections, "cells" and "control".

    running: the cell that it is in; None between cells. lost: its exit code, when it has ended.
    """

    number: int
    key: str
    links: dict[str, Wire] = field(default_factory=dict)
    running: int | None = None
    lost: int | None = None

    @property
    def name(self) -> str:
        return worker_name(self.number)

    @property
    def remedy(self) -> str:
        """When it has ended."""
        return _("{call} replaces it", call=f"cluster.restart(worker={self.number})")

    @property
    def ended(self) -> str:
        """That it has ended, and what to do."""
        return _("{worker} has ended: {remedy}", worker=self.name, remedy=self.remedy)

    def silent(self, seconds: float) -> ClusterConfigError:
        """The error where it does not answer."""
        words = N_("{worker} has ended or did not answer for {seconds:g} s: {remedy}")
        return ClusterConfigError(_(words, worker=self.name, seconds=seconds, remedy=self.remedy))

    @property
    def idle(self) -> bool:
        return self.lost is None and self.running is None

    def ask(self, do: str, seconds: float = 5.0, **more: Any) -> Message | None:
        """What the control thread answers, within so many seconds; None where the worker has ended."""
        control = self.links.get("control")
        if control is None or self.lost is not None:
            return None
        number, deadline = time.monotonic_ns(), time.monotonic() + seconds
        control.send({"do": do, "id": number, **more})
        while (answer := control.next(max(0.0, deadline - time.monotonic()))) is not None:
            if answer["id"] == number:
                return answer
        return None


@dataclass
class Started:
    """A cluster's processes. specs: what each worker was started with, for one in its place.

    listener: the socket in the session's directory where workers call; also one that comes later, in another's place.
    """

    job: RunJob
    folder: RunFolder
    clock: float
    configs: list[dict[str, Any]]
    specs: list[WorkerSpec]
    source: ParentProcess
    listener: socket.socket
    peers: list[Peer] = field(default_factory=list)


def checked(workers: Any, replicas: Any, seed: Any, keras: Any, start: str) -> RunJob:
    """The job of a cluster; ClusterConfigError where it can't be."""
    request.check_sizes(workers, replicas, here=True)
    if environment.on_colab() and workers > 1:
        words = _("workers={workers}: Colab has room for one", workers=workers)
        raise ClusterConfigError(words, remedy="dtk.cluster(workers=1, replicas=2)")
    job = RunJob(
        payload=ship.pack(serve, (min(idle_seconds(), MOST_SECONDS),), {}),
        **request.of_each_job(serve, seed, keras, start, None, record=False),
        workers=workers,
        replicas=replicas,
        mode="mirrored" if workers == 1 < replicas else "cluster",
        share=workers,
    )
    request.check_memory(workers, job.fork)
    return job


def start(job: RunJob) -> Started:
    """Starts the workers and waits until each is ready. Whatever ends this, none is left that is not in the result."""
    clock = time.monotonic()
    say_ignored()
    folder = launch.new_folder(job)
    return on_free_ports(folder, lambda: _started(job, folder, clock))


def _started(job: RunJob, folder: RunFolder, clock: float) -> Started:
    source = Localhost().open(job, folder, lambda: None)
    configs, specs = launch.specs(job, folder, source, clock)
    started = Started(job, folder, clock, configs, specs, source, wire.listen(folder.path / wire.SOCKET))
    try:
        _bring_up(started, range(job.workers))
    except BaseException:
        end(started)
        raise
    return started


def replace(started: Started, number: int) -> None:
    """Starts another process in the place of a worker: with its TF_CONFIG, its seeds, its corner of the directory."""
    kill(started, [started.peers[number]])
    _bring_up(started, [number], again=True)


def end(started: Started) -> None:
    """Kills all, and waits until they are gone."""
    kill(started, started.peers)
    started.listener.close()
    (started.folder.path / wire.SOCKET).unlink(missing_ok=True)


def kill(started: Started, peers: list[Peer]) -> None:
    """SIGKILL, and waits until they are gone; their connections are closed."""
    keys = [peer.key for peer in peers]
    started.source.kill_and_wait(keys, KILL_SECONDS)
    started.source.forget(keys)
    for peer in peers:
        peer.lost, peer.running = -signal.SIGKILL, None
        for link in peer.links.values():
            link.close()


def _bring_up(started: Started, numbers: Sequence[int], again: bool = False) -> None:
    """Starts these workers, and waits until they have called, which they do when they have a strategy.

    again: others were there before, and what they wrote stays; what these record does not go on from there.
    """
    for number in numbers:
        peer = Peer(number, f"{started.folder.path.name}-{time.monotonic_ns()}-cells-{number}")
        started.source.start(peer.key, {**started.specs[number], "again": again})
        started.source.wait_started([peer.key])
        started.peers[number : number + 1] = [peer]
    peers, deadline = [started.peers[number] for number in numbers], time.monotonic() + START_SECONDS
    while late := [peer for peer in peers if len(peer.links) < 2]:
        sources: list[Any] = [started.listener, started.source]
        select.select(sources, [], [], 0.1)
        while select.select([started.listener], [], [], 0)[0]:
            caller = Wire(started.listener.accept()[0])
            hello = caller.next(_HELLO_SECONDS)  # it says first who it is
            if hello is None:
                caller.close()
            else:
                started.peers[hello["worker"]].links[hello["channel"]] = caller
        if ended := lost(started, peers):
            watch = Watch(started.folder, started.clock)
            watch.take_exits({peer.number: started.source.exited[peer.key] for peer in ended})
            raise error_of(watch, blame_of(watch, [], 0.0, lambda: None))
        if time.monotonic() > deadline:
            what = N_("{worker} was not ready after {seconds:g} s; the end of its log: {log}")
            log = " / ".join(started.folder.worker(late[0].number).log_end(5))
            said = _(what, worker=late[0].name, seconds=START_SECONDS, log=log)
            raise WorkerFailed(said, worker=late[0].number, folder=started.folder)


def gone(started: Started) -> bool:
    """Whether no worker is left, as after an hour without a cell."""
    started.source.poll(0)
    ended = all(peer.lost is not None or peer.key in started.source.exited for peer in started.peers)
    return ended or not started.source.lives()


def lost(started: Started, peers: Sequence[Peer]) -> list[Peer]:
    """Those of these workers that have ended since the last look."""
    source = started.source
    source.poll(0)
    if not source.lives():
        words = N_("the process that the workers were forked from has ended, and they with it; make a new cluster")
        raise DtkError(_(words))
    found = [peer for peer in peers if peer.lost is None and peer.key in source.exited]
    for peer in found:
        peer.lost, peer.running = source.exited[peer.key][0], None
    return found
