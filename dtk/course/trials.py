"""What trials need, the exercises that a run decides: both runs of a function, their first loss, what verify says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dtk.course.exercise import returns_nothing
from dtk.environment import quiet
from dtk.errors import VerificationError, WorkerFailed
from dtk.language import _
from dtk.proof.following import Following
from dtk.proof.verify import prove
from dtk.runs import Run, baseline, run

__all__ = ["both", "first_loss", "hint_for_share", "left_empty", "not_verified", "watched", "why_it_fails"]


def both(train: Callable[..., Any], kwargs: dict[str, Any]) -> tuple[Run, Run]:
    """The same function on two workers and on one device, without a live view."""
    with quiet():
        return run(train, workers=2, kwargs=kwargs), baseline(train, kwargs=kwargs)


def first_loss(run: Run) -> float:
    """The global loss of step 1: the sum of its shares."""
    records = run.records
    return float(records[records.step == records.step.min()].loss.sum(skipna=False))


def not_verified(cluster: Run, alone: Run) -> str:
    """Why verify refuses the two runs, or says that one device trains otherwise; "" where both train the same."""
    found: dict[int, Following] = {}
    try:
        proof = prove(cluster, alone, found=found)
    except VerificationError as error:
        return str(error)
    return str(found[1].failed) if proof.verdict == "replicas" else ""


def _half_full(share: Callable[..., Any]) -> Callable[..., Any]:
    """The same share for batches of half as many examples as the global batch, as an epoch's last one may be."""
    return lambda *given: share(*given[:-1], 2 * given[-1])


def hint_for_share(train: Callable[..., Any], batch: int, argument: str, share: Any, whole: Any, **more: Any) -> str:
    """What is wrong with a replica's share of loss and penalty, from two workers and one device; "" for nothing.

    train: the lesson's loop, which takes a global batch, more, and the share as `argument`, whose last parameter is the
    global batch. whole: a share to which each replica adds the whole penalty, which on one device is right. Both are
    tried in batches that are half full, where a divisor by the examples that are there shows.
    """
    if not callable(share):
        return _("a function is asked for: run its cell after you have changed it")
    kwargs = {"global_batch": batch, **more}
    try:
        cluster, alone = both(train, {**kwargs, argument: _half_full(share)})
    except WorkerFailed as failed:
        return why_it_fails(failed)
    with quiet():
        reference = baseline(train, kwargs={**kwargs, argument: _half_full(whole)})
    right, mine, own = first_loss(reference), first_loss(cluster), first_loss(alone)
    if np.isclose(own, right, rtol=1e-4):
        if mine > right * (1 + 1e-4):
            return _("one device's loss is right, the cluster's too large: each replica still adds the whole penalty")
        if mine < right * (1 - 1e-4):
            return _("one device's loss is right, the cluster's too small: something is divided once too often")
        if not_verified(cluster, alone):
            return _(
                "step 1 is right, a later one is not: is an epoch's short last batch divided by the global batch too?"
            )
        pairs = zip(alone.weights, reference.weights, strict=True)
        if not all(np.allclose(one, other, rtol=1e-4, atol=1e-6) for one, other in pairs):
            return _("the losses are right and the weights are not: does the penalty reach the gradients?")
        return ""
    if np.isclose(mine, right, rtol=1e-4):
        return _(
            "two replicas are right, one device is not: a number of replicas that is typed in holds for one cluster"
        )
    if own > right:
        return _(
            "one device's loss is too large: are the losses divided by the global batch, also in a short batch, and is "
            "the penalty what it was?"
        )
    if np.isclose(mine, own, rtol=1e-5):
        return _("cluster and device agree, but the penalty is gone, or smaller than it was")
    return _("also on one device, where nothing is to be divided, the penalty should stay what it was")


def watched(name: str, answer: Any, signature: str, work: Callable[..., Any], hint_for: Callable[[Any], str]) -> str:
    """The hint for a function that a process without workers tries, in which TensorFlow is at hand.

    name: the exercise's. signature: the function's, for who gives something else. work: called there with the answer;
    returns what is to be judged, None where the answer returned nothing. hint_for: judges that.
    """
    if not callable(answer):
        return _("a function is asked for: {signature}", signature=signature)
    try:
        with quiet():
            found = baseline(work, args=(answer,)).results[0]
    except WorkerFailed as failed:
        return _("it raises: {error}", error=_last_line(failed))
    if found is None:
        raise returns_nothing(name, signature.partition("(")[0])
    return hint_for(found)


def why_it_fails(failed: WorkerFailed) -> str:
    """The last line of the worker's traceback, in a hint."""
    return _("in a worker it fails: {error}", error=_last_line(failed))


def _last_line(failed: WorkerFailed) -> str:
    return (failed.traceback or str(failed)).strip().splitlines()[-1].strip()


def left_empty(answer: Any) -> bool:
    """Whether a function is the stub that was handed out: it does nothing and returns None or `...`."""
    code = getattr(answer, "__code__", None)
    return code is not None and not code.co_names and set(code.co_consts) <= {None, ..., answer.__doc__}
