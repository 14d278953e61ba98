"""A ring of threads: a function runs on several workers as `dtk.run` would run it, in this process, in milliseconds.

Runs in the kernel. What it computes and sends is the same as on `dtk.ring`; how long that takes is not.
"""

from __future__ import annotations

import itertools
import queue
import random
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from dtk.language import N_, _
from dtk.worker.ring import Ring

_PATIENCE = 3.0  # seconds until a message counts as one that is not sent
_SECONDS = 20.0  # a function that is still busy then has a loop without an end


class Team(tuple[np.ndarray, ...]):
    """What each worker holds at first, an array per worker; its text has their sizes alone."""

    def __repr__(self) -> str:
        return _("{workers} workers, {numbers} numbers each", workers=len(self), numbers=self[0].size)


def teams(draw: random.Random, sizes: Sequence[tuple[int, int]], least: int, most: int) -> list[tuple[Team]]:
    """Draw a team for each (workers, numbers each), as the cases of an exercise."""
    found = []
    for workers, size in sizes:
        numbers = np.random.default_rng(draw.randrange(10**6))
        found.append((Team(numbers.integers(least, most + 1, size).astype(float) for _ in range(workers)),))
    return found


def reduce_scatter(ring: Any, chunks: list[np.ndarray]) -> None:
    """The first half of a ring. Afterwards worker k's chunk k + 1 holds the sum of all workers'."""
    all_gather(ring, chunks, first=0, keep="sum")


def all_gather(ring: Any, chunks: list[np.ndarray], *, first: int = 1, more: int = 0, keep: str = "values") -> None:
    """The second half of a ring; its arguments are the ways in which it goes wrong.

    first: the chunk that worker k sends first, counted from k. more: steps too many. keep: what is kept of what comes:
    "values", "sum" (added to those that are there), "as sent" (stored as the chunk that was sent) or "nothing".
    """
    for step in range(ring.workers - 1 + more):
        mine = (ring.worker + first - step) % ring.workers
        number, values = ring.exchange(mine, chunks[mine])
        if keep != "nothing":
            chunks[mine if keep == "as sent" else number] = chunks[number] + values if keep == "sum" else values


class Outcome(dict[str, Any]):
    """What each worker's function returned, the bytes and messages that each sent; its text has worker 0's."""

    def __repr__(self) -> str:
        result = self["results"][0]
        shown = " ".join(repr(result.item() if isinstance(result, np.generic) else result).split())
        return _("{result} on worker 0, {bytes} bytes sent", result=shown, bytes=self["bytes"][0])


class NoMessage(Exception):
    """A worker waits for a message that no worker sends."""


# By (sender, receiver); None: the sender has ended, and sends nothing any more.
_Boxes = dict[tuple[int, int], queue.SimpleQueue[tuple[dict[str, Any], np.ndarray] | None]]


class _Ring(Ring):
    """`dtk.ring()` as a thread has it: messages go through this process's memory, and nothing is written down."""

    def __init__(self, worker: int, workers: int, boxes: _Boxes):
        place: Any = SimpleNamespace(worker=worker, workers=1)
        super().__init__(place, timeout=_PATIENCE)  # a ring of one has no connections
        self.workers, self.messages_sent, self._boxes = workers, 0, boxes
        around: Any = SimpleNamespace(next=(worker + 1) % self.workers, previous=(worker - 1) % self.workers)
        self._neighbors = around

    def _write(self, what: str, **facts: Any) -> None:
        pass

    def _trade(
        self, about: dict[str, Any], array: np.ndarray, receiver: int, sender: int
    ) -> tuple[dict[str, Any], np.ndarray]:
        self.bytes_sent += array.nbytes
        self.messages_sent += 1
        self._boxes[self.worker, receiver].put((about, array))
        try:
            came = self._boxes[sender, self.worker].get(timeout=_PATIENCE)
        except queue.Empty:
            came = None
        if came is None:
            words = N_("worker {to} waits for a message from worker {by}, which sends none")
            raise NoMessage(_(words, to=self.worker, by=sender))
        return came


def rehearse(function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> Outcome | None:
    """Runs function(ring, *arguments[k]) as worker k, each in a thread.

    Returns:
        What came of it; None where every worker's function returned None or `...`.

    Raises:
        NoMessage: the workers wait for each other forever, or one of them has a loop without an end.
        Exception: what a worker's function raised.
    """
    workers = range(len(arguments))
    boxes: _Boxes = {pair: queue.SimpleQueue() for pair in itertools.product(workers, workers)}
    rings = [_Ring(worker, len(workers), boxes) for worker in workers]
    results: list[Any] = [None] * len(rings)
    errors: dict[int, Exception] = {}

    def work(worker: int) -> None:
        try:
            results[worker] = function(rings[worker], *arguments[worker])
        except Exception as error:
            errors[worker] = error
        for other in workers:
            boxes[worker, other].put(None)

    threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    for worker, thread in enumerate(threads):
        thread.join(_SECONDS)
        if thread.is_alive():
            words = N_("worker {worker} has not ended after {seconds:.0f} s: a loop without an end?")
            raise NoMessage(_(words, worker=worker, seconds=_SECONDS))
    # Where one worker raises, the others wait in vain: its error is the reason; of several, the lowest worker's.
    for worker in sorted(errors, key=lambda each: (isinstance(errors[each], NoMessage), each)):
        raise errors[worker]
    if all(result is None or result is ... for result in results):
        return None
    sent = {"bytes": [ring.bytes_sent for ring in rings], "messages": [ring.messages_sent for ring in rings]}
    return Outcome(results=results, **sent)


def on_parts(function: Callable[..., Any], team: Team) -> Outcome | None:
    """As `rehearse`: each worker gets its own part."""
    return rehearse(function, [(part,) for part in team])
