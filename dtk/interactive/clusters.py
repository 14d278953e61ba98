"""`dtk.cluster`: workers that stay, cell by cell."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dtk.errors import ClusterConfigError, RunInterrupted
from dtk.interactive import begin, cells, repair, replacing, sessions
from dtk.interactive.history import History
from dtk.interactive.idleness import end_when_idle
from dtk.interactive.table import table
from dtk.interactive.talk import Outcome, Talk
from dtk.interactive.words import busy_in_words, none_open, open_already
from dtk.language import _
from dtk.runs import Run

if TYPE_CHECKING:
    import pandas

__all__ = ["Cluster", "cluster", "current"]

_open: Cluster | None = None
_ended = ""  # why the last one is not open any more


class Cluster:
    """Workers that stay: `dtk.cluster` makes one. A cell runs on all workers at once, and what it made is kept there.

    In a notebook, `%%workers` before a cell sends it to all workers, `%%worker 1` to one. `strategy` is in their
    namespace; the seed is that of `dtk.run`. What they print is labelled; equal output of several stands once.
    """

    def __init__(self, started: begin.Started):
        self._talk = Talk(started)
        self._talk.output.skip()
        self._lock = threading.RLock()
        self._closed = ""
        self._history = History(self.workers)
        self._stop = threading.Event()
        end_when_idle(self._stop, self._lock, lambda: self._talk.used, self._end)

    @property
    def workers(self) -> int:
        """How many."""
        return self._talk.started.job.workers

    def __repr__(self) -> str:
        state = self._closed or "open"
        return f"<Cluster workers={self.workers} cells={self._talk.number} {state}>"

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
        return cells.values(self._talk, self._send(what, targets, value=True).ends, targets)

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
            return cells.pull(self._talk, self._targets(workers), code)

    def inspect(self) -> pandas.DataFrame:
        """A table of what the namespaces hold: name, shape, a digest for each worker, and whether the workers differ.

        Reads each worker's own copies and takes no all-reduce, so that it also works while a worker waits in one; then
        what is local to the functions that it is in comes first, named "loss in step()".
        """
        with self._lock:
            self._check_open()
            return table({peer.number: cells.look(peer) for peer in self._talk.peers if peer.lost is None})

    def sync(self, *names: str, from_worker: int = 0) -> str:
        """Gives all workers one worker's variables, and says whether replicas are equal then.

        Args:
            names: of models, optimizers, variables, in the workers' namespaces, such as "model"; none: everything that
                is to be equal on all workers.
            from_worker: whose.
        """
        with self._lock:
            self._idle(list(range(self.workers)), "sync")
            (giver,) = self._targets([from_worker])
            return repair.sync(self._talk, list(names), giver)

    def restart(self, worker: int) -> str:
        """Gives a worker a new process, and says what it has and lacks; the others keep what they have.

        The cells that went through run again there, up to the first all-reduce of each; plain values that it lacks, and
        all variables, come from another worker. Iterators begin anew.
        """
        with self._lock:
            (number,) = self._targets([worker])
            self._idle([peer.number for peer in self._talk.peers if peer.running and peer.number != number], "restart")
            return self._replaced(number)

    def pause(self) -> str:
        """From now on the workers of a cell are held before each collective: `step` lets them through one."""
        with self._lock:
            self._check_open()
            self._talk.hold()
            return _("each cell is held before its first collective; step() lets it through one, resume() through all")

    def step(self) -> None:
        """Lets the workers that are held through one collective, all the same."""
        with self._lock:
            self._check_open()
            if len(self._talk.idle()) == self.workers:
                words = _("step: no worker is held; cluster.pause() holds those of the next cell")
                raise ClusterConfigError(words)
            self._talk.step()
            self._await()

    def resume(self) -> None:
        """Lets the workers that are held go on to their cell's end."""
        with self._lock:
            self._check_open()
            self._talk.open()
            self._await()

    def so_far(self) -> Run:
        """What `dtk.Recorder` and `dtk.record_step` recorded so far, as a `dtk.Run`; the session goes on."""
        with self._lock:
            self._idle(list(range(self.workers)), "so_far")
            return sessions.so_far(self._talk, self._history)

    def baseline(self) -> Run:
        """The session's cells once more, in one process on one device: what `dtk.verify` compares `so_far()` with.

        A cell that ended with an error, or was interrupted, ends there after as many recorded steps. Left out are
        functions, and what ran on single workers alone; a line says so.
        """
        with self._lock:
            return sessions.baseline(self._talk.started, self._history)

    def free(self) -> str:
        """Ends the cells that wait in a collective, makes collectives usable again, compares replicas, says how."""
        with self._lock:
            self._check_open()
            if all(peer.running is None for peer in self._talk.peers):
                return "; ".join((_("no worker is in a cell"), str(repair.compare(self._talk))))
            return self._usable(repair.free(self._talk))

    def close(self) -> None:
        """Ends the workers. A second time it does nothing."""
        self._end(_("closed: dtk.cluster() makes a new one"))

    # ---- how

    def _send(self, what: Any, targets: list[int], value: bool) -> Outcome:
        with self._lock:
            self._check_open()
            if isinstance(what, str):
                message = cells.cell(self._talk, what, targets)
                code = message["code"]
            elif callable(what):
                message = cells.function(self._talk, what, targets)
                code = getattr(what, "__name__", "a function")
            else:
                raise ClusterConfigError(_("run({what!r}): it takes code as a string, or a function", what=what))
            number = self._talk.send(targets, {**message, "value": value}, code)
            self._history.add(number, message.get("code"), targets)
            return self._await()

    def _await(self) -> Outcome:
        talk = self._talk
        try:
            outcome = talk.wait()
        except KeyboardInterrupt:
            freed = self._usable(repair.interrupt(talk))
            words = _("cell {cell} was interrupted: {how}", cell=talk.number, how=freed)
            raise RunInterrupted(words, talk.started.folder) from None
        self._history.take(outcome.ends)
        self._talk.failed = self._talk.failed or self._history.failed()
        cells.say_unlike(talk, outcome)
        if outcome.held and not outcome.waits:
            cells.say_held(talk, outcome)
        error = cells.error_of(talk, outcome)
        if error is not None:
            if len(talk.idle()) == self.workers:
                settled = repair.settle(talk, enable=any(end.get("op") for end in outcome.errors.values()))
                error = error.with_words(str(settled)) if settled.differing else error
            raise error
        return outcome

    def _usable(self, freed: repair.Freed) -> str:
        self._history.take(freed.outcome.ends)
        self._talk.failed = True
        return "; ".join([str(freed), *(self._replaced(worker) for worker in freed.new)])

    def _replaced(self, worker: int) -> str:
        self._talk.failed = True
        return replacing.restart(self._talk, worker, self._history.of(worker))

    def _targets(self, workers: Sequence[int] | None) -> list[int]:
        return cells.numbers(workers, self.workers)

    def _idle(self, workers: list[int], who: str) -> list[int]:
        self._check_open()
        busy = [worker for worker in workers if not self._talk.peers[worker].idle]
        if busy:
            raise ClusterConfigError(busy_in_words(who, busy))
        return workers

    def _check_open(self) -> None:
        if self._closed:
            raise ClusterConfigError(_("this cluster is {state}", state=self._closed))

    def _end(self, why: str) -> None:
        global _open, _ended
        with self._lock:
            if self._closed:
                return
            self._closed = why
            self._stop.set()
            begin.end(self._talk.started)
            if _open is self:
                _open, _ended = None, why


def cluster(
    workers: int = 2,
    replicas: int = 1,
    seed: int | None = 0,
    keras: int | None = None,
    start: str = "auto",
    isolate: bool | None = None,
    on: Any = None,
) -> Cluster:
    """Starts workers that stay until `close()`, the kernel's end, or an hour without a cell.

        cluster = dtk.cluster(workers=2)
        %%workers                                # at the head of a cell: it runs on all workers
        values = cluster.run("strategy.num_replicas_in_sync")

    Args:
        workers, replicas, seed, keras, start, isolate: as for `dtk.run`.
        on: another place than this machine, as for `dtk.run`.

    Returns:
        The cluster; `with dtk.cluster() as cluster:` closes it at the end.

    Raises:
        ClusterConfigError: it can't be started as asked for, or another one is open in this kernel.
        WorkerFailed: a worker ended while it started.
    """
    global _open
    if _open is not None:
        raise ClusterConfigError(open_already(_open.workers, _open._talk.number))
    job = begin.checked(workers, replicas, seed, keras, start, isolate, on)
    _open = Cluster(begin.start(job))
    return _open


def current(who: str) -> Cluster:
    """The cluster that is open; ClusterConfigError, which says `who` asked, without one."""
    if _open is None:
        raise ClusterConfigError(none_open(who, _ended))
    return _open
