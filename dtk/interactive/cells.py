"""A learner's cell or function, checked before it is sent, and its outcome as values or as an error."""

from __future__ import annotations

import ast
import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dtk import environment
from dtk.errors import ClusterConfigError, DtkError, folded
from dtk.interactive.barrier import Place
from dtk.interactive.output import colored, named, workers_in_words
from dtk.interactive.session import CellOutcome, Session, line_in_words
from dtk.language import N_, _
from dtk.watch import explain
from dtk.worker import ship
from dtk.worker.wire import Message

__all__ = ["CellFailed", "Stays", "checked", "error_of", "function", "pull", "say_held", "say_unlike", "values"]

PULL_SECONDS = 600.0


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
        tracebacks: Mapping[int, str],
        waits: Mapping[int, Sequence[int]],
        remedy: str = "",
    ):
        """said: the message in parts: of which workers (of none: of the cluster), what."""
        parts = (f"{workers_in_words(workers)} {words}" if workers else words for workers, words in said)
        super().__init__("; ".join(parts), remedy=remedy)
        self.worker = worker
        self.tracebacks = dict(tracebacks)
        self.waits = {each: list(awaited) for each, awaited in waits.items()}
        self._said = list(said)

    def _render_traceback_(self) -> list[str]:
        by_text: dict[str, list[int]] = {}
        for worker, text in self.tracebacks.items():
            by_text.setdefault(text, []).append(worker)
        lines: list[str] = []
        for text, workers in by_text.items():
            lines += [colored(workers), *folded(text.rstrip().splitlines()), ""]
        if len(self._said) == 1 and not self.remedy:
            return [*lines, *super()._render_traceback_()]
        parts = [f"{colored(workers)} {words}" if workers else words for workers, words in self._said]
        return [*lines, f"{type(self).__name__}:", *parts, *(self._ways_on() if self.remedy else [])]

    def _ways_on(self) -> list[str]:
        """A line for each."""
        awaited = {worker for others in self.waits.values() for worker in others} - {*self.waits}
        one = N_("%%worker {worker}, with the lines that it has not run, lets it catch up")
        ways = [*(_(one, worker=worker) for worker in sorted(awaited)), _("cluster.free() ends the wait")]
        return [_("then: {way}", way=way) if way is ways[0] else _("or: {way}", way=way) for way in ways]


class Stays(str):
    """Stands for a value that can't travel from its worker: its `repr` there."""

    def __repr__(self) -> str:
        return str(self)


# ---- what is sent


def checked(code: str) -> str:
    """The code as it is sent; ClusterConfigError where no worker could run it: nothing is sent then.

    Something stands in the blank lines at its head, which IPython would leave out: lines keep their numbers.
    """
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        text = TransformerManager().transform_cell(code)
        compile(text, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except SyntaxError as error:
        where = line_in_words(error.lineno or 0, (error.text or "").strip())
        words = _("{where}: {error}; the cell was sent to no worker", where=where, error=error.msg)
        raise ClusterConfigError(words) from None
    blank = len(code) - len(code.lstrip("\n"))
    return "#\n" * blank + code[blank:]


def function(session: Session, fn: Callable[..., Any]) -> Message:
    """The message that has the workers call a function, which lies in a file by then."""
    folder, name = session.started.folder.path / "calls", f"{session.number + 1}.pkl"
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / name).write_bytes(ship.pack(fn, (), {}))
    (folder / "sources.json").write_text(json.dumps(ship.cell_sources()))
    return {"do": "call"}


# ---- what comes back


def values(session: Session, ends: Mapping[int, Message], targets: Sequence[int]) -> list[Any]:
    """The values of a cell that ended so on each of these workers. Read from files of this user's own workers."""
    found: list[Any] = []
    for worker in targets:
        end = ends[worker]
        if "stays" in end:
            found.append(Stays(end["stays"]))
        else:
            path = session.started.folder.path / end["value"]
            found.append(pickle.loads(path.read_bytes()))
            path.unlink()
    return found


def pull(session: Session, targets: Sequence[int], code: str) -> list[Any]:
    """An expression's value on these workers, as it is where they are."""
    code, found = checked(code), {}
    for worker in targets:
        answer = session.peers[worker].ask("pull", PULL_SECONDS, code=code)
        if answer is None:
            words = N_("pull: worker {worker} has ended or did not answer for {seconds:g} s")
            raise ClusterConfigError(_(words, worker=worker, seconds=PULL_SECONDS))
        if "error" in answer:
            raise ClusterConfigError(_("pull: worker {worker}: {why}", worker=worker, why=answer["error"]))
        found[worker] = answer
    return values(session, found, targets)


def error_of(session: Session, outcome: CellOutcome, more: str) -> CellFailed:
    """The error of a cell that did not come to its end on all workers. more: is added to its message."""
    own = {worker: end for worker, end in outcome.errors.items() if not end["by_a_peer"]}
    errors = own if own or outcome.lost else outcome.errors
    groups: dict[str, list[int]] = {}
    for worker, end in errors.items():
        words = explain.in_one_sentence(end["type"], end["message"])
        if end["place"][0]:
            words = _("{words}, in {place}", words=words, place=session.in_words(end["place"]))
        groups.setdefault(words, []).append(worker)
    said: list[tuple[Sequence[int], str]] = [(workers, words) for words, workers in groups.items()]
    for peer in outcome.lost:
        ended = explain.exit_in_words(peer.lost)
        said.append(([peer.number], _("{what}: {remedy}", what=ended, remedy=peer.remedy)))
    for wait in outcome.waits:
        awaited, place = workers_in_words(wait.awaited), session.in_words(wait.place)
        said.append(([wait.worker], _("waits for {workers} in {place}", workers=awaited, place=place)))
    freed = outcome.waits and not outcome.lost
    return CellFailed(
        [*said, ([], more)] if more else said,
        worker=[*errors, *(peer.number for peer in outcome.lost), *(wait.worker for wait in outcome.waits)][0],
        tracebacks={worker: end["traceback"] for worker, end in outcome.errors.items()},
        waits={wait.worker: list(wait.awaited) for wait in outcome.waits},
        remedy=_("run the rest on the workers that are awaited, or cluster.free()") if freed else "",
    )


def say_held(session: Session, outcome: CellOutcome) -> None:
    """Says who is held before a collective, and in which line."""
    by_place: dict[Place, list[int]] = {}
    for worker, place in sorted(outcome.held.items()):
        by_place.setdefault(place, []).append(worker)
    for place, workers in by_place.items():
        words = N_("{workers}: held before a collective in {place}")
        environment.say(_(words, workers=workers_in_words(workers), place=session.in_words(place)))


def say_unlike(session: Session, outcome: CellOutcome) -> None:
    """Says that two lines met in one collective: TensorFlow adds up their values, or fails without naming the lines.

    It may be right where one worker catches up with another: only the learner knows.
    """
    found = outcome.unlike
    if found is not None:
        one = f"{named([found.one])} {session.in_words(found.place)}"
        other = f"{named([found.other])} {session.in_words(found.elsewhere)}"
        words = N_("{one} and {other} met in one collective: unless both are the same step, its result is a mix")
        environment.say(_(words, one=one, other=other))
