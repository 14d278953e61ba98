"""What workers and evaluator say that they do, how their processes ended, and which of them failed first."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dtk.errors import WorkerFailed, in_words
from dtk.language import N_, _
from dtk.records import RunFolder, WorkerFolder, events
from dtk.watch import explain, hindrances
from dtk.watch.explain import is_chatter
from dtk.watch.state import STAGES, called
from dtk.watch.waiting import clauses

__all__ = ["Heard", "Watch", "port_was_taken"]

# A kind of error that comes where a peer has gone and elsewhere, in words of a TensorFlow that is not known here.
_UNSURE = N_("{words} (these words don't tell whether it failed by itself or lost another worker)")


@dataclass
class Heard:
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


@dataclass
class Watch:
    """States of a run's members, from the events that they write and from how their processes end.

    Members are numbered: the workers by index, then the evaluator where there is one. hosts: the names of their
    machines; "" for this one.
    """

    folder: RunFolder
    clock: float
    hosts: Sequence[str] = ()
    heard: list[Heard] = field(init=False)

    def __post_init__(self) -> None:
        # Of another machine this one does not know it.
        self._memory_kills = None if any(self.hosts) else hindrances.memory_kills()
        self.heard = [Heard() for _ in self.folder.members]

    def take_exits(self, exits: dict[int, tuple[int, float]]) -> None:
        """exits: member -> (exit code, monotonic seconds)."""
        for worker, (code, at) in exits.items():
            self.heard[worker].exited = (code, at - self.clock)

    def take_lost(self, lost: Mapping[int, str]) -> None:
        """lost: what is said of members whose machine can't be reached any more."""
        for worker, words in lost.items():
            self.heard[worker].lost = words

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
        elif isinstance(event, events.Alone):
            heard.alone = True

    @property
    def finished(self) -> bool:
        return all(heard.state == "finished" for heard in self.heard)

    @property
    def alone(self) -> bool:
        """Whether a worker of a cluster trains without any strategy, and so without the others."""
        return any(heard.alone for heard in self.heard)

    @property
    def open(self) -> bool:
        """Whether a worker's server accepts whoever reaches the machine."""
        return any(heard.open for heard in self.heard)

    @property
    def training_ended(self) -> bool:
        """Whether all workers have finished, whatever the evaluator does."""
        return all(heard.state == "finished" for heard in self.heard[: self.folder.workers])

    def states(self) -> list[str]:
        """Each member's state in a word, for the live view."""
        gone = [(heard.exited or heard.lost) and heard.state != "finished" for heard in self.heard]
        return ["failed" if each else heard.state for each, heard in zip(gone, self.heard, strict=True)]

    def words(self) -> str:
        """ "worker 0 training, worker 1 finished"."""
        names = [called(member.name, member.worker) for member in self.folder.members]
        pairs = zip(names, self.states(), strict=True)
        return clauses([_("{name} {words}", name=name, words=_(state)) for name, state in pairs])

    def failures(self) -> dict[int, float]:
        """Members that failed, with the time (s since the call): raised, ended without finishing, or lost."""
        times = {}
        for worker, heard in enumerate(self.heard):
            if heard.lost and heard.state != "finished":
                times[worker] = 0.0  # since when is not known; what the others then say comes of it
            elif heard.failed is not None:
                times[worker] = heard.failed
            elif heard.exited is not None and heard.state != "finished":
                times[worker] = heard.exited[1]
        return times

    def culprit(self) -> int | None:
        """The member that failed first and not in consequence of another; None where none failed."""
        failures = self.failures()
        if not failures:
            return None
        first = min(failures, key=lambda each: (not self.is_own(each), self.is_consequence(each), failures[each]))
        # Where every worker makes the same mistake, name the first by index, not by chance.
        return min(worker for worker in failures if worker == first or self._same(worker, first))

    def _same(self, worker: int, other: int) -> bool:
        one, two = self._member(worker).error, self._member(other).error
        return one is not None and two is not None and self._what(worker, None) == self._what(other, None)

    def is_consequence(self, worker: int) -> bool:
        """Whether a failure is a reaction to a peer that has gone."""
        error = self._member(worker).error
        if error is None or self.heard[worker].lost:
            return False  # it ended without an error: no other worker's message explains that
        return bool(error.get("by_a_peer")) or explain.lost_a_peer(error["type"], error["message"])

    def is_own(self, worker: int) -> bool:
        """Whether a failure is surely no reaction to a peer: not even its kind of error comes where a peer has gone."""
        error = self._member(worker).error
        if error is None or self.heard[worker].lost or self.folder.workers == 1 or worker >= self.folder.workers:
            return True
        return not self.is_consequence(worker) and not explain.may_have_lost_a_peer(error["type"])

    def departed(self) -> tuple[int, str] | None:
        """A worker whose function had returned and whose process then ended, and what to say where others lost it."""
        for worker, heard in enumerate(self.heard[: self.folder.workers]):
            if heard.state == "finished" and heard.exited is not None:
                code = heard.exited[0]
                why = hindrances.of_the_memory(code, self._memory_kills)
                words = explain.departure_in_words(code, why)
                return worker, _("{name} {words}", name=self._called(worker), words=words)
        return None

    def mismatch(self, worker: int) -> str:
        """What to say of a failure in which workers met in different collectives; "" for any other.

        It is the fault of no worker in particular: which one notices first is chance.
        """
        error = self._member(worker).error
        return explain.mismatch(error["message"]) if error is not None else ""

    def failure(self, worker: int, said: str = "", lost: bool = False) -> WorkerFailed:
        """The error that names member `worker`, with its traceback and, after it, what the others said.

        said: the message, where the worker's own error or exit does not give it. lost: whether all failures are
        reactions to a lost connection.
        """
        member = self._member(worker)
        error, exited = member.error, self.heard[worker].exited
        code = exited[0] if exited else None
        trace = error["traceback"] if error else ""
        unsure = not said and not lost and not self.is_own(worker)
        if not said:
            said = _("{name} {words}", name=self._called(worker), words=self._what(worker, code))
            said = _(_UNSURE, words=said) if unsure else said
        name = self._called(worker, _("the evaluator"))
        parts = [_("What {name} said:\n{trace}", name=name, trace=trace) if trace else _last_lines(member)]
        for other in sorted(set(self.failures()) - {worker}):
            name, what = called(self._member(other).name, other).capitalize(), self._what(other, None)
            role = N_("{words}  (a consequence; in full in {log})")
            if self._same(other, worker):
                role = N_("{words}  (the same; in full in {log})")
            log = f".logs[{other}]" if other < self.folder.workers else ".evaluator_log"
            parts.append(_(role, words=_("{name} {words}", name=name, words=what), log=log))
        return WorkerFailed(
            said,
            worker=worker if worker < self.folder.workers else "evaluator",
            host=self.hosts[worker] if any(self.hosts) else None,
            exitcode=code,
            traceback=trace,
            folder=self.folder,
            detail="\n".join(part for part in parts if part),
            reason=self._reason(worker, lost, unsure),
        )

    def _reason(self, worker: int, lost: bool, unsure: bool) -> str:
        if lost or self.heard[worker].lost:
            return "lost"
        return "unknown" if unsure else "raised" if self._member(worker).error else "exited"

    def _what(self, worker: int, code: int | None) -> str:
        if self.heard[worker].lost:
            return self.heard[worker].lost
        error = self._member(worker).error
        if error is not None:
            return explain.in_one_sentence(error["type"], error["message"], _runs_a_program(self.folder))
        why = hindrances.of_the_memory(code, self._memory_kills)
        said = explain.exit_in_words(code, _runs_a_program(self.folder), why)
        return in_words(said, hindrances.of_the_disk(self.folder.path))

    def _called(self, worker: int, evaluator: str = "") -> str:
        """A member, with its machine where that is another. evaluator: what to call this member."""
        name = called(self._member(worker).name, worker)
        name = evaluator if evaluator and worker >= self.folder.workers else name
        return _("{name} on {host}", name=name, host=self.hosts[worker]) if any(self.hosts) else name

    def _member(self, number: int) -> WorkerFolder:
        return self.folder.members[number]


def port_was_taken(folder: RunFolder) -> bool:
    """Whether one failed because another program took its port between choosing and binding."""
    errors = [member.error for member in folder.members]
    return any(error is not None and explain.port_was_taken(error["type"], error["message"]) for error in errors)


def _runs_a_program(folder: RunFolder) -> bool:
    try:
        return bool(json.loads((folder.path / "job.json").read_text()).get("program"))
    except OSError:
        return False  # no directory of `dtk.run`: nothing was asked for there


def _last_lines(member: WorkerFolder, count: int = 15) -> str:
    lines = [line for line in member.log_end(4 * count) if not is_chatter(line)][-count:]
    return "\n".join([_("The end of its log:"), *lines]) if lines else ""
