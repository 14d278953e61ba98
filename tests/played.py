"""All-reduces message by message, as a discrete-event simulation: a heap of what happens when.

A link of a worker carries one message at a time in each direction; others wait in line. A message that starts at t is
sent until t + bytes / bandwidth, and has arrived a latency later. A few workers and thousands of messages; for
thousands of workers `simulate` has the same arithmetic on arrays.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Sequence

from dtk.scaling.job import Link

__all__ = ["Events", "ring", "tree", "trees"]

Then = Callable[[float], None]  # is called with the time at which it happens, in s


class Events:
    """The heap and the links. links: for each worker, the link over which it sends."""

    def __init__(self, links: Sequence[Link]):
        self.links = list(links)
        self.handled = 0
        self._heap: list[tuple[float, int, Then]] = []
        self._number = itertools.count()  # decides between events of the same time: the first that was told
        self._out, self._into = [0.0] * len(links), [0.0] * len(links)

    def at(self, time: float, then: Then) -> None:
        heapq.heappush(self._heap, (time, next(self._number), then))

    def send(self, now: float, sender: int, receiver: int, size: float, then: Then) -> None:
        """A message of `size` bytes, from `now` on as soon as the links are free; `then` is called when it is there."""
        link = self.links[sender]
        start = max(now, self._out[sender])
        self._out[sender] = start + size / link.bandwidth
        there = max(start + link.latency, self._into[receiver]) + size / link.bandwidth
        self._into[receiver] = there
        self.at(there, then)

    def run(self) -> None:
        while self._heap:
            time, _, then = heapq.heappop(self._heap)
            self.handled += 1
            then(time)


def ring(events: Events, size: float, done: Callable[[int, float], None]) -> Callable[[int, float], None]:
    """An all-reduce by a ring: returns what is to be called with (worker, time) when a worker has its gradient.

    Each worker sends 2 (n - 1) chunks to the next, each after it has received the one before. done: is called with
    (worker, time) when a worker has the sums.
    """
    workers = len(events.links)
    messages, chunk = 2 * (workers - 1), size / workers
    started, sent, received = [False] * workers, [0] * workers, [0] * workers

    def go_on(worker: int, now: float) -> None:
        while started[worker] and sent[worker] < messages and sent[worker] <= received[worker]:
            sent[worker] += 1
            after = (worker + 1) % workers
            events.send(now, worker, after, chunk, lambda time, after=after: receive(after, time))  # type: ignore[misc]
        if started[worker] and received[worker] == messages:
            done(worker, now)

    def receive(worker: int, now: float) -> None:
        received[worker] += 1
        go_on(worker, now)

    def start(worker: int, now: float) -> None:
        started[worker] = True
        go_on(worker, now)

    return start


def trees(workers: int) -> tuple[dict[int, int], dict[int, int]]:
    """Two binary trees over the workers as {child: parent}; a worker that has children in one is a leaf of the other.

    Positions 1 to n are a search tree whose odd positions are leaves; worker w stands at w + 1 in one tree and at w in
    the other, worker 0 at n (Sanders, Speck and Träff 2009, section 3).

    >>> trees(4)
    ({0: 1, 2: 1, 1: 3}, {1: 2, 3: 2, 2: 0})
    """
    parents: dict[int, int] = {}

    def grow(low: int, high: int) -> int:
        # The position that the highest power of two divides has all the others of the range at its sides.
        top = max(range(low, high + 1), key=lambda position: position & -position)
        for first, last in ((low, top - 1), (top + 1, high)):
            if first <= last:
                parents[grow(first, last)] = top
        return top

    grow(1, workers)
    one = {child - 1: parent - 1 for child, parent in parents.items()}
    return one, {child % workers: parent % workers for child, parent in parents.items()}


def tree(events: Events, size: float, chunks: int, done: Callable[[int, float], None]) -> Callable[[int, float], None]:
    """An all-reduce by two trees at once, each with half the bytes in that many chunks; as `ring`.

    A chunk goes up as soon as it has come from all children, and down from the root as soon as it is there.
    """
    workers = len(events.links)
    piece = size / 2 / chunks
    have: Counter[int] = Counter()  # finished chunks by worker

    def finished(worker: int, now: float) -> None:
        have[worker] += 1
        if have[worker] == 2 * chunks:
            done(worker, now)

    def grown(parents: dict[int, int]) -> Callable[[int, float], None]:
        children: dict[int, list[int]] = {worker: [] for worker in range(workers)}
        for child, parent in parents.items():
            children[parent].append(child)
        parts: Counter[tuple[int, int]] = Counter()  # of (worker, chunk): its own and its children's

        def up(worker: int, chunk: int, now: float) -> None:
            parts[worker, chunk] += 1
            if parts[worker, chunk] <= len(children[worker]):
                return
            if worker in parents:
                events.send(now, worker, parents[worker], piece, lambda time: up(parents[worker], chunk, time))
            else:
                down(worker, chunk, now)

        def down(worker: int, chunk: int, now: float) -> None:
            for child in children[worker]:
                events.send(now, worker, child, piece, lambda time, child=child: down(child, chunk, time))  # type: ignore[misc]
            finished(worker, now)

        def start(worker: int, now: float) -> None:
            for chunk in range(chunks):
                up(worker, chunk, now)

        return start

    both = [grown(parents) for parents in trees(workers)]

    def start(worker: int, now: float) -> None:
        for each in both:
            each(worker, now)

    return start
