"""Who waits for whom, and who met in unlike collectives: by the counters of collectives that each worker has.

A worker that has taken number k of a counter waits there until all others have taken it. One that is idle, or that
itself waits for the first, won't come: that is certain, and needs no time-out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Place", "Unlike", "Wait", "Where", "stuck", "unlike"]

_BUSY = 0.2  # of a core: above, a worker computes and does not wait

# Where the learner's own code is: the innermost file and line, and the outermost, in the cell that runs; "" for none.
Place = tuple[str, int, str, int]


@dataclass(frozen=True)
class Where:
    """What a worker reported of itself. at, cpu: seconds (monotonic; of its processor time).

    cell: that it is in; None between cells. held: the counters before which the gate holds it. keys: the next number of
    each counter. met: (counter, number, place) of its last collectives in this cell, of which there were `count`.
    within: threads that are in an eager collective.
    """

    worker: int
    at: float
    cell: int | None
    place: Place
    held: Sequence[str] = ()
    keys: Mapping[str, int] = field(default_factory=dict)
    met: Sequence[tuple[str, int, Place]] = ()
    count: int = 0
    cpu: float = 0.0
    within: int = 0

    @classmethod
    def of(cls, worker: int, at: float, report: Mapping[str, Any]) -> Where:
        """From a worker's message, or from the end of its cell; an empty one is that of a worker between cells."""
        met = [(counter, number, tuple(place)) for counter, number, place in report.get("met", ())]
        place = tuple(report.get("place", ("", 0, "", 0)))
        facts = {name: report[name] for name in ("held", "keys", "count", "cpu", "within") if name in report}
        return cls(worker, at, report.get("cell"), place, met=met, **facts)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Wait:
    """A worker that waits in a collective, at this place, for others that won't come."""

    worker: int
    place: Place
    awaited: tuple[int, ...]


@dataclass(frozen=True)
class Unlike:
    """Two workers that met in one collective from different lines."""

    one: int
    other: int
    place: Place
    elsewhere: Place


def stuck(before: Mapping[int, Where], now: Mapping[int, Where], broken: Collection[int] = ()) -> list[Wait]:
    """The workers that wait for what can't come, by two looks at all of them.

    broken: workers whose cell ended because a collective failed there: they have taken its number, and are gone.
    """
    waiting = {
        worker: awaited
        for worker, where in now.items()
        if worker in before and _sits(before[worker], where) and (awaited := _awaited(where, now, broken))
    }
    idle = {worker for worker, where in now.items() if where.cell is None}
    while True:  # who waits only for workers that may still come is not stuck
        freed = [worker for worker, awaited in waiting.items() if not {*awaited} & (idle | {*waiting})]
        if not freed:
            return [Wait(worker, now[worker].place, tuple(awaited)) for worker, awaited in sorted(waiting.items())]
        for worker in freed:
            del waiting[worker]


def _sits(before: Where, now: Where) -> bool:
    """In the same collective as before, without computing."""
    same = now.cell is not None and (now.cell, now.count, now.place) == (before.cell, before.count, before.place)
    quiet = now.cpu - before.cpu < _BUSY * (now.at - before.at)
    return same and quiet and not now.held and bool(now.met) and now.met[-1][2] == now.place


def _awaited(where: Where, now: Mapping[int, Where], broken: Collection[int]) -> list[int]:
    counter, number, _ = where.met[-1]
    others = {other: theirs for other, theirs in now.items() if other != where.worker}
    return [other for other, theirs in others.items() if other in broken or theirs.keys.get(counter, -1) <= number]


def unlike(now: Mapping[int, Where], line: Callable[[Place], str]) -> Unlike | None:
    """The first collective in which workers met from lines with another text. line: the text at a place."""
    met: dict[tuple[int, str], dict[int, Place]] = {}
    for worker, where in sorted(now.items()):  # so that the same cells give the same words
        for counter, number, place in where.met:
            if place[0]:
                met.setdefault((number, counter), {})[worker] = place
    for key in sorted(met):
        (one, place), *others = met[key].items()
        for other, elsewhere in others:
            if place != elsewhere and line(place) != line(elsewhere):
                return Unlike(one, other, place, elsewhere)
    return None
