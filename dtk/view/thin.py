"""Which of very many steps to draw, so that none that stands out is left out."""

from __future__ import annotations

import numpy as np

__all__ = ["MOST", "edges", "thinned"]

MOST = 2000  # steps that are drawn; a figure is some 1,000 pixels wide


def thinned(values: np.ndarray) -> np.ndarray:
    """Positions, in order, of at most some MOST values: of each of MOST / 2 stretches the least and the greatest.

    The first and the last are among them, and of a stretch with NaN one NaN.

    >>> thinned(np.arange(10.0)).tolist() == list(range(10))
    True
    """
    count = len(values)
    if count <= MOST:
        return np.arange(count)
    starts = np.linspace(0, count, MOST // 2, endpoint=False).astype(int)
    kept = [0, count - 1]
    for begin, end in zip(starts, [*starts[1:], count], strict=True):
        part = values[begin:end]
        missing = np.isnan(part)
        if missing.any():
            kept.append(begin + int(missing.argmax()))
        if not missing.all():
            kept += [begin + int(np.nanargmin(part)), begin + int(np.nanargmax(part))]
    return np.unique(kept)


def edges(steps: np.ndarray) -> np.ndarray:
    """Where the blocks of these steps meet: half-way between two, and half a step beyond the ends."""
    if not len(steps):
        return np.array([0.5])
    between = (steps[:-1] + steps[1:]) / 2
    return np.concatenate([[steps[0] - 0.5], between, [steps[-1] + 0.5]])
