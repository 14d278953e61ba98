"""A regularisation penalty that every replica adds whole: the shares then add up to N penalties instead of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice, product

import numpy as np

from dtk.checks.evidence import Evidence
from dtk.diagnosis.case import Case
from dtk.diagnosis.verdict import Diagnosis, found
from dtk.language import N_, _
from dtk.measure.scaling import global_loss

__all__ = ["GROWS", "fits", "growth", "look_at_penalty", "steady"]

# The factors that people write; L2 penalties of tf.nn.l2_loss are half of them. Six numbers a decade in all.
FACTORS = [digit * 10.0**power for power, digit in product(range(-6, 1), (1, 2, 3, 5))]
A_DECADE = 6
# How closely a factor must fit: what is left of float32's digits once two losses are subtracted, in these bounds.
CLOSE, LOOSE = 2e-5, 5e-3
BY_ACCIDENT = 0.02  # sums of weights are tried, the most common first, until one would fit by accident this often
STEADY = 0.2  # a penalty changes this little in a few steps, the loss of a batch often more
LOOKED_AT = 5
# What each adds to the loss of step 1 with N replicas, but for a factor.
GROWS: dict[str, Callable[[int], float]] = {
    "regularisation": lambda n: n - 1,
    "local mean": lambda n: n - 1,
    "divided twice": lambda n: 1 / n - 1,
    "not divided": lambda n: 1,
}


def look_at_penalty(case: Case) -> Diagnosis | None:
    """The excess at step 1 is N - 1 times a penalty on the initial weights."""
    extra = case.replicas - 1
    if extra < 1 or not case.excess[0] > 0 or case.blurred:
        return None
    share = float(case.excess[0]) / extra
    # What is as small as half of it soon after, or negative, is no penalty, whatever its size at step 1 fits.
    if not (np.abs(case.excess[:LOOKED_AT] / case.excess[0] - 1) < 0.5).all():
        return None
    named = fits(case, share, 4)
    if named is None:
        return None
    what = N_(
        "{losses}, {excess:.3g} too large, which is the penalty {penalty}: every one of the {n} replicas adds it whole"
    )
    if extra > 1:
        what = N_(
            "{losses}, {excess:.3g} too large: {extra} times {share:.3g}, which is the penalty {penalty}: every one of "
            "the {n} replicas adds it whole"
        )
    said = {"losses": case.losses(1), "excess": case.excess[0], "extra": extra, "share": share}
    tested = _(
        "the excess at step 1 is N-1 times a penalty of the initial weights with a factor that people write, to the "
        "losses' rounding (other numbers fit by accident 1 time in 50), and it lasts"
    )
    return found("regularisation", _(what, penalty=named, n=case.replicas, **said), tested, case.facts())


def fits(case: Case, share: float, roundings: float) -> str | None:
    """The penalty that `share` is, in words, such as "0.001 times the sum of squares of the kernels"; None for none.

    roundings: by how many roundings of a loss, in float32, `share` may be off.
    """
    blur = max(CLOSE, roundings * float(np.finfo(np.float32).eps) * abs(float(case.other[0])) / abs(share))
    if not blur <= LOOSE:
        return None
    # One sum fits a number by accident with this chance; the less is known of the number, the fewer sums are tried.
    chance = A_DECADE * 2 * blur / np.log(10)
    for words, total in islice(_sums(case), max(1, int(BY_ACCIDENT / chance))):
        for factor in FACTORS if total > 0 else []:
            for half in (1.0, 0.5):
                if abs(share / (half * factor * total) - 1) <= blur:
                    return _("{factor:g} times {sum}", factor=half * factor, sum=words)
    return None


def _sums(case: Case) -> Iterator[tuple[str, float]]:
    """Sums over the initial weights that penalties are made of, the most common first."""
    weights = case.ours.run.folder.worker(0).weights("initial")
    if weights is None:
        return
    arrays = [np.asarray(array, np.float64) for array in weights.arrays]
    kernels = [array for array in arrays if array.ndim > 1]
    groups = [(_("all kernels"), kernels), (_("all weights"), arrays)]
    each = [(name, [array]) for name, array in zip(weights.names, arrays, strict=True) if array.ndim > 1]
    for some in (groups, each):
        for words, group in some:
            yield _("the sum of squares of {weights}", weights=words), float(sum((array**2).sum() for array in group))
        for words, group in some:
            yield (
                _("the sum of absolute values of {weights}", weights=words),
                float(sum(np.abs(array).sum() for array in group)),
            )


def steady(case: Case) -> bool:
    """Whether the excess stays the same over the first steps, and varies less than in proportion to the losses.

    What draws at random is now larger and now smaller; that its first three to five differences have one sign and one
    size to 20 % does not happen by accident.
    """
    first, other = case.excess[:LOOKED_AT], case.other[:LOOKED_AT]
    if len(first) < 3 or first[0] == 0 or (np.abs(first / first[0] - 1) > STEADY).any():
        return False
    return bool(np.std(first) / abs(np.mean(first)) < 0.5 * np.std(other) / abs(np.mean(other)))


def growth(ours: Evidence, theirs: Evidence, more: Evidence) -> tuple[dict[str, float], set[str] | None]:
    """How the excess at step 1 grows with the replicas, and the mistakes that it fits; None: not known.

    The numbers are those that sentences name. more: the run once more, with another number of replicas.
    """
    one, few, many = (float(global_loss(side.shares, side.examples)[0]) for side in (theirs, ours, more))
    grew = (many - one) / (few - one)
    expected = {key: law(more.replicas) / law(ours.replicas) for key, law in GROWS.items()}
    said = {"replicas": more.replicas, "times": grew, "before": ours.replicas, "whole": expected["regularisation"]}
    # Two losses in float32, subtracted: what is left of their digits.
    blur = max(LOOSE, 8 * float(np.finfo(np.float32).eps) * abs(one) / min(abs(few - one), abs(many - one)))
    if not blur < 0.1:
        return said, None
    fitting = {key for key, value in expected.items() if abs(grew / value - 1) <= blur}
    if _steadier(ours, theirs):
        fitting.discard("local mean")
    if not fitting and abs(grew - 1) > blur:  # it does depend on how the batch is cut, and as none of these does
        fitting = {"whole batch"}
    return said, fitting


def _steadier(ours: Evidence, theirs: Evidence) -> bool:
    """Whether the excess varies less than the loss, of which a local mean adds N-1 times as much."""
    common = min(ours.steps, theirs.steps)
    mine, other = (global_loss(side.shares, side.examples)[:common] for side in (ours, theirs))
    return bool(np.ptp(mine - other) < (ours.replicas - 1) * np.ptp(other) / 2)
