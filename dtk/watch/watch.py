"""What workers and evaluator say that they do, how their processes ended, and which of them failed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dtk import limits
from dtk.errors import in_words
from dtk.language import _
from dtk.records import RunFolder, events
from dtk.watch import explain
from dtk.watch.waiting import STAGES, called, clauses

__all__ = ["Failure", "Watch", "WorkerStatus", "port_was_taken"]


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
        """A word for how: "lost", "raised" or "exited"."""
        return "lost" if self.lost else "raised" if self.error is not None else "exited"

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


@dataclass
class Watch:
    """States of a run's members, from the events that they write and from how their processes end.

    Members are numbered: the workers by index, then the evaluator where there is one. hosts: the names of their
    machines; "" for this one.
    """

    folder: RunFolder
    clock: float
    hosts: Sequence[str] = ()
    heard: list[WorkerStatus] = field(init=False)

    def __post_init__(self) -> None:
        # Of another machine this one does not know it.
        self._memory_kills = None if any(self.hosts) else limits.memory_kills()
        self.heard = [WorkerStatus() for _ in self.folder.members]

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

    @property
    def failed(self) -> bool:
        """Whether a member raised, ended without finishing, or is lost."""
        return any(heard.gone or heard.failed is not None for heard in self.heard)

    def states(self) -> list[str]:
        """Each member's state in a word, for the live view."""
        return ["failed" if heard.gone else heard.state for heard in self.heard]

    def words(self) -> str:
        """ "worker 0 training, worker 1 finished"."""
        names = [called(member.name, member.worker) for member in self.folder.members]
        pairs = zip(names, self.states(), strict=True)
        return clauses([_("{name} {words}", name=name, words=_(state)) for name, state in pairs])

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

    def departed(self) -> tuple[int, int] | None:
        """A worker whose function had returned and whose process has ended, which others may have needed; its code."""
        for worker, heard in enumerate(self.heard[: self.folder.workers]):
            if heard.state == "finished" and heard.exited is not None:
                return worker, heard.exited[0]
        return None

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
            return explain.in_one_sentence(failure.error["type"], failure.error["message"], self._runs_a_program())
        words = explain.exit_in_words(failure.code, self._runs_a_program(), self.killer(failure.code))
        return in_words(words, limits.of_the_disk(self.folder.path))

    def killer(self, code: int | None) -> str:
        """What may have killed a process with that exit code: "" unless the system killed any for want of memory."""
        return limits.of_the_memory(code, self._memory_kills)

    def _runs_a_program(self) -> bool:
        try:
            return bool(json.loads((self.folder.path / "job.json").read_text()).get("program"))
        except OSError:
            return False  # no directory of `dtk.run`: nothing was asked for there


def port_was_taken(folder: RunFolder) -> bool:
    """Whether one failed because another program took its port between choosing and binding."""
    errors = [member.error for member in folder.members]
    return any(error is not None and explain.port_was_taken(error["type"], error["message"]) for error in errors)
