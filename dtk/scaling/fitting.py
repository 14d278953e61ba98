"""From measured all-reduces to latency and bandwidth: least squares of the relative errors, with intervals.

The formulas of `dtk.scaling.communication` are linear in the latency and in the seconds a byte takes, so

    seconds = overhead + steps × latency + bytes × (1 / bandwidth)

is fitted by weighted least squares with no coefficient below 0. Errors count relative to the seconds expected, because
a timing of 100 ms is off by more than one of 1 ms, and less where they are large (Huber's weights, from 1.345 standard
deviations on), because now and then another process has the core. In 100 made-up sets of 45 timings with errors of 5 %,
and of 15 %, the 95 % intervals held the truth 91 to 93 times.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dtk.digits import three
from dtk.errors import ClusterConfigError
from dtk.language import N_, _
from dtk.scaling.communication import ALGORITHMS, all_reduce, check
from dtk.scaling.links import Link

if TYPE_CHECKING:
    import pandas

__all__ = ["Fit", "fit"]

_COLUMNS = ("workers", "bytes", "seconds")
_HUBER, _ROUNDS, _RESAMPLES, _LEVEL = 1.345, 12, 600, 0.95
_UNIT = Link("unit", 1.0, 1.0)  # its costs are the steps and the bytes themselves


@dataclass(frozen=True)
class Fit:
    """Latency and bandwidth that were fitted; the intervals hold the middle 95 % of what resampled measurements give.

    Attributes:
        algorithm: of the all-reduce.
        latency: s per message, and latency_interval.
        bandwidth: bytes/s, and bandwidth_interval.
        overhead: s per call; 0 unless one worker was measured.
        error: the median of |fitted / measured - 1|.
        rows: number of measurements.
    """

    algorithm: str
    latency: float
    latency_interval: tuple[float, float]
    bandwidth: float
    bandwidth_interval: tuple[float, float]
    overhead: float
    error: float
    rows: int

    def link(self, name: str = N_("loopback, as measured")) -> Link:
        return Link(_(name), self.latency, self.bandwidth)

    def seconds(self, workers: int, size: float) -> float:
        """What the fit says of an all-reduce of `size` bytes over that many workers, in s."""
        return self.overhead + all_reduce(workers, size, self.link(), self.algorithm).seconds

    def __str__(self) -> str:
        low, high = (each * 1e6 for each in self.latency_interval)
        slow, fast = (each / 1e9 for each in self.bandwidth_interval)
        return _(
            "{algorithm}: latency {latency} µs (95 % interval {low} to {high}), bandwidth {bandwidth} GB/s ({slow} to "
            "{fast}), {rows} measurements",
            algorithm=self.algorithm,
            latency=three(self.latency * 1e6),
            low=three(low),
            high=three(high),
            bandwidth=three(self.bandwidth / 1e9),
            slow=three(slow),
            fast=three(fast),
            rows=self.rows,
        )


def fit(measurements: pandas.DataFrame, algorithm: str = "ring") -> Fit:
    """Latency and bandwidth of a link, from all-reduces that were timed (`dtk.benchmark_allreduce`).

    Args:
        measurements: a row each, with the columns workers, bytes (of the whole array, on each worker) and seconds. Rows
            with one worker say what a call costs without communication: that is fitted as `overhead`, and is part of
            the latency where there are none.
        algorithm: "ring", "halving_doubling" or "tree"; the formulas are Hockney's (`dtk.scaling.communication`).

    Returns:
        A `Fit`; `.link()` is for a `Cluster`.

    Raises:
        ClusterConfigError: rows that can't tell: without two workers, with one size only, with fewer than two rows more
            than there are unknowns, or where larger arrays don't take longer.

    >>> import pandas
    >>> rows = [(2, size, 2 * 50e-6 + size / 2e9) for size in (1e4, 1e5, 1e6, 1e7)]
    >>> print(fit(pandas.DataFrame(rows, columns=["workers", "bytes", "seconds"])))
    ring: latency 50 µs (95 % interval 50 to 50), bandwidth 2 GB/s (2 to 2), 4 measurements
    """
    table = _checked(measurements, algorithm)
    costs = [all_reduce(int(row.workers), row.bytes, _UNIT, algorithm) for row in table.itertuples()]
    parts = [[cost.latency for cost in costs], [cost.transfer for cost in costs]]
    if (table.workers == 1).any():
        parts.append([1.0] * len(costs))
    columns, seconds = np.array(parts).T, table.seconds.to_numpy(np.float64)
    if len(seconds) < len(parts) + 2:
        least = len(parts) + 2
        what = N_("{rows} measurements for {unknowns} unknowns; it takes {least} or more")
        raise ClusterConfigError(_(what, rows=len(seconds), unknowns=len(parts), least=least))
    (best,) = _solve(columns[None], seconds[None])
    if best[1] <= 0:
        what = N_(
            "up to {size} MB, larger arrays did not take longer, so the bandwidth can't be known; measure larger ones"
        )
        raise ClusterConfigError(_(what, size=three(table.bytes.max() / 1e6)))
    picks = np.random.default_rng(0).integers(len(seconds), size=(_RESAMPLES, len(seconds)))
    picks = picks[np.linalg.matrix_rank(columns[picks] / columns.max(axis=0)) == len(parts)]
    many = _solve(columns[picks], seconds[picks])
    tail = 100 * (1 - _LEVEL) / 2
    low, high = np.percentile(many[:, :2], [tail, 100 - tail], axis=0)
    widest = (1 / high[1], 1 / low[1] if low[1] > 0 else math.inf)
    return Fit(
        algorithm,
        float(best[0]),
        (float(low[0]), float(high[0])),
        float(1 / best[1]),
        (float(widest[0]), float(widest[1])),
        float(best[2]) if len(parts) > 2 else 0.0,
        float(np.median(np.abs(columns @ best / seconds - 1))),
        len(seconds),
    )


def _checked(measurements: pandas.DataFrame, algorithm: str) -> pandas.DataFrame:
    missing = [name for name in _COLUMNS if name not in getattr(measurements, "columns", ())]
    if missing:
        what = N_("measurements without a column {name!r}; it takes workers, bytes and seconds")
        raise ClusterConfigError(_(what, name=missing[0]))
    table = measurements[list(_COLUMNS)]
    for name, least in (("workers", 1), ("bytes", 1), ("seconds", 0)):
        values = table[name].to_numpy(np.float64)
        wrong = ~(np.isfinite(values) & (values >= least)) | ((values <= 0) & (name == "seconds"))
        if wrong.any():
            what = N_("measurement {row} has {name}={value:g}; leave it out")
            raise ClusterConfigError(_(what, row=int(wrong.argmax()), name=name, value=values[wrong][0]))
    if not len(table) or table.workers.max() < 2:
        raise ClusterConfigError(_("no measurement with two workers or more: one worker alone sends nothing"))
    if algorithm not in ALGORITHMS:
        check(2, 1, algorithm, 1)
    sizes = table.bytes[table.workers > 1].unique()
    if len(sizes) < 2:
        what = N_(
            "all measurements are of {size:,.0f} bytes, which does not separate latency from bandwidth; vary the size"
        )
        raise ClusterConfigError(_(what, size=sizes[0]))
    return table


def _solve(columns: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Robust fits side by side: columns `(fits, rows, unknowns)`, seconds `(fits, rows)`, to `(fits, unknowns)`."""
    expected, weights = seconds, np.ones_like(seconds)
    for __ in range(_ROUNDS):
        found = _nonnegative(columns / expected[:, :, None], seconds / expected, weights)
        # Relative to what is expected: relative to what was measured, a timing that is too short would count for more.
        expected = np.maximum(np.einsum("frk,fk->fr", columns, found), 0.1 * seconds)
        errors = np.abs(seconds / expected - 1)
        # The median of |error| estimates the standard deviation, undisturbed by outliers.
        spread = np.maximum(1.4826 * np.median(errors, axis=1, keepdims=True), 1e-12)
        weights = np.minimum(1.0, _HUBER * spread / np.maximum(errors, 1e-12))
    return found


def _nonnegative(scaled: np.ndarray, target: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Least squares of `scaled @ x = target`, x >= 0: the best of the solutions with some of the unknowns at 0."""
    fits, _, unknowns = scaled.shape
    best, least = np.zeros((fits, unknowns)), np.full(fits, np.inf)
    for count in range(1, unknowns + 1):
        for kept in itertools.combinations(range(unknowns), count):
            part = scaled[:, :, kept]
            size = np.sqrt(np.einsum("frk,frk->fk", part, part))[:, None, :]
            size = np.where(size > 0, size, 1.0)
            unit = part / size  # columns of like size keep the equations well conditioned
            left = np.einsum("fr,frk,frl->fkl", weights, unit, unit)
            right = np.einsum("fr,frk->fk", weights * target, unit)
            found = np.einsum("fkl,fl->fk", np.linalg.pinv(left, hermitian=True), right) / size[:, 0]
            loss = np.einsum("fr,fr->f", weights, (np.einsum("frk,fk->fr", part, found) - target) ** 2)
            better = (found >= 0).all(axis=1) & (loss < least)
            least = np.where(better, loss, least)
            fresh = np.zeros((fits, unknowns))
            fresh[:, kept] = found
            best = np.where(better[:, None], fresh, best)
    return best
