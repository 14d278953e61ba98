"""Exercises of lesson 01: the ring's second half, which chunk goes when, messages and bytes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from dtk import environment
from dtk.course.exercise import Exercise, Misconception, NotSolved, Trial
from dtk.errors import WorkerFailed
from dtk.language import N_, _
from dtk.runs import run
from dtk.worker.ring import Ring, ring

__all__ = ["EXERCISES"]


def _sizes(draw: random.Random) -> list[tuple[int, int]]:
    """(workers, numbers of the gradient): chunks of different sizes."""
    return [(3, draw.choice((7, 8))), (4, draw.choice((9, 10, 11)))]


def _gradient(worker: int, numbers: int) -> np.ndarray:
    return 1000.0**worker * np.arange(2, 2 + numbers)


class _Counted:
    """A ring that counts its exchanges."""

    def __init__(self, place: Ring):
        self._ring, self.exchanges = place, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ring, name)

    def exchange(self, number: int, values: Any) -> tuple[int, np.ndarray]:
        self.exchanges += 1
        return self._ring.exchange(number, values)


def _all_reduce(gather: Callable[..., None], numbers: int) -> tuple[list[float], int]:
    """In each worker: the first half, then the learner's second. Returns all chunks' numbers, and its exchanges."""
    place = ring()
    chunks, n = place.split(_gradient(place.worker, numbers)), place.workers
    for step in range(n - 1):
        mine = (place.worker - step) % n
        number, values = place.exchange(mine, chunks[mine])
        chunks[number] = chunks[number] + values
    counted = _Counted(place)
    gather(counted, chunks)
    return np.concatenate(chunks).tolist(), counted.exchanges  # not join: chunks may have a wrong size now


def _simulated(
    workers: int, numbers: int, stored: Callable[[dict[int, Any], int, int, Any], None], first: int = 1
) -> list[list[float]]:
    """What each worker would hold where `stored(chunks, sent, number, values)` is what it does with an arrival.

    first: which chunk worker k begins the second half with, counted from k.
    """
    held = [dict(enumerate(np.array_split(_gradient(k, numbers), workers))) for k in range(workers)]
    for chunk in range(workers):  # the first half: chunk c is collected from worker c on, and complete at c - 1
        values = held[chunk][chunk]
        for k in (other % workers for other in range(chunk + 1, chunk + workers)):
            values = held[k][chunk] = held[k][chunk] + values
    for step in range(workers - 1):
        sent = [(k + first - step) % workers for k in range(workers)]
        messages = [held[k][sent[k]] for k in range(workers)]
        for k in range(workers):
            stored(held[k], sent[k], sent[k - 1], messages[k - 1])
    return [np.concatenate([held[k][chunk] for chunk in range(workers)]).tolist() for k in range(workers)]


def _copy(chunks: dict[int, Any], sent: int, number: int, values: Any) -> None:
    chunks[number] = values


def _add(chunks: dict[int, Any], sent: int, number: int, values: Any) -> None:
    chunks[number] = chunks[number] + values


def _copy_to_sent(chunks: dict[int, Any], sent: int, number: int, values: Any) -> None:
    chunks[sent] = values


def _forget(chunks: dict[int, Any], sent: int, number: int, values: Any) -> None:
    return


_HINTS = [
    (_add, 1, N_("what comes is complete already: adding it counts the same gradients again")),
    (_copy_to_sent, 1, N_("what comes is another chunk than the one you sent; it has a number of its own")),
    (_forget, 1, N_("messages are exchanged, and what comes is not kept")),
    (_copy, 0, N_("the first chunk that a worker sends has to be the complete one; look at the picture again")),
]


def _hint_for_gather(gather: Callable[..., None], draw: random.Random) -> str:
    for workers, numbers in _sizes(draw):
        try:
            with environment.quiet():
                done = run(_all_reduce, workers=workers, args=(gather, numbers), force=environment.on_colab())
        except WorkerFailed as failed:
            return _("with {workers} workers, {what}", workers=workers, what=failed.what)
        got, exchanges = [values for values, __ in done.results], {count for __, count in done.results}
        if exchanges == {0}:
            words = _("{exercise} is not solved yet: no chunk is sent", exercise="01.all_gather")
            raise NotSolved(words, remedy=_("write its two lines first"))
        for stored, first, hint in _HINTS:
            if got == _simulated(workers, numbers, stored, first):
                return _(hint)
        if got != _simulated(workers, numbers, _copy):
            words = N_("with {workers} workers, not every worker has the whole sum; draw your run with dtk.plot.ring")
            return _(words, workers=workers)
        if exchanges != {workers - 1}:
            made = ", ".join(map(str, sorted(exchanges)))
            return _("the sum is there, after {made} exchanges of each worker; fewer are enough", made=made)
    return ""


def _places(draw: random.Random) -> list[tuple[int, int, int]]:
    """(worker, step, workers): steps of both halves."""
    plain = [(0, 0, 3), (2, 1, 3), (0, 1, 3), (1, 2, 3)]
    drawn = [(draw.randrange(n), draw.randrange(n - 1, 2 * n - 2), n) for n in (2, 4, 5, 8)]
    return plain + drawn + [(draw.randrange(n), draw.randrange(n - 1), n) for n in (4, 6, 9)]


def _gradients(draw: random.Random) -> list[tuple[int, int]]:
    """(workers, bytes of the gradient), which the workers divide evenly."""
    return [(n, 8 * n * draw.randint(10, 1000)) for n in (2, 4, 3, 5, 8, 100)]


CHUNK = Exercise(
    "01.chunk",
    right=lambda worker, step, workers: (worker - step) % workers,
    cases=_places,
    wrong=[
        Misconception(
            lambda worker, step, workers: worker - step, N_("numbers go round: there is no chunk below 0, see % n")
        ),
        Misconception(
            lambda worker, step, workers: (worker + step) % workers,
            N_("this goes round the wrong way: in its second step a worker passes on what came in its first"),
        ),
        Misconception(
            lambda worker, step, workers: (worker - step % (workers - 1)) % workers,
            N_("right in the first half; the second begins with the complete chunk, and not with the worker's own"),
        ),
        Misconception(
            lambda worker, step, workers: (worker + 1 - step) % workers,
            N_("this is all_gather's line, whose steps count from 0 again; here they go on counting"),
        ),
        Misconception(
            lambda worker, step, workers: (worker - step) % (workers - 1), N_("there are as many chunks as workers")
        ),
    ],
)
MESSAGES = Exercise(
    "01.messages",
    right=lambda workers: 2 * workers * (workers - 1),
    cases=lambda draw: [(2,), (3,), (4,), *((draw.randint(5, 200),) for _ in range(3))],
    wrong=[
        Misconception(lambda workers: 2 * (workers - 1), N_("these are the messages of one worker")),
        Misconception(
            lambda workers: workers * (workers - 1), N_("this is one half: reduce-scatter, or all-gather, alone")
        ),
        Misconception(
            lambda workers: 2 * workers * workers, N_("each half has one step less: its own chunk a worker has")
        ),
        Misconception(lambda workers: workers**2, N_("count the steps of both halves, then the messages of a step")),
    ],
)
BYTES = Exercise(
    "01.bytes",
    right=lambda workers, gradient_bytes: 2 * (workers - 1) * gradient_bytes // workers,
    cases=_gradients,
    wrong=[
        Misconception(
            lambda workers, gradient_bytes: (workers - 1) * gradient_bytes,
            N_(
                "that is what it costs to send the whole gradient to each of the others; in a ring a message is a chunk"
            ),
        ),
        Misconception(
            lambda workers, gradient_bytes: (workers + 2) * gradient_bytes // 4,
            N_("this fits 2 and 4 workers; count the steps and the size of a chunk for 3"),
        ),
        Misconception(
            lambda workers, gradient_bytes: (workers - 1) * gradient_bytes // workers,
            N_("this is one half; the complete chunks have to go round as well"),
        ),
        Misconception(
            lambda workers, gradient_bytes: 2 * (workers - 1) * gradient_bytes,
            N_("the number of messages is right; each holds a chunk, not the whole gradient"),
        ),
        Misconception(
            lambda workers, gradient_bytes: 2 * gradient_bytes,
            N_("that is where it tends to with many workers; with few it is less"),
        ),
    ],
)
EXERCISES = [Trial("01.all_gather", _hint_for_gather), CHUNK, MESSAGES, BYTES]
