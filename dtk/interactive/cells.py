"""A learner's cell or function, checked before it is sent, and its outcome as values or as an error."""

from __future__ import annotations

import ast
import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dtk import environment
from dtk.errors import ClusterConfigError
from dtk.interactive import compare_replicas as beside
from dtk.interactive import upload as bring
from dtk.interactive.failed import CellFailed
from dtk.interactive.labels import named
from dtk.interactive.peers import Peer
from dtk.interactive.talk import Outcome, Talk
from dtk.interactive.waits import Place
from dtk.interactive.words import in_line, workers_in_words
from dtk.language import N_, _
from dtk.watch import explain
from dtk.worker import ship

__all__ = [
    "Stays",
    "cell",
    "checked",
    "error_of",
    "function",
    "look",
    "numbers",
    "pull",
    "say_held",
    "say_unlike",
    "values",
]


class Stays(str):
    """Stands for a value that can't travel from its worker: what `repr` says of it there."""

    def __repr__(self) -> str:
        return str(self)


def numbers(workers: Sequence[int] | None, count: int) -> list[int]:
    """Which of so many workers are asked for, in their order; None: all."""
    asked = [workers] if isinstance(workers, int) else list(range(count) if workers is None else workers)
    for worker in asked:
        if isinstance(worker, bool) or not isinstance(worker, int) or not 0 <= worker < count:
            there = N_("worker {worker}: the workers are 0 to {last}")
            if count == 1:
                there = N_("worker {worker}: there is worker 0 only")
            raise ClusterConfigError(_(there, worker=worker, last=count - 1))
    return sorted({*asked})


def checked(code: str) -> str:
    """The code as it is sent; ClusterConfigError where no worker could run it: nothing is sent then.

    Something stands in the blank lines at its head, which IPython would leave out: lines keep their numbers.
    """
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        text = TransformerManager().transform_cell(code)
        compile(text, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except SyntaxError as error:
        line = (error.text or "").strip()
        where = in_line(error.lineno or 0, line)
        words = _("{where}: {error}; the cell was sent to no worker", where=where, error=error.msg)
        raise ClusterConfigError(words) from None
    blank = len(code) - len(code.lstrip("\n"))
    return "#\n" * blank + code[blank:]


def cell(talk: Talk, text: str, targets: Sequence[int]) -> dict[str, Any]:
    """The message that has the workers run a cell, after a check that they can."""
    code = checked(text)
    bring.modules(talk.started, targets, code)
    return {"do": "cell", "code": code}


def function(talk: Talk, fn: Callable[..., Any], targets: Sequence[int]) -> dict[str, Any]:
    """The message that has the workers call a function, which lies in a file by then."""
    place, name = talk.started.folder.path / "calls", f"{talk.number + 1}.pkl"
    place.mkdir(mode=0o700, exist_ok=True)
    pickled = ship.pack(fn, (), {})
    (place / name).write_bytes(pickled)
    (place / "sources.json").write_text(json.dumps(ship.cell_sources()))
    bring.modules(talk.started, targets, pickled)
    bring.files(talk.started, targets, [f"calls/{name}", "calls/sources.json"])
    return {"do": "call", "folder": "calls"}


def values(talk: Talk, ends: Mapping[int, dict[str, Any]], targets: Sequence[int]) -> list[Any]:
    """What a cell that ended so gave on each of these workers. Read from files of this user's own workers."""
    found: list[Any] = []
    for worker in targets:
        end = ends[worker]
        if "stays" in end:
            found.append(Stays(end["text"]))
        else:
            found.append(pickle.loads((talk.started.folder.path / end["value"]).read_bytes()))
            talk.started.links.remove(end["value"])
    return found


def pull(talk: Talk, targets: Sequence[int], code: str) -> list[Any]:
    """An expression's value on these workers; of names alone where one of them is in a cell."""
    code = checked(code)
    if any(talk.peers[worker].running is not None for worker in targets):
        return values(talk, beside.read([talk.peers[worker] for worker in targets], code), targets)
    return values(talk, talk.do("pull", targets, code=code), targets)


def look(peer: Peer) -> list[dict[str, Any]]:
    """Rows of what a worker's namespace holds, after those of the functions that it is in."""
    said = peer.ask("look") or {}
    return [*said.get("locals", ()), *said.get("rows", ())]


def error_of(talk: Talk, outcome: Outcome) -> CellFailed | None:
    """What to say where the cell did not come to its end on all workers; None where it did."""
    said: list[tuple[Sequence[int], str]] = []
    own = {worker: end for worker, end in outcome.errors.items() if not end.get("by_a_peer")}
    errors = own if own or outcome.lost else outcome.errors
    groups: dict[str, list[int]] = {}
    for worker, end in errors.items():
        at = talk.in_words(end["place"])
        words = explain.in_one_sentence(end["type"], end["message"])
        words = _("{words}, in {place}", words=words, place=at) if end["place"][0] else words
        groups.setdefault(words, []).append(worker)
    said += [(workers, words) for words, workers in groups.items()]
    for peer in sorted(outcome.lost, key=lambda peer: peer.number):
        ended = peer.gone or explain.exit_in_words(peer.lost)
        said.append(([peer.number], _("{what}: {remedy}", what=ended, remedy=peer.remedy)))
    for wait in outcome.waits:
        awaited = workers_in_words(wait.awaited)
        words = _("waits for {workers} in {place}", workers=awaited, place=talk.in_words(wait.place))
        said.append(([wait.worker], words))
    if not said:
        return None
    freed = outcome.waits and not outcome.lost
    return CellFailed(
        "; ".join(f"{workers_in_words(workers)} {words}" for workers, words in said),
        worker=[*errors, *(peer.number for peer in outcome.lost), *(wait.worker for wait in outcome.waits)][0],
        tracebacks={worker: end["traceback"] for worker, end in outcome.errors.items()},
        waits={wait.worker: list(wait.awaited) for wait in outcome.waits},
        said=said,
        remedy=_("run the rest on the workers that are awaited, or cluster.free()") if freed else "",
    )


def say_held(talk: Talk, outcome: Outcome) -> None:
    """Who is held before a collective, and in which line."""
    by_place: dict[Place, list[int]] = {}
    for worker, place in sorted(outcome.held.items()):
        by_place.setdefault(place, []).append(worker)
    for place, workers in by_place.items():
        words = N_("{workers}: held before a collective in {place}")
        environment.say(_(words, workers=workers_in_words(workers), place=talk.in_words(place)))


def say_unlike(talk: Talk, outcome: Outcome) -> None:
    """Two lines met in one collective: TensorFlow adds up what they gave, or fails, and says nothing of the lines.

    Where one of them was sent alone, to a worker that was awaited, this may be right: only the learner knows.
    """
    found = outcome.unlike
    if found is None:
        return
    one, other = (talk.in_words(place) for place in (found.place, found.elsewhere))
    labels = f"{named([found.one])} {one}", f"{named([found.other])} {other}"
    late = found.late(talk.waited)
    words = N_("{one} and {other} met in one collective: what it gave is made of unlike parts")
    if late is not None:
        words = N_(
            "{one} and {other} met in one collective: right if worker {late} ran the rest of the same step; if not, "
            "what it gave is made of unlike parts"
        )
    environment.say(_(words, one=labels[0], other=labels[1], late=late))
