"""From a job to worker processes and back: ports, start, the wait for the end, and the end itself."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from dtk import environment
from dtk.cluster import ship, tf_config
from dtk.cluster.warm import ParentProcess, parent
from dtk.cluster.watch import Progress, Watch, port_was_taken
from dtk.errors import RunTimeout, WorkerFailed, WorkerStalled
from dtk.records import RunFolder

__all__ = ["Job", "free_ports", "launch", "new_folder"]

PORT_ATTEMPTS = 3
KEPT_RUNS = 100  # directories of earlier runs that stay; older ones make room
KILL_SECONDS = 2.0
GRACE_SECONDS = 0.6  # how long a failure that reads like a consequence waits for its cause to show itself
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "ftp_proxy", "grpc_proxy")

Tick = Callable[[list[str]], None]


@dataclass(frozen=True)
class Job:
    """What is to be run, checked and packed: nothing in it can be wrong in a way that is found only later."""

    payload: bytes
    workers: int
    replicas: int
    mode: str
    seed: int | None
    keras: int | None
    strategy: bool
    share: int  # processes that the cores are divided among
    fork: bool
    timeout: float | None
    stall_timeout: float | None


def launch(job: Job, folder: RunFolder, clock: float, tick: Tick) -> list[dict[str, Any]]:
    """Runs the job to its end and returns the TF_CONFIGs; raises WorkerFailed, WorkerStalled or RunTimeout.

    `tick` is called about ten times a second with each worker's state. Whatever ends this call, an interrupt
    included, the workers are gone when it returns.
    """
    with _in_use(folder):
        return _attempts(job, folder, clock, tick)


def _attempts(job: Job, folder: RunFolder, clock: float, tick: Tick) -> list[dict[str, Any]]:
    source = parent(job.fork)
    source.wait_ready(lambda: tick(["starting"] * job.workers))
    for attempt in range(1, PORT_ATTEMPTS + 1):
        configs = tf_config.build(free_ports(job.workers)) if job.mode == "cluster" else []
        specs = [_spec(job, folder, clock, k, configs[k] if configs else None) for k in range(job.workers)]
        try:
            with _Workers(source, folder, specs, clock) as workers:
                _wait(workers, job, clock, tick)
            return configs
        except WorkerFailed:
            if attempt == PORT_ATTEMPTS or not port_was_taken(folder):
                raise
            _set_aside(folder, attempt)
    raise AssertionError("unreachable: the last attempt returns or raises")


def new_folder(job: Job) -> RunFolder:
    """A fresh directory (mode 0700) with what the workers need to begin."""
    runs = environment.scratch() / "runs"
    runs.mkdir(mode=0o700, exist_ok=True)
    _make_room(runs)
    began = datetime.now().strftime("%Y%m%d-%H%M%S-%f-")  # names in the order of time: the oldest make room
    path = Path(tempfile.mkdtemp(prefix=began, dir=runs))
    (path / "function.pkl").write_bytes(job.payload)
    (path / "sources.json").write_text(json.dumps(ship.cell_sources()))
    return RunFolder(path, job.workers)


@contextlib.contextmanager
def _in_use(folder: RunFolder) -> Iterator[None]:
    """Locks the directory while the run lasts, so that no other kernel makes room there; ends with this process."""
    descriptor = os.open(folder.path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def _make_room(runs: Path) -> None:
    kept = sorted(runs.iterdir(), key=lambda path: path.name)
    for path in kept[: max(0, len(kept) - KEPT_RUNS)]:
        with contextlib.suppress(OSError):  # a run that is going on, or another kernel was quicker
            descriptor = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)


def free_ports(count: int) -> list[int]:
    """Ports that are free now on every interface (TensorFlow binds them all); another program may still be quicker."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def _spec(job: Job, folder: RunFolder, clock: float, worker: int, config: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "dir": str(folder.path),
        "worker": worker,
        "workers": job.workers,
        "replicas": job.replicas,
        "mode": job.mode,
        "clock": clock,
        "seed": job.seed,
        "strategy": job.strategy,
        "env": {**_environment(job, config), "TMPDIR": str(folder.worker(worker).path / "tmp")},
        "cwd": os.getcwd(),
        "sys_path": _sys_path(),
    }


def _environment(job: Job, config: dict[str, Any] | None) -> dict[str, str]:
    """The kernel's environment without its TF_CONFIG and proxies, with a fair share of the cores."""
    # gRPC would send the workers' own traffic to a proxy, and both would hang without a word.
    proxies = {name: value for name, value in os.environ.items() if name.lower() in _PROXIES}
    env = {name: value for name, value in os.environ.items() if name not in proxies and name != "TF_CONFIG"}
    env["DTK_PROXIES"] = json.dumps(proxies)  # for downloads, which do need them
    threads = str(max(1, environment.cores() // job.share))
    env["DTK_SCRATCH"] = str(environment.scratch())
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
        env.setdefault(name, threads)
    if config is not None:
        env["TF_CONFIG"] = json.dumps(config)
    if job.keras is not None:
        env["TF_USE_LEGACY_KERAS"] = "1" if job.keras == 2 else "0"
    return env


def _sys_path() -> list[str]:
    import sys

    # "" means the directory one is in; a worker that changes directory would lose the modules beside the notebook.
    return [path or os.getcwd() for path in sys.path]


class _Workers:
    """The worker processes of one attempt. Leaving the `with` block kills them and waits until they are gone."""

    def __init__(self, source: ParentProcess, folder: RunFolder, specs: list[dict[str, Any]], clock: float):
        self.source, self.folder, self.specs = source, folder, specs
        self.keys = [f"{folder.path.name}-{time.monotonic_ns()}-worker-{k}" for k in range(len(specs))]
        self.watch = Watch(folder, clock)

    def __enter__(self) -> _Workers:
        try:
            for key, spec in zip(self.keys, self.specs, strict=True):
                self.source.start(key, spec)
        except BaseException:  # interrupted half-way: those that did start must go
            self.close()
            raise
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.source.kill(self.keys)
        deadline = time.monotonic() + KILL_SECONDS
        while any(key not in self.source.exited for key in self.keys) and self.source.lives():
            if time.monotonic() > deadline:
                self.source.close()  # takes all its workers with it; the next run starts a new parent
                break
            self.source.poll(0.05)
        self.source.forget(self.keys)

    def look(self, seconds: float) -> None:
        """Takes in what happened, waiting up to `seconds` for the end of a process."""
        self.source.poll(seconds)
        exits = {k: self.source.exited[key] for k, key in enumerate(self.keys) if key in self.source.exited}
        if not self.source.lives():
            now = time.monotonic()  # killed from outside; the system kills its workers along with it
            exits = {k: exits.get(k, (-signal.SIGKILL, now)) for k in range(len(self.keys))}
        self.watch.look(exits)

    @property
    def pids(self) -> list[int]:
        started, exited = self.source.started, self.source.exited
        return [started[key] for key in self.keys if key in started and key not in exited]

    def stacks(self) -> str:
        """Each living worker's Python stack, also of one that is deep inside a collective."""
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)
        self.look(0.0)
        time.sleep(0.3)  # the handlers write to files; there is no event to wait for
        texts = []
        for k, worker in enumerate(self.folder.each):
            file = worker.path / "stacks.txt"
            stack = file.read_text(errors="replace").rstrip() if file.exists() else ""
            texts.append(f"worker {k} is {self.watch.states()[k]}:\n{stack or '  (no stack: it is not running)'}")
        return "\n\n".join(texts)


def _wait(workers: _Workers, job: Job, clock: float, tick: Tick) -> None:
    progress = Progress(workers.folder, time.monotonic())
    for now in _ticks(workers, tick):
        watch = workers.watch
        if watch.culprit() is not None:
            raise _failure(workers)
        if watch.finished:
            return
        if job.timeout is not None and now - clock > job.timeout:
            message = f"the run was stopped after its timeout of {job.timeout:g} s; states: {_count(watch.states())}"
            raise RunTimeout(message, workers.folder, workers.stacks())
        limit = job.stall_timeout
        if limit is not None and progress.quiet_seconds(workers.pids, now) > limit:
            message = f"no worker made progress for {limit:g} s; states: {_count(watch.states())}"
            raise WorkerStalled(message, workers.folder, workers.stacks())


def _ticks(workers: _Workers, tick: Tick) -> Iterator[float]:
    drawn = 0.0
    while True:
        workers.look(0.03)
        now = time.monotonic()
        if now - drawn >= 0.1 or workers.watch.finished:
            tick(workers.watch.states())
            drawn = now
        yield now


def _failure(workers: _Workers) -> WorkerFailed:
    watch = workers.watch
    deadline = time.monotonic() + GRACE_SECONDS
    # A raise is written down before the process ends: wait for the exit code, for a cause behind a consequence,
    # and for the others to raise the same where it is a mistake in the function and not in one worker.
    while time.monotonic() < deadline:
        lanes, culprit = watch.lanes, watch.culprit()
        alone = culprit == 0 or time.monotonic() > deadline - GRACE_SECONDS / 2
        if culprit is not None and lanes[culprit].exited and not watch.is_consequence(culprit) and alone:
            break
        workers.look(0.02)
    culprit = watch.culprit()
    assert culprit is not None, "a failure was seen before"
    return watch.failure(culprit)


def _count(states: list[str]) -> str:
    return ", ".join(f"worker {k} {state}" for k, state in enumerate(states))


def _set_aside(folder: RunFolder, attempt: int) -> None:
    """Keeps what a failed attempt wrote, out of the way of the next."""
    aside = folder.path / f"attempt-{attempt}"
    aside.mkdir(mode=0o700)
    for worker in folder.each:
        if worker.path.exists():
            worker.path.rename(aside / worker.path.name)
