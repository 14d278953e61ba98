"""Mistakes in the loss itself: recognised by the ratio of the losses at the first step at which they differ.

Step 1 tells most: both start from the same weights, so nothing but the loss's arithmetic and rounding (1e-6 of its
size) can lie between them. Later losses hold what was learned from the wrong one, and their ratios say nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dtk.checks.losses import RTOL, TOO_SMALL
from dtk.checks.numerals import rounded
from dtk.diagnosis.case import Case
from dtk.diagnosis.penalty import fits, look_at_penalty
from dtk.diagnosis.verdict import Diagnosis, either, found
from dtk.language import N_, _

__all__ = ["look_at_finite", "look_at_first_loss", "look_at_shares"]

# A thousand times rounding at step 1, and far from the distance of two ratios that could be confused (2 and 3).
EXACT = 1e-3
# A penalty that both scaled rightly, or batch norm, moves a ratio off its whole number; by more than this it is no
# longer that number's. Near a number is no proof: see `_nearly`.
NEAR = 0.05


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
        tested = _("weighted by examples, the losses agree to verify's tolerance")
        return found("uneven batch", case.failed.what, tested, case.facts())
    short = _short_batch(case, step)
    if short is not None or step > 1:
        return short
    if abs(float(case.other[0])) < 10 * TOO_SMALL:
        return None  # a difference of larger numbers, all but rounded away: its ratio says nothing
    hits = [(key, what) for key, value, what in _known(case) if _is(case, value, EXACT)]
    if hits:
        return _named(case, hits, _("the ratio at step 1 is that number to {tolerance}", tolerance=rounded(EXACT)))
    penalty = look_at_penalty(case)
    if penalty is not None:
        return penalty
    for key, value, what in _known(case):
        named = _beside(case, value) if key in (*_COARSE, "not divided") else None
        if named:
            moved = _(
                "{what} (both add the penalty {penalty} rightly, which hides the ratio)", what=what, penalty=named
            )
            tested = _("the ratio is that number once the penalty is taken off both losses")
            return _named(case, [(key, moved)], tested)
    near = [(key, value, what) for key, value, what in _known(case) if key in _COARSE and _is(case, value, NEAR)]
    return _nearly(case, near[0][0], near[0][2]) if near else None


def _beside(case: Case, value: float) -> str | None:
    """The penalty p that both scale rightly, in words: the run has value · data + p, the baseline data + p."""
    penalty = float((value * case.other[0] - case.mine[0]) / (value - 1))
    if case.blurred or not 0 < penalty < case.other[0]:
        return None
    return fits(case, penalty, 4 * max(value, 1.0) / abs(value - 1))


def _nearly(case: Case, key: str, what: str) -> Diagnosis:
    """A ratio near N or 1/N: perhaps the mistake, which batch norm keeps from being exact; perhaps an accident."""
    others = ["whole batch", *(["batch norm"] if case.normalised else []), *(["random"] if case.draws != [] else [])]
    tested = N_("the ratio at step 1 is {ratio:.6g}, near the number of a mistake and not equal to it")
    lead = _("{losses}: about {ratio}", losses=case.losses(1), ratio=what)
    return either(lead, [key, *others], _(tested, ratio=case.ratio[0]), case.facts())


_COARSE = ("local mean", "divided twice")


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


def _known(case: Case) -> Iterator[tuple[str, float, str]]:
    """(mistake, ratio, how a sentence calls it) of each mistake with a ratio of its own, the most common first."""
    n, batch = case.replicas, int(case.examples[0])
    if n > 1:
        yield "local mean", n, _("{n} times, the number of replicas: each divides by its own batch", n=n)
        yield "divided twice", 1 / n, _("1/{n}, divided by the {n} replicas once more", n=n)
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


def _is(case: Case, value: float, tolerance: float) -> bool:
    """Whether the ratio at step 1 is `value`; with uneven batches also of the losses weighted by examples."""
    ratios = np.array([case.ratio[0], case.weighted[0] / case.other[0]])
    return bool((np.abs(ratios / value - 1) <= tolerance).any())


def _named(case: Case, hits: list[tuple[str, str]], tested: str) -> Diagnosis:
    key, what = hits[0]
    also = tuple(dict.fromkeys(hit[0] for hit in hits[1:] if hit[0] != key))
    evidence = [_("ratio of the losses at step 1: {ratio:.6g}", ratio=case.ratio[0]), *case.facts()]
    return found(key, _("{losses}: {ratio}", losses=case.losses(1), ratio=what), tested, evidence, also)
