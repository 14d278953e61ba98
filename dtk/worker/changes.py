"""By how much the change that this process makes of a variable differs from the cluster's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["ROUNDING", "UNMEASURED", "Change", "compared", "described", "differs"]

ROUNDING = {"float32": 2.0**-23, "float64": 2.0**-52, "bfloat16": 2.0**-7, "float16": 2.0**-10}
FLOOR = 2.0  # units in the last place of a variable's values, which storing them costs
UNMEASURED = 1e-4  # of an update: what rounding may be in a step that can't be repeated
AT_ONCE = 100_000  # values that are compared at once: what fits into a processor's memory of its own


class Change(NamedTuple):
    """A variable before and after, here and in the cluster."""

    number: int
    dtype: str
    before: Any
    after: Any
    its_before: Any
    its_after: Any


def compared(changes: Sequence[Change]) -> dict[str, Any]:
    """By the variable's number: norms of the two changes' difference and of the cluster's change, and their ratio."""
    line: dict[str, Any] = {name: {} for name in ("apart", "size", "ratio")}
    with np.errstate(all="ignore"):  # NaN and infinite values, which `_judged` looks at
        for change in changes:
            if np.size(change.after):
                for name, value in _judged(change, *_sums(change[2:], _apart)).items():
                    line[name][change.number] = value
    return line


def described(changes: Sequence[Change], weights: Mapping[int, Any]) -> dict[str, Any]:
    """How the two changes lie, by the variable's number: "own", the norm of this process's, "along", their product, and
    "toward", how far the cluster's and ours go along a weight.

    weights: what the weight held that an optimizer's variable belongs to; a variable that is not here is its own.
    """
    line: dict[str, Any] = {name: {} for name in ("own", "along", "toward")}
    with np.errstate(all="ignore"):
        for change in changes:
            if not np.size(change.after):
                continue
            toward = weights.get(change.number, change.its_before)
            own, along, *products, weight = _sums((*change[2:], toward), _lie)
            long = math.sqrt(weight) if math.isfinite(weight) else 0.0
            line["own"][change.number], line["along"][change.number] = math.sqrt(own), along
            line["toward"][change.number] = [each / long if long else 0.0 for each in products]
    return line


def differs(ratio: float, level: float) -> bool:
    """Whether a change differs by more than rounding; where rounding may be all of it, any ratio says nothing."""
    return ratio > level and level < 1


def _apart(before: Any, after: Any, its_before: Any, its_after: Any) -> Sequence[tuple[Any, Any]]:
    its = its_after - its_before
    apart = after - before - its
    return [(apart, apart), (its, its), (its_after, its_after)]


def _lie(before: Any, after: Any, its_before: Any, its_after: Any, toward: Any) -> Sequence[tuple[Any, Any]]:
    made, its = after - before, its_after - its_before
    return [(made, made), (made, its), (its, toward), (made, toward), (toward, toward)]


def _sums(arrays: Sequence[Any], products: Callable[..., Any]) -> list[float]:
    """Sums of products of arrays, in float64; one of another size than the second, a variable's end here, is 0."""
    size = np.size(arrays[1])
    flat = [np.ravel(array) if np.size(array) == size else np.zeros(size) for array in arrays]
    pieces = []
    for start in range(0, size, AT_ONCE):
        parts = [array[start : start + AT_ONCE].astype(np.float64) for array in flat]
        pieces.append([float(one @ other) for one, other in products(*parts)])
    return [sum(column) for column in zip(*pieces, strict=True)]


def _judged(change: Change, apart: float, size: float, last: float) -> dict[str, Any]:
    apart, size = math.sqrt(apart), math.sqrt(size)
    floor = FLOOR * ROUNDING.get(change.dtype, 0.0) * math.sqrt(last)
    if change.dtype not in ROUNDING:  # counters, and the state of random numbers
        apart = 0.0 if np.array_equal(change.after, change.its_after) else math.inf
    ratio = 0.0 if apart <= floor else (apart / size if size else math.inf)
    if not math.isfinite(apart):
        alike = change.dtype in ROUNDING and np.array_equal(change.after, change.its_after, equal_nan=True)
        ratio = 0.0 if alike else math.inf
    return {"apart": apart, "size": size, "ratio": ratio}
