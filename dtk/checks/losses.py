"""Where two runs differ in steps, examples and loss. Each check raises one sentence: the numbers and the remedy."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from dtk.checks.evidence import Evidence
from dtk.checks.facts import outside, same_examples, scope_of
from dtk.checks.numerals import CANCELLING, FLOAT32, OFFSET, SMALL, relative, scientific
from dtk.errors import VerificationError
from dtk.measure.scaling import by_step, global_loss, uneven, weighted_loss

__all__ = ["RTOL", "TOO_SMALL", "allowed", "check_loss", "check_steps_and_examples", "loss_line"]

RTOL = 1e-4  # of the baseline's loss: what `dtk.verify` allows if nothing else is asked for
OFFSET_STEPS, STEADY = 4, 0.25  # a difference of this many steps that varies less than this is the same at each
TOO_SMALL = 1e-6  # where all losses are below, float32's rounding of numbers near 1 may be all that they are


def check_steps_and_examples(ours: Evidence, theirs: Evidence) -> None:
    """The same number of steps, and at each of them as many examples as the baseline had."""
    common = min(ours.steps, theirs.steps)
    mine, other = ours.examples.sum(axis=1), theirs.examples.sum(axis=1)
    apart = np.flatnonzero(mine[:common] != other[:common])
    if len(apart) and apart[0] == 0:
        counts = f" ({theirs.steps} steps against {ours.steps})" if theirs.steps != ours.steps else ""
        raise VerificationError(
            f"baseline: {other[0]} examples a step, {ours.name}: {mine[0]}{counts}",
            step=1,
            reason="examples",
            remedy=_batch_remedy(ours),
            numbers={"baseline": int(other[0]), "run": int(mine[0])},
        )
    if ours.steps != theirs.steps:
        remedy = "give both the same data, epochs and steps_per_epoch"
        if ours.restarts:
            number, first = ours.restarts[-1]
            remedy = f"attempt {number} began at step {first}, and its checkpoint may not hold the place in the data"
            remedy += "; save at the end of an epoch, or the iterator too"
        raise VerificationError(
            f"baseline: {theirs.steps} steps, {ours.name}: {ours.steps}, of {mine[0]} examples each",
            step=common + 1,
            reason="steps",
            remedy=remedy,
            numbers={"baseline": theirs.steps, "run": ours.steps},
        )
    if len(apart):
        k = int(apart[0])
        raise VerificationError(
            f"step {k + 1}: baseline {other[k]} examples, {ours.name} {mine[k]} ({_spread(ours.examples[k])})",
            step=k + 1,
            reason="examples",
            remedy="give both the same data in batches of the same global size, with drop_remainder in both or in "
            "neither",
            numbers={"baseline": int(other[k]), "run": int(mine[k])},
        )


def _batch_remedy(ours: Evidence) -> str:
    scope = scope_of(ours.run)
    if scope is None or not outside(ours.run):
        return "pass the global batch as an argument, the same to both"
    return (
        f"the model was made under {scope.strategy or 'the default strategy'}, so that each worker trains by itself on "
        "whole batches: create model and optimizer inside `with strategy.scope():`"
    )


def check_loss(ours: Evidence, theirs: Evidence, rtol: float) -> None:
    """The global loss at every step, to rtol of the baseline's; a loss that is not finite fails, also in both."""
    mine, other = global_loss(ours.shares, ours.examples), global_loss(theirs.shares, theirs.examples)
    differing = np.flatnonzero(~_close(mine, other, rtol))
    if not len(differing):
        _check_offset(ours, mine, other, rtol)
        return
    k = int(differing[0])
    _check_finite(ours, k, mine[k], other[k])
    odd = np.flatnonzero(uneven(ours.examples)[: k + 1])  # the uneven steps so far, step k last if it is one
    weighted = weighted_loss(ours.shares[k : k + 1], ours.examples[k : k + 1])
    if len(odd) and odd[-1] == k and _close(weighted, other[k : k + 1], rtol)[0]:
        raise _uneven(ours, k)
    raise VerificationError(
        f"the losses differ from step {k + 1} on: {_values(ours, mine[k], other[k])}, relative difference "
        f"{_relative(mine[k], other[k])}, over rtol={scientific(rtol)}",
        step=k + 1,
        reason="loss",
        remedy=_remedy(ours, theirs, odd, weighted[0], k),
        numbers={"baseline": float(other[k]), "run": float(mine[k]), "rtol": rtol},
    )


def loss_line(theirs: Evidence, rtol: float) -> str:
    """What `verify` prints once the losses agree; no PASS where they are too small for that to say anything."""
    largest = float(np.abs(global_loss(theirs.shares, theirs.examples)).max())
    if largest < TOO_SMALL:
        small = f"below {scientific(TOO_SMALL)} at every step, where float32 rounds a difference of numbers near 1"
        return f"loss vs single device: not compared ({small})"
    return f"check loss vs single device: PASS (rtol={scientific(rtol)})"


def _check_offset(ours: Evidence, mine: np.ndarray, other: np.ndarray, rtol: float) -> None:
    """Raises where losses differ from step 1 on by as much at every step: within the tolerance, but no rounding."""
    first = (mine - other)[:OFFSET_STEPS]
    # A wide tolerance is given for types of fewer digits, which round a repeated batch alike at every step.
    least = max(max(OFFSET, rtol / 5) * abs(other[0]), 8 * FLOAT32)
    if len(first) < OFFSET_STEPS or not abs(first[0]) > least:
        return
    if (np.abs(first / first[0] - 1) > STEADY).any():
        return
    if uneven(ours.examples)[:OFFSET_STEPS].all():
        weighted = weighted_loss(ours.shares, ours.examples)[:OFFSET_STEPS]
        if (np.abs(weighted - other[:OFFSET_STEPS]) < STEADY * np.abs(first)).all():
            raise _uneven(ours, 0)
    raise VerificationError(
        f"the losses differ from step 1 on: relative difference {_relative(mine[0], other[0])}, and by nearly as much "
        f"at the {OFFSET_STEPS - 1} steps after it: within rtol, and yet no rounding, which is 1e-6 at step 1 and of "
        "either sign (or a type with fewer digits than float32: pass a wider rtol then)",
        step=1,
        reason="offset",
        remedy="the two losses are not the same function of the batch, so look for a term that every replica adds "
        f"whole, such as a penalty (tf.nn.scale_regularization_loss divides it by the {ours.replicas} replicas)",
        numbers={"baseline": float(other[0]), "run": float(mine[0]), "rtol": rtol},
    )


def _check_finite(ours: Evidence, k: int, mine: float, other: float) -> None:
    """Raises where one loss is NaN or infinite: no tolerance says anything about it."""
    if np.isfinite([mine, other]).all():
        return
    for name, is_so in (("NaN", np.isnan), ("infinite", np.isinf)):
        if is_so(mine) and is_so(other):
            what = f"the loss is {name} from step {k + 1} in both, so nothing can be compared"
            remedy = "lower the learning rate, and look for NaN or infinite values in the data"
            break
    else:
        whose, where = _whose(ours, k)
        what = f"the loss at step {k + 1} is not finite: {_values(ours, mine, other)}{whose}"
        remedy = f"the steps before agree, so look at what is read and computed at this one{where}"
        if k == 0:
            remedy = f"look at the data and the loss function of the one that is not finite{where}"
    numbers = {"baseline": float(other), "run": float(mine)}
    raise VerificationError(what, step=k + 1, reason="loss", remedy=remedy, numbers=numbers)


def _whose(ours: Evidence, k: int) -> tuple[str, str]:
    """Which replicas' shares of the loss are not finite, in words, and where to look then; "" where that says nothing.

    Replicas hold the same weights: what is in these, and in the loss function, is seen on each of them.
    """
    lost = np.flatnonzero(~np.isfinite(ours.shares[k]))
    if ours.replicas < 2 or not len(lost):
        return "", ""
    if len(lost) == ours.replicas:
        return f", on each of the {ours.replicas} replicas", ": weights, rate, loss function, all examples"
    named = " and ".join(f"replica {replica}" for replica in lost)
    return f", on {named} alone", f" by {named} alone: its examples, its memory"


def allowed(other: np.ndarray, rtol: float) -> np.ndarray:
    """How far a loss may be from the baseline's, `other`: rtol of it, and what float32 rounds numbers near 1 by."""
    return rtol * np.abs(other) + CANCELLING


def _close(mine: np.ndarray, other: np.ndarray, rtol: float) -> np.ndarray:
    finite = np.isfinite(mine) & np.isfinite(other)
    with np.errstate(invalid="ignore"):  # infinite minus infinite; `finite` says no to it already
        return finite & (np.abs(mine - other) <= allowed(other, rtol))


def _relative(mine: float, other: float) -> str:
    return relative(abs(mine - other) / max(abs(other), FLOAT32))


def _values(ours: Evidence, mine: float, other: float) -> str:
    a, b = f"{other:.3g}", f"{mine:.3g}"
    return f"both near {a}" if a == b else f"baseline {a}, {ours.name} {b}"


def _spread(examples: np.ndarray) -> str:
    return ", ".join(f"{count} on replica {replica}" for replica, count in enumerate(examples))


def _uneven(ours: Evidence, k: int) -> VerificationError:
    """The error for a difference that unequal replica batches account for to the tolerance."""
    counts, total = ours.examples[k], int(ours.examples[k].sum())
    is_last = k + 1 == ours.steps or ours.epochs[k + 1] != ours.epochs[k]
    where = f"step {k + 1}, the last batch of the epoch," if is_last else f"step {k + 1}"
    weights = {int(n): Fraction(1, ours.replicas * int(n)) for n in counts if n > 0}
    parts = ", ".join(f"{weight} where a replica has {n}" for n, weight in sorted(weights.items(), reverse=True))
    return VerificationError(
        f"{where} has {total} examples: {_spread(counts)}; {_who(ours)} averages the replicas' means, so that an "
        f"example counts {parts}, and 1/{total} on one device (weighted by examples the losses agree)",
        step=k + 1,
        reason="uneven batch",
        remedy="use drop_remainder=True, or a custom loop that divides by the global batch",
    )


def _who(ours: Evidence) -> str:
    return "the loop" if ours.in_loop else "an Estimator" if "estimator" in ours.kinds else "Keras fit"


def _same(ours: Evidence, theirs: Evidence, k: int) -> bool | None:
    """Whether both read the same examples at all steps up to k, by their fingerprints; None: unknown."""
    mine, other = (by_step(side.run.records, "data").to_numpy()[: k + 1] for side in (ours, theirs))
    agree = same_examples(mine, other, ours.examples[: k + 1], theirs.examples[: k + 1])
    return None if agree is None else bool(agree.all())


def _remedy(ours: Evidence, theirs: Evidence, odd: np.ndarray, weighted: float, k: int) -> str:
    """What to look at, where the losses differ at step k + 1. odd: the uneven steps so far."""
    if len(odd) and odd[-1] == k:
        other = global_loss(theirs.shares, theirs.examples)[k]
        return (
            f"its replicas have unequal batches ({_spread(ours.examples[k])}), but weighted by examples the relative "
            f"difference is {_relative(weighted, other)}, so that is not the reason, or not the only one"
        )
    if len(odd):
        first = odd[0]
        return (
            f"step {first + 1} had unequal batches ({_spread(ours.examples[first])}), which {_who(ours)} averages "
            "as if they were equal; use drop_remainder=True to see whether that is the reason"
        )
    same = _same(ours, theirs, k)
    if k == 0:
        data = {
            True: "the same examples, by their fingerprints, so check that the loss is a mean over the global batch",
            False: "other examples, by their fingerprints, so give both the same order (seed the shuffle)",
            None: "examples that nothing compared, so check that they are the same in the same order (seed the "
            "shuffle), and that the loss is a mean over the global batch",
        }[same]
        weights = (
            "start from the same weights"
            if ours.initial and theirs.initial
            else "start from weights that nothing compared"
        )
        return f"both {weights} and read {data}"
    resumed = [number for number, first in ours.restarts if first == k + 1]
    if resumed:
        return (
            f"attempt {resumed[0]} began here: what its checkpoint does not hold began anew (the place in the data, "
            "the optimizer where only weights are saved, random numbers); save those too, or save at the end "
            "of an epoch"
        )
    return f"the steps before agree, {_later_remedy(ours, theirs, k, same)}"


def _later_remedy(ours: Evidence, theirs: Evidence, k: int, same: bool | None) -> str:
    if same is False:
        return f"and by their fingerprints they read other examples by step {k + 1} (seed the shuffle)"
    sentence = "so check the gradients (a mean over the global batch, summed over replicas)"
    if same is None:
        sentence += f" and that both read the same examples at step {k + 1} (seed the shuffle)"
    mine, other = (global_loss(side.shares, side.examples) for side in (ours, theirs))
    # From step 1 on by more than rounding: that is in the loss, and no kink's doing.
    rounding = abs(mine[0] - other[0]) <= OFFSET * abs(other[0]) + FLOAT32
    if not rounding:
        return (
            f"{sentence}; the losses of step 1 differ already, relative difference {_relative(mine[0], other[0])}, by "
            "more than rounding"
        )
    if abs(mine[k] - other[k]) < SMALL * abs(other[k]):
        sentence += (
            "; a difference this small can also be rounding that a kink such as relu's has enlarged (tanh has none)"
        )
    return sentence
