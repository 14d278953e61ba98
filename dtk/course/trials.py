"""Trials, the exercises that a run decides: a share of the loss on two replicas and on one device; a tried function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dtk.course.exercise import CheckFailed, returns_nothing
from dtk.environment import quiet
from dtk.errors import VerificationError
from dtk.language import _
from dtk.proof.verify import prove
from dtk.runs import Run, baseline, run


def trains_otherwise(cluster: Run, alone: Run) -> bool:
    """Return whether verify refuses the two runs, or finds that one device trains something else."""
    try:
        return prove(cluster, alone).verdict == "replicas"
    except VerificationError:
        return True


def half_full(share: Any) -> Any:
    """The same share for batches of half as many examples as its last argument, the global batch, says.

    As an epoch's last batch may be: there a divisor by the examples that are there shows.
    """
    return (lambda *given: share(*given[:-1], 2 * given[-1])) if callable(share) else share


def hint_for_share(
    train: Callable[..., Any], argument: str, share: Any, whole: Any, workers: int = 1, **kwargs: Any
) -> str:
    """Return what is wrong with a replica's share of the loss, on two replicas and on one device; "" for nothing.

    train: a function that takes kwargs, and the share as `argument`. whole: a share that is right on one device.
    workers: how many processes it takes; Colab has one.
    """
    mine = {**kwargs, argument: share}
    with quiet():
        cluster, alone = run(train, workers=2, kwargs=mine), baseline(train, kwargs=mine)
        if cluster.workers < workers:
            raise CheckFailed(_("this check needs two workers"))
        reference = baseline(train, kwargs={**kwargs, argument: whole})
    tables = [each.records for each in (reference, cluster, alone)]
    right, together, own = (float(each[each.step == 1].loss.sum(skipna=False)) for each in tables)
    if not np.isclose(own, right, rtol=1e-4):
        if np.isclose(together, right, rtol=1e-4):
            return _(
                "two replicas are right, one device is not: a number of replicas that is typed in holds for one cluster"
            )
        return _(
            "one device's loss is another one: are the losses divided by the global batch, also in a short batch, and "
            "is the penalty what it was?"
        )
    if together > right * (1 + 1e-4):
        return _("one device's loss is right, the cluster's too large: each replica still adds the whole penalty")
    if together < right * (1 - 1e-4):
        return _("one device's loss is right, the cluster's too small: something is divided once too often")
    if trains_otherwise(cluster, alone):
        return _("step 1 is right, a later one is not: is an epoch's short last batch divided by the global batch too?")
    pairs = zip(alone.weights, reference.weights, strict=True)
    if not all(np.allclose(one, other, rtol=1e-4, atol=1e-6) for one, other in pairs):
        return _("the losses are right and the weights are not: does the penalty reach the gradients?")
    return ""


def tried(name: str, work: Callable[..., Any], answer: Any, *more: Any, seed: int | None = 0) -> Any:
    """Return what `work` makes of a function, in a process without workers, in which TensorFlow is at hand.

    name: the exercise's. work: takes the answer and `more`, and returns None where the answer returned nothing.
    """
    with quiet():
        found = baseline(work, args=(answer, *more), seed=seed).results[0]
    if found is None:
        raise returns_nothing(name, answer)
    return found
