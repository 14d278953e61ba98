"""Runs that are right and learn nothing: a loss that stays where guessing leaves it, and what this run shows of why.

A classifier that knows nothing gives each of k classes the probability 1/k, and each example costs ln k. Whether the
loss stays there is asked of the records; why, of the weights (how far they moved) and of the workers' logs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dtk.checks.evidence import collect
from dtk.checks.facts import MOVING
from dtk.checks.numerals import percent
from dtk.checks.verify import name_of
from dtk.compat.causes import activation_under_logits
from dtk.diagnosis.mistakes import MISTAKES
from dtk.diagnosis.verdict import Diagnosis, by_test
from dtk.errors import in_words
from dtk.language import N_, _
from dtk.measure.scaling import global_loss

if TYPE_CHECKING:
    from dtk.checks.evidence import Evidence, RunLike
    from dtk.records import Weights

__all__ = ["look_at_standstill"]

# Measured on six networks, digits, batches of 16 and 128 (docs/explanation/diagnosis.md): after 50 steps of SGD at 0.01
# and 0.1, or Adam at 0.001, each loss had fallen by 4 % of ln k or more; with SGD at 1e-4 none had fallen by 1 %.
FEWEST_STEPS = 50
FALL = 0.01  # of ln k, from the first quarter of the steps to the last; a loss that falls further is learning
# Of ln k: forty untrained networks were seen 0 to 21 % above, where they are sure of one class; NEAR counts as ln k.
BELOW, ABOVE, NEAR = 0.02, 0.25, 0.01
# How losses of single examples scatter, mean deviation over ln k: 0.02 to 0.29 for networks that know nothing, whatever
# the label. A regression's scatter by their own size or so: 0.46 (absolute, of evenly spread targets) to 1.1 (squared).
SCATTER = 0.4
# Where the loss stayed: 0.02 to 0.53 % with a low rate, 0.45 to 45 % with labels in random order.
TINY = 0.005
FLAT = 1e-3  # of ln k: a first loss this close to it says that the outputs hardly differ between the classes
_IN_ORDER = (N_("First, {cause}"), N_("Second, {cause}"), N_("Third, {cause}"))


class _Cause(NamedTuple):
    """A key of MISTAKES, and what shows it."""

    mistake: str
    what: str

    @property
    def remedy(self) -> str:
        return _(MISTAKES[self.mistake].remedy)


class _Level(NamedTuple):
    """Where the loss stays. classes: k. mean: of the losses, over ln k. short: a step divided by too much, or 0."""

    classes: int
    mean: float
    short: int
    facts: tuple[str, ...]


def look_at_standstill(run: RunLike, pair: str) -> Diagnosis | None:
    """What holds a run up that `verify` finds nothing wrong with; None where it learns, or where nothing shows.

    pair: what verify found, in words. Several causes are all said, the gravest first; `also` holds the others' keys.
    """
    ours = collect(run, name_of(run))
    level = _level(ours)
    causes = [_movement(ours)] if level else []
    causes += _activation(ours, bool(level))
    if level and level.short:
        causes.append(_short_batch(ours, level.short))
    if not causes:
        return None
    lead = _stays(pair, level, ours.steps) if level else pair
    first = causes[0]
    what, remedy = _("{lead}: {cause}", lead=lead, cause=first.what), first.remedy
    if len(causes) > 1:  # a remedy each
        said = [in_words(cause.what, cause.remedy) for cause in causes]
        said = [_(sentence, cause=one) for sentence, one in zip(_IN_ORDER, said, strict=False)]
        what, remedy = _(". ").join([lead, *said]), ""
    elif level:
        what = _(". ").join([lead, f"{first.what[0].upper()}{first.what[1:]}"])
    tested = N_("Keras's own warning in the logs; the loss is not at ln k, or the run is too short to tell")
    if level:
        tested = N_("the loss stays at ln k in each quarter of the steps, without a fall of 1 %")
    facts = (by_test(_(tested)), *(level.facts if level else ()))
    return Diagnosis(first.mistake, what, facts, tuple(cause.mistake for cause in causes[1:]), remedy)


def _stays(pair: str, level: _Level, steps: int) -> str:
    sentence = N_(
        "{pair}, and nothing is learnt: over all {steps} steps the loss stays at {cost:.3f} = ln {classes}, what "
        "guessing among {classes} classes costs"
    )
    if abs(level.mean - 1) >= NEAR:
        sentence = N_(
            "{pair}, and nothing is learnt: over all {steps} steps the loss stays at {mean:.2f}, no better than "
            "{cost:.3f} = ln {classes}, what guessing among {classes} classes costs"
        )
    cost = math.log(level.classes)
    return _(sentence, pair=pair, steps=steps, mean=level.mean * cost, cost=cost, classes=level.classes)


def _level(ours: Evidence) -> _Level | None:
    """Whether the loss stays at ln k from the first step to the last."""
    weights = ours.run.folder.worker(0).weights("final")
    classes = _classes(weights) if weights else None
    if classes is None or ours.steps < FEWEST_STEPS:
        return None
    examples = ours.examples.sum(axis=1)
    with np.errstate(all="ignore"):  # NaN and infinite losses compare as False, and are no standstill
        relative = global_loss(ours.shares, ours.examples) / math.log(classes)
        # A short batch's sum may have been divided by the full batch: n/B of what guessing costs, and no progress.
        whole = relative * ours.global_batch / examples
        divided = (examples < ours.global_batch) & (np.abs(whole - 1) < np.abs(relative - 1))
        values = np.where(divided, whole, relative)
        quarters = np.array([quarter.mean() for quarter in np.array_split(values, 4)])
        scatter = float((np.abs(values - values.mean()) * np.sqrt(examples)).mean())
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
    short = int(np.argmax(divided)) + 1 if divided.any() else 0
    return _Level(classes, float(values.mean()), short, tuple(facts))


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


def _movement(ours: Evidence) -> _Cause:
    """How far the weights moved from the first step to the last: the norm of the change over that of the start."""
    corner = ours.run.folder.worker(0)
    before, after = corner.weights("initial"), corner.weights("final")
    if before is None or after is None or [x.shape for x in before.arrays] != [y.shape for y in after.arrays]:
        return _Cause("nothing learnt", _("the initial weights were not recorded, so how far they moved is not known"))
    chosen = _trained(after)
    start = [before.arrays[i].astype(np.float64) for i in chosen]
    change = [after.arrays[i] - x for i, x in zip(chosen, start, strict=True)]
    still = [after.names[i] for i, c in zip(chosen, change, strict=True) if c.ndim > 1 and not c.any()]
    if still:
        what = N_("the weights {name} did not change at all: no gradient reached them")
        if len(still) > 1:
            what = N_("the weights {name} and {n} more did not change at all: no gradient reached them")
        return _Cause("nothing learnt", _(what, name=still[0], n=len(still) - 1))
    norm = math.sqrt(sum(float((x**2).sum()) for x in start))
    moved = math.sqrt(sum(float((c**2).sum()) for c in change)) / norm if norm else float("inf")
    if moved < TINY:
        what = N_("the weights moved by {far}: the learning rate is too low to learn in {steps} steps")
        return _Cause("low learning rate", _(what, far=percent(moved), steps=ours.steps))
    what = N_("the weights moved by {far} in {steps} steps, so it is not the learning rate alone")
    if not norm:
        what = N_("the weights moved from zero in {steps} steps, so it is not the learning rate alone")
    return _Cause("nothing learnt", _(what, far=percent(moved) if norm else "", steps=ours.steps))


def _activation(ours: Evidence, standing: bool) -> list[_Cause]:
    """Keras's own warning, in the worker's log that has it first.

    Keras 2.15, tf_keras 2.21 and Keras 3.15 print it in the branch (`_get_logits`) that then takes the activation's
    input for the outputs: the losses are bit for bit those of a model without the activation.
    """
    for worker, log in enumerate(ours.run.folder.logs):
        activation = activation_under_logits(log)
        if activation:
            what = N_(
                "the loss has from_logits=True and is given the outputs of a {activation}, as Keras warns in the log "
                "of worker {worker}; Keras takes what went into the {activation} instead, so the losses are right, but "
                "what the model predicts are probabilities and no logits"
            )
            if standing:
                what = N_(
                    "the loss has from_logits=True and is given the outputs of a {activation}, as Keras warns in the "
                    "log of worker {worker}; Keras takes what went into the {activation} instead, so it is not what "
                    "holds the loss up, but what the model predicts are probabilities and no logits"
                )
            return [_Cause("from_logits", _(what, activation=activation, worker=worker))]
    return []


def _short_batch(ours: Evidence, step: int) -> _Cause:
    count = int(ours.examples[step - 1].sum())
    loss = float(global_loss(ours.shares, ours.examples)[step - 1])
    what = N_("step {step} has {count} examples, and its loss is {loss:.2f}, divided by the {full} of a full batch")
    return _Cause("short batch", _(what, step=step, count=count, loss=loss, full=ours.global_batch))
