"""Exercises of lesson 02: shares of uneven parts, of losses of any shape, with weights; a penalty that is a share."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from dtk import environment
from dtk.course.exercise import Exercise, Trial, digits
from dtk.course.trials import NO_GRADIENT, same_weights, why_it_fails
from dtk.errors import WorkerFailed
from dtk.language import N_, _
from dtk.runs import Run, baseline, run

__all__ = ["EXERCISES"]

_WORKERS = 3  # a divisor of 2 that is typed in shows


def _per_example(losses: np.ndarray) -> np.ndarray:
    return losses.reshape(len(losses), -1).mean(axis=1)


SHARES = Exercise(
    "02.shares",
    given="losses",
    right="[sum(mine) / len(flat(losses)) for mine in losses]",
    wrong={
        "[sum(mine) / len(mine) for mine in losses]": N_("these are the replicas' own means, which add up to too much"),
        "[sum(mine) / len(losses) for mine in losses]": N_("the number of replicas counts no examples"),
        "[sum(mine) / len(mine) / len(losses) for mine in losses]": N_(
            "right where all replicas have equally many examples; in the second case they have not"
        ),
        "[sum(mine) for mine in losses]": N_("they add up to the sum of all losses, no mean"),
    },
    # each replica's losses: equal parts first, then parts of different sizes
    plain=[([[2.0, 3.0], [4.0, 5.0]],), ([[1.0], [2.0, 6.0]],)],
    drawn=lambda draw: [
        ([digits(draw, size) for size in sizes],) for sizes in ((2, 2, 2), (3, 1), (4, 2, 1), (1, 1, 1, 2))
    ],
)
ANY_SHAPE = Exercise(
    "02.any_shape",
    given="losses, global_batch",
    right="_per_example(losses).sum() / global_batch",
    wrong={
        "losses.sum() / global_batch": N_(
            "an example with several numbers counts several times; one number per example first"
        ),
        "losses.mean()": N_("this is the replica's own mean again"),
        "losses.mean(axis=-1).sum() / global_batch": N_(
            "the last axis is not always the only one behind the examples, and with one axis it is the examples"
        ),
        "_per_example(losses).sum()": N_("one number per example is right; their sum grows with the batch"),
    },
    # (losses, global batch) of one replica: a number per example first, then more of them
    plain=[(np.array([2.0, 3.0]), 4), (np.array([[1.0, 2.0], [3.0, 4.0]]), 4)],
    drawn=lambda draw: [
        (np.array(digits(draw, math.prod(shape))).reshape(shape), whole)
        for shape, whole in (((1, 2, 2), 4), ((3, 4), 5), ((2, 3, 2), 8), ((4, 2, 2, 3), 12))
    ],
    using=[_per_example],
)
WEIGHTED = Exercise(
    "02.weighted",
    given="losses, weights, global_batch",
    right="float(np.dot(losses, weights)) / global_batch",
    wrong={
        "float(np.dot(losses, weights)) / sum(weights)": N_(
            "the weights of this replica alone are no common divisor: each replica would divide by another number"
        ),
        "sum(losses) / global_batch": N_("the weights are left out"),
        "float(np.dot(losses, weights)) / len(losses)": N_("this divides by the replica's own examples"),
        "float(np.dot(losses, weights))": N_("a sum grows with the batch; one device takes a mean"),
    },
    # (losses, weights, global batch) of one replica
    plain=[([2.0, 3.0], [1.0, 1.0], 4), ([2.0, 3.0], [1.0, 0.0], 4)],
    drawn=lambda draw: [
        (digits(draw, n), [float(draw.randint(0, 3)) + 0.5 for _ in range(n)], whole)
        for n, whole in ((2, 6), (3, 6), (4, 7))
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
