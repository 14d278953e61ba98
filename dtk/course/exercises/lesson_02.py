"""Exercises of lesson 02: shares of uneven parts, of losses of any shape, with weights; a penalty that is a share."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from dtk.course.exercise import Exercise, Hints, Trial, digits, penalty_hint


def _per_example(losses: np.ndarray) -> np.ndarray:
    return losses.reshape(len(losses), -1).mean(axis=1)


SHARES = Exercise(
    "02.shares",
    right=lambda losses: [sum(mine) / sum(map(len, losses)) for mine in losses],
    wrong={
        "[sum(mine) / len(mine) for mine in losses]": Hints.OWN_MEAN,
        "[sum(mine) / len(losses) for mine in losses]": "the number of replicas counts no examples",
        "[sum(mine) / len(mine) / len(losses) for mine in losses]": (
            "right where all replicas have equal numbers of examples; in the second case they do not"
        ),
    },
    plain=[([[2.0, 3.0], [4.0, 5.0]],), ([[1.0], [2.0, 6.0]],)],
    drawn=lambda draw: [
        ([digits(draw, size) for size in sizes],) for sizes in ((2, 2, 2), (3, 1), (4, 2, 1), (1, 1, 1, 2))
    ],
)
ANY_SHAPE = Exercise(
    "02.any_shape",
    right=lambda losses, global_batch: _per_example(losses).sum() / global_batch,
    wrong={
        "losses.sum() / global_batch": "an example with several numbers counts several times; one number each first",
        "losses.mean(axis=-1).sum() / global_batch": (
            "the last axis is not always the only one behind the examples, and with one axis it is the examples"
        ),
        "_per_example(losses).sum()": Hints.GROWS,
    },
    plain=[(np.array([2.0, 3.0]), 4), (np.array([[1.0, 2.0], [3.0, 4.0]]), 4)],
    drawn=lambda draw: [
        (np.array(digits(draw, math.prod(shape))).reshape(shape), whole)
        for shape, whole in (((1, 2, 2), 4), ((3, 4), 5), ((2, 3, 2), 8), ((4, 2, 2, 3), 12))
    ],
)
WEIGHTED = Exercise(
    "02.weighted",
    right=lambda losses, weights, global_batch: float(np.dot(losses, weights)) / global_batch,
    wrong={
        "float(np.dot(losses, weights)) / sum(weights)": (
            "the weights of this replica alone are no common divisor: each replica would divide by another number"
        ),
        "sum(losses) / global_batch": "the weights are left out",
        "float(np.dot(losses, weights)) / len(losses)": Hints.OWN_MEAN,
    },
    plain=[([2.0, 3.0], [1.0, 1.0], 4), ([2.0, 3.0], [1.0, 0.0], 4)],
    drawn=lambda draw: [
        (digits(draw, n), [float(draw.randint(0, 3)) + 0.5 for _ in range(n)], whole)
        for n, whole in ((2, 6), (3, 6), (4, 7))
    ],
)

EXERCISES = [SHARES, Trial("02.penalty", partial(penalty_hint, argument="share_of", steps=3)), ANY_SHAPE, WEIGHTED]
