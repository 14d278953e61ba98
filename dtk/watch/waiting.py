"""What one worker is doing, and the words for it."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from dtk.errors import in_words
from dtk.language import N_, _, ngettext
from dtk.records import RunFolder
from dtk.records.events import Failed, Finished, Running, Starting, Training

__all__ = [
    "FILE",
    "STAGES",
    "Line",
    "State",
    "Waiting",
    "board",
    "called",
    "clauses",
    "cut",
    "explain",
    "given_up",
    "load",
    "names",
    "save",
    "uneven",
    "unlike",
]

STAGES = (Starting, Running, Training, Finished, Failed)  # the events that a worker's state in a word is taken from
_EVALUATES = ("evaluate", "predict")

_WHAT = (
    *(N_("starting"), N_("imported"), N_("running"), N_("building"), N_("training")),
    *(N_("stopped"), N_("finished"), N_("failed"), N_("consequence")),
)
_ENDS = {"consequence": N_("failed in consequence"), "stopped": N_("stopped by a signal")}  # of others, their `what`
_BLOCKED = {
    "": N_("{where}, silent"),
    "collective": N_("{where}, in a collective"),
    "operation": N_("{where}, waits inside TensorFlow"),
    "connecting": N_("{where}, waits for peers"),
}


def called(name: str, number: int) -> str:
    """What people call a member of a run, by the name of its directory and its number."""
    return _("evaluator") if name == "evaluator" else _("worker {worker}", worker=number)


@dataclass(frozen=True)
class Line:
    """One member's line in the live view.

    words: its state. seconds: how long it has been silent there; None where it is not. waits: for whom, in words.
    what: the state as in `State`, where it says all that there is to say; otherwise "".
    """

    words: str
    seconds: float | None = None
    waits: str = ""
    what: str = ""

    def __str__(self) -> str:
        said = self.words
        if self.seconds is not None:
            said = _("{words} for {seconds:.0f} s", words=said, seconds=self.seconds)
        return _("{first}, {more}", first=said, more=self.waits) if self.waits else said


@dataclass(frozen=True)
class State:
    """What one worker is doing.

    name: of its directory. what: "starting", "imported" (TensorFlow is), "running" (its function), "building" (a
    training has begun, no step is recorded), "training", "stopped" (by SIGSTOP or its like), "finished", "failed" or
    "consequence" (failed because of another). step: the last that it recorded, 0 before. quiet: seconds without a
    record, an event, output or processor time. silent: whether that is long enough to ask where it is; blocked, call,
    line then say so (`dtk.watch.signs.Activity`). planned: steps an epoch that its `fit` announced.
    """

    member: int
    name: str
    what: str = "starting"
    step: int = 0
    quiet: float = 0.0
    silent: bool = False
    blocked: str = ""
    call: str = ""
    line: str = ""
    planned: int | None = None
    pid: int | None = None

    @property
    def waits(self) -> bool:
        """Whether it can't go on without its peers."""
        return bool(self.blocked) and self.what not in ("finished", "failed", "consequence", "stopped")

    @property
    def ended(self) -> bool:
        return self.what in ("finished", "failed", "consequence")

    @property
    def called(self) -> str:
        return called(self.name, self.member)

    @property
    def place(self) -> str:
        """Where in the training: "in step 13", "in evaluate after step 12", "at line 17 in train", or ""."""
        return self.stage or (_("at {line}", line=self.line) if self.line else "")

    @property
    def stage(self) -> str:
        """The place without the learner's line."""
        if self.blocked == "connecting":
            return _("in {call}", call="MultiWorkerMirroredStrategy()")
        if self.call in _EVALUATES and self.step:
            return _("in {call} after step {step}", call=self.call, step=self.step)
        if self.step and self.call not in _EVALUATES:
            return _("in step {step}", step=self.step + 1)
        return _("in {call}", call=self.call) if self.call else ""

    @property
    def position(self) -> str:
        """How far it has come: "step 13", "evaluate after step 12"; "" before the first step."""
        if self.call in _EVALUATES:
            return _("{what} after step {step}", what=self.call, step=self.step) if self.step else self.call
        return _("step {step}", step=self.step + 1) if self.step else ""

    def board(self) -> Line:
        """The state for the live view, which knows the steps itself: one word as long as all goes well."""
        plain = self.ended or (self.what == "training" and not self.silent)
        return Line(_(self.what), what=self.what) if plain else self.said()

    def said(self) -> Line:
        """The state in a few words, with the seconds of a silence."""
        if self.ended or self.what == "stopped":
            end = _(_ENDS.get(self.what, self.what))
            return Line(_("{what} after step {step}", what=end, step=self.step) if self.step else end)
        where = self.position or _(self.what)
        if self.silent:
            return Line(_(_BLOCKED[self.blocked], where=where), self.quiet)
        return Line(where, what="" if self.position else self.what)

    def words(self) -> str:
        """The state in a few words: "step 13, in a collective for 5 s"."""
        return str(self.said())


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
        # For all that do not connect.
        return other.blocked != "connecting" or other.what == "stopped"
    return not other.waits or _position(one) != _position(other)


def _position(state: State) -> tuple[Any, ...]:
    # Not `blocked`: of two workers in one collective the stacks may show it at one and not at the other.
    return state.blocked == "connecting", state.step, state.call, state.line


def _failed(states: list[State], first: int) -> Waiting:
    others = [s.member for s in states if s.member != first and s.what not in ("finished", "failed")]
    return Waiting(states, [(other, first) for other in others], "failed")


def cut(states: Sequence[State], found: Sequence[tuple[int, int, str]], hosts: Sequence[str]) -> Waiting:
    """The graph of workers that can't reach each other any more. found: (who, whom, the system's words)."""
    who, whom, words = found[0]
    what = N_("{one} on {here} can't reach {other} on {there} any more ({reason})")
    if any(pair[:2] == (whom, who) for pair in found):
        what = N_("{one} on {here} can't reach {other} on {there} any more and back ({reason})")
    one, other = states[who].called, states[whom].called
    sentence = _(what, one=one, here=hosts[who], other=other, there=hosts[whom], reason=words.lower())
    if states[who].position:
        sentence = _("{first}, {more}", first=sentence, more=_("in {place}", place=states[who].position))
    sentence = _("{words}: the network between them is cut", words=sentence)
    return Waiting(list(states), [pair[:2] for pair in found], "cut", sentence)


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


# What workers do: one, and several.
_DOES = {
    "stopped": (
        N_("{names} is stopped by a signal (SIGSTOP, or a debugger)"),
        N_("{names} are stopped by a signal (SIGSTOP, or a debugger)"),
    ),
    "finished": (N_("{names} has ended"), N_("{names} have ended")),
    "waits": (N_("{names} waits {place}"), N_("{names} wait {place}")),
    "silent": (N_("{names} is silent"), N_("{names} are silent")),
    "silent at": (N_("{names} is silent at {place}"), N_("{names} are silent at {place}")),
    "starting": (N_("{names} is starting"), N_("{names} are starting")),
    "imported": (N_("{names} has imported TensorFlow and no more"), N_("{names} have imported TensorFlow and no more")),
    "busy": (N_("{names} is busy elsewhere"), N_("{names} are busy elsewhere")),
}
_EQUALLY = N_("{words}: give all workers equally many steps")


def _stopped(states: list[State], waiting: list[State], awaited: list[State]) -> str:
    stopped = [state for state in states if state.what == "stopped"]
    if not stopped:
        return ""
    words, several = _after(_does("stopped", stopped), stopped), len(stopped)
    if waiting:
        waits = ngettext("{waiting} for it", "{waiting} for them", several, waiting=_who_waits(waiting))
        words = _("{first}, and {more}", first=words, more=waits)
    return ngettext("{words}; SIGCONT lets it go on", "{words}; SIGCONT lets them go on", several, words=words)


def _missing(states: list[State], waiting: list[State], awaited: list[State]) -> str:
    if not waiting or any(state.blocked != "connecting" for state in waiting):
        return ""
    remedy = _("make the strategy on every worker, before anything that may end or wait")
    return in_words(_silent(states, waiting, awaited), remedy)


def _uneven(states: list[State], waiting: list[State], awaited: list[State]) -> str:
    gone = [state for state in awaited if state.what == "finished"]
    if not gone or not waiting:
        return ""
    ended = _after(_("{names} ended", names=names(gone)), gone)
    alone = [state for state in waiting if state.call in ("evaluate", "predict")]
    if alone and len(alone) == len(waiting):
        words = N_("{ended}, {waiting}, which all workers must call; call it on each of them")
        return _(words, ended=ended, waiting=_who_waits(waiting))
    return _(_EQUALLY, words=clauses([ended, _who_waits(waiting)]))


def _order(states: list[State], waiting: list[State], awaited: list[State]) -> str:
    if not waiting or any(not state.waits for state in awaited):
        return ""
    words = N_(
        "{places}, each in another collective: all workers must make the same collectives in the same order, and "
        "equally many steps"
    )
    if len({state.step for state in waiting}) > 1:
        words = N_(
            "{places}, each in another step: all workers must make the same collectives in the same order, and "
            "equally many steps"
        )
    return _(words, places=_together_with(_does("waits", [state], _precisely(state)) for state in waiting))


def _silent(states: list[State], waiting: list[State], awaited: list[State]) -> str:
    if not waiting:
        return ""
    words, instead = N_("{waiting} for {awaited}, but {instead}"), _instead(awaited)
    return _(words, waiting=_who_waits(waiting), awaited=names(awaited), instead=instead)


def _together(states: list[State], waiting: list[State], awaited: list[State]) -> str:
    """All wait in the same place: which collective of the several there, no Python stack shows."""
    blocked = [state for state in states if state.waits]
    if len(blocked) < 2 or len(blocked) < len([state for state in states if not state.ended]):
        return ""
    place = blocked[0].place
    what = N_("{names} all wait inside TensorFlow {place}") if place else N_("{names} all wait inside TensorFlow")
    why = _(
        "they may be in different collectives of it (a branch that only some workers take), or the network between "
        "them is gone"
    )
    return in_words(_(what, names=names(blocked), place=place), why)


def given_up(stopped: list[State]) -> str:
    """The message where peers failed because these workers were stopped for too long."""
    return ngettext(
        "{stopped}, so that TensorFlow gave it up and the other workers failed",
        "{stopped}, so that TensorFlow gave them up and the other workers failed",
        len(stopped),
        stopped=_after(_does("stopped", stopped), stopped),
    )


def unlike(states: Sequence[State]) -> str:
    """The message where workers met in different collectives and their `fit`s were not equally long; "" elsewhere."""
    planned = [state for state in states if state.planned is not None]
    if len({state.planned for state in planned}) < 2:
        return ""
    first, rest = N_("{steps} steps an epoch on {worker}"), N_("{steps} on {worker}")
    counts = [_(rest if k else first, steps=state.planned, worker=state.called) for k, state in enumerate(planned)]
    words = _("fit was to do {counts}, so that the workers met in different collectives", counts=_listed(counts))
    return _(_EQUALLY, words=_after(words, planned))


REASONS = (
    ("stopped", _stopped),
    ("missing", _missing),
    ("uneven", _uneven),
    ("order", _order),
    ("silent", _silent),
    ("unknown", _together),
)


def _does(what: str, states: Sequence[State], place: str = "") -> str:
    return _(_DOES[what][len(states) > 1], names=names(states), place=place)


def _who_waits(waiting: list[State]) -> str:
    """ "worker 0 waits in step 13", "workers 0 and 2 wait in step 13"."""
    places = list(dict.fromkeys(state.place for state in waiting if state.place))
    return _does("waits", waiting, _listed(places) if places else _("in a collective"))


def _instead(awaited: list[State]) -> str:
    """What the awaited workers do: "worker 1 has ended after step 12", "workers 1 and 2 are silent at line 5 in f"."""
    groups: dict[tuple[str, str, int], list[State]] = {}
    for state in awaited:
        groups.setdefault(_doing(state), []).append(state)
    said = [(what, _does(what, states, place), states) for (what, place, _step), states in groups.items()]
    untimed = ("waits", "starting", "imported")
    return _together_with(words if what in untimed else _after(words, states) for what, words, states in said)


def _doing(state: State) -> tuple[str, str, int]:
    """One of _DOES, the place, and the step where that is to be said."""
    if state.what == "finished":
        return "finished", "", state.step
    if state.waits:
        return "waits", _precisely(state), 0
    if state.silent:
        return "silent at" if state.line else "silent", state.line, state.step
    return (state.what, "", 0) if state.what in ("starting", "imported") else ("busy", "", state.step)


def _precisely(state: State) -> str:
    if not state.stage:
        return state.place or _("in a collective")
    return _("{place} ({line})", place=state.stage, line=state.line) if state.line else state.stage


def _after(words: str, states: list[State]) -> str:
    steps = {state.step for state in states}
    if len(steps) > 1 or steps == {0}:
        return words
    return _("{what} after step {step}", what=words, step=steps.pop())


def names(states: Sequence[State]) -> str:
    """ "worker 0", "workers 0, 1 and 3"."""
    if len(states) == 1:
        return states[0].called
    return _("workers {numbers}", numbers=_listed([str(state.member) for state in states]))


def clauses(parts: Sequence[str]) -> str:
    """Parts of a sentence that could stand alone; unlike the members of a list, which some languages set apart."""
    return functools.reduce(lambda first, more: _("{first}, {more}", first=first, more=more), parts)


def _together_with(parts: Iterable[str]) -> str:
    """Such parts, the last with an "and"."""
    *first, last = parts
    return _("{first} and {more}", first=clauses(first), more=last) if first else last


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else _("{some} and {last}", some=_(", ").join(words[:-1]), last=words[-1])
