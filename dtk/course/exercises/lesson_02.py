"""Exercises of lesson 02: shares of uneven parts, of losses of any shape, with weights; a penalty that is a share."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from dtk import environment
from dtk.course.exercise import Exercise, Misconception, Trial
from dtk.course.trials import NO_GRADIENT, same_weights, why_it_fails
from dtk.errors import WorkerFailed
from dtk.language import N_, _
from dtk.runs import Run, baseline, run

__all__ = ["EXERCISES"]

_WORKERS = 3  # a divisor of 2 that is typed in shows


def _replicas(draw: random.Random) -> list[tuple[list[list[float]]]]:
    """(each replica's losses,): equal parts first, then parts of different sizes."""
    plain = [([[2.0, 3.0], [4.0, 5.0]],), ([[1.0], [2.0, 6.0]],)]
    sizes = ((2, 2, 2), (3, 1), (4, 2, 1), (1, 1, 1, 2))
    return plain + [([[float(draw.randint(1, 9)) for _ in range(size)] for size in each],) for each in sizes]


def _shapes(draw: random.Random) -> list[tuple[np.ndarray, int]]:
    """(losses, global batch) of one replica: a number per example first, then more of them."""
    plain = [(np.array([2.0, 3.0]), 4), (np.array([[1.0, 2.0], [3.0, 4.0]]), 4)]
    shapes = (((1, 2, 2), 4), ((3, 4), 5), ((2, 3, 2), 8), ((4, 2, 2, 3), 12))
    return plain + [
        (np.array([float(draw.randint(1, 9)) for _ in range(int(np.prod(shape)))]).reshape(shape), whole)
        for shape, whole in shapes
    ]


def _weights(draw: random.Random) -> list[tuple[list[float], list[float], int]]:
    """(losses, weights, global batch) of one replica."""
    plain = [([2.0, 3.0], [1.0, 1.0], 4), ([2.0, 3.0], [1.0, 0.0], 4)]
    return plain + [
        ([float(draw.randint(1, 9)) for _ in range(n)], [float(draw.randint(0, 3)) + 0.5 for _ in range(n)], whole)
        for n, whole in ((2, 6), (3, 6), (4, 7))
    ]


def _total(losses: list[list[float]]) -> int:
    return sum(len(mine) for mine in losses)


def _per_example(losses: np.ndarray) -> np.ndarray:
    return losses.reshape(len(losses), -1).mean(axis=1)


def _products(losses: list[float], weights: list[float]) -> float:
    return float(np.dot(losses, weights))


SHARES = Exercise(
    "02.shares",
    right=lambda losses: [sum(mine) / _total(losses) for mine in losses],
    cases=_replicas,
    wrong=[
        Misconception(
            lambda losses: [sum(mine) / len(mine) for mine in losses],
            N_("these are the replicas' own means, which add up to too much"),
        ),
        Misconception(
            lambda losses: [sum(mine) / len(losses) for mine in losses], N_("the number of replicas counts no examples")
        ),
        Misconception(
            lambda losses: [sum(mine) / len(mine) / len(losses) for mine in losses],
            N_("right where all replicas have equally many examples; in the second case they have not"),
        ),
        Misconception(
            lambda losses: [sum(mine) for mine in losses], N_("they add up to the sum of all losses, no mean")
        ),
        Misconception(
            lambda losses: [sum(map(sum, losses)) / _total(losses) / len(losses)] * len(losses),
            N_("their sum is right, but a replica knows its own examples only"),
        ),
    ],
)
ANY_SHAPE = Exercise(
    "02.any_shape",
    right=lambda losses, global_batch: _per_example(losses).sum() / global_batch,
    cases=_shapes,
    wrong=[
        Misconception(
            lambda losses, global_batch: losses.sum() / global_batch,
            N_("an example with several numbers counts several times; one number per example first"),
        ),
        Misconception(lambda losses, global_batch: losses.mean(), N_("this is the replica's own mean again")),
        Misconception(
            lambda losses, global_batch: losses.mean(axis=-1).sum() / global_batch,
            N_("the last axis is not always the only one behind the examples, and with one axis it is the examples"),
        ),
        Misconception(
            lambda losses, global_batch: losses.mean() / global_batch,
            N_("the mean of everything is divided by the replica's own examples already"),
        ),
        Misconception(
            lambda losses, global_batch: _per_example(losses).sum(),
            N_("one number per example is right; their sum grows with the batch"),
        ),
    ],
)
WEIGHTED = Exercise(
    "02.weighted",
    right=lambda losses, weights, global_batch: _products(losses, weights) / global_batch,
    cases=_weights,
    wrong=[
        Misconception(
            lambda losses, weights, global_batch: _products(losses, weights) / sum(weights),
            N_("the weights of this replica alone are no common divisor: each replica would divide by another number"),
        ),
        Misconception(lambda losses, weights, global_batch: sum(losses) / global_batch, N_("the weights are left out")),
        Misconception(
            lambda losses, weights, global_batch: _products(losses, weights) / len(losses),
            N_("this divides by the replica's own examples"),
        ),
        Misconception(
            lambda losses, weights, global_batch: sum(losses) * sum(weights) / global_batch,
            N_("each loss has a weight of its own: multiply before you add up"),
        ),
        Misconception(
            lambda losses, weights, global_batch: _products(losses, weights),
            N_("a sum grows with the batch; one device takes a mean"),
        ),
    ],
)


def _hint_for_penalty(answer: Callable[..., Any], train: Any, without: Any, unscaled: Any, draw: random.Random) -> str:
    """What is wrong with a share that has a penalty, from the first losses on one device and on three workers.

    train: the lesson's loop. without, unscaled: shares without a penalty, and with one that each replica adds whole,
    which on one device is right.
    """

    if not callable(answer):
        return _("a function is asked for: {signature}", signature="def my_share(losses, model, global_batch)")

    hidden = {"global_batch": draw.choice((36, 48, 60, 72)), "steps": 3}

    def made(start: Callable[..., Run], share: Any, **more: Any) -> Run:
        with environment.quiet():
            return start(train, kwargs={**hidden, "share_of": share}, **more)

    reference, data = made(baseline, unscaled), _losses(made(baseline, without))[0]
    try:
        alone = made(baseline, answer)
        right, penalty = _losses(reference), _losses(reference)[0] - data
        if not np.allclose(_losses(alone), right, rtol=1e-4):
            return _on_one_device((_losses(alone)[0] - data) / penalty)
        if not same_weights(alone, reference):
            return _(NO_GRADIENT)
        cluster = _losses(made(run, answer, workers=_WORKERS))
    except WorkerFailed as failed:
        return why_it_fails(failed)
    return "" if np.allclose(cluster, right, rtol=1e-4) else _on_several(cluster[0], data, penalty)


def _losses(made: Run) -> np.ndarray:
    """The global losses of all steps."""
    return np.asarray(made.records.groupby("step").loss.agg(lambda shares: shares.sum(skipna=False)))


def _on_one_device(times: float) -> str:
    if not np.isfinite(times):
        return _("on one device the loss is infinite, or no number")
    if abs(times - 1) < 1e-2:
        return _(NO_GRADIENT)  # step 1 is right, and a later one is not
    if abs(times) < 1e-2:
        return _("on one device the penalty has gone")
    words = N_("on one device the penalty counts {times:.2g} times instead of once; who knows the number of replicas?")
    return _(words, times=times)


def _on_several(loss: float, data: float, penalty: float) -> str:
    if np.isclose(loss, data / _WORKERS + penalty, rtol=1e-3):
        return _("the examples' part was a share already, and is divided once more; only the penalty needs it")
    times = (loss - data) / penalty
    if not np.isfinite(times):
        return _("right on one device; on {workers} workers the loss is infinite, or no number", workers=_WORKERS)
    words = N_(
        "right on one device; on {workers} workers the penalty counts {times:.2g} times instead of once, as each of "
        "them adds it"
    )
    return _(words, workers=_WORKERS, times=times)


EXERCISES = [SHARES, Trial("02.penalty", _hint_for_penalty), ANY_SHAPE, WEIGHTED]
