"""Mistakes in the loss itself: recognized by the ratio of two losses from the same state.

Nothing but the loss's arithmetic and rounding (1e-6 of its size) can lie between them. A ratio has to hold at all steps
that were followed: by the weights that training begins with, many losses are the same for all examples.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dtk.language import N_, _
from dtk.proof.bisection import SAME_RATIO, beside_a_penalty, of_gradients, scaled_alike, whole_penalty
from dtk.proof.case import Case, Diagnosis, alike
from dtk.proof.evidence import RTOL, TOO_SMALL
from dtk.proof.following import COARSE
from dtk.proof.mistakes import MISTAKES
from dtk.records.events import Loop, of_kind
from dtk.scaling.shares import weighted_loss


def look_at_finite(case: Case) -> Diagnosis | None:
    """A loss that is NaN or infinite."""
    step = case.failed.step
    if step is None or step > case.steps or np.isfinite([case.mine[step - 1], case.other[step - 1]]).all():
        return None
    return case.found("not finite", case.failed.what)


def look_at_shares(case: Case) -> Diagnosis | None:
    """All replicas recorded one number, one device's loss: it had been reduced before it was recorded."""
    shares = case.ours.shares[: case.steps]
    if case.ours.replicas < 2 or case.failed.reason != "loss" or case.failed.step is None:
        return None
    if case.ours.of_calls:
        return _look_at_targets(case)
    trained = case.one is not None and case.one.step == case.failed.step  # by it, in each replica
    if trained or not alike(shares).all() or abs(shares[0, 0] - case.other[0]) > RTOL * abs(case.other[0]):
        return None
    what = N_(
        "at every step all {n} replicas recorded the same loss, at step 1 {loss:.3g}, which is that of {whom}: a value "
        "that was reduced before it was recorded, no shares"
    )
    said = _(what, n=case.ours.replicas, loss=shares[0, 0], whom=case.followed[1].whom)
    return case.found("reduced value", said, also=() if case.same_data else ("sharding off",))


def _look_at_targets(case: Case) -> Diagnosis | None:
    """All workers took gradients of one number at each call, which changes; replicas in one process did not."""
    steps = [] if case.one is None else [step - 1 for step in case.one.followed if step - 1 < case.steps]
    if case.many is None or case.many.theirs is None or alike(case.many.theirs.shares).all() or len(steps) < 2:
        return None
    if not alike(case.ours.shares[steps]).all() or np.ptp(case.mine[steps]) <= RTOL * np.abs(case.mine[steps]).max():
        return None
    what = N_("{losses}; all {n} replicas have the same loss, so they read the same examples")
    return case.found("sharding off", _(what, losses=case.losses(case.failed.step or 1), n=case.ours.replicas))


def look_at_first_loss(case: Case) -> Diagnosis | None:
    """The loss's arithmetic, at the step from which the losses differ."""
    step = case.failed.step
    if case.failed.reason == "uneven batch":
        return case.found("uneven batch", case.failed.what)
    if case.failed.reason != "loss" or step is None or case.one is None:
        return None
    count, full = int(case.examples[step - 1]), case.ours.global_batch
    if count != full and abs(case.ratio[step - 1] * full / count - 1) <= RTOL:
        what = N_("step {step} has {count} examples, and its loss is {count}/{full} of that of {whom}")
        return case.found("short batch", _(what, step=step, count=count, full=full, whom=case.followed[1].whom))
    if abs(float(case.other[step - 1])) < 10 * TOO_SMALL:
        return None  # of what is all but rounded away a ratio says nothing
    hits = [(key, what) for key, value, what in _known(case, step) if _is(case, step, value)]
    if not hits:
        return _beside_a_penalty(case, step)
    key, what = hits[0]
    also = tuple(dict.fromkeys(hit[0] for hit in hits[1:] if hit[0] != key))
    ratio = _("ratio of the losses at {step}: {ratio:.6g}", step=case.ours.at(step), ratio=case.ratio[step - 1])
    said = _("{name}: {words}", name=case.losses(step), words=what)
    return case.found(key, said, [ratio], also)


def _beside_a_penalty(case: Case, step: int) -> Diagnosis | None:
    """A loss that is some times one device's, but for a penalty, or whose penalty is too large: the gradients tell."""
    if (steps := case.one) is None or steps.coarse or steps.step != step:
        return None
    parts = of_gradients(steps)
    if beside_a_penalty(parts, 1.0):
        return whole_penalty(case, steps)
    for key, value, what in _known(case, step):
        # After its first step, what an optimizer keeps holds earlier gradients, too.
        left = any(part.left(value)[0] > SAME_RATIO for part in parts)
        if left and not (steps.kept and step > 1) and beside_a_penalty(parts, value):
            said = N_(
                "{losses}; the gradients, but for multiples of the weights: {ratio}; beside it, a penalty is right"
            )
            return case.found(key, _(said, losses=case.losses(step), ratio=what))
    return None


def _known(case: Case, step: int) -> Iterator[tuple[str, float, str]]:
    """(mistake, ratio, how a sentence calls it) of each mistake with a ratio of its own, the most common first."""
    n, batch = case.ours.replicas, int(case.examples[step - 1])
    by_examples, twice = _("the number of examples"), _("a mean was divided by the examples again")
    if n > 1:
        local = N_("{n} times, the number of replicas: each divides by its own batch, or multiplies its share by {n}")
        yield "local mean", n, _(local, n=n)
        yield "divided twice", 1 / n, _("1/{n}, divided by the {n} replicas once more", n=n)
        again = _(MISTAKES["scaled twice"].among)
        yield "scaled twice", n * n, _("{n} times, {why}", n=f"{n}²", why=again)
        yield "scaled twice", 1 / n**2, _("1/{n}: {why}", n=f"{n}²", why=again)
    # The axes of one label that are longer than 1: none for one number, or where unknown.
    shapes = next((loop.shapes for loop in of_kind(case.ours.run.folder.worker(0).events, Loop)), [])
    label = tuple(int(axis) for axis in (shapes[1] if len(shapes) > 1 else []) if axis and axis > 1)
    for axes in sorted({label, label[:-1], label[-1:]} - {()}, key=len, reverse=True):
        total, which = int(np.prod(axes)), _("a label's axes ({axes})", axes="·".join(map(str, axes)))
        yield "label axes", total, _("{n} times, {why}", n=total, why=which)
        yield "label axes", 1 / total, _("1/{n}: {why}", n=total, why=which)
    if batch > 1:
        yield "not divided", batch, _("{n} times, {why}", n=batch, why=by_examples)
        yield "sum over batch size", 1 / batch, _("1/{n}: {why}", n=batch, why=twice)
    if 1 < n < batch:
        yield "sum over batch size", n / batch, _("1/{n}: {why}", n=batch // n, why=twice)


def _is(case: Case, step: int, value: float) -> bool:
    """Whether the ratio is `value` at all steps followed; with uneven batches of the losses weighted by examples."""
    if case.one is None or not scaled_alike(case, value):
        return False
    followed = [each for each in case.one.followed if step <= each <= case.steps]
    full = [each for each in followed if int(case.examples[each - 1]) == case.ours.global_batch]
    chosen = np.array(full or [step]) - 1
    allowed = max(RTOL, COARSE * case.one.coarse)
    sides = (case.ratio, weighted_loss(case.ours.shares, case.ours.examples)[: case.steps] / case.other)
    return any(bool((np.abs(ratios[chosen] / value - 1) <= allowed).all()) for ratios in sides)
