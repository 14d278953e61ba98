"""Makes a cluster usable again: softly at the gate, by an interrupt, by an abort, or with a new process, in this order.

Each way has its deadline, and its result is said: which way it was, what was lost, whether replicas are equal.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator, Sequence

from dtk.interactive import processes
from dtk.interactive.session import Session
from dtk.language import N_, _, first_three, ngettext
from dtk.live.text import workers_in_words

_SECONDS = {"gate": 2.0, "python": 0.9, "abort": 4.0}  # that each way may take
_STILL_SECONDS = 0.3
_ABOVE = 1000  # between the highest key ever used and the next

HOW = {
    "gate": N_("stopped before the next all-reduce, so that no step is lost"),
    "python": N_("stopped in the middle of its Python code"),
    "abort": N_("the collectives that were under way are aborted, and their step lost"),
    "process": N_("it takes a new process"),
}


def stop(session: Session, ways: Sequence[str]) -> str:
    """Stops what runs, and says how: goes through the ways (keys of HOW) until one is enough.

    Workers that none has freed get new processes.
    """
    with _undisturbed():
        how = next((way for way in ways if _frees(session, way)), "process")
        session.alike = False
        within = {worker for worker, where in session.where().items() if where.within}  # though its cell may have ended
        new = [peer for peer in session.peers if peer.running is not None or peer.number in within]
        processes.kill(session.started, new)
        session.open()
        session.output.show(last=True)
        forced = how == "abort" or bool(new) or any(end["op"] for end in session.outcome.errors.values())
        replicas = settle(session, enable=forced)[1]
        words = _(HOW["process" if new else how])
        if new:
            words = f"{words} ({workers_in_words([peer.number for peer in new])})"
        return _("; ").join([words, replicas, *(restart(session, peer.number) for peer in new)])


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


def _until_idle(session: Session) -> bool:
    """Whether no worker is in a cell any more, nor a thread of one in a collective, within a moment."""
    deadline = time.monotonic() + _STILL_SECONDS
    while session.running() or any(where.within for where in session.where().values()):
        if time.monotonic() > deadline:
            return False
        session.hear()
    return True


def _frees(session: Session, way: str) -> bool:
    """Tries this way; whether no worker is in a cell any more."""
    before = None
    if way == "gate":  # all are held, those behind go on to the highest counters, and there each stops
        session.hold(raises=True)
        before = _progress(session)
    until = time.monotonic() + _SECONDS[way]
    while time.monotonic() < until:
        # Whoever waits is freed once; what it calls next may wait again, so it is said anew.
        for peer in session.peers:
            if way == "abort":
                peer.ask("abort")
            if way != "gate" and peer.running is not None:
                peer.ask("interrupt")
        if _until_idle(session):
            return True
        now = _progress(session) if way == "gate" else None
        if way == "gate" and now == before:  # nobody comes nearer to it
            return False
        before = now
    return False


def _progress(session: Session) -> list[tuple[int | None, int, int]]:
    """Changes as long as anyone comes nearer to the gate: takes collectives, or computes."""
    return [(where.cell, where.count, int(where.cpu / 0.01)) for where in session.where().values()]


def settle(session: Session, enable: bool) -> tuple[bool, str]:
    """With all workers idle: counters are alike again, collectives enabled; then as `compare`."""
    keys = [dict(where.keys) for where in session.where().values()]
    if enable or any(each != keys[0] for each in keys):
        used = max((number for each in keys for number in each.values()), default=0)
        session.do("settle", enable=enable, number=used + _ABOVE)
    return compare(session)


def compare(session: Session) -> tuple[bool, str]:
    """Whether all variables are equal that are to be equal on all workers, by their digests; and that in words."""
    found = [answer["digests"] for answer in session.do("digests").values()]
    if not found:
        return False, _("; ").join(peer.ended for peer in session.peers)
    shared = [name for name in found[0] if all(name in each for each in found)]
    differing = [name for name in shared if len({part for each in found for part in each[name].split()}) > 1]
    if differing:
        names = first_three(differing)
        return False, _("replicas differ in {names}: cluster.sync() gives all workers worker 0's", names=names)
    return True, ngettext(
        "replicas are equal ({n} variable compared)", "replicas are equal ({n} variables compared)", len(shared)
    )


def sync(session: Session, names: list[str], giver: int) -> str:
    """Gives all replicas one worker's variables, and says whether they are equal then."""
    with _given(session, names, giver) as (file, count):
        session.do("take", names=names, file=file, giver=giver)
    words = ngettext("{n} variable from worker {worker}", "{n} variables from worker {worker}", count, worker=giver)
    return _("; ").join([words, compare(session)[1]])


@contextlib.contextmanager
def _given(session: Session, names: list[str], giver: int) -> Iterator[tuple[str, int]]:
    """A file with one worker's variables, which all others see; and how many variables it has."""
    file = f"worker-{giver}/given-{time.monotonic_ns()}.pkl"
    count = session.do("give", [giver], names=names, file=file)[giver]["count"]
    try:
        yield file, count
    finally:
        (session.started.folder.path / file).unlink(missing_ok=True)


# ---- a worker that was killed, or is to begin anew


def restart(session: Session, worker: int) -> str:
    """Gives a worker a new process, and says what that has and what it lacks; the others keep what they have.

    None of the others is in a cell; some may have ended as well.
    """
    session.alike = False
    processes.replace(session.started, worker)
    through = [cell for cell in session.cells if cell.went_through(worker)]  # one that was interrupted may never end
    cells = [(cell.number, cell.code) for cell in through if cell.code is not None]
    others = [peer.number for peer in session.idle() if peer.number != worker]
    with _given(session, [], others[0]) if others else contextlib.nullcontext(("", 0)) as (file, _count):
        done = session.do("replay", [worker], cells=cells, file=file)[worker]
        if others:
            session.do("take", names=[], file=file, giver=others[0])
    words = N_("{again} of {all} cells ran again; up to the first all-reduce: {cut}, with an error: {failed}")
    cut, failed = (_(", ").join(session.cells[k - 1].name for k in done[how]) or "-" for how in ("cut", "failed"))
    again = len(cells) - len(done["cut"]) - len(done["failed"])
    said = [
        _("worker {worker} is a new process", worker=worker),
        _(words, again=again, all=len(cells), cut=cut, failed=failed),
    ]
    if done["taken"]:
        said.append(_("{names} from worker {worker}", names=", ".join(done["taken"]), worker=others[0]))
    if done["lacking"]:
        said.append(_("it lacks {names}", names=", ".join(done["lacking"])))
    if others:
        said.append(settle(session, enable=True)[1])
    said += [peer.ended for peer in session.peers if peer.lost is not None]
    session.output.skip()
    return _("; ").join(said)
