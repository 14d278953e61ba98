"""A made-up machine: members of a run write what real ones write, in any order that a real machine could give.

It stands where `dtk.launch` has a place, so that all that starts, reads, waits, names and restarts is dtk's own code.
Its clock goes on only while dtk waits, and what happens then is drawn: a `Plan`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dtk import events
from dtk.launch.place import Machine
from dtk.process.vitals import Vitals
from dtk.records import Journal, Record

STALL = 6.0  # s, of the runs; TensorFlow gives up a member without heartbeats sooner
HEARTBEATS = 3.0
LAG = 0.4  # s that files of another machine take to arrive
REAPED = 0.15  # s after which a process's end is seen, at most
FAILS = ("raises", "raises the same", "exits", "is killed", "is killed in a line", "calls sys.exit")
HANGS = ("sleeps", "is stopped", "says nothing", "ends early")
PARTS = ("is lost", "is cut off")
PACES = (0.05,) * 6 + (0.2,) * 7 + (0.5,) * 2 + (3.0,)  # s between two looks: a busy machine, and one that slept

LOST = (
    ("UnavailableError", "Collective ops is aborted by: Socket closed\nAdditional GRPC error information", False),
    ("InternalError", "Connection reset by peer [Op:CollectiveReduceV2]", False),
    ("RuntimeError", "ring.pull: worker 1 has gone", True),
)
NO_HEARTBEAT = "The following tasks are unhealthy (stopped sending heartbeats):\n/job:worker/replica:0/task:{}"
_AT = (
    'Current thread 0x7f10 (most recent call first):\n  File "{}", line {} in {}\n  File "/home/u/t.py", line 9 in f\n'
)
STACKS = {
    "connecting": ("/lib/python3.11/site-packages/tensorflow/python/distribute/collective_all_reduce_strategy.py", 1),
    "in a step": ("/lib/python3.11/site-packages/tensorflow/python/eager/execute.py", 53),
    "sleeps": ("/home/u/t.py", 17),
}
FUNCTIONS = {"connecting": "__init__", "in a step": "quick_execute", "sleeps": "rest"}


@dataclass(frozen=True)
class Mishap:
    """What happens to a member before it does this step; 0: before its first word."""

    what: str
    member: int
    step: int


@dataclass(frozen=True)
class Plan:
    """One sequence.

    starts: what goes wrong in each start of the cluster. late: members whose files come from another machine. looks:
    for each look of dtk's a byte of who rests and how long it takes, and one of who is slow (writes a line in two
    parts, ends after it has failed) and who gives up a lost peer; then the same again, and nobody rests.
    """

    workers: int
    evaluator: bool
    steps: int
    starts: tuple[tuple[Mishap, ...], ...]
    late: frozenset[int]
    ports_taken: int  # starts that find one taken
    refused: bool  # the machine gives no further process
    interrupt: int | None  # at this look
    parent_killed: int | None
    looked_at: int | None  # by another kernel, which reads the tables
    looks: list[tuple[int, int]]


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def monotonic_ns(self) -> int:
        return int(self.now * 1e9)


class _Ended(Exception):
    """The process is no more."""


class _Returns(Exception):
    """The function returns sooner than others'."""


class Member:
    """One process: a generator that goes on at each of its turns. served, reached: the strategy is made; its step."""

    def __init__(self, world: World, number: int, corner, mishaps):
        self.world, self.number, self.corner, self.mishaps = world, number, corner, mishaps
        self.works = number < world.plan.workers
        self.late = number in world.plan.late
        self.outbox: deque[tuple[float, Callable[[], object]]] = deque()
        self.place, self.served, self.reached, self.busy = "", False, 0, 0.0
        self.ended = self.finished = self.stopped = False
        self.slow = self.gives_up = False
        self.journal = Journal(corner)
        self.life: Iterator[None] = self._life()

    @property
    def now(self) -> float:
        return self.world.clock.now - self.world.began

    def turn(self) -> None:
        if not self.ended:
            self.world.acting = self
            try:
                next(self.life)
            except _Ended:
                self.ended = True

    def later(self, what: Callable[[], object], seconds: float = 0.0) -> None:
        self.outbox.append((self.world.clock.now + seconds + LAG * self.late, what))

    def arrive(self) -> None:
        while self.outbox and self.outbox[0][0] <= self.world.clock.now:
            self.outbox.popleft()[1]()

    def write(self, append: Callable[[bytes], object], line: bytes) -> None:
        """A line arrives whole, or in two parts."""
        half = len(line) // 2 if self.slow else len(line)
        self.later(lambda: append(line[:half]))
        if half < len(line):
            self.later(lambda: append(line[half:]), 0.05)

    # ---- what it does

    def _life(self) -> Iterator[None]:
        with contextlib.suppress(_Returns):
            yield from self._function()
        self.later(lambda: self.corner.save_result(pickle.dumps(self.number)))
        self.journal.event(events.Finished(self.now))
        self.later(lambda: setattr(self, "finished", True))
        self.place = "pause"
        while True:
            yield

    def _function(self) -> Iterator[None]:
        yield from self._mishap(0)
        self.journal.event(events.Starting(self.now, version=events.VERSION))
        if self.number == 0 and self.world.takes_a_port():
            yield from self._raise("UnknownError", "Could not start gRPC server")
        self.journal.event(events.Running(self.now))
        yield
        self.journal.event(events.Imported(self.now))
        self.served, self.place = True, "connecting"
        if not self.works:
            yield from self._evaluate()
            return
        yield from self._together(lambda peer: peer.served)
        self.journal.event(events.Training(self.now, steps=self.world.plan.steps, epochs=1))
        for step in range(1, self.world.plan.steps + 1):
            self.place, began = "", self.now
            self.busy += 0.2
            yield
            yield from self._mishap(step)
            self.reached, self.place = step, "in a step"
            yield from self._together(lambda peer, step=step: peer.reached >= step)
            self._record(step, began)

    def _record(self, step: int, began: float) -> None:
        self.journal.record([Record(self.number, self.number, step, 1, 0.5, 64, began, self.now)])

    def _evaluate(self) -> Iterator[None]:
        while not all(worker.finished for worker in self.world.workers):
            yield from self._mishap(1)
            yield
        self.journal.event(events.Evaluation(self.now, started=self.now, step=1, metrics={"loss": 0.5}))

    def _together(self, there: Callable[[Member], bool]) -> Iterator[None]:
        """Waits in a collective, and gives up where a peer has gone."""
        while self.world.parted() or not all(there(peer) for peer in self.world.workers):
            said = self.world.broken(self)
            if said and self.gives_up:
                yield from self._raise(*said)
            yield

    def _mishap(self, step: int) -> Iterator[None]:
        for what in [each.what for each in self.mishaps if each.step == step]:
            if what in HANGS:
                yield from self._hang(what)
            elif what == "is lost":
                self.world.lose(self)
                raise _Ended
            elif what == "is cut off":
                self.world.cut_off.update({self.number: self.world.clock.now} if self.works else {})
            else:
                yield from self._fail(what)

    def _hang(self, what: str) -> Iterator[None]:
        self.world.hang.add(self.number)
        if what == "ends early":
            raise _Returns
        self.place = "sleeps" if what == "sleeps" else ""
        self.stopped = what == "is stopped"
        since = self.world.clock.now
        while True:
            if self.stopped and self.works and self.world.clock.now - since > HEARTBEATS:
                self.world.silent.add(self.number)
            yield

    def _fail(self, what: str) -> Iterator[None]:
        same = what == "raises the same"
        self.world.failed[self.number] = self.world.clock.now, "the same" if same else f"{what} {self.number}"
        if what.startswith("raises"):
            yield from self._raise("ValueError", "bad label" + f" {self.number}" * (not same))
        if what == "calls sys.exit":
            yield from self._raise("SystemExit", "3", code=3)
        if what == "is killed in a line":
            self.slow = True
            self._record(self.reached + 1, self.now)
            self.outbox.pop()
        self._end(4 if what == "exits" else -9)

    def _raise(self, kind: str, message: str, by_a_peer: bool = False, code: int = 1) -> Iterator[None]:
        at = self.now
        if self.slow:
            yield
        self.later(lambda: self.corner.save_error(kind, message, "Traceback ...", by_a_peer))
        if self.slow:
            yield
        self.journal.event(events.Failed(at))
        self.later(lambda: self.world.seen.add(self.number))
        yield
        self._end(code)

    def _end(self, code: int) -> None:
        key, reaped = self.world.keys[self.number], REAPED * self.slow
        end = code, self.world.clock.now + reaped
        self.later(lambda: (self.world.exited.setdefault(key, end), self.world.seen.add(self.number)), reaped)
        raise _Ended


def _add(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


class World:
    """The place of a run, its site and the source of its processes, all in one.

    What is true of the present start: failed: who really failed, when, and how. hang: who does no more. cut_off: since
    when. silent: whose heartbeats are missed. gone: what is said of lost machines. seen: of whom dtk can know it.
    """

    name = ""

    def __init__(self, plan: Plan, clock: Clock):
        self.plan, self.clock, self.began = plan, clock, clock.now
        self.members: list[Member] = []
        self.look, self.opened, self.ports_taken = 0, 0, plan.ports_taken
        self.others_look: Callable[[], object] = lambda: None

    # ---- the place and the site

    def open(self, job, folder, tick) -> World:
        assert not self.runs(), "what ran before is still there"
        self.close()
        self.job, self.folder = job, folder
        self.exited, self.started, self.members, self.keys = {}, {}, [], []
        self.failed, self.hang, self.cut_off, self.silent, self.gone, self.seen = {}, set(), {}, set(), {}, set()
        self.port_is_taken, self.parent_lives = self.ports_taken > 0, True
        self.ports_taken -= self.port_is_taken
        self.opened += 1
        self.poll(0.1)
        return self

    def end(self, folder) -> None: ...

    def runs(self) -> bool:
        return any(not member.ended for member in self.members)

    @property
    def source(self) -> World:
        return self

    @property
    def grace(self) -> float:
        return 12.0 if self.plan.late else 0.6  # those of `Remote` and of `Localhost`

    def addresses(self) -> list[str]:
        return [f"127.0.0.1:{4000 + k}" for k in range(len(self.folder.members))]

    def machine(self, member: int) -> Machine:
        return Machine("there" if self.plan.late else "", {}, 2, 1, self.folder.path, cwd="/", sys_path=[])

    def lost(self) -> dict[int, str]:
        return self.gone

    def training_ended(self) -> None: ...

    def cut(self) -> list[tuple[int, int, str]]:
        return []

    # ---- the source

    def start(self, key: str, spec) -> None:
        number = len(self.members)
        mishaps = () if self.port_is_taken else self.plan.starts[self.folder.attempt - 1]
        self.keys.append(key)
        mine = [each for each in mishaps if each.member == number]
        self.members.append(Member(self, number, self.folder.members[number], mine))
        if not self.parent_lives:
            self._parent_dies()

    def wait_started(self, keys) -> None:
        self.poll(0.1)
        if self.plan.refused:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        self.started = {key: 100 + k for k, key in enumerate(keys)}

    def lives(self) -> bool:
        return self.parent_lives

    def kill(self, keys) -> None:
        for key, member in zip(self.keys, self.members, strict=True):
            member.ended = True
            member.outbox.clear()
            member.later(lambda key=key: self.exited.setdefault(key, (-9, self.clock.now)))

    def forget(self, keys) -> None:
        self.started = {}
        self.close()

    def close(self) -> None:
        for member in self.members:
            member.journal.close()
        self.members = []

    def vitals(self, key: str) -> Vitals:
        member = self.members[self.keys.index(key)]
        return Vitals(member.busy, member.stopped)

    def ask(self, key: str) -> None:
        member = self.members[self.keys.index(key)]
        if member.place in STACKS and not member.stopped:
            text = _AT.format(*STACKS[member.place], FUNCTIONS[member.place])
            member.later(lambda: _add(member.corner.path / "stacks.txt", text))

    def listening(self, ports) -> set[str]:
        return {key for key, member in zip(self.keys, self.members, strict=True) if key in ports and member.served}

    def poll(self, timeout: float) -> None:
        """A while goes by: those who don't rest have their turn, and what they wrote arrives."""
        number, self.look = self.look, self.look + 1
        assert number < 2000, "the run does not end"
        if number == self.plan.interrupt:
            raise KeyboardInterrupt
        if number == self.plan.parent_killed and not self.plan.late:  # other machines have their own
            self._parent_dies()
        who, how = self.plan.looks[number % len(self.plan.looks)]
        pace, resting = PACES[who >> 4], who if number < len(self.plan.looks) else 0
        for _ in range(max(1, round(pace / 0.2))):
            self.clock.now += pace / max(1, round(pace / 0.2))
            for k, member in enumerate(self.members):
                member.slow, member.gives_up = bool(how >> k & 1), bool(how >> 4 + k & 1)
                if not resting >> k & 1:
                    member.turn()
                member.arrive()
        if number == self.plan.looked_at:
            self.others_look()

    def append(self, descriptor: int, text: str) -> None:
        """In the place of what a Journal writes with."""
        self.acting.write(lambda part: os.write(descriptor, part), text.encode())

    # ---- what happens to all

    @property
    def workers(self) -> list[Member]:
        return self.members[: self.plan.workers]

    def _parent_dies(self) -> None:
        self.parent_lives = False
        for member in self.members:
            if not member.finished:
                self.seen.add(member.number)
                if not member.ended:
                    self.failed.setdefault(member.number, (self.clock.now, "is killed"))
            member.ended = True
            member.outbox.clear()

    def takes_a_port(self) -> bool:
        if self.port_is_taken:
            self.failed[0] = self.clock.now, "port"
        return self.port_is_taken

    def lose(self, member: Member) -> None:
        member.outbox.clear()
        self.gone[member.number] = "is lost with its machine"
        self.failed[member.number] = self.clock.now, "is lost"
        self.seen.add(member.number)

    def parted(self) -> bool:
        return len(self.workers) > 1 and bool(self.cut_off)

    def broken(self, member: Member) -> tuple[str, str, bool] | None:
        """What TensorFlow, or a ring, says to a member that waits, where it can't get what it waits for."""
        missed = [k for k, since in self.cut_off.items() if self.clock.now - since > HEARTBEATS] + sorted(self.silent)
        if any(peer.ended for peer in self.workers):
            return LOST[(member.number + self.look) % len(LOST)]
        if missed and missed[0] > 0:  # worker 0 has the service that counts them
            return "UnavailableError", NO_HEARTBEAT.format(missed[0]), False
        return LOST[0] if missed else None
