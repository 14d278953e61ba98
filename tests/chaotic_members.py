"""The members of a made-up machine (`chaotic`): each writes what a real one writes, and comes to harm as was drawn."""

from __future__ import annotations

import contextlib
import pickle
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dtk.records import Journal, Record, events

if TYPE_CHECKING:
    from chaotic import World

HEARTBEATS = 3.0
LAG = 0.4  # s that files of another machine take to arrive
REAPED = 0.15  # s after which a process's end is seen, at most
FAILS = ("raises", "raises the same", "exits", "is killed", "is killed in a line", "calls sys.exit")
HANGS = ("sleeps", "is stopped", "says nothing", "ends early")
PARTS = ("is lost", "is cut off")
LEAVES = ("ends early and is killed", "is killed when it has finished")

LOST = (
    ("UnavailableError", "Collective ops is aborted by: Socket closed\nAdditional GRPC error information", False),
    ("InternalError", "Connection reset by peer [Op:CollectiveReduceV2]", False),
    ("RuntimeError", "ring.pull: worker 1 has gone", True),
)
NO_HEARTBEAT = "The following tasks are unhealthy (stopped sending heartbeats):\n/job:worker/replica:0/task:{}"
_STACK = (
    'Current thread 0x7f10 (most recent call first):\n  File "{}", line {} in {}\n  File "/home/u/t.py", line 9 in f\n'
)
_TENSORFLOW = "/lib/python3.11/site-packages/tensorflow/python"
STACKS = {
    "connecting": (f"{_TENSORFLOW}/distribute/collective_all_reduce_strategy.py", 1, "__init__"),
    "in a step": (f"{_TENSORFLOW}/eager/execute.py", 53, "quick_execute"),
    "sleeps": ("/home/u/t.py", 17, "rest"),
}


@dataclass(frozen=True)
class Mishap:
    """What happens to a member before it does this step; 0: before its first word."""

    what: str
    member: int
    step: int


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
        """What others can see so many seconds from now."""
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

    def stack(self) -> str:
        """What it answers when it is asked where it is; "" for nothing that tells."""
        file, line, function = STACKS.get(self.place, ("", 0, ""))
        return _STACK.format(file, line, function) if file and not self.stopped else ""

    # ---- what it does

    def _life(self) -> Iterator[None]:
        with contextlib.suppress(_Returns):
            yield from self._function()
        self.later(lambda: self.corner.save_result(pickle.dumps(self.number)))
        self.journal.event(events.Finished(self.now))
        self.later(lambda: setattr(self, "finished", True))
        self.place = "pause"
        while not (self.finished and any(each.what in LEAVES for each in self.mishaps)):
            yield
        self._end(-9)

    def _function(self) -> Iterator[None]:
        yield from self._mishap(0)
        self.journal.event(events.Starting(self.now))
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
            elif what in LEAVES:
                self._leave(what)
            elif what == "is lost":
                self.world.lose(self)
                raise _Ended
            elif what == "is cut off":
                self.world.cut_off.update({self.number: self.world.clock.now} if self.works else {})
            else:
                yield from self._fail(what)

    def _leave(self, what: str) -> None:
        if what == "ends early and is killed":
            self.world.hang.add(self.number)
            raise _Returns

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
            self.outbox.pop()  # the line's second part
        self._end(4 if what == "exits" else -9)

    def _raise(self, kind: str, message: str, by_a_peer: bool = False, code: int = 1) -> Iterator[None]:
        at = self.now
        if self.slow:
            yield
        self.later(lambda: self.corner.save_error(kind, message, "Traceback ...", by_a_peer))
        if self.slow:
            yield
        self.journal.event(events.Failed(at))
        self.later(lambda: self.world.see(self.number))
        yield
        self._end(code)

    def _end(self, code: int) -> None:
        key, reaped = self.world.keys[self.number], REAPED * self.slow
        end = code, self.world.clock.now + reaped
        see = self.world.left.add if self.finished else self.world.see
        self.later(lambda: (self.world.exited.setdefault(key, end), see(self.number)), reaped)
        raise _Ended
