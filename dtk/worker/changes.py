"""By how much the change that this process makes of a variable differs from the cluster's, for many at once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["ROUNDING", "Change", "compared", "differs"]

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


def compared(changes: Sequence[Change], weights: Mapping[int, Any]) -> dict[str, Any]:
    """What a follower writes of each, by number: "apart", "size", "own", "along", "toward" and "ratio".

    weights: what the weight held that an optimizer's variable belongs to; a variable that is not here is its own.
    """
    line: dict[str, Any] = {name: {} for name in ("apart", "size", "own", "along", "toward", "ratio")}
    changes = [change for change in changes if np.size(change.after)]
    with np.errstate(all="ignore"):  # NaN and infinite values, which `_judged` looks at
        for change, sums in zip(changes, _sums(changes, weights).T.tolist(), strict=True):
            for name, value in _judged(change, sums).items():
                line[name][change.number] = value
    return line


def differs(ratio: float, level: float) -> bool:
    """Whether a change differs by more than rounding; where rounding may be all of it, any ratio says nothing."""
    return ratio > level and level < 1


def _sums(changes: Sequence[Change], weights: Mapping[int, Any]) -> Any:
    """By change: squares of the two changes' difference, of the cluster's, of ours, and of the values at the end; the
    product of the two changes; those of the cluster's, and of ours, with the weight; its square. `(8, changes)`.
    """
    sums = np.zeros((8, len(changes)))
    flat: list[list[Any]] = []
    for change in changes:
        toward = weights.get(change.number, change.its_before)
        values = (change.before, change.after, change.its_before, change.its_after, toward)
        flat.append([np.ravel(value) if np.size(value) == np.size(change.after) else 0.0 for value in values])
    for pieces in _pieces([np.size(change.after) for change in changes]):
        ends = np.cumsum([stop - start for _k, start, stop in pieces])
        whole = np.zeros((5, ends[-1]))
        for (k, start, stop), end in zip(pieces, ends, strict=True):
            for row, value in zip(whole, flat[k], strict=True):
                row[end - (stop - start) : end] = value[start:stop] if np.ndim(value) else value
        before, after, its_before, its_after, toward = whole
        made, its = after - before, its_after - its_before
        apart = made - its
        squares = [(each, each) for each in (apart, its, made, its_after)]
        pairs = [*squares, (made, its), (its, toward), (made, toward), (toward, toward)]
        places = [k for k, _start, _stop in pieces]
        for found, (one, other) in zip(sums, pairs, strict=True):
            found[places] += one @ other if len(pieces) == 1 else np.add.reduceat(one * other, [0, *ends[:-1]])
    return sums


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


def _judged(change: Change, sums: Sequence[float]) -> dict[str, Any]:
    apart, size, own, last, along, *toward, weight = sums
    apart, size, own = math.sqrt(apart), math.sqrt(size), math.sqrt(own)
    floor = FLOOR * ROUNDING.get(change.dtype, 0.0) * math.sqrt(last)
    if change.dtype not in ROUNDING:  # counters, and the state of random numbers
        apart = 0.0 if np.array_equal(change.after, change.its_after) else math.inf
    ratio = 0.0 if apart <= floor else (apart / size if size else math.inf)
    if not math.isfinite(apart):
        alike = change.dtype in ROUNDING and np.array_equal(change.after, change.its_after, equal_nan=True)
        ratio = 0.0 if alike else math.inf
    toward = [each / math.sqrt(weight) if weight and math.isfinite(weight) else 0.0 for each in toward]
    return {"apart": apart, "size": size, "own": own, "along": along, "toward": toward, "ratio": ratio}
