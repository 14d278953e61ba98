"""Where the losses of two runs differ. Each check raises one sentence: the numbers and the remedy."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from dtk.checks.counts import spread
from dtk.checks.evidence import Evidence
from dtk.checks.facts import same_examples
from dtk.checks.numerals import CANCELLING, FLOAT32, OFFSET, SMALL, relative, scientific
from dtk.errors import VerificationError
from dtk.language import N_, _
from dtk.measure.scaling import by_step, global_loss, uneven, weighted_loss

__all__ = ["RTOL", "TOO_SMALL", "allowed", "check_loss", "loss_line"]

RTOL = 1e-4  # of the baseline's loss: what `dtk.verify` allows if nothing else is asked for
OFFSET_STEPS, STEADY = 4, 0.25  # a difference of this many steps that varies less than this is the same at each
TOO_SMALL = 1e-6  # where all losses are below, float32's rounding of numbers near 1 may be all that they are


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
        _(
            "the losses differ from step {step} on: {losses}, relative difference {relative}, over rtol={rtol}",
            step=k + 1,
            losses=_values(ours, mine[k], other[k]),
            relative=_relative(mine[k], other[k]),
            rtol=scientific(rtol),
        ),
        step=k + 1,
        reason="loss",
        remedy=_remedy(ours, theirs, odd, weighted[0], k),
        numbers={"baseline": float(other[k]), "run": float(mine[k]), "rtol": rtol},
    )


def loss_line(theirs: Evidence, rtol: float) -> str:
    """What `verify` prints once the losses agree; no PASS where they are too small for that to say anything."""
    largest = float(np.abs(global_loss(theirs.shares, theirs.examples)).max())
    if largest < TOO_SMALL:
        return _(
            "loss vs single device: not compared (below {limit} at every step, where float32 rounds a difference of "
            "numbers near 1)",
            limit=scientific(TOO_SMALL),
        )
    return _("check loss vs single device: PASS (rtol={rtol})", rtol=scientific(rtol))


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
        _(
            "the losses differ from step 1 on: relative difference {relative}, and by nearly as much at the {steps} "
            "steps after it: within rtol, and yet no rounding, which is 1e-6 at step 1 and of either sign (or a type "
            "with fewer digits than float32: pass a wider rtol then)",
            relative=_relative(mine[0], other[0]),
            steps=OFFSET_STEPS - 1,
        ),
        step=1,
        reason="offset",
        remedy=_(
            "the two losses are not the same function of the batch, so look for a term that every replica adds whole, "
            "such as a penalty (tf.nn.scale_regularization_loss divides it by the {replicas} replicas)",
            replicas=ours.replicas,
        ),
        numbers={"baseline": float(other[0]), "run": float(mine[0]), "rtol": rtol},
    )


def _check_finite(ours: Evidence, k: int, mine: float, other: float) -> None:
    """Raises where one loss is NaN or infinite: no tolerance says anything about it."""
    if np.isfinite([mine, other]).all():
        return
    both = {
        N_("the loss is NaN from step {step} in both, so nothing can be compared"): np.isnan,
        N_("the loss is infinite from step {step} in both, so nothing can be compared"): np.isinf,
    }
    what = next((_(said, step=k + 1) for said, is_so in both.items() if is_so(mine) and is_so(other)), "")
    remedy = _("lower the learning rate, and look for NaN or infinite values in the data")
    if not what:
        whose, where = _whose(ours, k)
        values = _values(ours, mine, other)
        what = _("the loss at step {step} is not finite: {losses}{whose}", step=k + 1, losses=values, whose=whose)
        remedy = N_("the steps before agree, so look at what is read and computed at this one{where}")
        if k == 0:
            remedy = N_("look at the data and the loss function of the one that is not finite{where}")
        remedy = _(remedy, where=where)
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
        whose = _(", on each of the {replicas} replicas", replicas=ours.replicas)
        return whose, _(": weights, rate, loss function, all examples")
    named = _(" and ").join(_("replica {replica}", replica=replica) for replica in lost)
    return _(", on {replicas} alone", replicas=named), _(
        " by {replicas} alone: its examples, its memory", replicas=named
    )


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
    return (
        _("both near {loss}", loss=a) if a == b else _("baseline {other}, {run} {loss}", other=a, run=ours.name, loss=b)
    )


def _uneven(ours: Evidence, k: int) -> VerificationError:
    """The error for a difference that unequal replica batches account for to the tolerance."""
    counts, total = ours.examples[k], int(ours.examples[k].sum())
    is_last = k + 1 == ours.steps or ours.epochs[k + 1] != ours.epochs[k]
    where = N_("step {step}, the last batch of the epoch,") if is_last else N_("step {step}")
    weights = {int(n): Fraction(1, ours.replicas * int(n)) for n in counts if n > 0}
    each = sorted(weights.items(), reverse=True)
    return VerificationError(
        _(
            "{where} has {total} examples: {spread}; {who} averages the replicas' means, so that an example counts "
            "{parts}, and 1/{total} on one device (weighted by examples the losses agree)",
            where=_(where, step=k + 1),
            total=total,
            spread=spread(counts),
            who=_who(ours),
            parts=_(", ").join(_("{weight} where a replica has {n}", weight=weight, n=n) for n, weight in each),
        ),
        step=k + 1,
        reason="uneven batch",
        remedy=_("use drop_remainder=True, or a custom loop that divides by the global batch"),
    )


def _who(ours: Evidence) -> str:
    return _("the loop") if ours.in_loop else _("an Estimator") if "estimator" in ours.kinds else _("Keras fit")


def _same(ours: Evidence, theirs: Evidence, k: int) -> bool | None:
    """Whether both read the same examples at all steps up to k, by their fingerprints; None: unknown."""
    mine, other = (by_step(side.run.records, "data").to_numpy()[: k + 1] for side in (ours, theirs))
    agree = same_examples(mine, other, ours.examples[: k + 1], theirs.examples[: k + 1])
    return None if agree is None else bool(agree.all())


def _remedy(ours: Evidence, theirs: Evidence, odd: np.ndarray, weighted: float, k: int) -> str:
    """What to look at, where the losses differ at step k + 1. odd: the uneven steps so far."""
    if len(odd) and odd[-1] == k:
        other = global_loss(theirs.shares, theirs.examples)[k]
        return _(
            "its replicas have unequal batches ({spread}), but weighted by examples the relative difference is "
            "{relative}, so that is not the reason, or not the only one",
            spread=spread(ours.examples[k]),
            relative=_relative(weighted, other),
        )
    if len(odd):
        first = odd[0]
        return _(
            "step {step} had unequal batches ({spread}), which {who} averages as if they were equal; use "
            "drop_remainder=True to see whether that is the reason",
            step=first + 1,
            spread=spread(ours.examples[first]),
            who=_who(ours),
        )
    same = _same(ours, theirs, k)
    if k == 0:
        data = {
            True: N_(
                "the same examples, by their fingerprints, so check that the loss is a mean over the global batch"
            ),
            False: N_("other examples, by their fingerprints, so give both the same order (seed the shuffle)"),
            None: N_(
                "examples that nothing compared, so check that they are the same in the same order (seed the shuffle), "
                "and that the loss is a mean over the global batch"
            ),
        }[same]
        sentence = N_("both start from weights that nothing compared and read {data}")
        if ours.initial and theirs.initial:
            sentence = N_("both start from the same weights and read {data}")
        return _(sentence, data=_(data))
    resumed = [number for number, first in ours.restarts if first == k + 1]
    if resumed:
        return _(
            "attempt {attempt} began here: what its checkpoint does not hold began anew (the place in the data, the "
            "optimizer where only weights are saved, random numbers); save those too, or save at the end of an epoch",
            attempt=resumed[0],
        )
    return _later_remedy(ours, theirs, k, same)


def _later_remedy(ours: Evidence, theirs: Evidence, k: int, same: bool | None) -> str:
    sentence = {
        True: N_("the steps before agree, so check the gradients (a mean over the global batch, summed over replicas)"),
        False: N_(
            "the steps before agree, and by their fingerprints they read other examples by step {step} (seed the "
            "shuffle)"
        ),
        None: N_(
            "the steps before agree, so check the gradients (a mean over the global batch, summed over replicas) and "
            "that both read the same examples at step {step} (seed the shuffle)"
        ),
    }[same]
    sentence = _(sentence, step=k + 1)
    if same is False:
        return sentence
    mine, other = (global_loss(side.shares, side.examples) for side in (ours, theirs))
    # From step 1 on by more than rounding: that is in the loss, and no kink's doing.
    rounding = abs(mine[0] - other[0]) <= OFFSET * abs(other[0]) + FLOAT32
    if not rounding:
        return _(
            "{sentence}; the losses of step 1 differ already, relative difference {relative}, by more than rounding",
            sentence=sentence,
            relative=_relative(mine[0], other[0]),
        )
    if abs(mine[k] - other[k]) < SMALL * abs(other[k]):
        return _(
            "{sentence}; a difference this small can also be rounding that a kink such as relu's has enlarged (tanh "
            "has none)",
            sentence=sentence,
        )
    return sentence
