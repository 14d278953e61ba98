"""The processes of a run: started, looked at, and killed however the run ends."""

from __future__ import annotations

import signal
import time
import weakref
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType

from dtk.errors import WorkerFailed
from dtk.launch.place import Site
from dtk.watch import blame, waiting
from dtk.watch.reader import Reader
from dtk.watch.signs import Signs
from dtk.watch.state import Line, State
from dtk.watch.waiting import Waiting
from dtk.watch.watch import Watch
from dtk.worker.spec import WorkerSpec
from dtk.worker.vitals import Vitals

__all__ = ["Members"]

KILL_SECONDS = 2.0
_CUT_SECONDS = 5.0  # of silence of all workers before their machines are asked, and between two times


class Members:
    """The processes of one attempt: the workers, then the evaluator where there is one.

    Leaving the `with` block kills them and waits until they are gone.
    """

    def __init__(self, site: Site, reader: Reader, specs: list[WorkerSpec], clock: float):
        self.site, self.source, self.reader, self.specs = site, site.source, reader, specs
        self.folder = folder = reader.folder
        self._asked = 0.0
        self.keys = [f"{folder.path.name}-{time.monotonic_ns()}-{member.path.name}" for member in folder.members]
        self.watch = Watch(folder, clock, [spec["host"] for spec in specs])
        reader.watch(self.watch)
        # A proxy: a cycle would hold the run's directory until the next garbage collection.
        self.signs = Signs(reader, [spec["port"] for spec in specs], weakref.proxy(self))

    def __enter__(self) -> Members:
        try:
            for key, spec in zip(self.keys, self.specs, strict=True):
                self.source.start(key, spec)
            self.source.wait_started(self.keys)
        except BaseException:  # interrupted half-way: those that did start must go
            self.close()
            raise
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if isinstance(error, KeyboardInterrupt):
                self.explain()  # where they were is a question of whoever interrupted them
        finally:
            self.close()

    def close(self) -> None:
        self.source.kill(self.keys)
        deadline = time.monotonic() + KILL_SECONDS
        while any(key not in self.source.exited for key in self.keys) and self.source.lives():
            if time.monotonic() > deadline:
                self.source.close()  # takes all its workers with it; the next run starts a new parent
                break
            self.source.poll(0.05)
        self.source.forget(self.keys)
        self.reader.leave(self.watch)

    def look(self, seconds: float) -> None:
        """Takes in what happened, waiting up to `seconds` for the end of a process."""
        self.source.poll(seconds)
        exits = {k: self.source.exited[key] for k, key in enumerate(self.keys) if key in self.source.exited}
        if not self.source.lives():
            now = time.monotonic()  # killed from outside; the system kills its workers along with it
            exits = {k: exits.get(k, (-signal.SIGKILL, now)) for k in range(len(self.keys))}
        self.watch.take_exits(exits)
        self.watch.take_lost(self.site.lost())
        self.reader.look()  # after the exits: what a process wrote before its end is then known
        self.signs.look(self.watch)

    def pids(self) -> dict[int, int]:
        """Processes that live, by member."""
        started, exited = self.source.started, self.source.exited
        return {k: started[key] for k, key in enumerate(self.keys) if key in started and key not in exited}

    def vitals(self, member: int) -> Vitals | None:
        return self.source.vitals(self.keys[member])

    def ask(self, member: int) -> None:
        self.source.ask(self.keys[member])

    def listening(self, ports: Mapping[int, int]) -> set[int]:
        found = self.source.listening({self.keys[member]: port for member, port in ports.items()})
        return {member for member in ports if self.keys[member] in found}

    def wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.source.poll(left)

    def board(self) -> list[Line]:
        """Each member's line in the live view."""
        return waiting.board(self.signs.now(self.watch))

    def stacks(self) -> str:
        """Each member's state and Python stack; all are asked anew."""
        self.signs.ask(self.watch)
        return self.signs.stacks(self.watch)

    def waits(self) -> str:
        """Who waits for whom, in words, by what they have answered so far."""
        return waiting.explain(self._workers()).sentence or self.watch.words()

    def explain(self) -> Waiting:
        """Who of the workers waits for whom, by what they answered last; also written to the run's directory."""
        found = waiting.explain(self._workers())
        waiting.save(self.folder, found)
        return found

    def uneven(self, stall_timeout: float) -> Waiting | None:
        """What to say of workers that wait for one that has ended and can't come any more; None where none does.

        Sooner than `stall_timeout`, and only of what can't be normal: every worker that has not ended is silent and
        sits in a collective (for longer, where that is not certain). A chief that saves, reads data, or computes
        alone after the others have ended does neither.
        """
        ended = any(heard.state == "finished" for heard in self.watch.heard)
        if not ended or not waiting.uneven(self._workers(), stall_timeout):
            return None
        self.signs.ask(self.watch)  # where they are now, and not where they were when they fell silent
        return self.explain() if waiting.uneven(self._workers(), stall_timeout) else None

    def cut(self, anew: bool = False) -> Waiting | None:
        """What to say of workers that can't reach each other any more; None where they can.

        Asked of the machines only where every worker is silent, or `anew`.
        """
        now = time.monotonic()
        if not anew:
            if now - self._asked < _CUT_SECONDS or self.signs.quiet_seconds(self.folder.each) < _CUT_SECONDS:
                return None
            self._asked = now
        found = self.site.cut()
        return waiting.cut(self._workers(), found, self.watch.hosts) if found else None

    def failure(self) -> WorkerFailed:
        """The error that names who failed first, or who made the others fail without failing itself."""
        self.reader.catch_up()  # what they recorded in the moments before it failed
        self.signs.look(self.watch, anew=True)
        states = self._workers()
        slept = 0.0 if any(self.watch.hosts) else self.signs.slept  # other machines did not sleep with this one
        found = blame.decide(self.watch, states, slept, lambda: self.cut(anew=True))
        others = {failure.member for failure in self.watch.failures()} - {found.worker}
        marked = [replace(state, what="consequence") if state.member in others else state for state in states]
        graph = waiting.explain(marked, found.worker)
        if found.cause == "collectives":  # none waited for the other
            graph = Waiting(marked, [], "order", blame.sentence(found))
        waiting.save(self.folder, graph)
        return blame.error_of(self.watch, found)

    def _workers(self) -> list[State]:
        """The workers' states; whom an evaluator waits for, no process shows."""
        return self.signs.now(self.watch)[: self.folder.workers]
