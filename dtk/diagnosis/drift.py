"""Workers that do not work together: their weights differ, or each of them trained alone on everything."""

from __future__ import annotations

import numpy as np

from dtk.checks.facts import MOVING, outside, scope_of
from dtk.checks.losses import RTOL
from dtk.diagnosis.case import Case
from dtk.diagnosis.suspects import only_statistics
from dtk.diagnosis.updates import moved
from dtk.diagnosis.verdict import Diagnosis, either, found
from dtk.events import Replicas, of_kind
from dtk.language import N_, _

__all__ = ["look_at_drift"]


def look_at_drift(case: Case) -> Diagnosis | None:
    """Workers that hold different weights, or that each trained alone on everything."""
    parted = _parted(case)
    if not parted:
        return _alone(case)
    scope = scope_of(case.ours.run)
    within = case.ours.run.replicas > 1 or outside(case.ours.run) is False
    if not within:
        what = N_(
            "{parted}, which replicas in sync can't: the model, or its optimizer, is outside the strategy's scope"
        )
        tested = N_("the weights are compared bit by bit; the scope that the model was made in is not known")
        if scope is not None:
            tested = N_(
                "the weights are compared bit by bit; the scope that the model was made in has {replicas} replica in "
                "sync"
            )
        replicas = scope and scope.replicas
        return found("not in scope", _(what, parted=parted), _(tested, replicas=replicas), case.facts())
    made = _("the scope of the strategy")
    if scope and scope.strategy:
        made = _("the scope of {strategy} with {n} replicas", strategy=scope.strategy, n=scope.replicas)
    began = _other_worker(case, "initial")
    if began:
        what = _(
            "{began}, though the model was made in {scope}, which gives all of them the chief's: something set them on "
            "one worker alone",
            began=began,
            scope=made,
        )
        tested = N_("the weights before the first step are compared bit by bit, and the model was made in {scope}")
        return found("start", what, _(tested, scope=made), case.facts())
    lead = _(
        "{parted}, though the model was made in {scope}: something changes weights on each replica by itself (an "
        "assign in a layer or a callback)",
        parted=parted,
        scope=made,
    )
    tested = _("the weights are compared bit by bit, and the model was made in {scope}", scope=made)
    return either(lead, ["not in scope"], tested, case.facts())


def _parted(case: Case) -> str | None:
    """Which workers or replicas hold different trained weights, in words."""
    for corner in case.ours.run.folder.each:
        for event in of_kind(corner.events, Replicas):
            name = str(event.name)
            if not event.identical and not any(word in name for word in MOVING):
                what = N_("the replicas of worker {worker} end with different weights ({name} among them)")
                return _(what, worker=corner.worker, name=name)
    return _other_worker(case, "final")


def _other_worker(case: Case, which: str) -> str | None:
    """Which worker's trained weights, "initial" or "final", are not those of worker 0, in words."""
    held = [corner.weights(which) for corner in case.ours.run.folder.each]
    first = held[0]
    sentence = {
        "initial": N_("worker 0 and worker {worker} begin with different weights ({name} among them)"),
        "final": N_("worker 0 and worker {worker} end with different weights ({name} among them)"),
    }[which]
    for worker, weights in enumerate(held[1:], start=1):
        if first is None or weights is None:
            continue
        if [x.shape for x in first.arrays] != [y.shape for y in weights.arrays]:
            return _("worker 0 and worker {worker} hold different models", worker=worker)
        for name, x, y in zip(first.names, first.arrays, weights.arrays, strict=True):
            if x.tobytes() != y.tobytes() and not any(word in name for word in MOVING):
                return _(sentence, worker=worker, name=name)
    return None


def _alone(case: Case) -> Diagnosis | None:
    """Each worker has the baseline's examples, losses and final weights: it trained by itself."""
    if case.theirs is None or case.replicas < 2 or case.ours.run.replicas > 1:
        return None
    apart = outside(case.ours.run)
    if apart is False:  # made in the scope: workers that do the same all see the same examples
        return None
    counts, base = case.ours.examples[: case.steps], case.theirs.examples[: case.steps]
    shares = case.ours.shares[: case.steps]
    if (counts != base).any() or (np.abs(shares - case.other[:, None]) > RTOL * np.abs(case.other[:, None])).any():
        return None
    if only_statistics(case) is None or not _same_end(case):
        return None
    what = _(
        "each of the {n} workers saw all {examples} examples of a step and has the baseline's losses and final weights",
        n=case.replicas,
        examples=counts[0, 0],
    )
    if apart is None:
        tested = _(
            "each worker has the baseline's examples, losses and final weights; the scope that the model was made in "
            "is not known"
        )
        return either(what, ["not in scope", "sharding off"], tested, case.facts())
    tested = _(
        "each worker has the baseline's examples, losses and final weights; the scope that the model was made in has 1 "
        "replica in sync"
    )
    return found("not in scope", _("{what}: it trained by itself", what=what), tested, case.facts())


def _same_end(case: Case) -> bool:
    move = moved(case)
    return move is not None and move.cosine > 0.9999 and abs(move.ratio - 1) < 1e-3
