"""Exercises of lesson 11: bytes of a step's states, whole and in shards, what fits, and a pipeline's idle part."""

from __future__ import annotations

import random

from dtk.course.exercise import Exercise, Misconception
from dtk.language import N_

__all__ = ["EXERCISES"]


def _optimizers(draw: random.Random) -> list[tuple[int, int]]:
    """(weights, float32 numbers that the optimizer keeps for each)."""
    return [(1_000, 2), (1_000, 0), *((draw.randint(1_000, 10**9), moments) for moments in (0, 1, 2, 3))]


_STATES = Exercise(
    "11.states",
    right=lambda weights, moments: weights * (2 + 2 + 4 + 4 * moments),
    cases=_optimizers,
    wrong=[
        Misconception(
            lambda weights, moments: 2 * weights, N_("these are the weights alone; a step needs more than the model")
        ),
        Misconception(
            lambda weights, moments: weights * (2 + 4 + 4 * moments),
            N_("one array is missing: what does the backward pass compute for each weight?"),
        ),
        Misconception(
            lambda weights, moments: weights * (2 + 2 + 4 * moments),
            N_(
                "one array is missing: the optimizer adds small updates to weights that half precision would round away"
            ),
        ),
        Misconception(
            lambda weights, moments: weights * (2 + 2 + 4 + 2 * moments),
            N_("the optimizer's numbers are float32, which has 4 bytes"),
        ),
        Misconception(
            lambda weights, moments: 16 * weights, N_("16 bytes are Adam's; other optimizers keep less, or more")
        ),
    ],
    hint=N_("add up the bytes for one weight: weight, gradient, float32 copy, and each number of the optimizer"),
)


def _clusters(draw: random.Random) -> list[tuple[int, int]]:
    return [(1_000, 4), (1_000, 1), *((draw.randint(1_000, 10**9), workers) for workers in (2, 8, 64))]


_ZERO = Exercise(
    "11.zero",
    right=lambda weights, workers: 4 * weights + 12 * weights / workers,
    cases=_clusters,
    wrong=[
        Misconception(
            lambda weights, workers: 16 * weights / workers,
            N_("here weights and gradients are divided as well: that is the third stage of ZeRO, not the first"),
        ),
        Misconception(
            lambda weights, workers: 2 * weights + 14 * weights / workers,
            N_("here the gradients are divided as well: that is the second stage of ZeRO"),
        ),
        Misconception(lambda weights, workers: 16 * weights, N_("this is plain data parallelism: nothing is divided")),
        Misconception(
            lambda weights, workers: 4 * weights + 8 * weights / workers,
            N_("the float32 copy of the weights belongs to the optimizer's state too"),
        ),
        Misconception(
            lambda weights, workers: 12 * weights + 4 * weights / workers,
            N_("the other way round: which part does only the update need, and which every forward and backward pass?"),
        ),
    ],
    hint=N_("add up what every worker keeps whole, and its part of what is divided"),
)


def _memories(draw: random.Random) -> list[tuple[int, int, int]]:
    """(bytes of memory, weights, bytes of one example's activations)."""
    return [
        (26_000, 1_000, 1_000),
        (26_900, 1_000, 1_000),
        (25_999, 1_000, 1_000),
        (12_000, 1_000, 1_000),
        *((draw.randint(40, 80) * 10**9, draw.randint(1, 7) * 10**9, 1_887_436_801) for _ in range(4)),
    ]


_FITS = Exercise(
    "11.fits",
    right=lambda memory, weights, per_example: max(0, (memory - 16 * weights) // per_example),
    cases=_memories,
    wrong=[
        Misconception(
            lambda memory, weights, per_example: memory // per_example,
            N_("weights, gradients and optimizer state are in the same memory"),
        ),
        Misconception(
            lambda memory, weights, per_example: (memory - 2 * weights) // per_example,
            N_("2 bytes are the weights' alone: gradients and optimizer state are in the same memory"),
        ),
        Misconception(
            lambda memory, weights, per_example: (memory - 16 * weights) // per_example,
            N_("a batch can't be smaller than nothing: there is a case in which the states alone do not fit"),
        ),
        Misconception(
            lambda memory, weights, per_example: max(0, (memory - 16 * weights) / per_example),
            N_("a part of an example can't be trained on"),
        ),
        Misconception(
            lambda memory, weights, per_example: max(0, -((16 * weights - memory) // per_example)),
            N_("rounded up, the last example does not fit"),
        ),
    ],
    hint=N_("what lies in the memory before the first example comes, and how many bytes of it for each weight?"),
)


def _pipelines(draw: random.Random) -> list[tuple[int, int]]:
    """(stages, micro-batches)."""
    return [(4, 4), (4, 1), (1, 5), *((draw.randint(2, 16), draw.randint(2, 64)) for _ in range(4))]


_BUBBLE = Exercise(
    "11.bubble",
    right=lambda stages, batches: (stages - 1) / (batches + stages - 1),
    cases=_pipelines,
    wrong=[
        Misconception(
            lambda stages, batches: (stages - 1) / batches,
            N_("this compares idle slots with busy ones; asked for is their part of all slots"),
        ),
        Misconception(
            lambda stages, batches: batches / (batches + stages - 1), N_("this is the part in which a stage works")
        ),
        Misconception(
            lambda stages, batches: (stages - 1) / stages,
            N_("that holds for a single batch; more of them fill the gaps"),
        ),
        Misconception(
            lambda stages, batches: stages / (batches + stages),
            N_("count the slots in the picture: the first stage is busy in the very first one"),
        ),
        Misconception(
            lambda stages, batches: 3 / (batches + 3),
            N_("a number of stages that is typed in holds for one pipeline only"),
        ),
    ],
    hint=N_("draw the picture for two stages and one batch, and count"),
)

EXERCISES = [_STATES, _ZERO, _FITS, _BUBBLE]
