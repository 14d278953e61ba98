"""Who waits for whom, and why: arithmetic on the states of a run's workers; no process is touched here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from dtk.language import _
from dtk.records import RunFolder, WorkerFolder
from dtk.watch import waiting
from dtk.watch.reasons import REASONS, names
from dtk.watch.state import STAGES, Line, State

__all__ = ["FILE", "Waiting", "board", "explain", "graph", "load", "save", "uneven"]

FILE = "states.json"  # in the run's directory, where it ended with an error
_CERTAIN, _LIKELY = 5.0, 10.0  # seconds of silence after which work is called uneven


@dataclass(frozen=True)
class Waiting:
    """The wait-for graph: (who, for whom) by number, the reason in a word, and a sentence that explains it.

    reason: "uneven", "missing", "stopped", "order", "silent", "failed", "unknown" or "" (no worker waits).
    """

    states: list[State]
    edges: list[tuple[int, int]] = field(default_factory=list)
    reason: str = ""
    sentence: str = ""


def explain(states: Sequence[State], first: int | None = None) -> Waiting:
    """Who waits for whom among the workers, and why. first: the worker that failed first, where one did.

    A worker in a collective waits for each worker that is not in the same one: that has ended, is stopped, is
    silent or busy elsewhere, or sits in another collective.
    """
    if first is not None:
        return _failed(list(states), first)
    edges = [(one.member, other.member) for one in states for other in states if _waits_for(one, other)]
    waiting = [state for state in states if any(state.member == who for who, _ in edges)]
    awaited = [state for state in states if any(state.member == whom for _, whom in edges)]
    for reason, tell in REASONS:
        sentence = tell(list(states), waiting, awaited)
        if sentence:
            return Waiting(list(states), edges, reason, sentence)
    return Waiting(list(states), edges)


def _waits_for(one: State, other: State) -> bool:
    if not one.waits or one is other:
        return False
    if one.blocked == "connecting":
        # Those whose servers answer wait for the one that has none, or, if unknown, for all that do not connect.
        return other.blocked != "connecting" or other.what == "stopped"
    return not other.waits or _position(one) != _position(other)


def _position(state: State) -> tuple[Any, ...]:
    # Not `blocked`: of two workers in one collective the stacks may show it at one and not at the other.
    return state.blocked == "connecting", state.step, state.call, state.line


def _failed(states: list[State], first: int) -> Waiting:
    others = [s.member for s in states if s.member != first and s.what not in ("finished", "failed")]
    return Waiting(states, [(other, first) for other in others], "failed")


def uneven(states: Sequence[State], stall_timeout: float) -> bool:
    """Whether all workers that have not ended wait for some that have finished, for long enough to say so."""
    left = [state for state in states if not state.ended]
    if not left or not any(state.what == "finished" for state in states):
        return False
    needed = [_CERTAIN if state.blocked in ("collective", "connecting") else _LIKELY for state in left]
    return all(s.waits and s.quiet >= min(limit, stall_timeout) for s, limit in zip(left, needed, strict=True))


def board(states: Sequence[State]) -> list[Line]:
    """Each member's line in the live view, with whom it waits for."""
    edges = explain(states).edges if any(state.waits for state in states) else []
    lines = []
    for state in states:
        awaited = [other for other in states if (state.member, other.member) in edges]
        lines.append(replace(state.board(), waits=_("waits for {workers}", workers=names(awaited)) if awaited else ""))
    return lines


def save(folder: RunFolder, waiting: Waiting) -> None:
    """Writes the graph to the run's directory, for a figure; a full disk must not hide the error itself."""
    text = json.dumps({**asdict(waiting), "states": [asdict(state) for state in waiting.states]})
    try:
        (folder.path / FILE).write_text(text)
    except OSError:
        pass  # the message has the sentence


def load(folder: RunFolder) -> Waiting | None:
    """The graph that `save` wrote; None where the run ended well or has not ended."""
    try:
        saved = json.loads((folder.path / FILE).read_text())
    except (FileNotFoundError, ValueError):
        return None
    edges = [(int(one), int(other)) for one, other in saved["edges"]]
    return Waiting([State(**state) for state in saved["states"]], edges, saved["reason"], saved["sentence"])


# ---- the same by what a run's directory says: for figures, during the run and long after it


def graph(folder: RunFolder) -> Waiting:
    """The wait-for graph that was written when the run failed or stalled; where it did not, the workers' ends.

    Of a run that ended well, or that is going on, a directory says how far each worker has come, and no waiting.
    """
    found = waiting.load(folder)
    return found if found is not None else Waiting([_state(worker) for worker in folder.each])


def _state(worker: WorkerFolder) -> State:
    records = worker.records
    step = max((record.step for record in records), default=0)
    known = [event.state for event in worker.events if isinstance(event, STAGES)]
    what = known[-1] if known else "starting"
    return State(member=worker.worker, name=worker.name, what=what, step=step)
