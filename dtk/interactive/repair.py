"""A cluster is usable again: softly at the gate, by cancelling, by aborting, or with a new process, in this order.

Each step has its deadline, and what it came to is said: which step it was, what was lost, whether replicas are equal.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dtk.interactive import begin
from dtk.interactive import upload as bring
from dtk.interactive.talk import Outcome, Talk
from dtk.interactive.words import workers_in_words
from dtk.language import N_, _, ngettext

__all__ = ["Freed", "Settled", "compare", "free", "interrupt", "settle", "sync"]

# How long each way may take; the gate less where nobody comes nearer to it.
GATE_SECONDS, STILL_SECONDS, PYTHON_SECONDS, CANCEL_SECONDS, ABORT_SECONDS = 2.0, 0.3, 0.3, 1.2, 4.0
_ABOVE = 1000  # between the highest key ever used and the next

HOW = {
    "gate": N_("stopped before the next all-reduce, so that no step is lost"),
    "python": N_("stopped in the middle of its Python code"),
    "cancel": N_("the collective that was under way is cancelled, and its step lost"),
    "abort": N_("the collectives that were under way are aborted, and their step lost"),
    "process": N_("it takes a new process"),
}


@dataclass
class Settled:
    """How replicas are after a repair. compared: variables that all workers have. differing, lone: names, of those that
    differ, and of those that some workers have not.
    """

    compared: int
    differing: list[str]
    lone: Sequence[str] = ()

    def __str__(self) -> str:
        if self.differing:
            words = N_("replicas differ in {names}: cluster.sync() gives all workers worker 0's")
            said = [_(words, names=_listed(self.differing))]
        elif not self.compared:
            said = [_("there are no variables to compare")]
        else:
            n = self.compared
            said = [
                ngettext("replicas are equal ({n} variable compared)", "replicas are equal ({n} variables compared)", n)
            ]
        if self.lone:
            said.append(_("not all workers have {names}", names=_listed(self.lone)))
        return "; ".join(said)


def _listed(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    return ngettext("{name} and {n} more", "{name} and {n} more", len(names) - 1, name=names[0])


@dataclass
class Freed:
    """how: the step that was enough (a key of HOW). new: workers that were killed. outcome: of the cells."""

    how: str
    new: list[int]
    outcome: Outcome
    settled: Settled

    def __str__(self) -> str:
        whom = f" ({workers_in_words(self.new)})" if self.new else ""
        return f"{_(HOW[self.how])}{whom}; {self.settled}"


def interrupt(talk: Talk) -> Freed:
    """Stops what runs, with as little lost as possible."""
    with _undisturbed():
        outcome = talk.outcome
        how = "gate" if _at_the_gate(talk, outcome) else _by_force(talk, outcome, ("python", "cancel", "abort"))
        return _finish(talk, outcome, how)


def free(talk: Talk) -> Freed:
    """Ends waits in collectives; the gate stops nobody there."""
    with _undisturbed():
        outcome = Outcome(talk.number)
        eager = any(where.within for where in talk.where().values())  # which can't be cancelled
        return _finish(talk, outcome, _by_force(talk, outcome, ("abort",) if eager else ("cancel", "abort")))


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """A second interrupt waits: each way to the end has its deadline, and half of one helps nobody."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _finish(talk: Talk, outcome: Outcome, how: str) -> Freed:
    new = [peer.number for peer in talk.peers if peer.running is not None or _is_within(talk, peer.number)]
    begin.kill(talk.started, [talk.peers[worker] for worker in new])
    talk.open()
    talk.show_rest(outcome)
    forced = how in ("cancel", "abort") or bool(new) or any(end.get("op") for end in outcome.errors.values())
    return Freed("process" if new else how, new, outcome, settle(talk, enable=forced))


def _is_within(talk: Talk, worker: int) -> bool:
    """Whether one of its threads is in a collective, though its cell may have ended."""
    where = talk.where().get(worker)
    return where is not None and where.within > 0


def _until_idle(talk: Talk, outcome: Outcome, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while running := [peer for peer in talk.peers if peer.running is not None]:
        if time.monotonic() > deadline:
            return False
        talk.take(running, outcome)
    while any(where.within for where in talk.where().values()):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def _at_the_gate(talk: Talk, outcome: Outcome) -> bool:
    """All are held, those behind go on to the highest counters, and there each stops."""
    running = [peer for peer in talk.peers if peer.running is not None]
    for peer in running:
        peer.ask("hold", limits={}, raises=False)
    highest = talk.highest()
    for peer in running:
        peer.ask("hold", limits=highest, raises=True)
    began, before = time.monotonic(), _progress(talk)
    while not _until_idle(talk, outcome, STILL_SECONDS):
        now = _progress(talk)
        if now == before or time.monotonic() - began > GATE_SECONDS:
            return False
        before = now
    return True


def _progress(talk: Talk) -> list[tuple[int | None, int, int]]:
    """Changes as long as anyone comes nearer to the gate: takes collectives, or computes."""
    return [(where.cell, where.count, int(where.cpu / 0.01)) for where in talk.where().values()]


def _by_force(talk: Talk, outcome: Outcome, ways: Sequence[str]) -> str:
    seconds = {"python": PYTHON_SECONDS, "cancel": CANCEL_SECONDS, "abort": ABORT_SECONDS}
    for how in ways:
        until = time.monotonic() + seconds[how]
        while time.monotonic() < until:
            # Whoever waits is freed once; what it calls next may wait again, so it is said anew.
            for peer in talk.peers:
                if how != "python" and (how == "abort" or peer.running is not None):
                    peer.ask(how)
                if peer.running is not None:
                    peer.ask("interrupt")
            if _until_idle(talk, outcome, PYTHON_SECONDS):
                return how
    return "process"


def settle(talk: Talk, enable: bool) -> Settled:
    """With all workers idle: counters are alike again, collectives enabled, replicas compared."""
    where = talk.where()
    keys = [dict(each.keys) for each in where.values()]
    alike = all(each == keys[0] for each in keys)
    used = max((number for each in keys for number in each.values()), default=0)
    if enable or not alike:
        talk.do("settle", enable=enable, number=used + _ABOVE)
    return compare(talk)


def compare(talk: Talk) -> Settled:
    """Digests of all variables that are to be equal on all workers."""
    found = [answer["digests"] for answer in talk.do("digests").values()]
    names = list(dict.fromkeys(name for each in found for name in each))
    shared = [name for name in names if all(name in each for each in found)]
    differing = [name for name in shared if len({part for each in found for part in each[name].split()}) > 1]
    return Settled(len(shared), differing, [name for name in names if name not in shared])


def sync(talk: Talk, names: list[str], giver: int) -> str:
    """One worker's variables to all replicas, by a file; of the giver itself its first replica's to the others."""
    file = f"worker-{giver}/sync-{time.monotonic_ns()}.npz"
    given = talk.do("give", [giver], names=names, file=file)[giver]["names"]
    try:
        bring.files(talk.started, [peer.number for peer in talk.peers if peer.number != giver], [file])
        talk.do("take", names=names, given=given, file=file, giver=giver)
    finally:
        talk.started.links.remove(file)
    n = len(given)
    words = ngettext("{n} variable from worker {worker}", "{n} variables from worker {worker}", n, worker=giver)
    return f"{words}; {compare(talk)}"
