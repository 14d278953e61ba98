"""Workers that do not work together: their weights differ, or each of them trained alone on everything."""

from __future__ import annotations

import numpy as np

from dtk.checks.facts import MOVING, outside, scope_of
from dtk.diagnosis.case import Case
from dtk.diagnosis.suspects import only_statistics
from dtk.diagnosis.updates import moved
from dtk.diagnosis.verdict import Diagnosis, either, found
from dtk.events import Replicas, of_kind

__all__ = ["look_at_drift"]


def look_at_drift(case: Case) -> Diagnosis | None:
    """Workers that hold different weights, or that each trained alone on everything."""
    parted = _parted(case)
    if not parted:
        return _alone(case)
    scope = scope_of(case.ours.run)
    within = case.ours.run.replicas > 1 or outside(case.ours.run) is False
    if not within:
        known = "is not known" if scope is None else f"has {scope.replicas} replica in sync"
        return found(
            "not in scope",
            f"{parted}, which replicas in sync can't: the model, or its optimizer, is outside the strategy's scope",
            f"the weights are compared bit by bit; the scope that the model was made in {known}",
            case.facts(),
        )
    made = f"of {scope.strategy} with {scope.replicas} replicas" if scope and scope.strategy else "of the strategy"
    began = _other_worker(case, "initial")
    if began:
        what = f"{began}, though the model was made in the scope {made}, which gives all of them the chief's"
        tested = (
            f"the weights before the first step are compared bit by bit, and the model was made in the scope {made}"
        )
        return found("start", f"{what}: something set them on one worker alone", tested, case.facts())
    lead = (
        f"{parted}, though the model was made in the scope {made}: something changes weights on each replica by itself"
    )
    tested = f"the weights are compared bit by bit, and the model was made in the scope {made}"
    return either(f"{lead} (an assign in a layer or a callback)", ["not in scope"], tested, case.facts())


def _parted(case: Case) -> str | None:
    """Which workers or replicas hold different trained weights, in words."""
    for corner in case.ours.run.folder.each:
        for event in of_kind(corner.events, Replicas):
            name = str(event.name)
            if not event.identical and not any(word in name for word in MOVING):
                return f"the replicas of worker {corner.worker} end with different weights ({name} among them)"
    return _other_worker(case, "final")


def _other_worker(case: Case, which: str) -> str | None:
    """Which worker's trained weights, "initial" or "final", are not those of worker 0, in words."""
    held = [corner.weights(which) for corner in case.ours.run.folder.each]
    first, verb = held[0], {"initial": "begin", "final": "end"}[which]
    for worker, weights in enumerate(held[1:], start=1):
        if first is None or weights is None:
            continue
        if [x.shape for x in first.arrays] != [y.shape for y in weights.arrays]:
            return f"worker 0 and worker {worker} hold different models"
        for name, x, y in zip(first.names, first.arrays, weights.arrays, strict=True):
            if x.tobytes() != y.tobytes() and not any(word in name for word in MOVING):
                return f"worker 0 and worker {worker} {verb} with different weights ({name} among them)"
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
    if (counts != base).any() or (np.abs(shares - case.other[:, None]) > case.rtol * np.abs(case.other[:, None])).any():
        return None
    if only_statistics(case) is None or not _same_end(case):
        return None
    what = (
        f"each of the {case.replicas} workers saw all {counts[0, 0]} examples of a step and has the baseline's losses "
    )
    what += "and final weights"
    tested = "each worker has the baseline's examples, losses and final weights; the scope that the model was made in "
    if apart is None:
        return either(what, ["not in scope", "sharding off"], f"{tested}is not known", case.facts())
    return found("not in scope", f"{what}: it trained by itself", f"{tested}has 1 replica in sync", case.facts())


def _same_end(case: Case) -> bool:
    move = moved(case)
    return move is not None and move.cosine > 0.9999 and abs(move.ratio - 1) < 1e-3
