"""Exercises of lab 4, another all-reduce: partners, doubling, halving and doubling, where the ring is beaten."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from dtk.course.exercise import Exercise, Misconception
from dtk.course.rehearsal import Team, on_parts, rehearse
from dtk.language import N_

__all__ = ["EXERCISES"]

# ---- partners


def _places(draw: random.Random) -> list[tuple[int, int]]:
    return [(0, 0), (3, 0), (1, 2), (6, 1), *((draw.randrange(16), step) for step in (0, 1, 2, 3))]


_PARTNER = Exercise(
    "lab4.partner",
    right=lambda worker, step: worker ^ 2**step,
    wrong=[
        Misconception(
            lambda worker, step: worker + 2**step,
            N_("if worker 0's partner is worker 1, then worker 1's partner is worker 0: some have to look back"),
        ),
        Misconception(
            lambda worker, step: abs(worker - 2**step),
            N_("a partner's partner must be the worker itself; try worker 0"),
        ),
        Misconception(
            lambda worker, step: worker ^ step,
            N_("in step 0 everybody would be alone: it is the bit that has this number"),
        ),
        Misconception(
            lambda worker, step: worker ^ (2 * step), N_("the distance doubles in each step: 1, 2, 4, and not 0, 2, 4")
        ),
        Misconception(
            lambda worker, step: worker ^ 1, N_("with the same partner in each step nothing new comes after the first")
        ),
    ],
    cases=_places,
    hint=N_("write the workers as binary numbers: one bit changes"),
)


# ---- recursive doubling


def _teams(draw: random.Random) -> list[tuple[Team]]:
    found = []
    for workers, size in ((2, 8), (4, 8), (8, 16), (4, 24)):
        numbers = np.random.default_rng(draw.randrange(10**6))
        found.append((Team(tuple(numbers.integers(-99, 100, size).astype(float) for _ in range(workers))),))
    return found


def _doubling(
    ring: Any,
    numbers: np.ndarray,
    *,
    steps: int | None = None,
    own: bool = False,
    add: bool = True,
    mean: bool = False,
) -> np.ndarray:
    """Recursive doubling; its arguments are the ways in which it goes wrong."""
    total = np.array(numbers)
    for step in range(int(math.log2(ring.workers)) if steps is None else steps):
        came = ring.swap(ring.worker ^ 2**step, numbers if own else total)
        total = total + came if add else came
    return total / ring.workers if mean else total


def _to_everyone(ring: Any, numbers: np.ndarray) -> np.ndarray:
    total = np.array(numbers)
    for distance in range(1, ring.workers):
        total = total + ring.swap(ring.worker ^ distance, numbers)
    return total


_DOUBLING = Exercise(
    "lab4.doubling",
    right=_doubling,
    wrong=[
        Misconception(
            lambda *given: _doubling(*given, own=True),
            N_("each step sends this worker's own numbers again; what the partner needs is the sum so far"),
        ),
        Misconception(
            lambda *given: _doubling(*given, steps=1),
            N_("one step gives the sum of two workers; there are log2(N) steps"),
        ),
        Misconception(
            lambda *given: _doubling(*given, add=False), N_("what comes takes the place of the sum so far: add it")
        ),
        Misconception(
            lambda *given: _doubling(*given, mean=True), N_("a sum is asked for; this is the mean over the workers")
        ),
        Misconception(
            _to_everyone,
            N_(
                "the sum is right, and each worker sent its numbers to all the others; with the sum so far, fewer "
                "are sent"
            ),
        ),
    ],
    cases=_teams,
    play=on_parts,
    hint=N_("what does each of two workers hold after a step, and what has a second step to send among four?"),
)


# ---- recursive halving and doubling


def _halving(
    ring: Any,
    numbers: np.ndarray,
    distance: int,
    *,
    add: bool = True,
    deeper: bool = True,
    back: str = "copy",
    early: bool = False,
) -> np.ndarray:
    """Recursive halving and doubling; its arguments are the ways in which it goes wrong."""
    if distance == 0:
        return numbers
    halves, partner, mine = np.array_split(numbers, 2), ring.worker ^ distance, int(bool(ring.worker & distance))
    came = ring.swap(partner, halves[1 - mine])
    halves[mine] = halves[mine] + came if add else came
    kind = {"add": add, "deeper": deeper, "back": back, "early": early}
    if early:
        halves[1 - mine] = ring.swap(partner, halves[mine])
    if deeper:
        halves[mine] = _halving(ring, halves[mine], distance // 2, **kind)  # type: ignore[arg-type]
    if back != "none" and not early:
        came = ring.swap(partner, halves[mine])
        halves[1 - mine] = halves[1 - mine] + came if back == "add" else came
    return np.concatenate(halves)


def _whole(ring: Any, numbers: np.ndarray, distance: int) -> np.ndarray:
    while distance:
        numbers, distance = numbers + ring.swap(ring.worker ^ distance, numbers), distance // 2
    return numbers


def _by_ring(ring: Any, numbers: np.ndarray, distance: int) -> np.ndarray:
    """Lesson 01's all-reduce: the same sum and the same bytes, in more messages."""
    chunks = ring.split(numbers)
    for step in range(2 * (ring.workers - 1)):
        mine = (ring.worker - step) % ring.workers
        number, values = ring.exchange(mine, chunks[mine])
        chunks[number] = values if step >= ring.workers - 1 else chunks[number] + values
    return np.asarray(ring.join(chunks))


_HALVING = Exercise(
    "lab4.halving",
    right=_halving,
    wrong=[
        Misconception(
            lambda *given: _halving(*given, deeper=False),
            N_(
                "the halves are summed over one pair of workers; the same function, at half the distance, does the rest"
            ),
        ),
        Misconception(
            lambda *given: _halving(*given, back="none"),
            N_("each worker ends with its own part of the sum: the halves don't come back"),
        ),
        Misconception(
            lambda *given: _halving(*given, back="add"),
            N_("on the way back the partner's half is finished: it is copied, not added"),
        ),
        Misconception(
            lambda *given: _halving(*given, add=False),
            N_("on the way out the partner's half is added to yours, not put in its place"),
        ),
        Misconception(
            lambda *given: _halving(*given, early=True),
            N_("the halves go back before they are finished: first the smaller distances, then the way back"),
        ),
        Misconception(
            _whole,
            N_("the sum is right, and this is recursive doubling: it sends all numbers in each step; send one half"),
        ),
        Misconception(
            _by_ring,
            N_(
                "sum and bytes are right, and this is the ring of lesson 01: it sends more messages than the two "
                "swaps do"
            ),
        ),
    ],
    cases=_teams,
    play=lambda answer, team: rehearse(answer, [(part, len(team.parts) // 2) for part in team.parts]),
    hint=N_("try two workers by hand: which half has each of them after its first swap, and what is missing?"),
)


# ---- where the ring is beaten


def _links(draw: random.Random) -> list[tuple[int, float, float]]:
    return [
        (4, 1e-4, 1e9),
        *((workers, draw.randint(5, 500) * 1e-6, draw.randint(1, 50) * 1e8) for workers in (8, 16, 64)),
    ]


def _crossing(messages: Callable[[int, float], float], sizes: Callable[[int, float], float]) -> Callable[..., float]:
    """The size from the messages that doubling saves and the gradients that it sends more, by workers and log2."""
    return lambda workers, latency, bandwidth: (
        latency * bandwidth * messages(workers, math.log2(workers)) / sizes(workers, math.log2(workers))
    )


_CROSSOVER = Exercise(
    "lab4.crossover",
    right=_crossing(lambda n, log: 2 * (n - 1) - log, lambda n, log: log - 2 * (n - 1) / n),
    wrong=[
        Misconception(
            _crossing(lambda n, log: 1, lambda n, log: 1),
            N_("at this size one message takes twice its latency; how many messages does each of the two have?"),
        ),
        Misconception(
            _crossing(lambda n, log: 2 * (n - 1), lambda n, log: log - 2 * (n - 1) / n),
            N_("doubling has messages, too, and each has a latency"),
        ),
        Misconception(
            _crossing(lambda n, log: 2 * (n - 1) - log, lambda n, log: log),
            N_("the ring sends bytes, too: what counts is how many more doubling sends"),
        ),
        Misconception(
            _crossing(lambda n, log: n - 1 - log, lambda n, log: log - (n - 1) / n),
            N_("count the ways: a ring has two halves of N - 1 messages, and recursive doubling has no way back"),
        ),
    ],
    cases=_links,
    hint=N_("write both times as messages * latency + bytes / bandwidth, set them equal, and solve for the size"),
)

EXERCISES = [_PARTNER, _DOUBLING, _HALVING, _CROSSOVER]
