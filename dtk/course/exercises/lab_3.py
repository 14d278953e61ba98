"""Exercises of lab 3, an optimizer in shards: whose part, the step, a norm over all parts, bytes of memory."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from dtk.course.exercise import Exercise, Misconception
from dtk.course.rehearsal import Team, on_parts
from dtk.language import N_, _

__all__ = ["EXERCISES"]

Chunks = list[np.ndarray]


def _reduce_scatter(ring: Any, chunks: Chunks, first: int = 0) -> None:
    """Afterwards worker k's chunk k + 1 + first holds the sum of all workers'."""
    for step in range(ring.workers - 1):
        mine = (ring.worker + first - step) % ring.workers
        number, values = ring.exchange(mine, chunks[mine])
        chunks[number] = chunks[number] + values


def _all_gather(ring: Any, chunks: Chunks, first: int = 1, add: bool = False) -> None:
    for step in range(ring.workers - 1):
        mine = (ring.worker + first - step) % ring.workers
        number, values = ring.exchange(mine, chunks[mine])
        chunks[number] = chunks[number] + values if add else values


# ---- the step

Update = Callable[[np.ndarray, np.ndarray], np.ndarray]


class _OwnPart:
    """An optimizer with state for one part alone; each call remembers, and what it makes of a gradient is not linear.

    Where a step has to be the gradient's, twice the gradient is another step.
    """

    def __init__(self, size: int):
        self.size, self.seen = size, np.zeros(size)

    def __call__(self, weights: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        for name, given in ((N_("weights"), weights), (N_("gradients"), gradient)):
            if np.shape(given) != (self.size,):
                words = N_("the optimizer holds the state of {size} weights, and it got {name} of shape {shape}")
                raise ValueError(_(words, size=self.size, name=_(name), shape=np.shape(given)))
        self.seen = 0.5 * self.seen + gradient
        return weights - self.seen / (1 + np.abs(self.seen))


def _teams(draw: random.Random) -> list[tuple[Team]]:
    found = []
    for workers, size in ((2, 4), (4, 8), (3, 10), (5, 7)):
        numbers = np.random.default_rng(draw.randrange(10**6))
        parts = tuple(numbers.integers(-9, 10, size).astype(float) for _ in range(workers))
        found.append((Team(parts, numbers.integers(-9, 10, size).astype(float)),))
    return found


def _two_steps(answer: Callable[..., Any], team: Team) -> Any:
    """The weights after two steps with one optimizer a worker: the second shows whether the first was gathered."""
    workers, size = len(team.parts), team.parts[0].size
    sizes = [len(part) for part in np.array_split(np.arange(size), workers)]

    def work(ring: Any, gradient: np.ndarray) -> Any:
        update, weights = _OwnPart(sizes[(ring.worker + 1) % workers]), np.array(team.shared)
        for __ in range(2):
            weights = answer(ring, weights, gradient, update)
            if weights is None or weights is ...:
                return None
        return weights

    return on_parts(work, team)


def _step(
    ring: Any,
    weights: np.ndarray,
    gradient: np.ndarray,
    update: Update,
    *,
    divide: float = 1.0,
    reduce: bool = True,
    first: int = 0,
    gather: str = "copy",
) -> np.ndarray:
    """A sharded step; its arguments are the ways in which it goes wrong."""
    sums = ring.split(np.asarray(gradient) / divide)
    if reduce:
        _reduce_scatter(ring, sums, first)
    own, parts = (ring.worker + 1) % ring.workers, ring.split(weights)
    parts[own] = update(parts[own], sums[own])
    if gather != "none":
        _all_gather(ring, parts, 0 if gather == "own number" else 1, add=gather == "add")
    return np.asarray(ring.join(parts))


def _summed_gradient_step(ring: Any, weights: np.ndarray, gradient: np.ndarray, update: Update) -> np.ndarray:
    sums, own, parts = ring.split(gradient), (ring.worker + 1) % ring.workers, ring.split(weights)
    _reduce_scatter(ring, sums)
    before = [part.copy() for part in parts]
    _all_gather(ring, before)  # the old weights, which all have already
    before[own] = update(parts[own], sums[own])
    return np.asarray(ring.join(before))


_UPDATE = Exercise(
    "lab3.update",
    right=_step,
    wrong=[
        Misconception(
            lambda *given: _step(*given, gather="none"),
            N_("each worker has its own new part only: the last half of the ring is missing"),
        ),
        Misconception(
            lambda *given: _step(*given, gather="add"),
            N_("the new parts are added to the old weights; what comes in the second half is finished and is copied"),
        ),
        Misconception(
            lambda *given: _step(*given, reduce=False),
            N_("your part is updated with this worker's own gradient: the other workers' examples never reach it"),
        ),
        Misconception(
            lambda ring, *given: _step(ring, *given, divide=ring.workers),
            N_("the gradients are shares of the global batch already; divided again they are too small"),
        ),
        Misconception(
            lambda *given: _step(*given, gather="own number"),
            N_("the parts that go round are not the new ones: which chunk is the updated one on worker k?"),
        ),
        Misconception(
            _summed_gradient_step,
            N_("the weights went round before the update: what was gathered are the old ones"),
        ),
    ],
    cases=_teams,
    play=_two_steps,
    hint=N_("which of three parts is missing: the sum of all gradients, your own new weights, or the other workers'?"),
)

# ---- whose part


def _places(draw: random.Random) -> list[tuple[int, int]]:
    return [(0, 4), (3, 4), (1, 2), *((draw.randrange(n), n) for n in (3, 5, 8, 16))]


_OWNER = Exercise(
    "lab3.owner",
    right=lambda worker, workers: (worker + 1) % workers,
    wrong=[
        Misconception(
            lambda worker, workers: worker, N_("that chunk left in the first step: others have added to it since")
        ),
        Misconception(
            lambda worker, workers: worker + 1, N_("the last worker has no chunk by that number: numbers go round")
        ),
        Misconception(
            lambda worker, workers: (worker - 1) % workers,
            N_("that chunk comes first, and is sent on with gradients missing; which chunk comes last?"),
        ),
        Misconception(
            lambda worker, workers: workers - 1 - worker,
            N_("chunks move on by one worker in each step; they don't turn"),
        ),
        Misconception(
            lambda worker, workers: (worker + 1) % 4,
            N_("a number of workers that is typed in holds for one cluster only"),
        ),
    ],
    cases=_places,
    hint=N_("print what each worker's chunks hold after reduce_scatter, with two workers"),
)

# ---- a norm over all parts


def _norm(ring: Any, part: np.ndarray, *, square: bool = True, root: bool = True, again: bool = False) -> float:
    """The norm of all parts together; its arguments are the ways in which it goes wrong."""
    mine = float(np.sum(np.square(part))) if square else float(np.linalg.norm(part))
    total = moving = np.array([mine])
    ring.split(np.zeros(ring.workers))
    for __ in range(ring.workers - 1):
        moving = ring.exchange(0, total if again else moving)[1]
        total = total + moving
    return float(np.sqrt(total[0])) if square and root else float(total[0])


def _parts(draw: random.Random) -> list[tuple[Team]]:
    found = []
    for workers, size in ((2, 1), (3, 4), (4, 3), (5, 2)):
        numbers = np.random.default_rng(draw.randrange(10**6))
        found.append((Team(tuple(numbers.integers(1, 10, size).astype(float) for _ in range(workers))),))
    return found


_NORM = Exercise(
    "lab3.norm",
    right=_norm,
    wrong=[
        Misconception(
            lambda ring, part: float(np.linalg.norm(part)),
            N_("this is the norm of your own part: each worker would clip by another number"),
        ),
        Misconception(
            lambda ring, part: _norm(ring, part, square=False),
            N_("norms don't add up: 3 and 4 make 5. Which numbers do add up?"),
        ),
        Misconception(
            lambda ring, part: _norm(ring, part, root=False), N_("this is the square of the norm: the root comes last")
        ),
        Misconception(
            lambda ring, part: _norm(ring, part, again=True),
            N_("a sum is sent on that has parts in it already, so some are counted twice; send on what came"),
        ),
        Misconception(
            lambda ring, part: float(np.sqrt(ring.workers) * np.linalg.norm(part)),
            N_("the parts are not equally large, so one of them doesn't tell the others' norms"),
        ),
    ],
    cases=_parts,
    play=on_parts,
    hint=N_("send one number round, workers - 1 times"),
)

# ---- memory


def _models(draw: random.Random) -> list[tuple[int, int]]:
    return [(1_000_000, 4), (1_000_000, 1), (24, 3), *((draw.randint(1, 10**9), n) for n in (2, 8, 64))]


_MEMORY = Exercise(
    "lab3.size",
    right=lambda parameters, workers: 8 * parameters + 8 * parameters / workers,
    wrong=[
        Misconception(
            lambda parameters, workers: 16 * parameters / workers,
            N_("every worker still has all weights and a whole gradient: only Adam's numbers are divided"),
        ),
        Misconception(
            lambda parameters, workers: 16 * parameters, N_("this is the plain run: what do the workers share?")
        ),
        Misconception(
            lambda parameters, workers: 8 * parameters + 4 * parameters / workers,
            N_("Adam keeps two numbers for each weight, the mean of the gradients and the mean of their squares"),
        ),
        Misconception(
            lambda parameters, workers: 4 * parameters + 8 * parameters / workers,
            N_("weights, gradient, Adam's state: one of the three is missing"),
        ),
        Misconception(
            lambda parameters, workers: 4 * parameters + 12 * parameters / workers,
            N_("the gradient is whole on each worker, before it is summed up: that is the next stage of ZeRO"),
        ),
        Misconception(
            lambda parameters, workers: 2 * parameters + 2 * parameters / workers,
            N_("these are numbers; a float32 has 4 bytes"),
        ),
    ],
    cases=_models,
    hint=N_("count the float32 numbers that one worker holds: weights, gradient, its part of Adam's state"),
)

EXERCISES = [_OWNER, _UPDATE, _NORM, _MEMORY]
