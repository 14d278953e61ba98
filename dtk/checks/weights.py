"""Where the weights of two runs differ: at the start, between, at the end. Each check raises one sentence."""

from __future__ import annotations

import numpy as np

from dtk.checks.evidence import Evidence
from dtk.checks.facts import MOVING
from dtk.checks.numerals import rounded, scientific
from dtk.errors import VerificationError
from dtk.language import N_, _
from dtk.records import Weights

__all__ = [
    "array_of",
    "check_final_weights",
    "check_start",
    "check_weights_between",
    "distance",
    "upto",
    "way",
]

MOVED = 0.05  # of the longer way: rounding that a kink enlarged was seen to be a tenth of it


def check_start(ours: Evidence, theirs: Evidence, atol: float) -> None:
    """The same seed, then the same initial weights, by order and shape: layers' names may count differently."""
    mine, other = ours.run.seed, theirs.run.seed
    if mine is not None and other is not None and mine != other:
        raise VerificationError(
            _("baseline: seed {other}, {run}: seed {mine}", other=other, run=ours.name, mine=mine),
            reason="seeds",
            remedy=_("pass the same seed to dtk.run and dtk.baseline"),
            numbers={"baseline": other, "run": mine},
        )
    if not ours.initial or not theirs.initial:
        return  # a loop that was seen only after its first step, whose loss then stands for them
    common = {*ours.initial[0].parts} & {*theirs.initial[0].parts}
    a, b = ours.initial[0].of(common), theirs.initial[0].of(common)
    _check_shapes(ours, a, b, "initial weights")
    index, difference = _largest(a, b)
    if not difference <= atol:
        raise VerificationError(
            _(
                "the {run} and the baseline start from different weights: {apart} (seeds: {mine} and {other})",
                run=ours.name,
                apart=_apart(a, index, difference, atol),
                mine=mine,
                other=other,
            ),
            step=1,
            reason="initial weights",
            remedy=_("pass the same seed to dtk.run and dtk.baseline, and restore nothing in only one of them"),
            numbers={"difference": difference, "atol": atol},
        )


def check_final_weights(ours: Evidence, theirs: Evidence, atol: float) -> None:
    """Each weight at the end, to atol of the baseline's."""
    a, b = ours.final[0], theirs.final[0]
    _check_shapes(ours, a, b, "final weights")
    index, difference = _largest(a, b)
    if difference <= atol:
        _check_moved(ours, theirs, atol)
        return
    where = _apart(a, index, difference, atol)
    mine, other = (not np.isfinite(side.arrays[index]).all() for side in (a, b))
    if mine or other:
        where = N_("{array} holds NaN or infinite values in the {run} and the baseline")
        if not other:
            where = N_("{array} holds NaN or infinite values in the {run}")
        elif not mine:
            where = N_("{array} holds NaN or infinite values in the baseline")
        where = _(where, array=array_of(a, index), run=ours.name)
    raise VerificationError(
        _("the final weights differ: {where}", where=where),
        reason="final weights",
        remedy=_(
            "the losses agree at all {steps} steps, so look at what they don't show: the last step's update, and "
            "weights that are changed without a gradient (moving averages, callbacks)",
            steps=ours.steps,
        ),
        numbers={"difference": difference, "atol": atol},
    )


def _check_moved(ours: Evidence, theirs: Evidence, atol: float) -> None:
    """Raises where weights agree to atol only because they moved so little: their ways must agree as well.

    A way is what one training of one model made of its weights, as one vector, without moving statistics. Where the two
    differ by more than MOVED of the longer one and rounding together, another training was made.
    """
    if not ours.initial or not theirs.initial:
        return
    for part in sorted({*ours.initial[0].parts} & {*theirs.initial[0].parts}):
        mine, other = (_moments_of(side, part) for side in (ours, theirs))
        if len(mine) != len(other):  # after a restart some moments are another start's
            mine, other = [mine[0], mine[-1]], [other[0], other[-1]]
        for k in range(len(mine) - 1):
            _check_way(ours, (mine[k], mine[k + 1]), (other[k], other[k + 1]), atol)


def _moments_of(side: Evidence, part: int) -> list[Weights]:
    """One model's weights at the start, between its trainings, and at the end."""
    first, last = side.initial[0].of({part}), side.final[0].of({part})
    corner = side.run.folder.worker(0)
    between = [held for moment in corner.moments if (held := corner.weights(moment)) is not None]
    return [first, *(held for held in between if held.models[:1] == last.models[:1]), last]


def _check_way(ours: Evidence, mine: tuple[Weights, Weights], other: tuple[Weights, Weights], atol: float) -> None:
    if len({tuple(array.shape for array in each.arrays) for each in (*mine, *other)}) > 1:
        return
    a, b = way(*mine), way(*other)
    size = np.sqrt(sum(float(np.square(array, dtype=np.float64).sum()) for array in other[1].arrays))
    rounding = 4 * float(np.finfo(np.float32).eps) * size * np.sqrt(ours.steps)
    apart, longer = float(np.linalg.norm(a - b)), max(np.linalg.norm(a), np.linalg.norm(b))
    if not apart > MOVED * longer + rounding:
        return
    what = _(
        "the weights of {model} agree to atol={atol}, but only as they moved so little ({mine:.2g} in the {run}, "
        "{other:.2g} in the baseline, as one vector): the two ways differ by {percent:.0f} % of the longer one, so "
        "another training was made",
        model=mine[1].models[0] or _("the model"),
        atol=scientific(atol),
        mine=np.linalg.norm(a),
        run=ours.name,
        other=np.linalg.norm(b),
        percent=100 * apart / longer,
    )
    raise VerificationError(what, reason="final weights", remedy=_("dtk.diagnose says more"))


def way(before: Weights, after: Weights) -> np.ndarray:
    """How far weights moved, as one vector; without moving statistics."""
    pairs = zip(before.names, before.arrays, after.arrays, strict=True)
    parts = [
        np.subtract(y, x, dtype=np.float64).ravel() for name, x, y in pairs if not any(word in name for word in MOVING)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def check_weights_between(ours: Evidence, theirs: Evidence, atol: float) -> None:
    """The weights where one training of several ends, or the next begins, to atol of the baseline's.

    After a restart of the cluster trainings begin with what was restored: only their ends can be compared then.
    """
    corners = [side.run.folder.worker(0) for side in (ours, theirs)]
    mine, other = (corner.moments for corner in corners)
    if mine != other and not ours.restarts:
        raise VerificationError(
            _(
                "baseline: weights at {others} between trainings, {run}: {mine}",
                others=_(", ").join(other) or _("no moment"),
                run=ours.name,
                mine=_(", ").join(mine) or _("none"),
            ),
            reason="weights between fits",
            remedy=_("call fit equally often in both"),
        )
    for moment in mine:
        a, b = (corner.weights(moment) for corner in corners)
        if a is None or b is None or (ours.restarts and moment.endswith("begin")):
            continue
        _check_shapes(ours, a, b, "weights between fits")
        index, difference = _largest(a, b)
        if not difference <= atol:
            number, which = moment.split("-")[1:]
            what = N_("the weights of {model} differ at the begin of fit {number}: {apart}")
            if which == "end":
                what = N_("the weights of {model} differ at the end of fit {number}: {apart}")
            model, apart = a.models[index] or _("the model"), _apart(a, index, difference, atol)
            raise VerificationError(
                _(what, model=model, number=number, apart=apart),
                reason="weights between fits",
                remedy=_(
                    "look at what changes them without a step that is recorded (callbacks, restored weights, training "
                    "in between)"
                ),
                numbers={"difference": difference, "atol": atol},
            )


def _check_shapes(ours: Evidence, a: Weights, b: Weights, reason: str) -> None:
    if len(a.arrays) != len(b.arrays):
        what = N_("the models differ: {others} weight arrays in the baseline, {mine} in the {run}")
        what = _(what, others=len(b.arrays), mine=len(a.arrays), run=ours.name)
        raise VerificationError(what, reason=reason, remedy=_("build the same model in both"))
    for index, (x, y) in enumerate(zip(a.arrays, b.arrays, strict=True)):
        if x.shape != y.shape:
            what = N_(
                "the models differ: weight {index} ({name}) has the shape {other} in the baseline, {mine} in the {run}"
            )
            what = _(what, index=index, name=a.names[index], other=y.shape, mine=x.shape, run=ours.name)
            raise VerificationError(what, reason=reason, remedy=_("build the same model in both"))


def distance(x: np.ndarray, y: np.ndarray) -> float:
    """The largest absolute difference; infinite where only one of the two, or both, hold NaN or infinite values."""
    if x.size == 0:
        return 0.0
    with np.errstate(invalid="ignore"):  # infinite minus infinite is NaN, and becomes infinite below
        apart = np.abs(np.subtract(x, y, dtype=np.result_type(x, y, np.float64)))
    return float("inf") if np.isnan(apart).any() else float(apart.max())


def _largest(a: Weights, b: Weights) -> tuple[int, float]:
    """The array that differs most, and by how much; (0, 0.0) for a model without weights."""
    distances = [distance(x, y) for x, y in zip(a.arrays, b.arrays, strict=True)]
    index = int(np.argmax(distances)) if distances else 0
    return index, distances[index] if distances else 0.0


def array_of(weights: Weights, index: int) -> str:
    """One of the weights, in words."""
    return _(
        "{name} (array {index} of {number}, shape {shape})",
        name=weights.names[index],
        index=index,
        number=len(weights.arrays),
        shape=weights.arrays[index].shape,
    )


def _apart(weights: Weights, index: int, difference: float, atol: float) -> str:
    return _(
        "{array} differs by {upto}, over atol={atol}",
        array=array_of(weights, index),
        upto=upto(difference),
        atol=scientific(atol),
    )


def upto(difference: float) -> str:
    """By how much two weights differ, in words."""
    if difference == 0:
        return _("its type, or the sign of a zero")
    return (
        _("NaN or infinite values") if difference == float("inf") else _("up to {number}", number=rounded(difference))
    )
