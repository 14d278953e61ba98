"""Mistakes in what became of the weights: how far they moved, in which direction, and whether all replicas agree."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dtk.analysis.case import MOVING, Case, Diagnosis, found
from dtk.analysis.numerals import rounded
from dtk.records import Weights

__all__ = ["Moved", "look_at_drift", "look_at_random_layers", "look_at_updates", "moved"]

ALONG = 0.9  # cosine of two updates that count as one direction: after some steps of another rate it has fallen to this
AS_FAR = 0.05  # updates whose lengths are this close count as equally long
SMALL = 0.01  # as in `dtk.analysis.losses`: rounding that a kink has enlarged was seen up to half of this at once


class Moved(NamedTuple):
    """Final minus initial weights, the run's against the baseline's: ratio of lengths, and cosine."""

    ratio: float
    cosine: float


def moved(case: Case) -> Moved | None:
    """How far the run's weights moved, over how far the baseline's did; None where it is not known.

    Moving statistics are left out: no gradient changes them.
    """
    assert case.theirs is not None, "there is a baseline to compare with"
    ours, theirs = case.ours.run.folder.worker(0), case.theirs.run.folder.worker(0)
    a, b, c, d = ours.weights("initial"), ours.weights("final"), theirs.weights("initial"), theirs.weights("final")
    a, c = a or c, c or a  # a loop may be seen only after its first step; equal losses at step 1 stand for the start
    if a is None or b is None or c is None or d is None:
        return None
    if len({tuple(x.shape for x in one.arrays) for one in (a, b, c, d)}) > 1:
        return None
    mine, other = _update(a, b), _update(c, d)
    with np.errstate(all="ignore"):
        lengths = float(np.linalg.norm(mine)), float(np.linalg.norm(other))
        cosine = float(mine @ other) / (lengths[0] * lengths[1]) if all(lengths) else float("nan")
        ratio = lengths[0] / lengths[1] if lengths[1] else float("nan")
    return Moved(ratio, cosine) if np.isfinite([ratio, cosine]).all() else None


def look_at_drift(case: Case) -> Diagnosis | None:
    """Workers that hold different weights, or that each trained alone on everything."""
    parted = _parted(case)
    if parted:
        return found(
            "not in scope",
            f"{parted}, which replicas in sync can't: the model, or its optimizer, is outside the strategy's scope",
            case.facts(),
        )
    return _alone(case)


def look_at_random_layers(case: Case) -> Diagnosis | None:
    """Batch norm and dropout: the same examples and weights, and yet another loss at step 1."""
    if case.failed.reason == "replicas" or (case.failed.reason == "final weights" and _only_statistics(case)):
        if not case.normalised:
            return None
        what = (
            "the moving statistics of batch normalisation differ, and no other weights"
            if _only_statistics(case)
            else ("each replica has moving statistics of its own, and the trained weights differ from the baseline's")
        )
        return found("batch norm", f"{what}: each replica normalises its own part of the batch", case.facts())
    if case.failed.step != 1 or case.failed.reason != "loss" or case.same_data is False:
        return None
    signs = np.sign(case.mine - case.other)[:10]
    apart = _apart(case)
    lead = f"{case.losses(1)}, in no ratio that a mistake has"
    if case.normalised and apart[0] < 0.5:
        return found(
            "batch norm",
            f"{lead}; the model has batch normalisation, and each replica normalises its own part of the batch",
            case.facts(),
            ("dropout",) if case.names_dropout else (),
        )
    if case.same_data is None or apart.max() > 0.5 or (len(set(signs)) < 2 and not case.names_dropout):
        return None
    because = "the function names dropout" if case.names_dropout else "a layer such as dropout draws at random"
    return found(
        "dropout",
        f"{lead}, on the same examples, {'now larger, now smaller' if len(set(signs)) > 1 else ''}"
        f"; {because}, and replicas draw other numbers than one device".replace(", ;", ";"),
        case.facts(),
        ("start",) if not case.ours.initial else (),
    )


def look_at_updates(case: Case) -> Diagnosis | None:
    """Losses that agree at first: the same way by another length is the learning rate, hardly apart is rounding."""
    step = case.failed.step or case.steps + 1  # without a step: the losses agree at all of them
    if case.theirs is None or step < 2 or case.failed.reason not in ("loss", "final weights"):
        return None
    move = moved(case)
    if move is None or case.same_data is False:
        return None
    evidence = [f"updates: ratio of lengths {move.ratio:.3g}, cosine {move.cosine:.3f}", *case.facts()]
    as_far = abs(move.ratio - 1) <= AS_FAR
    if move.cosine >= ALONG and not as_far:
        until = "the losses agree at step 1" if step == 2 else f"the losses agree until step {step - 1}"
        until = until if step <= case.steps else f"the losses agree at all {case.steps} steps"
        near = round(max(move.ratio, 1 / move.ratio))
        times = f"{move.ratio:.2g} times as far as the baseline's, in the same direction (cosine {move.cosine:.2f})"
        known = f"; N={case.replicas} fits" if case.replicas > 1 and near == case.replicas else ""
        return found(
            "learning rate",
            f"{until}, but the {case.ours.name}'s weights moved {times}{known}: a learning rate, or a gradient, that "
            "is scaled in only one of the two",
            evidence,
        )
    before, at = _apart(case)[: step - 1], _apart(case)[step - 1 : step]
    if move.cosine > 0.99 and as_far and step > 2 and before.max() <= case.rtol and (at < SMALL).all():
        return found(
            "rounding",
            f"losses agree to {rounded(float(before.max()))} until step {step - 1}, then part by "
            f"{rounded(float(at[0])) if len(at) else 'less'} of their size, and the weights moved alike (cosine "
            f"{move.cosine:.4f}): rounding that a kink such as relu's has enlarged, no mistake of either run",
            evidence,
        )
    return None


def _apart(case: Case) -> np.ndarray:
    return np.abs(case.mine - case.other) / np.maximum(np.abs(case.other), np.finfo(np.float32).tiny)


def _update(before: Weights, after: Weights) -> np.ndarray:
    pairs = zip(before.names, before.arrays, after.arrays, strict=True)
    parts = [
        np.subtract(y, x, dtype=np.float64).ravel() for name, x, y in pairs if not any(word in name for word in MOVING)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def _parted(case: Case) -> str | None:
    """Which workers or replicas hold different trained weights, in words."""
    for corner in case.ours.run.folder.each:
        for event in corner.events:
            name = str(event.get("name"))
            if event["state"] == "replicas" and not event["identical"] and not any(word in name for word in MOVING):
                return f"the replicas of worker {corner.worker} end with different weights ({name} among them)"
    held = [corner.weights("final") for corner in case.ours.run.folder.each]
    first = held[0]
    for worker, weights in enumerate(held[1:], start=1):
        if first is None or weights is None:
            continue
        if [x.shape for x in first.arrays] != [y.shape for y in weights.arrays]:
            return f"worker 0 and worker {worker} hold different models"
        for name, x, y in zip(first.names, first.arrays, weights.arrays, strict=True):
            if x.tobytes() != y.tobytes() and not any(word in name for word in MOVING):
                return f"worker 0 and worker {worker} end with different weights ({name} among them)"
    return None


def _alone(case: Case) -> Diagnosis | None:
    """Each worker has the baseline's examples, losses and final weights: it trained by itself."""
    if case.theirs is None or case.replicas < 2 or case.ours.run.replicas > 1:
        return None
    counts, base = case.ours.examples[: case.steps], case.theirs.examples[: case.steps]
    shares = case.ours.shares[: case.steps]
    if (counts != base).any() or (np.abs(shares - case.other[:, None]) > case.rtol * np.abs(case.other[:, None])).any():
        return None
    if _only_statistics(case) is None or not _same_end(case):
        return None
    return found(
        "not in scope",
        f"each of the {case.replicas} workers saw all {counts[0, 0]} examples of a step and has the baseline's losses "
        "and final weights: it trained by itself",
        case.facts(),
        ("sharding off",),
    )


def _same_end(case: Case) -> bool:
    move = moved(case)
    return move is not None and move.cosine > 0.9999 and abs(move.ratio - 1) < 1e-3


def _only_statistics(case: Case) -> bool | None:
    """Whether moving statistics are all in which the final weights differ from the baseline's; None: not comparable."""
    assert case.theirs is not None, "there is a baseline to compare with"
    a, b = case.ours.run.folder.worker(0).weights("final"), case.theirs.run.folder.worker(0).weights("final")
    if a is None or b is None or [x.shape for x in a.arrays] != [y.shape for y in b.arrays]:
        return None
    pairs = zip(a.names, a.arrays, b.arrays, strict=True)
    return all(np.allclose(x, y, rtol=0, atol=case.atol) for name, x, y in pairs if not any(w in name for w in MOVING))
