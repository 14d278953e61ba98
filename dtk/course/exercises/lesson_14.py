"""Exercises of lesson 14: gradients of micro-batches, what these count, a sum that is clipped, a variance."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from dtk.course.exercise import Exercise, Hints, Trial, first_losses, trains_otherwise
from dtk.language import N_, _


def _accumulation_hint(accumulate: Callable[..., Any], train: Any, whole: Any, draw: random.Random) -> str:
    """What is wrong with the loss and gradients of a replica's micro-batches. whole: right ones, of the whole batch."""
    parts = draw.choice((2, 4))

    def gradients(model: Any, batch: Any) -> Any:
        return accumulate(model, [[each[part::parts] for each in batch] for part in range(parts)])

    (reference, cluster, _alone), (right, together, own) = first_losses(train, "gradients", gradients, whole, steps=3)
    if not np.isclose(own, right, rtol=1e-4):
        return _("one device's loss is not that of the whole batch: does each word count the same, and padding not?")
    if not np.isclose(together, right, rtol=1e-4):
        return _("one device's loss is right, that of two replicas is not: count the words of all replicas")
    if trains_otherwise(cluster, reference):
        return _("the losses are right, and the updates are not: add up the gradients of all micro-batches")
    return ""


_MEANS_APART = N_("this leaves out how far apart the replicas' means are")

EXERCISES = [
    Trial("14.accumulated", _accumulation_hint, stub=N_("write the function first")),
    Exercise(
        "14.weights",
        right=lambda counts: [count / sum(counts) for count in counts],
        wrong={
            "[1 / len(counts) for count in counts]": "so micro-batches count the same, and words do not",
            "[1 / sum(counts) for count in counts]": "each is divided by its own words already: undo that",
            "[sum(counts) / count for count in counts]": Hints.UPSIDE_DOWN,
        },
        drawn=lambda draw: [([1, 3],), *(([draw.randint(1, 40) for _ in range(parts)],) for parts in (2, 3, 4, 8))],
    ),
    Exercise(
        "14.clip",
        right=lambda shares, limit: np.sum(shares, 0) * min(1, limit / np.linalg.norm(np.sum(shares, 0))),
        wrong={
            "sum(np.multiply(s, min(1, limit / np.linalg.norm(s))) for s in shares)": "clip the sum, not shares",
            "np.sum(shares, 0) * limit / np.linalg.norm(np.sum(shares, 0))": "what is shorter than the limit stays",
            "np.clip(np.sum(shares, 0), -limit, limit)": "the limit is for the length of the whole",
        },
        plain=[([[3.0, 0.0], [0.0, 4.0]], 2.5), ([[0.3, 0.0], [0.0, 0.4]], 2.5)],
        drawn=lambda draw: [([[draw.uniform(1, 4) for _ in "123"] for _ in range(n)], n * 2.0) for n in (2, 3, 4)],
    ),
    Exercise(
        "14.variance",
        right=lambda counts, means, variances: (
            np.average(variances + np.square(means), weights=counts) - np.average(means, weights=counts) ** 2
        ),
        wrong={
            "mean(variances)": _MEANS_APART,
            "np.average(variances, weights=counts)": _MEANS_APART,
            "np.average(variances, weights=counts) + np.var(means)": "the means have weights, too: their counts",
        },
        plain=[([4, 4], [0.0, 1.0], [0.0, 0.0]), ([1, 3], [4.0, 2.0], [0.0, 2 / 3])],
        drawn=lambda draw: [([3, n + 4], [1.0, draw.uniform(2, 5)], [draw.uniform(1, 4), 0.5]) for n in (2, 3, 4)],
    ),
]
