"""An all-reduce by hand, reconstructed from its messages: which worker's chunk held whose parts after each step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dtk.records import RunFolder
from dtk.records.events import Finished, Ring, RingReceived, RingSent, RingSplit, RingUsed, of_kind

__all__ = ["RingMessage", "Story", "story"]

Parts = tuple[int, ...] | None  # workers whose gradient is in a chunk's sum, with repetitions; None: unknown


@dataclass(frozen=True)
class RingMessage:
    """A chunk's way from a worker to the next. arrived: whether the receiver wrote down that it came."""

    step: int
    sender: int
    chunk: int
    arrived: bool


@dataclass(frozen=True)
class Story:
    """One all-reduce. `holds[step][worker][chunk]`: the parts in that worker's chunk after that step, from step 0.

    holds[step][worker] is None where that worker did not get as far. steps: how many there were; where the run was
    interrupted, how many there should have been, 2 (workers - 1), if that is more.
    """

    workers: int
    steps: int
    interrupted: bool
    messages: list[RingMessage] = field(default_factory=list)
    holds: list[list[list[Parts] | None]] = field(default_factory=list)

    @property
    def missing(self) -> int:
        """How many messages should have arrived and didn't: one a worker and step."""
        return self.workers * self.steps - sum(message.arrived for message in self.messages)


# What the workers wrote of one all-reduce: the events of each kind by worker and step, a split's step being 0.
_Seen = dict[type[Ring], dict[tuple[int, int], Any]]


def story(folder: RunFolder, number: int = 1) -> Story | None:
    """The run's all-reduce of that number, from 1; None where no worker wrote of one."""
    seen: _Seen = {kind: {} for kind in (RingSplit, RingSent, RingReceived, RingUsed)}
    finished = 0
    for corner in folder.each:
        events = corner.events
        finished += bool(of_kind(events, Finished))
        for event in of_kind(events, Ring):
            if event.round == number:
                seen[type(event)][corner.worker, getattr(event, "step", 0)] = event
    steps = max((step for found in seen.values() for _, step in found), default=None)
    if steps is None:
        return None
    workers, interrupted = folder.workers, finished < folder.workers
    if interrupted:
        steps = max(steps, 2 * (workers - 1))
    holds = [_holdings(seen, worker, workers, steps) for worker in range(workers)]
    by_step = [[holds[worker][step] for worker in range(workers)] for step in range(steps + 1)]
    return Story(workers, steps, interrupted, _messages(seen, workers, steps), by_step)


def _messages(seen: _Seen, workers: int, steps: int) -> list[RingMessage]:
    """What at least one end wrote down: a worker that is killed may have sent without a chance to say so."""
    messages = []
    for step in range(1, steps + 1):
        for sender in range(workers):
            received = seen[RingReceived].get(((sender + 1) % workers, step))
            message = seen[RingSent].get((sender, step)) or received
            if message is not None:
                messages.append(RingMessage(step, sender, message.chunk, received is not None))
    return messages


def _holdings(seen: _Seen, worker: int, workers: int, steps: int) -> list[list[Parts] | None]:
    """A worker's chunks after each step; None from the first step on whose message it did not get."""
    known = (worker, 0) in seen[RingSplit]
    chunks: list[Parts] = [(worker,)] * workers
    held: list[list[Parts] | None] = [list(chunks) if known else None]
    for step in range(1, steps + 1):
        received, used = (seen[kind].get((worker, step)) for kind in (RingReceived, RingUsed))
        known = known and received is not None
        if received is not None:
            chunks[received.chunk] = None if used is None or used.parts is None else tuple(used.parts)
        held.append(list(chunks) if known else None)
    return held
