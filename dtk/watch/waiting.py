"""What one worker is doing, and the words for it."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from dtk.errors import in_words
from dtk.language import N_, _, ngettext
from dtk.records import RunFolder
from dtk.records.events import Failed, Finished, Running, Starting, Training
from dtk.watch.explain import SAME_ORDER

STAGES = (Starting, Running, Training, Finished, Failed)  # the events that a worker's state in a word is taken from
_LAST = (Finished.state, Failed.state)
_EVALUATES = ("evaluate", "predict")

_WHAT = (
    *(N_("starting"), N_("imported"), N_("running"), N_("building"), N_("training")),
    *(N_("stopped"), N_("finished"), N_("failed"), N_("consequence")),
)
_ENDS = {"consequence": N_("failed in consequence"), "stopped": N_("stopped by a signal")}  # of others, their `what`
_BLOCKED = {
    "": N_("silent"),
    "collective": N_("in a collective"),
    "operation": N_("waits inside TensorFlow"),
    "connecting": N_("waits for peers"),
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

    @classmethod
    def of(cls, what: str) -> Line:
        return cls(_(what), what=what)

    def __str__(self) -> str:
        said = self.words
        if self.seconds is not None:
            said = _("{words} for {seconds:.0f} s", words=said, seconds=self.seconds)
        return clauses([said, self.waits]) if self.waits else said


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
        return bool(self.blocked) and not self.ended and self.what != "stopped"

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
        place = "MultiWorkerMirroredStrategy()" if self.blocked == "connecting" else self.position or self.call
        return _("in {place}", place=place) if place else ""

    @property
    def position(self) -> str:
        """How far it has come: "step 13", "evaluate after step 12"; "" before the first step."""
        if self.call in _EVALUATES:
            return _("{what} after step {step}", what=self.call, step=self.step) if self.step else self.call
        return _("step {step}", step=self.step + 1) if self.step else ""

    def board(self) -> Line:
        """The state for the live view, which knows the steps itself: one word as long as all goes well."""
        plain = self.ended or (self.what == "training" and not self.silent)
        return Line.of(self.what) if plain else self.said()

    def said(self) -> Line:
        """The state in a few words, with the seconds of a silence: "step 13, in a collective for 5 s"."""
        if self.ended or self.what == "stopped":
            end = _(_ENDS.get(self.what, self.what))
            return Line(_("{what} after step {step}", what=end, step=self.step) if self.step else end)
        where = self.position or _(self.what)
        if self.silent:
            return Line(clauses([where, _(_BLOCKED[self.blocked])]), self.quiet)
        return Line(where, what="" if self.position else self.what)


FILE = "states.json"  # in the run's directory, where it ended with an error
# Seconds of silence after which work is called uneven, by `State.blocked`: of an operation it is not certain.
_UNEVEN = {"collective": 5.0, "connecting": 5.0, "operation": 10.0}


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
        others = [state.member for state in states if state.what not in ("finished", "failed")]
        return Waiting(list(states), [(other, first) for other in others if other != first], "failed")
    edges = [(one.member, other.member) for one in states for other in states if _waits_for(one, other)]
    waiting = [state for state in states if any(state.member == who for who, _ in edges)]
    awaited = [state for state in states if any(state.member == whom for _, whom in edges)]
    return Waiting(list(states), edges, *_why(states, waiting, awaited))


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


def cut(states: Sequence[State], found: Sequence[tuple[int, int, str]], hosts: Sequence[str]) -> Waiting:
    """The graph of workers that can't reach each other any more. found: (who, whom, the system's words)."""
    who, whom, words = found[0]
    what = N_("{one} on {here} can't reach {other} on {there} any more ({reason}): the network between them is cut")
    one, other = states[who].called, states[whom].called
    sentence = _(what, one=one, here=hosts[who], other=other, there=hosts[whom], reason=words.lower())
    return Waiting(list(states), [pair[:2] for pair in found], "cut", sentence)


def uneven(states: Sequence[State], stall_timeout: float) -> bool:
    """Whether all workers that have not ended wait for some that have finished, for long enough to say so."""
    left = [state for state in states if not state.ended]
    if not left or not any(state.what == "finished" for state in states):
        return False
    return all(state.waits and state.quiet >= min(_UNEVEN[state.blocked], stall_timeout) for state in left)


def board(states: Sequence[State]) -> list[Line]:
    """Each member's line in the live view, with whom it waits for."""
    edges = explain(states).edges if any(state.waits for state in states) else []
    lines = []
    for state in states:
        line, awaited = state.board(), [other for other in states if (state.member, other.member) in edges]
        if awaited:
            line = replace(line, waits=_("waits for {workers}", workers=names(awaited)), what="")
        lines.append(line)
    return lines


def save(folder: RunFolder, waiting: Waiting) -> None:
    """Writes the graph to the run's directory, for a figure; a full disk must not hide the error itself."""
    with contextlib.suppress(OSError):  # the message has the sentence
        (folder.path / FILE).write_text(json.dumps(asdict(waiting)))


def load(folder: RunFolder) -> Waiting | None:
    """The graph that `save` wrote; None where the run ended well or has not ended."""
    try:
        saved = json.loads((folder.path / FILE).read_text())
    except (FileNotFoundError, ValueError):
        return None
    edges = [(int(one), int(other)) for one, other in saved["edges"]]
    return Waiting([State(**state) for state in saved["states"]], edges, saved["reason"], saved["sentence"])


def ends(folder: RunFolder) -> list[str]:
    """How each member ended: "finished", "failed", "consequence" as in `State`, or "" where nothing tells."""
    found, members = load(folder), folder.members
    said = {member.worker: event.state for member in members for event in member.events if event.state in _LAST}
    said |= {state.member: state.what for state in (found.states if found else ()) if state.ended}
    return [said.get(member.worker, "") for member in members]


# What workers are, where they neither wait nor have ended.
_ARE = {
    "stopped": N_("stopped by a signal (SIGSTOP, or a debugger)"),
    "silent": N_("silent"),
    "silent at": N_("silent at {place}"),
    "starting": N_("starting"),
    "busy": N_("busy elsewhere"),
}
_EQUALLY = N_("{words}: give all workers the same steps")


def _why(states: Sequence[State], waiting: list[State], awaited: list[State]) -> tuple[str, str]:
    """The reason in a word, and the sentence that explains it; ("", "") where no worker waits."""
    silent = ""
    if waiting:
        words, instead = N_("{waiting} for {awaited}, but {instead}"), _instead(awaited)
        silent = _(words, waiting=_who_waits(waiting), awaited=names(awaited), instead=instead)
    if stopped := [state for state in states if state.what == "stopped"]:
        words = silent or _after(_does("stopped", stopped), stopped)
        return "stopped", in_words(words, _("SIGCONT lets a stopped process go on"))
    if not waiting:
        # All in the same place: which collective of the several there, no Python stack shows.
        blocked = [state for state in states if state.waits]
        if len(blocked) < max(2, sum(not state.ended for state in states)):
            return "", ""
        why = _(
            "they may be in different collectives there (a branch that only some workers take), or the network between "
            "them is gone"
        )
        return "unknown", in_words(_who_waits(blocked), why)
    if all(state.blocked == "connecting" for state in waiting):
        return "missing", in_words(silent, _("make the strategy on every worker, before anything that may end or wait"))
    if gone := [state for state in awaited if state.what == "finished"]:
        words = clauses([_after(_does("finished", gone), gone), _who_waits(waiting)])
        if all(state.call in _EVALUATES for state in waiting):
            return "uneven", in_words(words, _("call it on every worker"))
        return "uneven", _(_EQUALLY, words=words)
    if all(state.waits for state in awaited):
        places = clauses([_does("waits", [state], _precisely(state)) for state in waiting])
        return "order", in_words(places, _(SAME_ORDER))
    return "silent", silent


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
    words = N_("{steps} steps an epoch on {worker}")
    counts = [_(words, steps=state.planned, worker=state.called) for state in planned]
    words = _("fit was to do {counts}, so that the workers met in different collectives", counts=_listed(counts))
    return _(_EQUALLY, words=_after(words, planned))


def _does(what: str, states: Sequence[State], place: str = "") -> str:
    who, count = names(states), len(states)
    if what == "finished":
        return _("{names} ended", names=who)
    if what == "waits":
        return ngettext("{names} waits {place}", "{names} wait {place}", count, names=who, place=place)
    return ngettext("{names} is {words}", "{names} are {words}", count, names=who, words=_(_ARE[what], place=place))


def _who_waits(waiting: list[State]) -> str:
    """ "worker 0 waits in step 13", "workers 0 and 2 wait in step 13"."""
    places = list(dict.fromkeys(state.place for state in waiting if state.place))
    return _does("waits", waiting, _listed(places) if places else _("in a collective"))


def _instead(awaited: list[State]) -> str:
    """What the awaited workers do: "worker 1 ended after step 12", "workers 1 and 2 are silent at line 5 in f"."""
    groups: dict[tuple[str, str, int], list[State]] = {}
    for state in awaited:
        groups.setdefault(_doing(state), []).append(state)
    return clauses(
        [_after(_does(what, states, place), states if step else []) for (what, place, step), states in groups.items()]
    )


def _doing(state: State) -> tuple[str, str, int]:
    """ "finished", "waits" or one of _ARE, the place, and the step where that is to be said."""
    if state.what in ("finished", "stopped"):
        return state.what, "", state.step
    if state.waits:
        return "waits", _precisely(state), 0
    if state.silent:
        return "silent at" if state.line else "silent", state.line, state.step
    return ("starting", "", 0) if state.what == "starting" else ("busy", "", state.step)


def _precisely(state: State) -> str:
    if state.stage and state.line:
        return _("{what} ({why})", what=state.stage, why=state.line)
    return state.place or _("in a collective")


def _after(words: str, states: list[State]) -> str:
    steps = {state.step for state in states}
    if len(steps) > 1 or steps <= {0}:
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


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else _(" and ").join([_(", ").join(words[:-1]), words[-1]])
