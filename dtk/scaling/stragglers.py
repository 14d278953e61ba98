"""Waiting for the slowest: how long the last of n workers takes, from the distribution of one.

A worker's seconds of computation in a step are taken as lognormal, with a mean and a coefficient of variation (the
standard deviation over the mean, `spread`), independent of the other workers' and of other steps. The distribution
function of the slowest of n is then F(t)^n, and its mean an integral over one variable (David and Nagaraja 2003,
"Order Statistics", section 3.1), computed here by the trapezoidal rule. A worker that is always slow is another matter:
then each step takes as long as that worker's.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from dtk.errors import ClusterConfigError
from dtk.language import N_, _

__all__ = ["MOST_SPREAD", "slowest", "slowest_mean"]

MOST_SPREAD = 2.0
_POINTS = 2001


@lru_cache(maxsize=1)
def _normal() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Standard normal quantiles, the logarithms of their density and of their distribution function."""
    at = np.linspace(-9.0, 13.0, _POINTS)
    tail = np.array([0.5 * math.erfc(abs(z) / math.sqrt(2)) for z in at])  # exact in both tails
    return at, -0.5 * at**2 - 0.5 * math.log(2 * math.pi), np.where(at < 0, np.log(tail), np.log1p(-tail))


def slowest(workers: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """The distribution of the slowest worker's time, in units of the mean time of one: values and their weights.

    Both `(points,)`; the weights add up to 1, so the mean of f(slowest) is `(weights * f(values)).sum()`. Raises
    ClusterConfigError for a spread below 0 or above 2.
    """
    if not 0 <= spread <= MOST_SPREAD:
        what = N_("spread={spread!r}, but it takes a standard deviation of 0 to 2 times the mean")
        raise ClusterConfigError(_(what, spread=spread))
    if spread == 0:
        return np.ones(1), np.ones(1)
    at, density, below = _normal()
    sigma = math.sqrt(math.log1p(spread**2))
    weights = np.exp(math.log(workers) + density + (workers - 1) * below)
    return np.exp(sigma * at - 0.5 * sigma**2), weights / weights.sum()


def slowest_mean(workers: int, spread: float) -> float:
    """The mean time of the slowest of n workers, in units of the mean time of one.

    >>> [round(slowest_mean(workers, spread=0.1), 3) for workers in (1, 2, 16, 256)]
    [1.0, 1.056, 1.188, 1.32]
    """
    values, weights = slowest(workers, spread)
    return float((values * weights).sum())
