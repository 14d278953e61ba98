"""Exercises of lab 6, a DDP of one's own: gradients in a ring, buckets, the end of an exchange, micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from dtk.course.exercise import Exercise, Hints
from dtk.course.rehearsal import all_gather, on_parts, reduce_scatter, teams


def _exchange(ring: Any, gradients: list[np.ndarray], *, sent: int = 2, parts: int = 1, flat: bool = False) -> Any:
    """The sum of each gradient over all workers; its arguments are the ways in which it goes wrong."""
    totals = []
    for gradient in gradients[:sent]:
        chunks = ring.split(gradient)
        reduce_scatter(ring, chunks)
        all_gather(ring, chunks)
        total = ring.join(chunks) / (ring.workers if parts > 1 else 1)
        totals.append(total.ravel() if flat else total)
    return [*totals, *gradients[sent:]]


def _buckets(sizes: Sequence[int], most: int, *, forward: bool = False, over: bool = False) -> list[list[int]]:
    """Which gradients travel together; its arguments are the ways in which it goes wrong."""
    plan: list[list[int]] = [[]]
    for number in sorted(range(len(sizes)), reverse=not forward):
        held = sum(sizes[each] for each in plan[-1])
        if plan[-1] and held + (0 if over else sizes[number]) > most:
            plan.append([])
        plan[-1].append(number)
    return plan


def _ended(ready: Sequence[float], seconds: Sequence[float]) -> float:
    """When the last bucket has arrived."""
    end = 0.0
    for at, takes in zip(ready, seconds, strict=True):
        end = max(end, at) + takes
    return end


EXERCISES = [
    Exercise(
        "lab6.exchange",
        right=_exchange,
        wrong={
            partial(_exchange, parts=2): "each loss is divided by the global batch already: the sum is the mean",
            partial(_exchange, sent=1): "some gradients are still this worker's own: all of them go through the ring",
            partial(_exchange, flat=True): "a sum has the shape of its gradient",
        },
        drawn=lambda draw: teams(draw, [(2, 6), (4, 9), (3, 11), (5, 8)], -9, 9),
        play=lambda answer, team: on_parts(lambda ring, part: answer(ring, [part[:4].reshape(2, 2), part[4:]]), team),
        hint="one all-reduce for each gradient, in the order of the list",
    ),
    Exercise(
        "lab6.buckets",
        right=_buckets,
        wrong={
            partial(_buckets, forward=True): "the backward pass ends with the first layer: its gradients come last",
            partial(_buckets, over=True): "a bucket is over its limit: look at its size before you add to it",
            "[[number] for number in reversed(range(len(sizes)))]": "fill a bucket up to its limit before the next",
        },
        plain=[([1, 1, 1], 2), ([3, 1, 2], 3), ([9, 1, 1], 4)],
        drawn=lambda draw: [([draw.randint(1, 9) for _ in range(7)], 12) for _ in range(4)],
        hint="go from the last variable to the first; a gradient that does not fit begins a new bucket",
    ),
    Exercise(
        "lab6.ended",
        right=_ended,
        wrong={
            "max(ready) + sum(seconds)": "that is without overlap: a bucket does not wait for the last gradient",
            "max(at + takes for at, takes in zip(ready, seconds))": (
                "the link carries one bucket at a time: a bucket may have to wait for the one before it"
            ),
            "ready[0] + sum(seconds)": "the link may be free before the next bucket is ready",
        },
        plain=[([1, 2], [2, 2]), ([1, 5], [1, 2])],
        drawn=lambda draw: [([k + draw.random() for k in (0, 1, 2)], [2 * draw.random() for _ in "abc"]) for _ in "ab"],
        hint="a bucket leaves when it is ready and the one before it has arrived",
    ),
    Exercise(
        "lab6.accumulate",
        right=lambda means, sizes: np.dot(means, sizes) / sum(sizes),
        wrong={
            "sum(means)": Hints.SUM_OF_MEANS,
            "sum(means) / len(means)": "that is right for micro-batches of one size only",
            "sum(mean * size for mean, size in zip(means, sizes))": Hints.GROWS,
        },
        plain=[([1, 2], [3, 3]), ([1, 2], [3, 1]), ([4, 4, 1], [2, 2, 4])],
        drawn=lambda draw: [([draw.randint(1, 9) for _ in "123"], [8, 8, draw.randint(1, 7)]) for _ in "123"],
        hint="how much does each example count in the mean over the whole batch?",
    ),
]
