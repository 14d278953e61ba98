"""An all-reduce by hand, reconstructed from its messages: which worker's chunk held whose parts after each step."""

from __future__ import annotations

from dataclasses import dataclass, field

from dtk.records import RunFolder
from dtk.records.events import Finished, Ring, RingReceived, RingSent, RingSplit, RingUsed, of_kind

__all__ = ["Message", "Story", "story"]

Parts = tuple[int, ...] | None  # workers whose gradient is in a chunk's sum, with repetitions; None: unknown


@dataclass(frozen=True)
class Message:
    """A chunk's way from a worker to the next.

    arrived: whether the receiver wrote down that it came. how: what the receiver did with it, "added", "copied",
    "ignored", "changed" (the chunk holds something else) or "overwritten"; None where unknown. bytes: of the chunk.
    at: when it was sent, in seconds since the call of `dtk.run`; NaN where only the receiver wrote of it.
    """

    step: int
    sender: int
    receiver: int
    chunk: int
    bytes: int
    arrived: bool
    how: str | None
    at: float


@dataclass(frozen=True)
class Story:
    """One all-reduce. `holds[step][worker][chunk]`: the parts in that worker's chunk after that step, from step 0.

    holds[step][worker] is None where that worker did not get as far. steps: how many there were; where the run was
    interrupted, how many there should have been, 2 (workers - 1), if that is more.
    """

    workers: int
    steps: int
    interrupted: bool
    messages: list[Message] = field(default_factory=list)
    holds: list[list[list[Parts] | None]] = field(default_factory=list)

    def at(self, step: int) -> list[Message]:
        return [message for message in self.messages if message.step == step]

    @property
    def missing(self) -> int:
        """How many messages should have arrived and didn't: one a worker and step."""
        return self.workers * self.steps - sum(message.arrived for message in self.messages)


def story(folder: RunFolder, number: int = 1) -> Story | None:
    """The run's all-reduce of that number, from 1; None where no worker wrote of one."""
    seen, finished = _Seen(), 0
    for corner in folder.each:
        events = corner.events
        finished += bool(of_kind(events, Finished))
        for event in of_kind(events, Ring):
            if event.round == number:
                seen.take(corner.worker, event)
    if not seen.anything:
        return None
    workers, interrupted = folder.workers, finished < folder.workers
    steps = max(seen.steps, 2 * (workers - 1)) if interrupted else seen.steps
    messages = _messages(seen, workers, steps)
    holds = [_holdings(seen, worker, workers, steps) for worker in range(workers)]
    by_step = [[holds[worker][step] for worker in range(workers)] for step in range(steps + 1)]
    return Story(workers, steps, interrupted, messages, by_step)


@dataclass
class _Seen:
    """What the workers wrote of one all-reduce: who split a gradient, and the other events by worker and step."""

    split: set[int] = field(default_factory=set)
    sent: dict[tuple[int, int], RingSent] = field(default_factory=dict)
    received: dict[tuple[int, int], RingReceived] = field(default_factory=dict)
    used: dict[tuple[int, int], RingUsed] = field(default_factory=dict)

    def take(self, worker: int, event: Ring) -> None:
        if isinstance(event, RingSplit):
            self.split.add(worker)
        elif isinstance(event, RingSent):
            self.sent[worker, event.step] = event
        elif isinstance(event, RingReceived):
            self.received[worker, event.step] = event
        elif isinstance(event, RingUsed):
            self.used[worker, event.step] = event

    @property
    def anything(self) -> bool:
        return bool(self.split or self.sent or self.received or self.used)

    @property
    def steps(self) -> int:
        return max((step for _, step in (*self.sent, *self.received, *self.used)), default=0)


def _messages(seen: _Seen, workers: int, steps: int) -> list[Message]:
    """What at least one end wrote down: a worker that is killed may have sent without a chance to say so."""
    messages = []
    for step in range(1, steps + 1):
        for sender in range(workers):
            receiver = (sender + 1) % workers
            sent, received = seen.sent.get((sender, step)), seen.received.get((receiver, step))
            message = sent or received
            if message is not None:
                used = seen.used.get((receiver, step))
                at = sent.at if sent else float("nan")
                how = used.how if used else None
                about = message.chunk, message.bytes, received is not None, how, at
                messages.append(Message(step, sender, receiver, *about))
    return messages


def _holdings(seen: _Seen, worker: int, workers: int, steps: int) -> list[list[Parts] | None]:
    """A worker's chunks after each step; None from the first step on whose message it did not get."""
    known = worker in seen.split
    chunks: list[Parts] = [(worker,)] * workers
    held: list[list[Parts] | None] = [list(chunks) if known else None]
    for step in range(1, steps + 1):
        received = seen.received.get((worker, step))
        known = known and received is not None
        if received is not None:
            used = seen.used.get((worker, step))
            parts = used.parts if used else None
            chunks[received.chunk] = None if parts is None else tuple(parts)
        held.append(list(chunks) if known else None)
    return held
