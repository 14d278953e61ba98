"""Mistakes in the loss itself: recognised by the ratio of the losses at the first step at which they differ.

Both start from the same weights, at step 1 always, at later ones where the run was followed: so nothing but the loss's
arithmetic and rounding (1e-6 of its size) can lie between them. A ratio has to hold at all steps that were followed: by
the weights that training begins with, many losses are the same for all examples.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dtk.checks.losses import RTOL, TOO_SMALL
from dtk.checks.numerals import rounded
from dtk.checks.steps import COARSE
from dtk.diagnosis.case import Case
from dtk.diagnosis.steps import scaled_alike
from dtk.diagnosis.verdict import Diagnosis, found
from dtk.language import N_, _

__all__ = ["look_at_finite", "look_at_first_loss", "look_at_shares"]

# Of a ratio: a hundred times rounding.
EXACT = 1e-4


def look_at_finite(case: Case) -> Diagnosis | None:
    """A loss that is NaN or infinite."""
    step = case.failed.step
    if step is None or step > case.steps or np.isfinite([case.mine[step - 1], case.other[step - 1]]).all():
        return None
    return found("not finite", case.failed.what, _("the loss at this step is NaN or infinite"))


def look_at_shares(case: Case) -> Diagnosis | None:
    """All replicas recorded one number, the baseline's loss: it had been reduced before it was recorded."""
    shares = case.ours.shares[: case.steps]
    if case.replicas < 2 or case.failed.reason != "loss" or case.other_names:
        return None
    same = np.ptp(shares, axis=1) <= 1e-6 * np.abs(shares).max(axis=1)
    if not same.all() or abs(shares[0, 0] - case.other[0]) > RTOL * abs(case.other[0]):
        return None
    also = () if case.same_data else ("sharding off",)
    return found(
        "reduced value",
        _(
            "at every step all {n} replicas recorded the same loss, at step 1 {loss:.3g}, which is the baseline's: a "
            "value that was reduced before it was recorded, no shares",
            n=case.replicas,
            loss=shares[0, 0],
        ),
        _("the replicas' values are equal to 1e-6 at every step, and the first is the baseline's loss"),
        case.facts(),
        also,
    )


def look_at_first_loss(case: Case) -> Diagnosis | None:
    """The loss's arithmetic, at the step from which the losses differ."""
    step = case.failed.step
    if step is None or case.failed.reason not in ("loss", "uneven batch"):
        return None
    if case.failed.reason == "uneven batch":
        tested = _("weighted by examples, the losses agree")
        return found("uneven batch", case.failed.what, tested, case.facts())
    short = _short_batch(case, step)
    if short is not None or abs(float(case.other[step - 1])) < 10 * TOO_SMALL:
        return short  # of what is all but rounded away a ratio says nothing
    if step > 1 and case.one is None:
        return None  # the two no longer start from the same weights
    hits = [(key, what) for key, value, what in _known(case, step) if _is(case, step, value)]
    return _named(case, step, hits) if hits else None


def _short_batch(case: Case, step: int) -> Diagnosis | None:
    count, full = int(case.examples[step - 1]), case.ours.global_batch
    if count == full or abs(case.ratio[step - 1] * full / count - 1) > EXACT:
        return None
    return found(
        "short batch",
        _(
            "step {step} has {count} examples, and its loss is {count}/{full} of the baseline's: it was divided by the "
            "full batch of {full}",
            step=step,
            count=count,
            full=full,
        ),
        _("the ratio is that of the examples to {tolerance}, and the steps before agree", tolerance=rounded(EXACT)),
        case.facts(),
    )


def _known(case: Case, step: int) -> Iterator[tuple[str, float, str]]:
    """(mistake, ratio, how a sentence calls it) of each mistake with a ratio of its own, the most common first."""
    n, batch = case.replicas, int(case.examples[step - 1])
    times = N_(
        "{n} times, the number of replicas: each divides by its own batch, or its correct share is multiplied by {n}"
    )
    if n > 1:
        yield "local mean", n, _(times, n=n)
        yield "divided twice", 1 / n, _("1/{n}, divided by the {n} replicas once more", n=n)
        yield "scaled twice", n * n, _("{n}² times, the number of replicas squared", n=n)
        yield "scaled twice", 1 / n**2, _("1/{n}², divided by the {n} replicas twice more", n=n)
    if case.label:
        for value, what in _of_a_label(case.label):
            yield "label axes", value, what
    if batch > 1:
        what = N_("{n} times, the global batch: the sum over the examples is not divided")
        yield "not divided", batch, _(what, n=batch)
        what = N_(
            "1/{n}, one over the global batch: a mean over the batch, as a loss object's default reduction returns it, "
            "was divided by the global batch again"
        )
        yield "sum over batch size", 1 / batch, _(what, n=batch)
    if n > 1 and batch > n:
        what = N_("1/{n}, one over a replica's batch: the mean over it was divided by the global batch again")
        yield "sum over batch size", n / batch, _(what, n=batch // n)


def _of_a_label(label: tuple[int, ...]) -> Iterator[tuple[float, str]]:
    """Ratio, and how a sentence calls it, of what goes wrong with labels of these axes."""
    total, last = int(np.prod(label)), label[-1]
    axes = "·".join(str(axis) for axis in label)
    what = N_("{total} = {axes} times: summed over the numbers of a label ({axes}), not averaged")
    yield total, _(what, total=total, axes=axes)
    if len(label) > 1:
        what = N_(
            "{n} times: of a label's {axes} numbers the loss function averaged the last axis only, and the others were "
            "added up"
        )
        yield total // last, _(what, n=total // last, axes=axes)
    what = N_(
        "1/{n}: without a dummy axis the loss function averaged the last of a label's axes ({axes}), and all its "
        "numbers were divided by again"
    )
    yield 1 / last, _(what, n=last, axes=axes)
    what = N_("1/{n}: divided by the {axes} numbers of a label, which were averaged before")
    yield 1 / total, _(what, n=total, axes=axes)


def _is(case: Case, step: int, value: float) -> bool:
    """Whether the ratio is `value` at all steps followed; with uneven batches of the losses weighted by examples."""
    one, steps = case.one, [step]
    if not scaled_alike(case):
        return False
    if one is not None:
        steps = [each for each in one.followed if step <= each <= case.steps and _is_full(case, each)] or steps
    chosen = np.array(steps) - 1
    allowed = max(EXACT, COARSE * one.coarse if one is not None else 0.0)
    sides = (case.ratio, case.weighted / case.other)
    return any(bool((np.abs(ratios[chosen] / value - 1) <= allowed).all()) for ratios in sides)


def _is_full(case: Case, step: int) -> bool:
    return int(case.examples[step - 1]) == case.ours.global_batch


def _named(case: Case, step: int, hits: list[tuple[str, str]]) -> Diagnosis:
    key, what = hits[0]
    also = tuple(dict.fromkeys(hit[0] for hit in hits[1:] if hit[0] != key))
    ratio = _("ratio of the losses at step {step}: {ratio:.6g}", step=step, ratio=case.ratio[step - 1])
    tested = _("the ratio at step {step} is that number to {tolerance}", step=step, tolerance=rounded(EXACT))
    return found(
        key, _("{losses}: {ratio}", losses=case.losses(step), ratio=what), tested, [ratio, *case.facts()], also
    )
