"""A made-up machine: members of a run write what real ones write, in any order that a real machine could give.

It stands where `dtk.launch` has a place, so that all that starts, reads, waits, names and restarts is dtk's own code.
Its clock goes on only while dtk waits, and what happens then is drawn: a `Plan`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from chaotic_members import HEARTBEATS, LOST, NO_HEARTBEAT, Member, Mishap

from dtk.launch.place import Machine, Source
from dtk.watch.signs import Vitals

PACES = (0.05,) * 6 + (0.2,) * 7 + (0.5,) * 2 + (3.0,)  # s between two looks: a busy machine, and one that slept


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
    interrupts: tuple[int, ...]  # at these looks
    parent_killed: int | None
    looked_at: int | None  # by another kernel, which reads the tables
    looks: list[tuple[int, int]]


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def monotonic_ns(self) -> int:
        return int(self.now * 1e9)


def _add(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


class World(Source):
    """The place of a run and the source of its processes, both in one.

    What is true of the present start: failed: who really failed, when, and how. hang: who does no more. cut_off: since
    when. silent: whose heartbeats are missed. gone: what is said of lost machines. seen: since when dtk can know whose
    failure. left: whose process ended after its function.
    """

    name = ""

    def __init__(self, plan: Plan, clock: Clock):
        self.plan, self.clock, self.began = plan, clock, clock.now
        self.members: list[Member] = []
        self.look, self.opened, self.ports_taken = 0, 0, plan.ports_taken
        self.others_look: Callable[[], object] = lambda: None

    # ---- the place

    def open(self, job, folder, tick) -> World:
        assert not self.runs(), "what ran before is still there"
        self.close()
        self.job, self.folder = job, folder
        self.exited, self.started, self.members, self.keys = {}, {}, [], []
        self.failed, self.cut_off, self.gone = {}, {}, {}
        self.hang, self.silent, self.left = set(), set(), set()
        self.seen: dict[int, float] = {}
        self.port_is_taken, self.parent_lives = self.ports_taken > 0, True
        self.ports_taken -= self.port_is_taken
        self.opened += 1
        self.poll(0.1)
        return self

    def end(self, folder) -> None: ...

    def runs(self) -> bool:
        return any(not member.ended for member in self.members)

    @property
    def grace(self) -> float:
        return 12.0 if self.plan.late else 0.6  # those of `Remote` and of `Localhost`

    def addresses(self, count: int) -> list[str]:
        return [f"127.0.0.1:{4000 + k}" for k in range(count)]

    def machine(self, member: int, folder, share: int) -> Machine:
        return Machine("there" if self.plan.late else "", {}, 2, 1, folder.path, cwd="/", sys_path=[])

    def lost(self) -> dict[int, str]:
        return self.gone

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
        text = member.stack()
        member.later(lambda: _add(member.corner.path / "stacks.txt", text))

    def poll(self, timeout: float) -> None:
        """A while goes by: those who don't rest have their turn, and what they wrote arrives."""
        number, self.look = self.look, self.look + 1
        assert number < 2000, "the run does not end"
        if number in self.plan.interrupts:
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

    def see(self, number: int) -> None:
        self.seen.setdefault(number, self.clock.now)

    @property
    def workers(self) -> list[Member]:
        return self.members[: self.plan.workers]

    def _parent_dies(self) -> None:
        self.parent_lives = False
        for member in self.members:
            if not member.finished and member.number not in self.seen:
                self.failed[member.number] = self.clock.now, "is killed"
                self.see(member.number)
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
        self.see(member.number)

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
