"""`dtk.cluster`: workers that stay, cell by cell."""

from __future__ import annotations

import math
import threading
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dtk import environment, runs
from dtk.errors import ClusterConfigError, RunInterrupted
from dtk.interactive import cells, processes, repair
from dtk.interactive.inspection import table
from dtk.interactive.output import workers_in_words
from dtk.interactive.session import CellOutcome, Session
from dtk.language import N_, _, ngettext
from dtk.launch import launch
from dtk.launch.launch import Job
from dtk.launch.warm import idle_seconds
from dtk.runs import Run
from dtk.view.cluster_picture import ClusterPicture
from dtk.worker import ship

if TYPE_CHECKING:
    import pandas

__all__ = ["Cluster", "cluster", "run_magic"]

_open: Cluster | None = None
_ended = ""  # why the last one is not open any more


class Cluster:
    """Workers that stay: `dtk.cluster` makes one. A cell runs on all workers at once, and what it made is kept there.

    In a notebook, `%%workers` before a cell sends it to all workers, `%%worker 1` to one. `strategy` is in their
    namespace; the seed is that of `dtk.run`. What they print is labelled; equal output of several stands once.
    """

    def __init__(self, started: processes.Started):
        self._session = Session(started)
        self._lock = threading.RLock()  # held while a cell runs
        self._closed = ""
        self._stop = threading.Event()
        if not math.isinf(limit := idle_seconds()):
            threading.Thread(target=self._end_when_idle, args=(limit,), daemon=True, name="dtk-cluster").start()

    @property
    def workers(self) -> int:
        """How many."""
        return self._session.started.job.workers

    def __repr__(self) -> str:
        state = self._closed or "open"
        return f"<Cluster workers={self.workers} cells={self._session.number} {state}>"

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def run(self, what: str | Callable[..., Any], workers: Sequence[int] | None = None) -> list[Any]:
        """Runs code, or calls a function, on all workers or on these; returns one value a worker.

        Args:
            what: code, whose value is that of its last line, if that is an expression; or a function without
                arguments but `strategy`, which dtk fills. What it names and the notebook has not, the worker's
                namespace gives.
            workers: their numbers; None: all.

        Returns:
            The values in the order of the workers; tensors come as arrays, and what can't travel as its `repr`.

        Raises:
            CellFailed: the cell raised, or can't come to its end, on a worker; the cluster stays open.
            ClusterConfigError: it could not be sent; nothing was.
        """
        targets = self._targets(workers)
        return cells.values(self._session, self._send(what, targets, value=True).ends, targets)

    def cell(self, code: str, workers: Sequence[int] | None = None) -> None:
        """What the magics call: as `run`, without values."""
        self._send(code, self._targets(workers), value=False)

    def pull(self, code: str, workers: Sequence[int] | None = None) -> list[Any]:
        """The value of an expression on each worker: of a variable or a model this worker's own copies, as arrays.

        Args:
            code: a name, or an expression; one that takes an all-reduce is refused. Of a worker that waits or is held
                in a cell names alone, such as "model.weights[0]", as they are there.
            workers: their numbers; None: all.

        Returns:
            The values in the order of the workers; of a model a dictionary, {name of the weight: array}; of what
            several replicas of a worker have a list.
        """
        with self._lock:
            self._check_open()
            return cells.pull(self._session, self._targets(workers), code)

    def inspect(self) -> pandas.DataFrame:
        """A table of what the namespaces hold: name, shape, a digest for each worker, and whether the workers differ.

        Reads each worker's own copies and takes no all-reduce, so that it also works while a worker waits in one; then
        what is local to the functions that it is in comes first, named "loss in step()".
        """
        with self._lock:
            self._check_open()
            living = [peer for peer in self._session.peers if peer.lost is None]
            return table({peer.number: (peer.ask("look") or {}).get("rows", []) for peer in living})

    def sync(self, *names: str, from_worker: int = 0) -> str:
        """Gives all workers one worker's variables, and says whether replicas are equal then.

        Args:
            names: of models, optimizers, variables, in the workers' namespaces, such as "model"; none: everything that
                is to be equal on all workers.
            from_worker: whose.
        """
        with self._lock:
            self._check_idle("sync")
            (giver,) = self._targets([from_worker])
            return repair.sync(self._session, list(names), giver)

    def restart(self, worker: int) -> str:
        """Gives a worker a new process, and says what it has and lacks; the others keep what they have.

        The cells that went through run again there, up to the first all-reduce of each; plain values that it lacks, and
        all variables, come from another worker. Iterators begin anew.
        """
        with self._lock:
            self._check_open()
            (number,) = self._targets([worker])
            busy = [peer.number for peer in self._session.running() if peer.number != number]
            if busy:
                raise ClusterConfigError(_busy("restart", busy))
            return repair.restart(self._session, number)

    def pause(self) -> str:
        """From now on the workers of a cell are held before each collective: `step` lets them through one."""
        with self._lock:
            self._check_open()
            self._session.hold()
            return _("each cell is held before its first collective; step() lets it through one, resume() through all")

    def step(self) -> None:
        """Lets the workers that are held through one collective, all the same."""
        with self._lock:
            self._check_open()
            if len(self._session.idle()) == self.workers:
                words = _("step: no worker is held; cluster.pause() holds those of the next cell")
                raise ClusterConfigError(words)
            self._session.step()
            self._await()

    def resume(self) -> None:
        """Lets the workers that are held go on to their cell's end."""
        with self._lock:
            self._check_open()
            self._session.open()
            self._await()

    def so_far(self) -> Run:
        """What `dtk.Recorder` and `dtk.record_step` recorded so far, as a `dtk.Run`; the session goes on."""
        with self._lock:
            self._check_idle("so_far")
            started, folder = self._session.started, launch.new_folder(self._job())  # a directory of its own
            file = f"so-far-{time.monotonic_ns()}.zip"
            self._session.do("snapshot", file=file)
            for worker in folder.each:
                path = started.folder.path / worker.path.name / file
                with zipfile.ZipFile(path) as archive:
                    archive.extractall(worker.path)
                path.unlink()
            seconds = time.monotonic() - started.clock
            folder.save_attempt(1, None, 0.0, seconds)
            job, picture = started.job, ClusterPicture(started.configs)
            return Run(folder, job.mode, job.replicas, job.seed, [None] * job.workers, seconds, picture)

    def baseline(self) -> Run:
        """The session's cells once more, in one process on one device: what `dtk.verify` compares `so_far()` with.

        It has one worker's share of the cores, and is seeded as the workers were. A cell that ended with an error, or
        was interrupted, ends there after as many recorded steps. Left out are functions, and what ran on single workers
        alone; a line says so.
        """
        with self._lock:
            job, left = self._job(), self._session.history.to_replay()[1]
            if left:
                words = ngettext(
                    "the baseline is without cell {cells}: functions, and what ran on single workers alone",
                    "the baseline is without cells {cells}: functions, and what ran on single workers alone",
                    len(left),
                    cells=_(", ").join(map(str, left)),
                )
                environment.say(words)
            return runs.carry_out(replace(job, workers=1, replicas=1, mode="single"), time.monotonic())

    def free(self) -> str:
        """Ends the cells that wait in a collective, makes collectives usable again, compares replicas, says how."""
        with self._lock:
            self._check_open()
            if not self._session.running():
                return f"{_('no worker is in a cell')}; {repair.compare(self._session)}"
            return repair.free(self._session)

    def close(self) -> None:
        """Ends the workers. A second time it does nothing."""
        self._end(_("closed: dtk.cluster() makes a new one"))

    # ---- how

    def _send(self, what: Any, targets: list[int], value: bool) -> CellOutcome:
        with self._lock:
            self._check_open()
            if isinstance(what, str):
                message = {"do": "cell", "code": cells.checked(what)}
            elif callable(what):
                message = cells.function(self._session, what)
            else:
                raise ClusterConfigError(_("run({what!r}): it takes code as a string, or a function", what=what))
            self._session.send(targets, {**message, "value": value})
            return self._await()

    def _await(self) -> CellOutcome:
        session = self._session
        try:
            outcome = session.wait()
        except KeyboardInterrupt:
            freed = repair.interrupt(session)
            words = _("cell {cell} was interrupted: {how}", cell=session.number, how=freed)
            raise RunInterrupted(words, session.started.folder) from None
        cells.say_unlike(session, outcome)
        if outcome.held and not outcome.waits:
            cells.say_held(session, outcome)
        if not (outcome.errors or outcome.lost or outcome.waits):
            return outcome
        differing = ""
        if len(session.idle()) == self.workers:
            settled = repair.settle(session, enable=any(end["op"] for end in outcome.errors.values()))
            differing = str(settled) if settled.differing else ""
        raise cells.error_of(session, outcome, differing)

    def _job(self) -> Job:
        """The session's cells as a run's function."""
        from dtk.interactive.shell import replay  # with IPython, which a kernel need not have loaded

        found = self._session.history.to_replay()[0]
        return replace(self._session.started.job, payload=ship.pack(replay, (found,), {}), strategy=True)

    def _targets(self, asked: Sequence[int] | int | None) -> list[int]:
        """Which workers are asked for, in their order; None: all."""
        found = list(range(self.workers)) if asked is None else [asked] if isinstance(asked, int) else list(asked)
        for worker in found:
            if isinstance(worker, bool) or not isinstance(worker, int) or not 0 <= worker < self.workers:
                there = N_("worker {worker}: the workers are 0 to {last}")
                if self.workers == 1:
                    there = N_("worker {worker}: there is worker 0 only")
                raise ClusterConfigError(_(there, worker=worker, last=self.workers - 1))
        return sorted({*found})

    def _check_idle(self, who: str) -> None:
        self._check_open()
        busy = [peer.number for peer in self._session.peers if not peer.idle]
        if busy:
            raise ClusterConfigError(_busy(who, busy))

    def _check_open(self) -> None:
        if self._closed:
            raise ClusterConfigError(_("this cluster is {state}", state=self._closed))

    def _end_when_idle(self, limit: float) -> None:
        """Ends a cluster that nobody uses, as a warm parent that is idle so long: its memory is other people's too."""
        while not self._stop.wait(min(limit, max(0.1, limit - (time.monotonic() - self._session.used)))):
            with self._lock:
                if time.monotonic() - self._session.used >= limit:
                    words = N_("ended: no cell came for {limit:g} s (DTK_WARM_IDLE); dtk.cluster() makes a new one")
                    self._end(_(words, limit=limit))

    def _end(self, why: str) -> None:
        global _open, _ended
        with self._lock:
            if self._closed:
                return
            self._closed = why
            self._stop.set()
            processes.end(self._session.started)
            if _open is self:
                _open, _ended = None, why


def _busy(who: str, busy: Sequence[int]) -> str:
    return ngettext(
        "{who}: {workers} is in a cell or has ended; cluster.free() frees those that wait",
        "{who}: {workers} are in a cell or have ended; cluster.free() frees those that wait",
        len(busy),
        who=who,
        workers=workers_in_words(busy),
    )


def cluster(
    workers: int = 2,
    replicas: int = 1,
    seed: int | None = 0,
    keras: int | None = None,
    start: str = "auto",
) -> Cluster:
    """Starts workers that stay until `close()`, the kernel's end, or an hour without a cell.

        cluster = dtk.cluster(workers=2)
        %%workers                                # at the head of a cell: it runs on all workers
        values = cluster.run("strategy.num_replicas_in_sync")

    Args:
        workers, replicas, seed, keras, start: as for `dtk.run`.

    Returns:
        The cluster; `with dtk.cluster() as cluster:` closes it at the end.

    Raises:
        ClusterConfigError: it can't be started as asked for, or another one is open in this kernel.
        WorkerFailed: a worker ended while it started.
    """
    global _open
    if _open is not None:
        words = N_(
            "a cluster of {workers} workers is open, with {cells} cells so far; go on with it, or close() it first"
        )
        raise ClusterConfigError(_(words, workers=_open.workers, cells=_open._session.number))
    job = processes.checked(workers, replicas, seed, keras, start)
    _open = Cluster(processes.start(job))
    return _open


def run_magic(magic: str, line: str, cell: str) -> None:
    """Runs a notebook's cell on the workers of the cluster that is open. line: what follows the magic's name."""
    if _open is None:
        none = N_("{who}: there is no cluster: cluster = dtk.cluster(workers=2) makes one")
        over = N_("{who}: the cluster is {state}")
        raise ClusterConfigError(_(over if _ended else none, who=magic, state=_ended))
    words = line.replace(",", " ").split()
    if not all(word.isdecimal() for word in words):
        said = _("{magic} {line}: numbers of workers go there, such as {magic} 1", magic=magic, line=line.strip())
        raise ClusterConfigError(said)
    if magic == "%%worker" and not words:
        raise ClusterConfigError(_("%%worker: which? %%worker 1 runs the cell on worker 1, %%workers on all"))
    _open.cell(cell, [int(word) for word in words] if words else None)
