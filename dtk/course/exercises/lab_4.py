"""Exercises of lab 4, another all-reduce: partners, doubling, halving and doubling, where the ring is beaten."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from dtk.course.exercise import Exercise, Hints
from dtk.course.rehearsal import on_parts, rehearse, teams
from dtk.language import N_

_PARTNER = Exercise(
    "lab4.partner",
    right=lambda worker, step: worker ^ 2**step,
    wrong={
        "worker + 2 ** step": (
            "if worker 0's partner is worker 1, then worker 1's partner is worker 0: some have to look back"
        ),
        "worker ^ step": "in step 0 everybody would be alone: it is the bit that has this number",
        "worker ^ 1": "with the same partner in each step nothing new comes after the first",
    },
    plain=[(0, 0), (3, 0), (1, 2), (6, 1)],
    drawn=lambda draw: [(draw.randrange(16), step) for step in (0, 1, 2, 3)],
    hint="write the workers as binary numbers: one bit changes",
)

_TEAMS = [(2, 8), (4, 8), (8, 16), (4, 24)]


def _doubling(
    ring: Any, numbers: np.ndarray, *, steps: int | None = None, own: bool = False, add: bool = True
) -> np.ndarray:
    """Recursive doubling; its arguments are the ways in which it goes wrong."""
    total = np.array(numbers)
    for step in range(int(math.log2(ring.workers)) if steps is None else steps):
        came = ring.swap(ring.worker ^ 2**step, numbers if own else total)
        total = total + came if add else came
    return total


_ADDED = N_("what comes takes the place of the sum so far: add it")
_DOUBLING = Exercise(
    "lab4.doubling",
    right=_doubling,
    wrong={
        partial(_doubling, own=True): (
            "each step sends this worker's own numbers again; what the partner needs is the sum so far"
        ),
        partial(_doubling, steps=1): "one step gives the sum of two workers; there are log2(N) steps",
        partial(_doubling, add=False): _ADDED,
    },
    drawn=lambda draw: teams(draw, _TEAMS, -99, 99),
    play=on_parts,
    hint="what does each of two workers hold after a step, and what has a second step to send among four?",
)


def _halving(
    ring: Any, numbers: np.ndarray, distance: int, *, add: bool = True, deeper: bool = True, back: str = "values"
) -> np.ndarray:
    """Recursive halving and doubling; its arguments are the ways in which it goes wrong."""
    if distance == 0:
        return numbers
    halves, partner, mine = np.array_split(numbers, 2), ring.worker ^ distance, int(bool(ring.worker & distance))
    came = ring.swap(partner, halves[1 - mine])
    halves[mine] = halves[mine] + came if add else came
    if deeper:
        halves[mine] = _halving(ring, halves[mine], distance // 2, add=add, deeper=deeper, back=back)
    if back:
        came = ring.swap(partner, halves[mine])
        halves[1 - mine] = halves[1 - mine] + came if back == "sum" else came
    return np.concatenate(halves)


_HALVING = Exercise(
    "lab4.halving",
    right=_halving,
    wrong={
        partial(_halving, deeper=False): (
            "the halves are summed over one pair of workers; the same function, at half the distance, does the rest"
        ),
        partial(_halving, back=""): "each worker ends with its own part of the sum: the halves don't come back",
        partial(_halving, back="sum"): Hints.COPIED,
        partial(_halving, add=False): _ADDED,
    },
    drawn=lambda draw: teams(draw, _TEAMS, -99, 99),
    play=lambda answer, team: rehearse(answer, [(part, len(team) // 2) for part in team]),
    hint="try two workers by hand: which half has each of them after its first swap, and what is missing?",
)


def _messages(workers: int) -> float:
    """The messages that doubling saves."""
    return 2 * (workers - 1) - math.log2(workers)


def _bytes(workers: int) -> float:
    """The gradients that doubling sends more."""
    return math.log2(workers) - 2 * (workers - 1) / workers


_BOTH = N_("both have messages, and both send bytes: what counts is how many more one of them has")
_CROSSOVER = Exercise(
    "lab4.crossover",
    right=lambda workers, latency, bandwidth: latency * bandwidth * _messages(workers) / _bytes(workers),
    wrong={
        "latency * bandwidth": (
            "at this size one message takes twice its latency; how many messages does each of the two have?"
        ),
        "latency * bandwidth * 2 * (workers - 1) / _bytes(workers)": _BOTH,
        "latency * bandwidth * _messages(workers) / math.log2(workers)": _BOTH,
    },
    plain=[(4, 1e-4, 1e9)],
    drawn=lambda draw: [(workers, draw.randint(5, 500) * 1e-6, draw.randint(1, 50) * 1e8) for workers in (8, 16, 64)],
    hint="write both times as messages * latency + bytes / bandwidth, set them equal, and solve for the size",
)

EXERCISES = [_PARTNER, _DOUBLING, _CROSSOVER, _HALVING]
