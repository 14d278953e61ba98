"""From a request to workers that stay: checked, started as a run's workers are, connected."""

from __future__ import annotations

import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dtk import environment
from dtk.errors import ClusterConfigError, WorkerFailed
from dtk.interactive.peers import Peer, admit, lost
from dtk.interactive.serve import serve
from dtk.language import N_, _
from dtk.launch import launch, request, tf_config
from dtk.launch.folders import on_free_ports
from dtk.launch.launch import Job
from dtk.launch.links import Links
from dtk.launch.place import Place, Site, here
from dtk.records import RunFolder
from dtk.watch import explain
from dtk.worker import ship, wire
from dtk.worker.spec import WorkerSpec

__all__ = ["Started", "checked", "end", "kill", "replace", "start"]

START_SECONDS = 60.0


@dataclass
class Started:
    """A cluster's processes. specs: what each worker was started with, for one in its place."""

    job: Job
    folder: RunFolder
    clock: float
    site: Site
    links: Links
    peers: list[Peer]
    specs: list[WorkerSpec] = field(default_factory=list)
    configs: list[dict[str, Any]] = field(default_factory=list)


def checked(workers: Any, replicas: Any, seed: Any, keras: Any, start: str, isolate: bool | None, on: Any) -> Job:
    """The job of a cluster; ClusterConfigError where it can't be."""
    localhost = here(on, isolate)
    request.check_sizes(workers, replicas, localhost is not None)
    if localhost and environment.on_colab() and workers > 1:
        words = _("workers={workers}: Colab has room for one", workers=workers)
        raise ClusterConfigError(words, remedy="dtk.cluster(workers=1, replicas=2)")
    job = Job(
        payload=b"",
        **request.of_each_job(serve, seed, keras, start, None, record=False, force=localhost is None),
        workers=workers,
        replicas=replicas,
        mode="mirrored" if workers == 1 < replicas else "cluster",
        share=workers,
        stall_timeout=None,
        place=localhost or _elsewhere(on),
    )
    request.check_memory(workers, job.fork, force=localhost is None)
    return job


def _elsewhere(on: Any) -> Place:
    from dtk import places  # with what speaks to Ray and Slurm, which a cluster here does without

    return places.named(on)


def start(job: Job) -> Started:
    """Starts the workers and waits until each is ready. Whatever ends this, none is left that is not in the result."""
    clock = time.monotonic()
    tf_config.notice()
    folder = launch.new_folder(job)
    (folder.path / "function.pkl").write_bytes(ship.pack(serve, (), {}))
    try:
        return on_free_ports(folder, lambda: _started(job, folder, clock))
    except BaseException:
        job.place.end(folder)
        raise


def _started(job: Job, folder: RunFolder, clock: float) -> Started:
    site = job.place.open(job, folder, lambda: None)
    configs = tf_config.build(site.addresses()) if job.mode == "cluster" else []
    given = dict(enumerate(configs))
    started = Started(job, folder, clock, site, site.links(), [], configs=configs)
    try:
        for member in folder.each:
            spec = launch.spec(job, site.machine(member.worker), clock, member, given.get(member.worker))
            spec["env"][wire.DOOR] = str(folder.path / "door")  # elsewhere the agent has one of its own
            started.specs.append(spec)
            started.peers.append(_process(started, member.worker))
        _connect(started, started.peers)
    except BaseException:
        _stop(started)
        raise
    return started


def replace(started: Started, number: int) -> Peer:
    """Another process in the place of a worker: with its TF_CONFIG, its seeds, its corner of the directory."""
    old = started.peers[number]
    started.site.source.poll(0)
    gone = started.site.lost().get(number)
    if gone:
        host = started.site.machine(number).host
        words = N_("worker {worker} on {host} {gone}; close() this cluster: a new one takes other machines")
        raise ClusterConfigError(_(words, worker=number, host=host, gone=gone))
    kill(started, [old])
    old.close()
    peer = _process(started, number, again=True)
    started.peers[number] = peer
    _connect(started, [peer])
    return peer


def end(started: Started) -> None:
    """Kills all, waits until they are gone, and brings back what they wrote elsewhere."""
    _stop(started)
    started.job.place.end(started.folder)


def _stop(started: Started) -> None:
    kill(started, started.peers)
    for peer in started.peers:
        peer.close()
    started.links.close()


def _process(started: Started, number: int, again: bool = False) -> Peer:
    """again: another one was there before, and what it wrote stays."""
    source = started.site.source
    peer = Peer(number, f"{started.folder.path.name}-{time.monotonic_ns()}-cells-{number}")
    # What another worker in its place records does not go on where the one before has ended.
    source.start(peer.key, {**started.specs[number], "again": again, "states": not again})
    source.wait_started([peer.key])
    return peer


def kill(started: Started, peers: list[Peer]) -> None:
    """SIGKILL, and waits until they are gone."""
    source, keys = started.site.source, [peer.key for peer in peers]
    source.kill(keys)
    _until(lambda: all(key in source.exited for key in keys) or not source.lives(), source.poll, 4.0)
    source.forget(keys)
    for peer in peers:
        peer.lost, peer.running = -signal.SIGKILL, None


def _until(done: Callable[[], bool], wait: Callable[[float], None], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        wait(0.02)
    return True


def _connect(started: Started, peers: list[Peer]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not all(peer.ready for peer in peers):
        links: list[Any] = [peer.cells for peer in peers if peer.cells is not None]
        select.select([started.links, *links, started.site.source], [], [], 0.1)
        admit(started.links, started.peers)
        for peer in peers:  # asked, and not by select alone: what came with the first line is read already
            while peer.cells is not None and (message := peer.cells.next(0)) is not None:
                peer.ready = peer.ready or "ready" in message
        started.site.source.poll(0)
        for peer in lost(peers, started.site):
            raise _failed(started, peer)
        if time.monotonic() > deadline:
            late = ", ".join(peer.name for peer in peers if not peer.ready)
            log = started.folder.worker(next(peer.number for peer in peers if not peer.ready)).log_end(5)
            words = _(
                "{worker} was not ready after {seconds:g} s; the end of its log: {log}",
                worker=late,
                seconds=START_SECONDS,
                log=" / ".join(log),
            )
            raise WorkerFailed(words, worker=peers[0].number, folder=started.folder)


def _failed(started: Started, peer: Peer) -> WorkerFailed:
    corner = started.folder.worker(peer.number)
    error = corner.error
    words = (
        explain.in_one_sentence(error["type"], error["message"]) if error else explain.exit_in_words(peer.lost or None)
    )
    trace = error["traceback"] if error else "\n".join(corner.log_end(15))
    what = f"{peer.name} {peer.gone or words}"
    return WorkerFailed(what, worker=peer.number, exitcode=peer.lost, traceback=trace, folder=started.folder)
