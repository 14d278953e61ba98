"""Exercises of lab 3, an optimizer in shards: whose part, the step, a norm over all parts, bytes of memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dtk.course.exercise import Exercise, Hints
from dtk.course.rehearsal import Team, all_gather, on_parts, reduce_scatter, teams
from dtk.language import N_, _


class _OwnPart:
    """An optimizer with state for one part alone; each call remembers, and what it makes of a gradient is not linear.

    Where a step has to be the gradient's, twice the gradient is another step.
    """

    def __init__(self, size: int):
        self.size, self.seen = size, np.zeros(size)

    def __call__(self, weights: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        if not np.shape(weights) == np.shape(gradient) == (self.size,):
            words = N_("the optimizer has state for {size} weights; it got {weights} weights and {gradients} gradients")
            raise ValueError(_(words, size=self.size, weights=np.size(weights), gradients=np.size(gradient)))
        self.seen = 0.5 * self.seen + gradient
        return weights - self.seen / (1 + np.abs(self.seen))


def _two_steps(answer: Callable[..., Any], team: Team) -> Any:
    """The weights after two steps with one optimizer a worker: the second shows whether the first was gathered."""
    workers, size = len(team), team[0].size
    sizes = [len(part) for part in np.array_split(np.arange(size), workers)]

    def work(ring: Any, gradient: np.ndarray) -> Any:
        update, weights = _OwnPart(sizes[(ring.worker + 1) % workers]), np.linspace(-9.0, 9.0, size)
        for __ in range(2):
            weights = answer(ring, weights, gradient, update)
            if weights is None or weights is ...:
                return None
        return weights

    return on_parts(work, team)


def _step(
    ring: Any, weights: np.ndarray, gradient: np.ndarray, update: _OwnPart, *, reduce: bool = True, keep: str = "values"
) -> np.ndarray:
    """A sharded step; its arguments are the ways in which it goes wrong."""
    sums = ring.split(gradient)
    if reduce:
        reduce_scatter(ring, sums)
    own, parts = (ring.worker + 1) % ring.workers, ring.split(weights)
    parts[own] = update(parts[own], sums[own])
    if keep:
        all_gather(ring, parts, keep=keep)
    return np.asarray(ring.join(parts))


_UPDATE = Exercise(
    "lab3.update",
    right=_step,
    wrong={
        partial(_step, keep=""): "each worker has its own new part only: the last half of the ring is missing",
        partial(_step, keep="sum"): Hints.COPIED,
        partial(_step, reduce=False): (
            "your part is updated with this worker's own gradient: the other workers' examples never reach it"
        ),
    },
    drawn=lambda draw: teams(draw, [(2, 4), (4, 8), (3, 10), (5, 7)], -9, 9),
    play=_two_steps,
    hint="which of three parts is missing: the sum of all gradients, your own new weights, or the other workers'?",
)

_OWNER = Exercise(
    "lab3.owner",
    right=lambda worker, workers: (worker + 1) % workers,
    wrong={
        "worker": "that chunk left in the first step: others have added to it since",
        "worker + 1": Hints.GO_ROUND,
        "workers - 1 - worker": "chunks move on by one worker in each step; they don't turn",
    },
    plain=[(0, 4), (3, 4), (1, 2)],
    drawn=lambda draw: [(draw.randrange(n), n) for n in (3, 5, 8, 16)],
    hint="print what each worker's chunks hold after reduce_scatter, with two workers",
)


def _norm(ring: Any, part: np.ndarray, *, square: bool = True, root: bool = True) -> float:
    """The norm of all parts together; its arguments are the ways in which it goes wrong."""
    mine = float(np.sum(np.square(part))) if square else float(np.linalg.norm(part))
    total = moving = np.array([mine])
    ring.split(np.zeros(ring.workers))
    for __ in range(ring.workers - 1):
        moving = ring.exchange(0, moving)[1]
        total = total + moving
    return float(np.sqrt(total[0])) if square and root else float(total[0])


_NORM = Exercise(
    "lab3.norm",
    right=_norm,
    wrong={
        "float(np.linalg.norm(part))": "this is the norm of your own part: each worker would clip by another number",
        partial(_norm, square=False): "norms don't add up: 3 and 4 make 5. Which numbers do add up?",
        partial(_norm, root=False): "this is the square of the norm: the root comes last",
    },
    drawn=lambda draw: teams(draw, [(2, 1), (3, 4), (4, 3), (5, 2)], 1, 9),
    play=on_parts,
    hint="send one number round, workers - 1 times",
)

_MEMORY = Exercise(
    "lab3.size",
    right=lambda parameters, workers: 8 * parameters + 8 * parameters / workers,
    wrong={
        "16 * parameters / workers": Hints.STATE_ALONE,
        "4 * parameters + 8 * parameters / workers": "",
        "2 * parameters + 2 * parameters / workers": Hints.FLOAT32,
    },
    plain=[(1_000_000, 4), (1_000_000, 1), (24, 3)],
    drawn=lambda draw: [(draw.randint(1, 10**9), n) for n in (2, 8, 64)],
    hint="count the float32 numbers that one worker holds: weights, gradient, its part of Adam's state",
)

EXERCISES = [_OWNER, _UPDATE, _NORM, _MEMORY]
