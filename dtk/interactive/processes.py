"""The processes of a cluster that stays: checked, started as a run's workers are, connected, replaced and ended."""

from __future__ import annotations

import select
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dtk import environment
from dtk.errors import ClusterConfigError, DtkError, WorkerFailed
from dtk.interactive import serve
from dtk.language import N_, _
from dtk.launch import launch, request, tf_config
from dtk.launch.agent import MODULES
from dtk.launch.folders import on_free_ports
from dtk.launch.launch import Job
from dtk.launch.links import Link, Links
from dtk.launch.place import Place, Site, here
from dtk.records import RunFolder
from dtk.view.palette import worker_name
from dtk.watch import explain
from dtk.worker import local_modules, ship, wire
from dtk.worker.spec import WorkerSpec
from dtk.worker.wire import Message

__all__ = ["Peer", "Started", "checked", "end", "kill", "lost", "replace", "send_files", "send_modules", "start"]

START_SECONDS, KILL_SECONDS = 60.0, 4.0


@dataclass
class Peer:
    """A worker. key: its process's, for the source that started it; cells, control: the two connections.

    running: the cell that it is in; None between cells.
    lost: its exit code, when it has ended. gone: what is said of its machine, where that is lost.
    """

    number: int
    key: str
    cells: Link | None = None
    control: Link | None = None
    ready: bool = False
    running: int | None = None
    lost: int | None = None
    gone: str = ""

    @property
    def name(self) -> str:
        return worker_name(self.number)

    @property
    def remedy(self) -> str:
        """When it has ended."""
        if self.gone:
            return _("close() this cluster; a new one takes other machines")
        return _("{call} replaces it", call=f"cluster.restart(worker={self.number})")

    @property
    def idle(self) -> bool:
        return self.lost is None and self.running is None

    def say(self, message: Message) -> None:
        """Sends the main thread a message."""
        assert self.cells is not None, "it is ready"
        self.cells.send(message)

    def ask(self, do: str, seconds: float = 5.0, **more: Any) -> Message | None:
        """What the control thread answers, within so many seconds; None where the worker has ended."""
        if self.control is None or self.lost is not None:
            return None
        number, deadline = time.monotonic_ns(), time.monotonic() + seconds
        self.control.send({"do": do, "id": number, **more})
        while (answer := self.control.next(max(0.0, deadline - time.monotonic()))) is not None:
            if answer["id"] == number:
                return answer
        return None

    def close(self) -> None:
        for link in (self.cells, self.control):
            if link is not None:
                link.close()


@dataclass
class Started:
    """A cluster's processes. specs: what each worker was started with, for one in its place."""

    job: Job
    folder: RunFolder
    clock: float
    site: Site
    links: Links
    configs: list[dict[str, Any]]
    peers: list[Peer] = field(default_factory=list)
    specs: list[WorkerSpec] = field(default_factory=list)


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
    started = Started(job, folder, clock, site, site.links(), configs)
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


def replace(started: Started, number: int) -> None:
    """Starts another process in the place of a worker: with its TF_CONFIG, its seeds, its corner of the directory."""
    old = started.peers[number]
    started.site.source.poll(0)
    gone = started.site.lost().get(number)
    if gone:
        host = started.site.machine(number).host
        words = N_("worker {worker} on {host} {gone}; close() this cluster: a new one takes other machines")
        raise ClusterConfigError(_(words, worker=number, host=host, gone=gone))
    kill(started, [old])
    old.close()
    started.peers[number] = _process(started, number, again=True)
    _connect(started, [started.peers[number]])


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
    deadline = time.monotonic() + KILL_SECONDS
    while not all(key in source.exited for key in keys) and source.lives() and time.monotonic() < deadline:
        source.poll(0.02)
    source.forget(keys)
    for peer in peers:
        peer.lost, peer.running = -signal.SIGKILL, None


def _connect(started: Started, peers: list[Peer]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while late := [peer for peer in peers if not peer.ready]:
        links: list[Any] = [peer.cells for peer in peers if peer.cells is not None]
        select.select([started.links, *links, started.site.source], [], [], 0.1)
        _admit(started)
        for peer in peers:  # asked, and not by select alone: what came with the first line is read already
            while peer.cells is not None and (message := peer.cells.next(0)) is not None:
                peer.ready = peer.ready or "ready" in message
        for peer in lost(started, peers):
            raise _failed(started, peer)
        if time.monotonic() > deadline:
            words = _(
                "{worker} was not ready after {seconds:g} s; the end of its log: {log}",
                worker=late[0].name,
                seconds=START_SECONDS,
                log=" / ".join(started.folder.worker(late[0].number).log_end(5)),
            )
            raise WorkerFailed(words, worker=late[0].number, folder=started.folder)


def _admit(started: Started) -> None:
    """Takes in the workers that have called."""
    for worker, channel, link in started.links.calls():
        if not 0 <= worker < len(started.peers):
            link.close()
        elif channel == "control":
            started.peers[worker].control = link
        else:
            started.peers[worker].cells = link


def _failed(started: Started, peer: Peer) -> WorkerFailed:
    corner = started.folder.worker(peer.number)
    error = corner.error
    words = (
        explain.in_one_sentence(error["type"], error["message"]) if error else explain.exit_in_words(peer.lost or None)
    )
    trace = error["traceback"] if error else "\n".join(corner.log_end(15))
    what = f"{peer.name} {peer.gone or words}"
    return WorkerFailed(what, worker=peer.number, exitcode=peer.lost, traceback=trace, folder=started.folder)


def lost(started: Started, peers: Sequence[Peer]) -> list[Peer]:
    """Those of these workers that have ended since the last look."""
    site = started.site
    site.source.poll(0)
    if not site.source.lives():
        words = N_("the process that the workers were forked from has ended, and they with it; make a new cluster")
        raise DtkError(_(words))
    found, gone = [], site.lost()
    for peer in peers:
        if peer.lost is None and (peer.key in site.source.exited or peer.number in gone):
            peer.lost, peer.running = site.source.exited.get(peer.key, (-signal.SIGKILL, 0))[0], None
            if peer.number in gone:
                peer.gone = _("on {host} {what}", host=site.machine(peer.number).host, what=gone[peer.number])
            found.append(peer)
    return found


# ---- what a cell or a function needs, on workers that see no file of this machine


def send_files(started: Started, workers: Sequence[int], names: Sequence[str]) -> None:
    """Files of the session's directory."""
    for worker in workers:
        for name in names:
            started.links.put(worker, name)


def send_modules(started: Started, workers: Sequence[int], code: str | bytes) -> None:
    """The learner's own modules that a cell imports, or that a pickled function may import."""
    if started.links.here:
        return
    from IPython.core.inputtransformer2 import TransformerManager

    if isinstance(code, bytes):
        names: Iterable[str] = local_modules.named(code)
    else:
        names = local_modules.imports(TransformerManager().transform_cell(code), "cell.py")
    for path, source in local_modules.modules(names).items():
        file = started.folder.path / MODULES / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(source)
        send_files(started, workers, [f"{MODULES}/{path}"])
