"""In a worker: the state that each step starts from and ends with, for `dtk.verify` to follow.

In the worker's directory:

    variables.jsonl   one line a variable, when it is first seen
    units.jsonl       one line a recorded unit (`dtk.compat.states`): number, its first step, where it began and
                      ended (`Watched.position`), digests of what it changed, where its values are, and, while no
                      step is recorded, by replica what gradients were taken of, and of the first ones how many
                      examples they were given, and their fingerprint
    states.bin        the values of all units, one after another

The chief writes values; the other workers write digests, and the values of variables of which each replica has its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import zlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dtk.compat import states, updates
from dtk.compat.feeds import rows
from dtk.compat.libraries import tf
from dtk.compat.states import Variable
from dtk.environment import Here
from dtk.records.events import Called
from dtk.worker.progress import progress

BUDGET = 1e9  # bytes on the disk for one run; DTK_STATES=0 records none, DTK_STATES=2e9 up to twice as much
SENT = 1e8  # bytes where the worker is on another machine, from which they are sent to the kernel
FRESH = 4  # units of each new function that are recorded whatever the budget's plan; of a large state, the first
TIMED = 8  # units by which it is known how long one takes
SMALL = 16e6  # bytes a unit up to which recording is not held to a part of the time; those of DTK_STATES, where set
SHARE = 0.03  # of the time, for larger states
WRITING = 3.5e-9  # seconds a byte, measured: the same on all workers, which are to record the same units
WAITING = 256e6  # bytes that may wait to be written
READ = 12  # units whose examples are recorded: what is the same at all of them is no chance
_TOLD = ("name", "identity", "dtype", "shape", "kept", "trainable")  # of a variable


class Snapshot(NamedTuple):
    """What the variables that are compared hold at one moment; values share memory with TensorFlow's.

    marks: of each what is another once it was written: where its values lie, or the value of single numbers, copied.
    """

    values: dict[Variable, list[Any]]
    marks: dict[Variable, list[Any]]

    def of(self, variable: Variable) -> list[Any]:
        return self.values.get(variable, [])

    def same(self, other: Snapshot, variable: Variable) -> bool:
        """Whether nothing was written in between."""
        return self.marks.get(variable) == other.marks.get(variable)


NOTHING = Snapshot({}, {})


def take(everything: bool = False) -> Snapshot:
    """Reads all that is compared; everything: also what is not."""
    table = [each for each in states.variables() if each.ready and (everything or each.role == "")]
    read = states.read(table)
    marks = [[v.__array_interface__["data"][0] if v.ndim else v.tobytes() for v in values] for values in read]
    return Snapshot(dict(zip(table, read, strict=True)), dict(zip(table, marks, strict=True)))


class Watched:
    """Which functions train, and how far training is.

    A function that changed nothing in its first calls is not looked at any more. position: updates of all optimizers so
    far, and units since the last of them, such as those that only add up gradients: by it a unit is found in another
    process, which may make several updates in one call where this one makes one.
    """

    TRIES = 3

    def __init__(self, place: Here) -> None:
        self._place, self.position = place, (0, 0)
        self._seen: dict[int, tuple[Any, int]] = {}  # by id; kept, so that no other object gets the id
        self._training: set[int] = set()

    def looks_at(self, subject: Any) -> bool:
        return self.trains(subject) or self._seen.get(id(_code_of(subject)), (None, 0))[1] < self.TRIES

    def trains(self, subject: Any) -> bool:
        return id(_code_of(subject)) in self._training

    def ended_with_data(self, error: Exception) -> bool:
        """Whether a call that has raised this is a unit: data ended after an update, or a count, as in Keras 2."""
        return isinstance(error, tf.errors.OutOfRangeError) and sum(map(sum, updates.states())) > self.position[0]

    def called(self, subject: Any, before: Snapshot | None = None, after: Snapshot | None = None) -> bool:
        """After a call: whether it was a unit. before, after: what was taken, without which the past tells."""
        earlier, so_far = self.position[0], sum(map(sum, updates.states()))
        changed = so_far > earlier or (
            self.trains(subject)
            if before is None or after is None
            else any(not before.same(after, v) for v in after.values if v.role == "" and before.of(v))
        )
        code = _code_of(subject)
        if id(code) not in self._seen:
            self._place.journal.event(Called(self._place.now(), draws=updates.drawn_by(subject)))
        self._seen[id(code)] = (code, self._seen.get(id(code), (None, 0))[1] + 1)
        if changed:
            self._training.add(id(code))
            self.position = (so_far, 0) if so_far > earlier else (earlier, self.position[1] + 1)
        return changed


def first_step(place: Here, steps: int, made: int) -> int:
    """The first step of a unit that just ended; steps: recorded before it (a restart learns late); made: updates."""
    return max(steps, progress(place).steps - max(1, made)) + 1


def _code_of(subject: Any) -> Any:
    """What a function shares with others made by the same `def`, as bound methods and partials do; else itself."""
    return getattr(getattr(subject, "func", subject), "__code__", subject)


class StateRecorder:
    """Records the units of this process."""

    def __init__(self, place: Here, budget: float, small: float):
        self.place, self.budget, self.small = place, budget, small
        self.watched = Watched(place)
        self.units, self.stride, self.spent, self.stage = 0, 1, 0.0, budget / 2
        self.held: Snapshot | None = None  # what the unit before left, where that was recorded
        self.written: dict[Variable, int] = {}  # their numbers
        self._fresh, self._largest, self._since = 0, 0, 0.0
        self._writer = _Writer(place.folder.path, values=place.worker == 0)
        self.paused = self.unseen = False  # unseen: whether calls were made meanwhile

    def around(self, subject: Any, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if self.paused:
            self.unseen = True
            return call(*args, **kwargs)
        begun = self.begins(subject)
        try:
            result = call(*args, **kwargs)
        except Exception as error:
            if self.watched.ended_with_data(error):
                self.ends(subject, begun, args, kwargs)
            raise
        self.ends(subject, begun, args, kwargs)
        return result

    def begins(self, subject: Any) -> Any:
        """Before what may be a unit; `ends` gets what this returns."""
        known = self.watched.trains(subject)
        due = not known or self._fresh > 0 or (self.units + 1) % self.stride == 0
        room = self.spent + self._largest <= self.budget and not self._writer.failed
        before = take() if due and room and self.watched.looks_at(subject) else None
        return known, self.watched.position, progress(self.place).steps, before

    def ends(self, subject: Any, begun: Any, *given: Any) -> None:
        known, began, steps, before = begun  # steps: recorded when it began
        after = take() if before is not None else None
        if self.watched.called(subject, before, after):
            self.units += 1
            self._fresh = max(0, (self._fresh if known else FRESH) - 1)
            size, ended = 0, self.watched.position
            facts: dict[str, Any] = {}
            if not progress(self.place).steps:  # recorded ones have losses and examples of their own
                taken = updates.targets()[0]
                facts = {"taken": taken, "read": rows([], *given) if before and self.units <= READ else []}
            if before is not None and after is not None:
                first = first_step(self.place, steps, ended[0] - began[0])
                size = self._write(before, after, began=began, ended=ended, step=first, **facts)
            self.held = after
            self._plan(size)
        self._since = self._since or time.monotonic()

    def _write(self, before: Snapshot, after: Snapshot, **facts: Any) -> int:
        for each in after.values:
            if each not in self.written:
                self.written[each] = len(self.written)
                told = {name: getattr(each, name) for name in _TOLD}
                self._writer.variable({"number": self.written[each], **told})
        entries: list[tuple[str, int, str, list[Any]]] = []
        size, in_ring = 0, progress(self.place).rings > 0
        for when, held, now in (("before", self.held or NOTHING, before), ("after", before, after)):
            if held.marks == now.marks:
                continue
            for each, values in now.values.items():
                if each not in self.written:
                    continue  # it is gone by the unit's end
                if not held.of(each) or not held.same(now, each):
                    kept = "mirrored" if in_ring and each.kept == "own" and each.trainable else each.kept
                    entries.append((when, self.written[each], kept, values))
                    size += sum(value.nbytes for value in values)
        here = [self.written[each] for each in after.values]
        self._writer.unit({"unit": self.units, **facts, "here": here}, entries, size)
        return size

    def _plan(self, size: int) -> None:
        """Half of the budget for every unit, a quarter for every second one, and so on: however long the training."""
        self.spent += size
        self._largest = max(self._largest, size)
        if self.spent > self.stage:
            self.stride *= 2
            self.stage += (self.budget - self.stage) / 2
        if self._largest <= self.small:
            return
        self._fresh = 0
        if self.units < TIMED:
            self.stride = max(self.stride, TIMED)
            return
        unit = (time.monotonic() - self._since) / (self.units - 1)  # the first one's time is that of making its graph
        while self.stride * unit * SHARE < self._largest * WRITING:
            self.stride *= 2

    def finish(self) -> None:
        """Writes what the function has left behind until now, and waits until all is written."""
        if self.held is not None:  # the last unit was recorded
            now = take()
            place, step = self.watched.position, progress(self.place).steps + 1
            self._write(now, now, unit=self.units + 1, end=True, began=place, ended=place, step=step)
        made = sum(map(sum, updates.states()))
        unseen = self.unseen and (not made or made > self.watched.position[0])
        facts = {"units": self.units, "position": self.watched.position, "unseen": unseen}
        self._writer.last({**facts, "failed": self._writer.failed})


class _Writer:
    """Writes in a thread of its own, so that a step waits for nothing but the reading of its variables."""

    def __init__(self, path: Path, values: bool):
        self.values, self.failed = values, ""
        flags, names = os.O_WRONLY | os.O_CREAT | os.O_APPEND, ("variables.jsonl", "units.jsonl", "states.bin")
        opened = (os.fdopen(os.open(path / name, flags, 0o600), "ab") for name in names)
        self._variables, self._units, self._states = opened
        self._thread = ThreadPoolExecutor(1, "dtk-states")
        self._waiting: deque[tuple[Future[None], int]] = deque()  # units that are being written, and their bytes

    def variable(self, facts: dict[str, Any]) -> None:
        self._submit(self._append, self._variables, facts)

    def unit(self, facts: dict[str, Any], entries: list[Any], size: int) -> None:
        """Waits while too much waits to be written."""
        while self._waiting and (self._waiting[0][0].done() or sum(its for _, its in self._waiting) > WAITING):
            wait([self._waiting.popleft()[0]], timeout=60)
        self._waiting.append((self._submit(self._unit, facts, entries), size))

    def last(self, facts: dict[str, Any]) -> None:
        """Returns when all is written."""
        wait([self._submit(self._append, self._units, {"last": facts})], timeout=120)

    def _submit(self, write: Callable[..., None], *given: Any) -> Future[None]:
        def written() -> None:
            try:
                write(*given)
            except OSError as error:  # a full disk: what is written by now can be followed
                self.failed = str(error.strerror or error)

        return self._thread.submit(written)

    def _append(self, file: Any, line: Any) -> None:
        file.write((json.dumps(line) + "\n").encode())
        file.flush()

    def _unit(self, facts: dict[str, Any], entries: list[Any]) -> None:
        """Writes values, and then by variable their digests, and where the values are."""
        if self.failed:
            return
        digests: dict[str, dict[int, list[int]]] = {"before": {}, "after": {}}
        places = []
        place = self._states.seek(0, os.SEEK_END)  # `dtk.interactive.worker_loop` cuts the file where a session goes on
        for when, number, kept, values in entries:
            held = [np.ascontiguousarray(value) for value in values]
            if kept == "mirrored":
                digests[when][number] = [zlib.crc32(_bytes(value)) for value in held]
            if self.values or kept == "by replica":
                for value in held if kept == "by replica" else held[:1]:
                    places.append([when, number, place, value.nbytes])
                    place += value.nbytes
                    self._states.write(_bytes(value))
        self._states.flush()
        self._append(self._units, {**facts, "digests": digests, "values": places})


def _bytes(value: Any) -> Any:
    return value.reshape(-1).view(np.uint8).data if value.size else b""


class Ended(BaseException):
    """A follower has seen enough; no mistake of the function that it is in."""


def listen(place: Here) -> None:
    """From now on, where this is a worker of a cluster, or has several replicas; TensorFlow may be imported or not."""
    asked = os.environ.get("DTK_STATES", "")
    budget, small = SENT if place.host else BUDGET, SMALL
    with contextlib.suppress(ValueError):
        if asked not in ("", "1"):
            budget = small = float(asked)
    if budget > 0 and place.role != "evaluator" and place.mode in ("cluster", "mirrored"):
        states.watch(StateRecorder(place, budget, small))


def pause(paused: bool) -> None:
    """While it is paused nothing is recorded: what runs is not the same on all workers."""
    watcher = states.watcher()  # a `StateRecorder`, or a `dtk.worker.follow.Follower`
    if isinstance(watcher, StateRecorder):
        watcher.paused = paused


def finish() -> None:
    """Writes what the function, or a session of cells until now, has left behind."""
    if states.watcher() is not None:
        states.watcher().finish()
