"""Where the losses of two runs differ, step by step from the same state. Each check raises one sentence."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from dtk.errors import VerificationError
from dtk.language import N_, _, relative
from dtk.proof.evidence import Evidence
from dtk.records.events import Loop, of_kind
from dtk.scaling.shares import global_loss, uneven, weighted_loss

__all__ = ["CANCELLING", "RTOL", "TOO_SMALL", "allowed", "check_loss", "check_named_losses", "spread"]

FLOAT32 = float(np.finfo(np.float32).eps)
# A mean of numbers near 1 that cancel, as a policy gradient's at the first step: the sum's rounding is some such units.
CANCELLING = 4 * FLOAT32
RTOL = 1e-4  # of a loss from the same state; rounding is 1e-6, and an update is compared to 2e-5 in any case
TOO_SMALL = 1e-6  # where all losses are below, float32's rounding of numbers near 1 may be all that they are


def check_named_losses(ours: Evidence, theirs: Evidence, rtol: float) -> None:
    """Each loss of a step that has several, as `check_loss` has the one: a sum can be right where its parts are not."""
    if list(ours.named) != list(theirs.named):
        other, mine = (_(", ").join(side.named) or _("one loss a step") for side in (theirs, ours))
        what = _("{whom}: {theirs}; {run}: {ours}", whom=theirs.name, theirs=other, run=ours.name, ours=mine)
        raise VerificationError(what, reason="loss", remedy=_("run the same function in both"))
    for name in ours.named:
        try:
            check_loss(ours.only(name), theirs.only(name), rtol)
        except VerificationError as error:
            raise error.of_loss(name) from None


def check_loss(ours: Evidence, theirs: Evidence, rtol: float) -> None:
    """The global loss at every step, to rtol of the other's; a loss that is not finite fails, also in both."""
    mine, other = global_loss(ours.shares, ours.examples), global_loss(theirs.shares, theirs.examples)
    differing = np.flatnonzero(~_close(mine, other, rtol))
    if not len(differing):
        return
    k = int(differing[0])
    _check_finite(ours, k, mine[k], other[k])
    weighted = weighted_loss(ours.shares[k : k + 1], ours.examples[k : k + 1])
    if uneven(ours.examples)[k] and _close(weighted, other[k : k + 1], rtol)[0]:
        raise _uneven(ours, k)
    values = {"whom": theirs.name, "run": ours.name, "other": f"{other[k]:.3g}", "mine": f"{mine[k]:.3g}"}
    losses = N_("{whom} {other}, {run} {mine}") if values["other"] != values["mine"] else N_("both near {mine}")
    raise VerificationError(
        _(
            "step {step}: from the same state, the losses differ: {losses}, relative difference {relative}",
            step=k + 1,
            losses=_(losses, **values),
            relative=relative(abs(mine[k] - other[k]) / max(abs(other[k]), FLOAT32)),
        ),
        step=k + 1,
        reason="loss",
        remedy=_("compare what both make of the same examples: the divisor, penalties, what each replica computes"),
        numbers={"baseline": float(other[k]), "run": float(mine[k])},
    )


def allowed(other: np.ndarray, rtol: float) -> np.ndarray:
    """How far a loss may be from another: rtol of it, and what float32 rounds numbers near 1 by."""
    return rtol * np.abs(other) + CANCELLING


def spread(examples: np.ndarray) -> str:
    """How many examples each replica has, in words."""
    each = enumerate(examples)
    return _(", ").join(_("{count} on replica {replica}", count=count, replica=replica) for replica, count in each)


def _close(mine: np.ndarray, other: np.ndarray, rtol: float) -> np.ndarray:
    finite = np.isfinite(mine) & np.isfinite(other)
    with np.errstate(invalid="ignore"):  # infinite minus infinite; `finite` says no to it already
        return finite & (np.abs(mine - other) <= allowed(other, rtol))


def _check_finite(ours: Evidence, k: int, mine: float, other: float) -> None:
    """Raises where one loss is NaN or infinite: no tolerance says anything about it."""
    if np.isfinite([mine, other]).all():
        return
    lost = np.flatnonzero(~np.isfinite(ours.shares[k]))
    named = _(" and ").join(_("replica {replica}", replica=replica) for replica in lost)
    what = N_("the loss at step {step} is not finite: {mine:.3g} in the {run} ({replicas}), {other:.3g} beside it")
    if not len(lost):
        what = N_("the loss at step {step} is not finite: {mine:.3g} in the {run}, {other:.3g} beside it")
    raise VerificationError(
        _(what, step=k + 1, mine=mine, run=ours.name, other=other, replicas=named),
        step=k + 1,
        reason="loss",
        remedy=_("lower the learning rate, and look for NaN or infinite values in the data"),
        numbers={"baseline": float(other), "run": float(mine)},
    )


def _uneven(ours: Evidence, k: int) -> VerificationError:
    """The error for a difference that unequal replica batches account for to the tolerance."""
    counts, total = ours.examples[k], int(ours.examples[k].sum())
    is_last = k + 1 == ours.steps or ours.epochs[k + 1] != ours.epochs[k]
    where = N_("step {step}, the last batch of the epoch,") if is_last else N_("step {step}")
    weights = {int(n): Fraction(1, ours.replicas * int(n)) for n in counts if n > 0}
    each = sorted(weights.items(), reverse=True)
    kinds = {event.kind for event in of_kind(ours.run.folder.worker(0).events, Loop)}
    who = _("the loop") if "loop" in kinds else _("an Estimator") if "estimator" in kinds else _("Keras fit")
    return VerificationError(
        _(
            "{where} has {total} examples: {spread}; {who} averages the replicas' means, so that an example counts "
            "{parts}, and 1/{total} on one device (weighted by examples the losses agree)",
            where=_(where, step=k + 1),
            total=total,
            spread=spread(counts),
            who=who,
            parts=_(", ").join(_("{weight} where a replica has {n}", weight=weight, n=n) for n, weight in each),
        ),
        step=k + 1,
        reason="uneven batch",
        remedy=_("use drop_remainder=True, or a custom loop that divides by the global batch"),
    )
