"""A regularisation penalty that every replica adds whole: the shares then add up to N penalties instead of one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from dtk.analysis.case import Case, Diagnosis, found

__all__ = ["look_at_penalty"]

# The factors that people write; L2 penalties of tf.nn.l2_loss are half of them.
FACTORS = [digit * 10.0**power for power, digit in product(range(-6, 1), (1, 2, 3, 5))]
# Losses are float32, so an excess of 1 % of the loss is known to 1e-5 of itself. 2e-4 leaves room for smaller ones, and
# keeps the chance that some factor fits by accident near 1 %: six factors a decade, some eight sums of weights.
FITS = 2e-4
STEADY = 0.2  # a penalty changes this little in a few steps, the loss of a batch often more
LOOKED_AT = 5


def look_at_penalty(case: Case) -> Diagnosis | None:
    """The excess at step 1 is N - 1 times a penalty on the initial weights, or stays the same while losses vary."""
    extra = case.replicas - 1
    excess = case.mine - case.other
    if extra < 1 or not excess[0] > 0:
        return None
    share = float(excess[0]) / extra
    # What is as small as half of it soon after, or negative, is no penalty, whatever its size at step 1 fits.
    lasting = bool((np.abs(excess[:LOOKED_AT] / excess[0] - 1) < 0.5).all())
    named = _recognised(case, share) if lasting else None
    what = (
        f"{case.losses(1)}, {excess[0]:.3g} too large: {extra} times {share:.3g}"
        if extra > 1
        else f"{case.losses(1)}, {excess[0]:.3g} too large"
    )
    if named:
        return found(
            "regularisation",
            f"{what}, which is the penalty {named}: every one of the {case.replicas} replicas adds it whole",
            case.facts(),
        )
    if not _steady(case, excess):
        return None
    return found(
        "regularisation",
        f"{what}, and nearly as much at the steps after it, as if each of the {case.replicas} replicas added a whole "
        "penalty",
        case.facts(),
        ("dropout",) if case.same_data else ("order", "dropout"),
    )


def _recognised(case: Case, share: float) -> str | None:
    """The penalty in words, such as "0.001 times the sum of squares of the kernels"."""
    # What is left of float32's digits after the losses are subtracted.
    blur = 4 * np.finfo(np.float32).eps * abs(case.other[0]) / share
    if blur > FITS:
        return None
    for words, total in _sums(case):
        for factor in FACTORS if total > 0 else []:
            for half in (1.0, 0.5):
                if abs(share / (half * factor * total) - 1) <= FITS:
                    return f"{half * factor:g} times {words}"
    return None


def _sums(case: Case) -> Iterator[tuple[str, float]]:
    """Sums over the initial weights that penalties are made of."""
    weights = case.ours.run.folder.worker(0).weights("initial")
    if weights is None:
        return
    arrays = [np.asarray(array, np.float64) for array in weights.arrays]
    kernels = [array for array in arrays if array.ndim > 1]
    groups = [("all kernels", kernels), ("all weights", arrays)]
    groups += [(name, [array]) for name, array in zip(weights.names, arrays, strict=True) if array.ndim > 1]
    for words, group in groups[:8]:
        yield f"the sum of squares of {words}", float(sum((array**2).sum() for array in group))
        yield f"the sum of absolute values of {words}", float(sum(np.abs(array).sum() for array in group))


def _steady(case: Case, excess: np.ndarray) -> bool:
    """Whether the excess varies less than in proportion to the losses, over the first steps."""
    first, other = excess[:LOOKED_AT], case.other[:LOOKED_AT]
    if len(first) < 3 or (np.abs(first / first[0] - 1) > STEADY).any():
        return False
    return bool(np.std(first) / np.mean(first) < 0.5 * np.std(other) / abs(np.mean(other)))
