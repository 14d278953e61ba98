"""What workers and evaluator say that they do, how their processes ended, which failed, and who is to blame for it.

Who is to blame is one decision, from facts (`blame_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dtk import limits
from dtk.errors import WorkerFailed, in_words
from dtk.language import N_, _
from dtk.records import RunFolder, events
from dtk.watch import explain, waiting
from dtk.watch.waiting import STAGES, State, Waiting, called, clauses

_HEARTBEATS = 5.0  # s between two; a worker is given up 10 s after its last, and a shorter standstill is no reason


@dataclass
class WorkerStatus:
    """What is known of one member of the run.

    began: whether it has said anything yet. imported: whether its function was the one to import TensorFlow, and has.
    planned: steps an epoch that its `fit` announced last; None where that is not known. alone: whether it has begun to
    train without any strategy. open: whether its server accepts whoever reaches the machine. lost: what is said of it
    where its machine can't be reached any more.
    """

    state: str = "starting"
    began: bool = False
    imported: bool = False
    planned: int | None = None
    alone: bool = False
    open: bool = False
    failed: float | None = None  # seconds since the call of dtk.run
    exited: tuple[int, float] | None = None  # exit code, seconds since the call
    lost: str = ""

    @property
    def gone(self) -> bool:
        """Whether it has ended, or can't be reached, before its function returned."""
        return self.state != "finished" and (self.exited is not None or bool(self.lost))


@dataclass(frozen=True)
class Failure:
    """How one member failed.

    at: seconds since the call; 0.0 of one that is lost, since nobody knows when that was. error: what it raised, as it
    wrote it down (type, message, traceback, by_a_peer); None where it wrote nothing. code: of its exit; None while it
    runs. lost: what is said of its machine where that can't be reached. has_peers: whether another's end can be why.
    """

    member: int
    at: float
    error: dict[str, Any] | None = None
    code: int | None = None
    lost: str = ""
    has_peers: bool = True

    @property
    def reason(self) -> str:
        """A word for how, as in WorkerFailed."""
        if self.lost or self.is_consequence:
            return "lost"
        return "unknown" if not self.is_own else "raised" if self.error is not None else "exited"

    @property
    def is_consequence(self) -> bool:
        """Whether it is a reaction to a peer that has gone."""
        if self.error is None or self.lost:
            return False  # it ended without an error: no other worker's message explains that
        return bool(self.error.get("by_a_peer")) or explain.lost_a_peer(self.error["type"], self.error["message"])

    @property
    def is_own(self) -> bool:
        """Whether it can't be a reaction to a peer: not even its kind of error comes where a peer has gone."""
        if self.error is None or self.lost or not self.has_peers:
            return True
        return not self.is_consequence and not explain.may_have_lost_a_peer(self.error["type"])

    def is_like(self, other: Failure) -> bool:
        """Whether both raised the same."""
        if self.error is None or other.error is None:
            return False
        one, two = ((each["type"], each["message"]) for each in (self.error, other.error))
        return one == two or explain.in_one_sentence(*one) == explain.in_one_sentence(*two)


class Watch:
    """States of a run's members, from the events that they write and from how their processes end.

    Members are numbered: the workers by index, then an evaluator. hosts: their machines' names; "" for this one.
    """

    def __init__(self, folder: RunFolder, clock: float, hosts: Sequence[str] = ()):
        self.folder, self.clock, self.hosts = folder, clock, hosts
        # Of another machine this one does not know it.
        self._memory_kills = None if any(self.hosts) else limits.memory_kills()
        self.heard = [WorkerStatus() for _ in self.folder.members]

    def take_exits(self, exits: dict[int, tuple[int, float]]) -> None:
        """exits: member -> (exit code, monotonic seconds)."""
        for worker, (code, at) in exits.items():
            self.heard[worker].exited = (code, at - self.clock)

    def take_event(self, member: int, event: events.Event) -> None:
        """Takes in what the reader has read (`dtk.watch.reader`)."""
        heard = self.heard[member]
        heard.began = True
        if isinstance(event, STAGES):
            heard.state = event.state
        if isinstance(event, events.Failed):
            heard.failed = event.at
        elif isinstance(event, events.Imported):
            heard.imported, heard.open = heard.state == "running", event.open
        elif isinstance(event, events.Training):
            heard.planned = event.steps
        elif isinstance(event, events.Traced):
            heard.alone |= event.alone

    @property
    def finished(self) -> bool:
        return all(heard.state == "finished" for heard in self.heard)

    @property
    def training_ended(self) -> bool:
        """Whether all workers have finished, whatever the evaluator does."""
        return all(heard.state == "finished" for heard in self.heard[: self.folder.workers])

    @property
    def failed(self) -> bool:
        """Whether a member raised, ended without finishing, or is lost."""
        return any(heard.gone or heard.failed is not None for heard in self.heard)

    def words(self) -> str:
        """ "worker 0 training, worker 1 finished"."""
        states = [_("failed") if heard.gone else _(heard.state) for heard in self.heard]
        pairs = zip(self.folder.members, states, strict=True)
        return clauses([_("{name} {words}", name=called(each.name, each.worker), words=state) for each, state in pairs])

    def failures(self) -> list[Failure]:
        """How members failed: those that raised, ended without finishing, or are lost."""
        found = []
        for number, (heard, member) in enumerate(zip(self.heard, self.folder.members, strict=True)):
            lost = heard.lost if heard.state != "finished" else ""
            code, ended = heard.exited or (None, 0.0)
            if heard.gone or heard.failed is not None:
                # Of one that is lost: what the others then say comes of it.
                at = 0.0 if lost else heard.failed if heard.failed is not None else ended
                has_peers = 1 < self.folder.workers > number
                found.append(Failure(number, at, member.error, code, lost, has_peers))
        return found

    def called(self, member: int, evaluator: str = "") -> str:
        """A member, with its machine where that is another. evaluator: what to call this member."""
        name = called(self.folder.members[member].name, member)
        name = evaluator if evaluator and member >= self.folder.workers else name
        return _("{name} on {host}", name=name, host=self.hosts[member]) if any(self.hosts) else name

    def what(self, failure: Failure) -> str:
        """What a member did, behind its name: "raised ValueError: bad label"."""
        if failure.lost:
            return failure.lost
        if failure.error is not None:
            return explain.in_one_sentence(failure.error["type"], failure.error["message"])
        faults = events.of_kind(self.folder.members[failure.member].events, events.FaultCame)
        asked = [_("as asked: {fault}", fault=fault.words) for fault in faults if fault.kind == "kill"]
        words = explain.exit_in_words(failure.code, "".join(asked) or self.killer(failure.code))
        return in_words(words, limits.of_the_disk(self.folder.path))

    def killer(self, code: int | None) -> str:
        """What may have killed a process with that exit code: "" unless the system killed any for want of memory."""
        return limits.of_the_memory(code, self._memory_kills)


# ---- who is to blame


class Blame(NamedTuple):
    """Who is to blame for a failure, and why.

    reason: as in WorkerFailed. words: the error's message. apart: whether the workers met in different collectives, so
    that none waited for another.
    """

    worker: int
    reason: str
    words: str
    apart: bool = False


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


def blame_of(watch: Watch, states: Sequence[State], slept: float, cut: Callable[[], Waiting | None]) -> Blame:
    """Who failed first, or who made the others fail without failing itself.

    states: of the workers. slept: seconds for which this machine stood still. cut: asks the machines which of them
    can't reach another, and is only called where that could be the reason.
    """
    first = culprit(watch.failures())
    assert first is not None, "a failure was seen before"
    error = first.error or {"message": "", "traceback": ""}
    stopped = [state for state in states if state.what == "stopped"]
    if stopped and not first.is_own:
        # TensorFlow gives up a worker that sends no heartbeat, and tells its peers only.
        return Blame(stopped[0].member, "lost", waiting.given_up(stopped))
    mismatch = explain.mismatch(error["message"], session="client/session.py" in error["traceback"])
    if mismatch:  # of no worker in particular: which one notices first is chance
        return Blame(first.member, "raised", waiting.unlike(states) or mismatch, apart=True)
    if not first.is_own and (behind := _behind(first, watch, states, slept, cut)):
        return behind
    words = _("{name} {words}", name=watch.called(first.member), words=watch.what(first))
    if first.reason == "unknown":
        unsure = N_("{words} (these words don't tell whether it failed by itself or lost another worker)")
        words = _(unsure, words=words)
    return Blame(first.member, first.reason, words)


def _behind(
    first: Failure, watch: Watch, states: Sequence[State], slept: float, cut: Callable[[], Waiting | None]
) -> Blame | None:
    """What made workers lose each other, where no failure may be the cause of the others; None where nothing tells."""
    messages = [each.error["message"] for each in watch.failures() if each.error is not None]
    if slept >= _HEARTBEATS and any("heartbeat" in message for message in messages):
        words = N_(
            "this machine, or all of the run, stood still for {seconds:.0f} s (a laptop that slept?), so that "
            "TensorFlow, which heard no heartbeat for that long, gave its workers up; run it again, or pass restarts=1 "
            "to dtk.run"
        )
        return Blame(first.member, "lost", _(words, seconds=slept))
    if network := cut():
        return Blame(first.member, "lost", network.sentence)
    for worker, heard in enumerate(watch.heard[: watch.folder.workers]):
        if heard.state == "finished" and heard.exited is not None:  # others may have needed it
            code, _at = heard.exited
            words = explain.exit_in_words(code, watch.killer(code), needed=True)
            return Blame(worker, "exited", _("{name} {words}", name=watch.called(worker), words=words))
    for member in watch.folder.each:
        for event in events.of_kind(member.events, events.FaultCame):
            if event.kind == "drop_network":
                words = N_(
                    "{worker} was cut off from its peers by the fault {fault}, so that their all-reduce failed on "
                    "every worker"
                )
                words = _(words, worker=watch.called(member.worker), fault=event.words)
                return Blame(member.worker, "lost", words)
    # Of worker 0 and one other, TensorFlow can't know whose connection broke.
    finished = {state.member for state in states if state.what == "finished"}
    for lost in map(explain.without_heartbeat, messages):
        if lost is not None and lost < watch.folder.workers and lost not in finished:
            words = N_(
                "TensorFlow heard no heartbeat of {worker} any more, though no worker ended by itself: look at the "
                "network between {worker} and worker 0, and whether {worker} was frozen"
            )
            return Blame(lost, "lost", _(words, worker=watch.called(lost)))
    return None


def error_of(watch: Watch, blame: Blame) -> WorkerFailed:
    """The error that names a worker, with its traceback or the end of its log and, after it, what the others said."""
    worker, folder = blame.worker, watch.folder
    failures = {each.member: each for each in watch.failures()}
    member, exited = folder.members[worker], watch.heard[worker].exited
    trace = member.error["traceback"] if member.error else ""
    name = watch.called(worker, _("the evaluator"))
    parts = [_("What {name} said:\n{trace}", name=name, trace=trace)] if trace else []
    lines = [line for line in member.log_end(60) if not explain.is_chatter(line)][-15:]
    if lines and not trace:
        parts = ["\n".join([_("The end of its log:"), *lines])]
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
        blame.words,
        worker=worker if worker < folder.workers else "evaluator",
        host=watch.hosts[worker] if any(watch.hosts) else None,
        exitcode=exited[0] if exited else None,
        traceback=trace,
        folder=folder,
        detail="\n".join(parts),
        reason=blame.reason,
    )
