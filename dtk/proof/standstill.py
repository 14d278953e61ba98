"""Runs that are right and learn nothing: a loss that stays where guessing leaves it, and what this run shows of why.

A classifier that knows nothing gives each of k classes the probability 1/k, and each example costs ln k. Whether the
loss stays there is asked of the records; why, of the weights: how far they moved.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dtk.digits import percent
from dtk.language import N_, _
from dtk.measure.scaling import global_loss
from dtk.proof.evidence import collect
from dtk.proof.facts import MOVING
from dtk.proof.verdict import Diagnosis, found
from dtk.proof.verify import name_of

if TYPE_CHECKING:
    from dtk.proof.evidence import Evidence, RunLike
    from dtk.records import Weights

__all__ = ["look_at_standstill"]

# Measured on six networks, digits, batches of 16 and 128 (docs/explanation/diagnosis.md): after 50 steps of SGD at 0.01
# and 0.1, or Adam at 0.001, each loss had fallen by 4 % of ln k or more; with SGD at 1e-4 none had fallen by 1 %.
FEWEST_STEPS = 50
FALL = 0.01  # of ln k, from the first quarter of the steps to the last; a loss that falls further is learning
# Of ln k: forty untrained networks were seen 0 to 21 % above, where they are sure of one class.
BELOW, ABOVE = 0.02, 0.25
# How losses of single examples scatter, mean deviation over ln k: 0.02 to 0.29 for networks that know nothing, whatever
# the label. A regression's scatter by their own size or so: 0.46 (absolute, of evenly spread targets) to 1.1 (squared).
SCATTER = 0.4
# Where the loss stayed: 0.02 to 0.53 % with a low rate, 0.45 to 45 % with labels in random order.
TINY = 0.005
FLAT = 1e-3  # of ln k: a first loss this close to it says that the outputs hardly differ between the classes


class _Level(NamedTuple):
    """Where the loss stays. classes: k. mean: of the losses, over ln k."""

    classes: int
    mean: float
    facts: tuple[str, ...]


def look_at_standstill(run: RunLike, pair: str) -> Diagnosis | None:
    """What holds a run up that `verify` finds nothing wrong with; None where it learns. pair: what verify found."""
    ours = collect(run, name_of(run))
    level = _level(ours)
    if level is None:
        return None
    mistake, why = _movement(ours)
    words = N_(
        "{pair}, and nothing is learnt: over all {steps} steps the loss stays at {mean:.3f}, no better than {cost:.3f} "
        "= ln {classes}, what guessing among {classes} classes costs; {why}"
    )
    cost = math.log(level.classes)
    facts = {"pair": pair, "steps": ours.steps, "mean": level.mean * cost, "cost": cost, "classes": level.classes}
    tested = _("the loss stays at ln k in each quarter of the steps, without a fall of 1 %")
    return found(mistake, _(words, **facts, why=why), tested, level.facts)


def _level(ours: Evidence) -> _Level | None:
    """Whether the loss stays at ln k from the first step to the last; steps of fewer examples are left out."""
    weights = ours.run.folder.worker(0).weights("final")
    classes = _classes(weights) if weights else None
    examples = ours.examples.sum(axis=1)
    whole = examples == ours.global_batch
    if classes is None or whole.sum() < FEWEST_STEPS:
        return None
    with np.errstate(all="ignore"):  # NaN and infinite losses compare as False, and are no standstill
        values = (global_loss(ours.shares, ours.examples) / math.log(classes))[whole]
        quarters = np.array([quarter.mean() for quarter in np.array_split(values, 4)])
        scatter = float((np.abs(values - values.mean()) * np.sqrt(examples[whole])).mean())
    near = bool(((quarters > 1 - BELOW) & (quarters < 1 + ABOVE)).all())
    if not near or not scatter < SCATTER or quarters[0] - quarters[-1] > FALL:
        return None
    guess = f"ln {classes} = {math.log(classes):.3f}"
    means = _(", ").join(f"{value * math.log(classes):.3f}" for value in quarters)
    sentence = N_("the mean loss in each quarter of the {steps} steps: {means} ({guess})")
    facts = [_(sentence, steps=ours.steps, means=means, guess=guess)]
    if abs(values[0] - 1) < FLAT:
        sentence = N_(
            "the loss of step 1 is {guess} to {tolerance}: the outputs hardly differ between the classes, as where "
            "they pass a softmax twice, or come from weights or inputs that are zero"
        )
        facts.append(_(sentence, guess=guess, tolerance=percent(FLAT)))
    return _Level(classes, float(values.mean()), tuple(facts))


def _classes(weights: Weights) -> int | None:
    """The width of the final layer, from its bias and kernel; 2 for one output; None where no layer ends the model."""
    arrays = [weights.arrays[i] for i in _trained(weights)]
    last = arrays[-1] if arrays else np.zeros(())
    width = last.shape[-1] if last.ndim else 0
    kernels = [array for array in arrays if array.ndim > 1]
    if width == 0 or not kernels or kernels[-1].shape[-1] != width:
        return None
    return max(2, width)


def _trained(weights: Weights) -> list[int]:
    """Indices of the weights that gradients change: no moving statistics, seeds, counters, no optimizer's variables.

    A v1 optimizer's are among an Estimator's variables: `dense/kernel/Momentum` is one of `dense/kernel`.
    """
    names = [name.split(":")[0] for name in weights.names]
    owners = tuple(f"{name}/" for name in names)
    return [
        i
        for i, (name, array) in enumerate(zip(names, weights.arrays, strict=True))
        if array.dtype.kind == "f"
        and array.ndim > 0
        and not any(word in name for word in MOVING)
        and not name.startswith((*owners, "training/"))
    ]


def _movement(ours: Evidence) -> tuple[str, str]:
    """A mistake, and how far the weights moved: the norm of the change over that of the start."""
    corner = ours.run.folder.worker(0)
    before, after = corner.weights("initial"), corner.weights("final")
    if before is None or after is None or [x.shape for x in before.arrays] != [y.shape for y in after.arrays]:
        return "nothing learnt", _("the initial weights were not recorded, so how far they moved is not known")
    chosen = _trained(after)
    start = [before.arrays[i].astype(np.float64) for i in chosen]
    change = [after.arrays[i] - x for i, x in zip(chosen, start, strict=True)]
    still = [after.names[i] for i, c in zip(chosen, change, strict=True) if c.ndim > 1 and not c.any()]
    if still:
        what = N_("the weights {name} did not change at all: no gradient reached them")
        if len(still) > 1:
            what = N_("the weights {name} and {n} more did not change at all: no gradient reached them")
        return "nothing learnt", _(what, name=still[0], n=len(still) - 1)
    norm = math.sqrt(sum(float((x**2).sum()) for x in start))
    moved = math.sqrt(sum(float((c**2).sum()) for c in change)) / norm if norm else float("inf")
    if moved < TINY:
        what = N_("the weights moved by {far}: the learning rate is too low to learn in {steps} steps")
        return "low learning rate", _(what, far=percent(moved), steps=ours.steps)
    what = N_("the weights moved by {far} in {steps} steps, so it is not the learning rate alone")
    if not norm:
        what = N_("the weights moved from zero in {steps} steps, so it is not the learning rate alone")
    return "nothing learnt", _(what, far=percent(moved) if norm else "", steps=ours.steps)
