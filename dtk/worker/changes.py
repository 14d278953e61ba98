"""By how much the change that this process makes of a variable differs from the cluster's, for many at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["ROUNDING", "Change", "compared", "described", "differs"]

ROUNDING = {"float32": 2.0**-23, "float64": 2.0**-52, "bfloat16": 2.0**-7, "float16": 2.0**-10}
FLOOR = 2.0  # units in the last place of a variable's values, which storing them costs
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
        for change, sums in _sums([(change, change[2:]) for change in changes], _apart):
            for name, value in _judged(change, *sums).items():
                line[name][change.number] = value
    return line


def described(changes: Sequence[Change], weights: Mapping[int, Any]) -> dict[str, Any]:
    """How the two changes lie, by the variable's number: "own", the norm of this process's, "along", their product, and
    "toward", how far the cluster's and ours go along a weight.

    weights: what the weight held that an optimizer's variable belongs to; a variable that is not here is its own.
    """
    line: dict[str, Any] = {name: {} for name in ("own", "along", "toward")}
    with np.errstate(all="ignore"):
        beside = [(each, (*each[2:], weights.get(each.number, each.its_before))) for each in changes]
        for change, (own, along, *products, weight) in _sums(beside, _lie):
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


def _sums(changes: Sequence[tuple[Change, Any]], products: Callable[..., Any]) -> Iterator[tuple[Change, list[float]]]:
    """Each change that has values, with sums of products, in float64. changes: each with the arrays to multiply."""
    changes = [(change, arrays) for change, arrays in changes if np.size(change.after)]
    flat = [[_flat(array, change.after) for array in arrays] for change, arrays in changes]
    sums: list[Any] = []
    for pieces in _pieces([np.size(change.after) for change, _arrays in changes]):
        parts = [[array[start:stop] for array in flat[k]] for k, start, stop in pieces]
        pairs = products(*(np.concatenate(row, dtype=np.float64, casting="unsafe") for row in zip(*parts, strict=True)))
        starts = np.cumsum([0, *(stop - start for _k, start, stop in pieces)])[:-1]
        sums = sums or [np.zeros(len(changes)) for _ in pairs]
        for found, (one, other) in zip(sums, pairs, strict=True):
            found[[k for k, *_ in pieces]] += one @ other if len(pieces) == 1 else np.add.reduceat(one * other, starts)
    yield from zip((change for change, _arrays in changes), np.transpose(sums).tolist(), strict=True)


def _flat(array: Any, like: Any) -> Any:
    """As one row of values; zeros where it is of another size."""
    return np.ravel(array) if np.size(array) == np.size(like) else np.zeros(np.size(like))


def _pieces(sizes: Sequence[int]) -> Iterator[list[tuple[int, int, int]]]:
    """(place, start, stop) of parts of what has these sizes, as many as are compared at once."""
    found: list[tuple[int, int, int]] = []
    held = 0
    for k, size in enumerate(sizes):
        for start in range(0, size, AT_ONCE):
            stop = min(size, start + AT_ONCE)
            if found and held + stop - start > AT_ONCE:
                yield found
                found, held = [], 0
            found.append((k, start, stop))
            held += stop - start
    if found:
        yield found


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
