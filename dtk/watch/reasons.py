"""Why workers wait, in one sentence each: what is so, with the steps, and what to do."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

from dtk.errors import in_words
from dtk.language import N_, _, ngettext
from dtk.watch.state import State

__all__ = ["REASONS", "clauses", "given_up", "names", "unlike"]

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
