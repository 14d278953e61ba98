"""Who is to blame for a failure: one decision, from facts, and one function that words it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dtk.errors import WorkerFailed
from dtk.language import N_, _
from dtk.records import WorkerFolder
from dtk.records.events import FaultCame, of_kind
from dtk.watch import explain, waiting
from dtk.watch.waiting import State, Waiting, called
from dtk.watch.watch import Failure, Watch

__all__ = ["Blame", "culprit", "decide", "error_of", "is_settled", "sentence"]

_HEARTBEATS = 5.0  # s between two; a worker is given up 10 s after its last, and a shorter standstill is no reason


class Blame(NamedTuple):
    """Who is to blame for a failure, and why.

    cause: one of `_SENTENCES`, which `parts` fill; or "stopped", "collectives" or "cut", which `dtk.watch.waiting` and
    `explain` have worded. reason: as in WorkerFailed.
    """

    worker: int
    cause: str
    reason: str
    parts: dict[str, Any]


_SENTENCES = {
    "own": N_("{name} {words}"),
    "unsure": N_("{words} (these words don't tell whether it failed by itself or lost another worker)"),
    "departed": N_("{name} {words}"),
    "slept": N_(
        "this machine, or all of the run, stood still for {seconds:.0f} s (a laptop that slept?), so that TensorFlow, "
        "which heard no heartbeat for that long, gave its workers up; run it again, or pass restarts=1 to dtk.run"
    ),
    "dropped": N_(
        "{worker} was cut off from its peers by the fault {fault}, so that their all-reduce failed on every worker"
    ),
    "unheard": N_(
        "TensorFlow heard no heartbeat of {worker} any more, though no worker ended by itself: look at the network "
        "between {worker} and worker 0, and whether {worker} was frozen"
    ),
}


def culprit(failures: Sequence[Failure]) -> Failure | None:
    """Who failed first and not in consequence of another; None where none failed."""
    if not failures:
        return None
    first = min(failures, key=lambda each: (not each.is_own, each.is_consequence, each.at))
    # Where every worker makes the same mistake, name the first by index, not by chance.
    return next(each for each in failures if each is first or each.is_like(first))


def is_settled(failures: Sequence[Failure], in_time: bool) -> bool:
    """Whether nothing that may still come makes another the culprit. in_time: others may still raise the same."""
    first = culprit(failures)
    if first is None or not first.is_own:
        return False
    return (first.code is not None or bool(first.lost)) and (first.member == 0 or not in_time)


def decide(watch: Watch, states: Sequence[State], slept: float, cut: Callable[[], Waiting | None]) -> Blame:
    """Who failed first, or who made the others fail without failing itself.

    states: of the workers. slept: seconds for which this machine stood still. cut: asks the machines which of them
    can't reach another, and is only called where that could be the reason.
    """
    failures = watch.failures()
    first = culprit(failures)
    assert first is not None, "a failure was seen before"
    message = first.error["message"] if first.error is not None else ""
    stopped = [state for state in states if state.what == "stopped"]
    if stopped and not first.is_own:
        # TensorFlow gives up a worker that sends no heartbeat, and tells its peers only.
        return Blame(stopped[0].member, "stopped", "lost", {"words": waiting.given_up(stopped)})
    if mismatch := explain.mismatch(message):  # of no worker in particular: which one notices first is chance
        return Blame(first.member, "collectives", "raised", {"words": waiting.unlike(states) or mismatch})
    return (None if first.is_own else _behind(first, watch, states, slept, cut)) or _of(watch, first)


def _behind(
    first: Failure, watch: Watch, states: Sequence[State], slept: float, cut: Callable[[], Waiting | None]
) -> Blame | None:
    """What made workers lose each other, where no failure may be the cause of the others; None where nothing tells."""
    messages = [each.error["message"] for each in watch.failures() if each.error is not None]
    if slept >= _HEARTBEATS and any("heartbeat" in message for message in messages):
        return Blame(first.member, "slept", "lost", {"seconds": slept})
    if network := cut():
        return Blame(first.member, "cut", "lost", {"words": network.sentence})
    if left := watch.departed():
        worker, code = left
        words = explain.departure_in_words(code, watch.killer(code))
        return Blame(worker, "departed", "exited", {"name": watch.called(worker), "words": words})
    for member in watch.folder.each:
        for event in of_kind(member.events, FaultCame):
            if event.kind == "drop_network":
                return Blame(member.worker, "dropped", "lost", {"worker": _name(member), "fault": event.words})
    # Of worker 0 and one other, TensorFlow can't know whose connection broke.
    finished = {state.member for state in states if state.what == "finished"}
    for lost in map(explain.without_heartbeat, messages):
        if lost is not None and lost < watch.folder.workers and lost not in finished:
            return Blame(lost, "unheard", "lost", {"worker": _name(watch.folder.each[lost])})
    return None


def _name(worker: WorkerFolder) -> str:
    return called(worker.name, worker.worker)


def _of(watch: Watch, first: Failure) -> Blame:
    parts = {"name": watch.called(first.member), "words": watch.what(first)}
    if first.is_consequence or first.is_own:
        return Blame(first.member, "own", "lost" if first.is_consequence else first.reason, parts)
    return Blame(first.member, "unsure", "unknown", {"words": _(_SENTENCES["own"], **parts)})


def sentence(blame: Blame) -> str:
    """The message of the error."""
    return _(_SENTENCES[blame.cause], **blame.parts) if blame.cause in _SENTENCES else str(blame.parts["words"])


def error_of(watch: Watch, blame: Blame) -> WorkerFailed:
    """The error that names a worker, with its traceback or the end of its log and, after it, what the others said."""
    worker, folder = blame.worker, watch.folder
    failures = {each.member: each for each in watch.failures()}
    member, exited = folder.members[worker], watch.heard[worker].exited
    trace = member.error["traceback"] if member.error else ""
    name = watch.called(worker, _("the evaluator"))
    parts = [_("What {name} said:\n{trace}", name=name, trace=trace) if trace else _last_lines(member)]
    for other, failure in failures.items():
        if other == worker:
            continue
        role = N_("{words}  (a consequence; in full in {log})")
        if worker in failures and failure.is_like(failures[worker]):
            role = N_("{words}  (the same; in full in {log})")
        log = f".logs[{other}]" if other < folder.workers else ".evaluator_log"
        name = called(folder.members[other].name, other).capitalize()
        parts.append(_(role, words=_("{name} {words}", name=name, words=watch.what(failure)), log=log))
    return WorkerFailed(
        sentence(blame),
        worker=worker if worker < folder.workers else "evaluator",
        host=watch.hosts[worker] if any(watch.hosts) else None,
        exitcode=exited[0] if exited else None,
        traceback=trace,
        folder=folder,
        detail="\n".join(part for part in parts if part),
        reason=blame.reason,
    )


def _last_lines(member: WorkerFolder, count: int = 15) -> str:
    lines = [line for line in member.log_end(4 * count) if not explain.is_chatter(line)][-count:]
    return "\n".join([_("The end of its log:"), *lines]) if lines else ""
