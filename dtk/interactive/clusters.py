"""`dtk.cluster`: workers that stay, cell by cell; what they are sent is checked, and what comes back is worded."""

from __future__ import annotations

import ast
import html
import json
import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dtk import environment, runs
from dtk.errors import ClusterConfigError, DtkError, RunInterrupted, folded, whole_number
from dtk.interactive import processes, repair
from dtk.interactive.barrier import Place
from dtk.interactive.inspection import table
from dtk.interactive.session import CellOutcome, Session, line_in_words
from dtk.language import N_, _
from dtk.launch import launch
from dtk.launch.launch import RunJob
from dtk.live.text import named, workers_in_words
from dtk.runs import Run
from dtk.view.cluster_picture import ClusterPicture
from dtk.view.controls import Verbatim
from dtk.watch import explain
from dtk.watch.waiting import clauses
from dtk.worker import ship
from dtk.worker.wire import Message

if TYPE_CHECKING:
    import pandas

PULL_SECONDS = 600.0
_NONE_OPEN = N_("no cluster is open here: cluster = dtk.cluster(workers=2) makes one")

_open: Cluster | None = None


class CellFailed(DtkError):
    """A cell raised on a worker of a cluster that stays, or can't come to its end there. The cluster is open.

    Attributes:
        worker: index of the worker that raised; of the first that waits, where none raised.
        tracebacks: by worker, the traceback as text, with the learner's lines.
        waits: for each worker that waits in a collective for what can't come, by index, the workers that it waits for.
    """

    def __init__(
        self,
        said: Sequence[tuple[Sequence[int], str]],
        *,
        worker: int,
        tracebacks: dict[int, str],
        waits: dict[int, list[int]],
        remedy: str = "",
    ):
        """said: the message in parts: of which workers (of none: of the cluster), what."""
        parts = (f"{workers_in_words(workers)} {words}" if workers else words for workers, words in said)
        super().__init__(_("; ").join(parts), remedy=remedy)
        self.worker, self.tracebacks, self.waits = worker, tracebacks, waits
        self._said = said

    def _render_traceback_(self) -> list[str]:
        by_text: dict[str, list[int]] = {}
        for worker, text in self.tracebacks.items():
            by_text.setdefault(text, []).append(worker)
        lines: list[str] = []
        for text, workers in by_text.items():
            lines += [named(workers), *folded(text.rstrip().splitlines()), ""]
        if len(self._said) == 1 and not self.remedy:
            return [*lines, *super()._render_traceback_()]
        lines += [f"{type(self).__name__}:"]
        lines += [f"{named(workers)} {words}" if workers else words for workers, words in self._said]
        if self.remedy:
            awaited = {worker for others in self.waits.values() for worker in others} - {*self.waits}
            one = N_("%%worker {worker}, with the lines that it has not run, lets it catch up")
            ways = [*(_(one, worker=worker) for worker in sorted(awaited)), _("cluster.free() ends the wait")]
            lines += [_("then: {way}", way=ways[0]), *(_("or: {way}", way=way) for way in ways[1:])]
        return lines


class Cluster:
    """Workers that stay: `dtk.cluster` makes one. A cell runs on all workers at once, and what it made is kept there.

    In a notebook, `%%workers` before a cell sends it to all workers, `%%worker 1` to one. `strategy` is in their
    namespace; the seed is that of `dtk.run`. What they print is labeled; equal output of several stands once.
    """

    def __init__(self, started: processes.Started):
        self._session = Session(started)
        self._closed = False

    @property
    def workers(self) -> int:
        """Returns how many workers there are."""
        return self._session.started.job.workers

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<Cluster workers={self.workers} cells={len(self._session.cells)} {state}>"

    def _repr_html_(self) -> str | None:
        """In a notebook that someone looks at: what each worker does, and where its log is."""
        if environment.live_mode() != "widgets":
            return None
        import pandas as pd

        cells, peers = self._session.cells, self._session.peers
        does = [cells[peer.running - 1].name if peer.running else _("waits for a cell") for peer in peers]
        rows = [(each.name, _("ended") if each.lost is not None else does[k]) for k, each in enumerate(peers)]
        table = pd.DataFrame(rows, columns=[repr(self)[1:-1], ""]).to_html(index=False)
        return f"{table}<p><code>{html.escape(str(self._session.started.folder.path))}</code></p>"

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def run(self, what: str | Callable[..., Any], workers: Sequence[int] | None = None) -> list[Any]:
        """Runs code, or calls a function, on all workers or on these; returns one value a worker.

        Args:
            what: code, whose value is that of its last line, if that is an expression; or a function without
                arguments but `strategy`, which dtk fills. What it names and the notebook has not, the worker's
                namespace gives.
            workers: their numbers; None: all.

        Returns:
            The values in the order of the workers; tensors come as arrays, and what can't travel as its `repr`. Workers
            that are held (`pause`) have none.

        Raises:
            CellFailed: the cell raised, or can't come to its end, on a worker; the cluster stays open.
            ClusterConfigError: it could not be sent; nothing was.
        """
        targets = self._targets(workers)
        ends = self._send(what, targets, value=True).ends
        return [self._value(ends[worker]) for worker in targets if worker in ends]

    def cell(self, code: str, workers: Sequence[int] | None = None) -> None:
        """Runs code as `run` does, without values: what the magics call."""
        self._send(code, self._targets(workers), value=False)

    def pull(self, code: str, workers: Sequence[int] | None = None) -> list[Any]:
        """Returns an expression's value on each worker: of a variable or a model this worker's own copies, as arrays.

        Args:
            code: a name, or an expression; one that takes an all-reduce is refused. Of a worker that waits or is held
                in a cell names alone, such as "model.weights[0]", as they are there.
            workers: their numbers; None: all.

        Returns:
            The values in the order of the workers; of a model a dictionary, {name of the weight: array}; of what
            several replicas of a worker have a list.
        """
        targets, code = self._targets(workers), checked(code)
        values = []
        for peer in (self._live.peers[worker] for worker in targets):
            answer = peer.ask("pull", PULL_SECONDS, code=code)
            if answer is None:
                raise peer.silent(PULL_SECONDS)
            if "error" in answer:
                raise ClusterConfigError(_("{name}: {words}", name=peer.name, words=answer["error"]))
            values.append(self._value(answer))
        return values

    def inspect(self) -> pandas.DataFrame:
        """Lists what the namespaces hold: name, shape, a digest for each worker, and whether the workers differ.

        Reads each worker's own copies and takes no all-reduce, so that it also works while a worker waits in one.
        """
        living = [peer for peer in self._live.peers if peer.lost is None]
        return table({peer.number: (peer.ask("look") or {}).get("rows", []) for peer in living})

    def sync(self, *names: str, from_worker: int = 0) -> str:
        """Gives all workers one worker's variables, and says whether replicas are equal then.

        Args:
            names: of models, optimizers, variables, in the workers' namespaces, such as "model"; none: everything that
                is to be equal on all workers.
            from_worker: whose.
        """
        _check_idle("sync", self._live.peers)
        (giver,) = self._targets([from_worker])
        return repair.sync(self._session, list(names), giver)

    def restart(self, worker: int) -> str:
        """Gives a worker a new process, and says what it has and lacks; the others keep what they have.

        The cells that went through run again there, up to the first all-reduce of each; plain values that it lacks, and
        all variables, come from another worker. Iterators begin anew.
        """
        (number,) = self._targets([worker])
        _check_idle("restart", [peer for peer in self._live.running() if peer.number != number])
        return repair.restart(self._session, number)

    def pause(self) -> str:
        """Holds the workers of each cell before its collectives from now on: `step` lets them through one."""
        self._live.hold()
        return _("each cell is held before its first collective; step() lets it through one, resume() through all")

    def step(self) -> None:
        """Lets the workers that are held through one collective, all the same."""
        if len(self._live.idle()) == self.workers:
            words = _("step: no worker is held; cluster.pause() holds those of the next cell")
            raise ClusterConfigError(words)
        self._session.step()
        self._await()

    def resume(self) -> None:
        """Lets the workers that are held go on to their cell's end."""
        self._live.open()
        self._await()

    def so_far(self) -> Run:
        """Returns what `dtk.Recorder` and `dtk.record_step` recorded so far, as a `dtk.Run`; the session goes on."""
        _check_idle("so_far", self._live.peers)
        started, folder = self._session.started, launch.new_folder(self._job())  # a directory of its own
        self._session.do("snapshot", folder=str(folder.path))
        seconds = time.monotonic() - started.clock
        folder.save_attempt(1, None, 0.0, seconds)
        job, picture = started.job, ClusterPicture(started.configs)
        return Run(folder, job.mode, job.replicas, job.seed, [None] * job.workers, seconds, picture)

    def baseline(self) -> Run:
        """Runs the session's cells once more, in one process on one device: `dtk.verify` compares `so_far()` with it.

        It has one worker's share of the cores, and is seeded as the workers were. A cell that ended with an error, or
        was interrupted, ends there after as many recorded steps. Left out are functions, and what ran on single workers
        alone; a line says so.
        """
        job, cells = self._job(), self._session.to_replay()
        left = [cell.name for cell in self._session.cells if cell not in cells]
        if left:
            words = N_("the baseline is without {cells}: functions, and what ran on single workers alone")
            environment.say(_(words, cells=_(", ").join(dict.fromkeys(left))))
        return runs.carry_out(replace(job, workers=1, replicas=1, mode="single"), time.monotonic())

    def free(self) -> str:
        """Ends the cells that wait in a collective, makes collectives usable again, compares replicas, says how."""
        session = self._live  # the gate would stop nobody who waits in a collective
        return repair.stop(session, ["abort"]) if session.running() else repair.compare(session)[1]

    def close(self) -> None:
        """Ends the workers. A second time it does nothing."""
        global _open
        if not self._closed:
            self._closed = True
            processes.end(self._session.started)
        if _open is self:
            _open = None

    # ---- how

    def _send(self, what: Any, targets: list[int], value: bool) -> CellOutcome:
        if isinstance(what, str):
            message = {"do": "cell", "code": checked(what)}
        elif callable(what):
            folder = self._live.started.folder.path / "calls"
            folder.mkdir(mode=0o700, exist_ok=True)
            (folder / f"{len(self._session.cells) + 1}.pkl").write_bytes(ship.pack(what, (), {}))
            (folder / "sources.json").write_text(json.dumps(ship.cell_sources()))
            message = {"do": "call"}
        else:
            raise ClusterConfigError(_("run({what!r}): it takes code as a string, or a function", what=what))
        self._live.send(targets, {**message, "value": value})
        return self._await()

    def _value(self, end: Message) -> Any:
        """The value of a cell that ended so. Read from a file of this user's own worker."""
        if "stays" in end:  # it can't travel: its `repr` there
            return Verbatim(end["stays"])
        path = self._session.started.folder.path / end["value"]
        value = pickle.loads(path.read_bytes())
        path.unlink()
        return value

    def _await(self) -> CellOutcome:
        session = self._session
        try:
            outcome = session.wait()
        except KeyboardInterrupt:
            how = repair.stop(session, ["gate", "python", "abort"])
            words = _("{cell} was interrupted: {how}", cell=session.cells[-1].name, how=how)
            raise RunInterrupted(words, session.started.folder) from None
        if outcome.unlike:
            _say_unlike(session, outcome.unlike)
        if outcome.held and not outcome.waits:
            _say_held(session, outcome)
        if not (outcome.errors or outcome.lost or outcome.waits):
            return outcome
        equal, replicas = True, ""
        if len(session.idle()) == self.workers:
            equal, replicas = repair.settle(session, enable=any(end["op"] for end in outcome.errors.values()))
        raise _error_of(session, outcome, "" if equal else replicas)

    def _job(self) -> RunJob:
        """The session's cells as a run's function."""
        from dtk.interactive.shell import replay  # with IPython, which a kernel need not have loaded

        cells = [(cell.number, cell.name, cell.code, cell.limit) for cell in self._session.to_replay()]
        return replace(self._session.started.job, payload=ship.pack(replay, (cells,), {}))

    def _targets(self, asked: Sequence[int] | int | None) -> list[int]:
        """Which workers are asked for, in their order; None: all."""
        found = list(range(self.workers)) if asked is None else [asked] if isinstance(asked, int) else list(asked)
        for worker in found:
            whole_number("worker", worker, 0, self.workers - 1)
        return sorted({*found})

    @property
    def _live(self) -> Session:
        """The session of a cluster that is open; ClusterConfigError where it is closed."""
        if self._closed:
            raise ClusterConfigError(_(_NONE_OPEN))
        return self._session


def _check_idle(who: str, peers: Sequence[processes.Peer]) -> None:
    busy = [peer.number for peer in peers if not peer.idle]
    if busy:
        words = N_("{who}: in a cell, or ended: {workers}; cluster.free() frees those that wait")
        raise ClusterConfigError(_(words, who=who, workers=workers_in_words(busy)))


def cluster(
    workers: int = 2, replicas: int = 1, seed: int | None = 0, keras: int | None = None, start: str = "auto"
) -> Cluster:
    """Starts workers that stay until `close()`, the kernel's end, or `DTK_WARM_IDLE` seconds (an hour) without a cell.

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
    if _open is not None and processes.gone(_open._session.started):
        _open.close()
    if _open is not None:
        words = N_(
            "a cluster of {workers} workers is open, with {cells} cells so far; go on with it, or close() it first"
        )
        raise ClusterConfigError(_(words, workers=_open.workers, cells=len(_open._session.cells)))
    job = processes.checked(workers, replicas, seed, keras, start)
    _open = Cluster(processes.start(job))
    return _open


def run_magic(magic: str, line: str, cell: str) -> None:
    """Runs a notebook's cell on the workers of the cluster that is open. line: what follows the magic's name."""
    if _open is None:
        raise ClusterConfigError(_(_NONE_OPEN))
    words = line.replace(",", " ").split()
    if not all(word.isdecimal() for word in words) or (magic == "%%worker" and not words):
        said = _("{magic} {line}: numbers of workers go there, such as {magic} 1", magic=magic, line=line.strip())
        raise ClusterConfigError(said)
    # The magic's line is the first: lines have the numbers that the editor shows.
    _open.cell(f"\n{cell}", [int(word) for word in words] if words else None)


def checked(code: str) -> str:
    """The code as it is sent; ClusterConfigError where no worker could run it: nothing is sent then.

    Something stands in the blank lines at its head, which IPython would leave out: lines keep their numbers.
    """
    from IPython.core.inputtransformer2 import TransformerManager

    blank = len(code) - len(code.lstrip("\n"))
    code = "#\n" * blank + code[blank:]
    try:
        text = TransformerManager().transform_cell(code)
        compile(text, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except SyntaxError as error:
        where = line_in_words(error.lineno or 0, (error.text or "").strip())
        words = _("{where}: {error}; the cell was sent to no worker", where=where, error=error.msg)
        raise ClusterConfigError(words) from None
    return code


# ---- what comes back, in words


def _error_of(session: Session, outcome: CellOutcome, more: str) -> CellFailed:
    """The error of a cell that did not come to its end on all workers. more: is added to its message."""
    own = {worker: end for worker, end in outcome.errors.items() if not end["by_a_peer"]}
    errors = own if own or outcome.lost else outcome.errors
    groups: dict[str, list[int]] = {}
    for worker, end in errors.items():
        words = explain.in_one_sentence(end["type"], end["message"])
        if end["place"][0]:
            words = clauses([words, _("in {place}", place=session.in_words(end["place"]))])
        groups.setdefault(words, []).append(worker)
    said: list[tuple[Sequence[int], str]] = [(workers, words) for words, workers in groups.items()]
    for peer in outcome.lost:
        ended = explain.exit_in_words(peer.lost)
        said.append(([peer.number], _("{name}: {words}", name=ended, words=peer.remedy)))
    for wait in outcome.waits:
        awaited, place = workers_in_words(wait.awaited), session.in_words(wait.place)
        said.append(([wait.worker], _("waits for {workers} in {place}", workers=awaited, place=place)))
    freed = outcome.waits and not outcome.lost
    return CellFailed(
        [*said, ([], more)] if more else said,
        worker=[*errors, *(peer.number for peer in outcome.lost), *(wait.worker for wait in outcome.waits)][0],
        tracebacks={worker: session.readable(end["traceback"]) for worker, end in outcome.errors.items()},
        waits={wait.worker: list(wait.awaited) for wait in outcome.waits},
        remedy=_("run the rest on the workers that are awaited, or cluster.free()") if freed else "",
    )


def _say_held(session: Session, outcome: CellOutcome) -> None:
    """Says who is held before a collective, and in which line."""
    by_place: dict[Place, list[int]] = {}
    for worker, place in sorted(outcome.held.items()):
        by_place.setdefault(place, []).append(worker)
    for place, workers in by_place.items():
        words = N_("{workers}: held before a collective in {place}")
        environment.say(_(words, workers=workers_in_words(workers), place=session.in_words(place)))


def _say_unlike(session: Session, found: Sequence[tuple[int, Place]]) -> None:
    """Says that two lines met in one collective: TensorFlow adds up their values, or fails without naming the lines.

    It may be right where one worker catches up with another: only the learner knows.
    """
    one, other = (f"{named([worker])} {session.in_words(place)}" for worker, place in found)
    words = N_("{one} and {other} met in one collective: unless both are the same step, its result is a mix")
    environment.say(_(words, one=one, other=other))
