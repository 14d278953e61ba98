"""Step time and throughput for numbers of workers that were not run, up to 10,000, and what limits them.

A step of synchronous SGD: every replica computes; the slowest decides; gradients become ready one bucket after the
other during the backward pass, and are all-reduced in that order (`dtk.scaling.job` has the formulas of both), one at a
time, from the moment the slowest replica has them. What of that comes after the backward pass is added to the step. The
mean over the slowest replica's distribution is taken of the whole step, not of its parts. To get equally far with a
batch B takes 1 + B / Bc times the examples that a small batch takes, where Bc is the critical batch (McCandlish et al.
2018, "An Empirical Model of Large-Batch Training", sections 2.2 and 2.3).

`docs/explanation/scaling_model.md` says what is left out, compares with published efficiencies, with nothing tuned, and
has the sources of their parameters.

Latency and bandwidth come from measured all-reduces: their formulas are linear in latency and seconds a byte, so

    seconds = overhead + steps × latency + bytes × (1 / bandwidth)

is fitted by weighted least squares with no coefficient below 0. Errors count relative to the seconds expected, because
a timing of 100 ms is off by more than one of 1 ms, and less where they are large (Huber's weights, from 1.345 standard
deviations on), because now and then another process has the core.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas

from dtk.errors import ClusterConfigError
from dtk.language import N_, _, three
from dtk.scaling.job import Cluster, Job, Link, ethernet, slowest, slowest_mean

LIMITS = (N_("compute"), N_("straggler"), N_("bandwidth"), N_("latency"), N_("batch too large"))
TOLERATED = 0.1  # of the ideal; as long as no more is lost, nothing but the computation limits


def predict(job: Job, cluster: Cluster, workers: Iterable[int]) -> pandas.DataFrame:
    """Step time and throughput for numbers of workers that were not run, and what limits them.

    Weak scaling: each worker has the job's batch. For a global batch B that n workers share, predict a job of B / n.

    Args:
        job: what a replica does in a step.
        cluster: what connects the workers.
        workers: numbers of workers, each from 1 to 10,000.

    Returns:
        A row for each number of workers, in the order given. Columns:

        - workers, global_batch (examples)
        - seconds: a step's mean, and its parts in s, which add up to it: compute, straggler (waiting for the slowest),
          latency and bandwidth (of the communication, what the backward pass does not hide)
        - throughput and ideal (n times one worker's), in examples/s; efficiency: throughput over ideal
        - useful: what an example is worth, in examples of one worker's batch
        - limit: what costs most, one of "compute", "straggler", "bandwidth", "latency" and "batch too large", once more
          than a tenth of the ideal is lost or the global batch is beyond the critical one; otherwise "compute".
        - slowed_by: the same for examples/s alone, which no batch is too large for

    Raises:
        ClusterConfigError: what can't be computed.

    >>> from dtk.scaling.job import ETHERNET_100
    >>> job = Job(per_example=0.001, batch=100, gradient_bytes=1e8, spread=0.05)
    >>> table = predict(job, Cluster(ETHERNET_100), [1, 8, 64, 1000])
    >>> table[["workers", "throughput", "efficiency", "limit"]].round(2)
       workers  throughput  efficiency      limit
    0        1     1000.00        1.00    compute
    1        8     6585.18        0.82  bandwidth
    2       64    49296.33        0.77  bandwidth
    3     1000   619540.10        0.62    latency
    """
    return pandas.DataFrame([_row(job, cluster, count) for count in workers])


def _row(job: Job, cluster: Cluster, workers: int) -> dict[str, Any]:
    costs = [cluster.all_reduce(workers, size) for size in job.buckets]  # which refuses what is no number of workers
    compute = job.seconds(job.batch)
    values, weights = slowest(workers, job.spread)
    slow, ends = values * compute, np.zeros_like(values)  # s, of the slowest replica, and of its all-reduces so far
    for share, cost in zip(job.shares, costs, strict=True):
        ends = np.maximum(ends, slow * (1 - job.backward) + share * slow * job.backward) + cost.seconds
    last, seconds = float((slow * weights).sum()), float((np.maximum(ends, slow) * weights).sum())
    whole = sum(cost.seconds for cost in costs)
    waits = sum(cost.latency for cost in costs) / whole if whole else 0.0
    total, ideal, critical = job.batch * workers, job.batch * workers / compute, job.critical_batch
    row: dict[str, Any] = {
        "workers": workers,
        "global_batch": total,
        "seconds": seconds,
        "compute": compute,
        "straggler": max(0.0, last - compute),
        "latency": max(0.0, seconds - last) * waits,
        "bandwidth": max(0.0, seconds - last) * (1 - waits),
        "throughput": total / seconds,
        "ideal": ideal,
        "efficiency": total / seconds / ideal,
        "useful": 1.0 if critical is None else (job.batch + critical) / (total + critical),
    }
    row["limit"], row["slowed_by"] = _limit(row, critical), _limit(row, None)
    return row


def _limit(row: dict[str, Any], critical: float | None) -> str:
    """What costs most, compared with the ideal: seconds of the step; for examples that are worth less, as many."""
    large = critical is not None and row["global_batch"] > critical
    if row["efficiency"] >= 1 - TOLERATED and not large:
        return LIMITS[0]
    lost = {"compute": 0.0, **{name: row[name] for name in ("straggler", "bandwidth", "latency")}}
    lost["batch too large"] = row["seconds"] * (1 / row["useful"] - 1) if large else 0.0
    return max(LIMITS, key=lambda name: lost[name])


_HUBER, _ROUNDS, _RESAMPLES, _LEVEL = 1.345, 8, 300, 0.95
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

    def __str__(self) -> str:
        what = N_(
            "{algorithm}: latency {latency} µs (95 % interval {low} to {high}), bandwidth {bandwidth} GB/s ({slow} to "
            "{fast}), {rows} measurements"
        )
        latency, low, high = (three(each * 1e6) for each in (self.latency, *self.latency_interval))
        bandwidth, slow, fast = (three(each / 1e9) for each in (self.bandwidth, *self.bandwidth_interval))
        numbers = {"latency": latency, "low": low, "high": high, "bandwidth": bandwidth, "slow": slow, "fast": fast}
        return _(what, algorithm=self.algorithm, rows=self.rows, **numbers)


def fit(measurements: pandas.DataFrame, algorithm: str = "ring") -> Fit:
    """Latency and bandwidth of a link, from all-reduces that were timed (`dtk.benchmark_allreduce`).

    Args:
        measurements: a row each, with the columns workers, bytes (of the whole array, on each worker) and seconds. Rows
            with one worker say what a call costs without communication: that is fitted as `overhead`, and is part of
            the latency where there are none.
        algorithm: "ring", "halving_doubling" or "tree"; the formulas are Hockney's (`dtk.scaling.job`).

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
    table, cluster = _checked(measurements), Cluster(_UNIT, algorithm)
    costs = [cluster.all_reduce(int(row.workers), row.bytes) for row in table.itertuples()]
    parts = [[cost.latency for cost in costs], [cost.transfer for cost in costs]]
    if (table.workers == 1).any():
        parts.append([1.0] * len(costs))
    columns, seconds = np.array(parts).T, table.seconds.to_numpy(np.float64)
    (best,) = _solve(columns[None], seconds[None])
    latency, per_byte, *overhead = best.tolist()
    if per_byte <= 0:
        what = N_(
            "up to {size} MB, larger arrays did not take longer, so the bandwidth can't be known; measure larger ones"
        )
        raise ClusterConfigError(_(what, size=three(table.bytes.max() / 1e6)))
    picks = np.random.default_rng(0).integers(len(seconds), size=(_RESAMPLES, len(seconds)))
    picks = picks[np.linalg.matrix_rank(columns[picks] / columns.max(axis=0)) == len(parts)]
    many = _solve(columns[picks], seconds[picks])
    tail = 100 * (1 - _LEVEL) / 2
    low, high = np.percentile(many[:, :2], [tail, 100 - tail], axis=0).tolist()
    least, most = 1 / high[1], 1 / low[1] if low[1] > 0 else math.inf  # of the bandwidth
    error = float(np.median(np.abs(columns @ best / seconds - 1)))
    found = latency, (low[0], high[0]), 1 / per_byte, (least, most)
    return Fit(algorithm, *found, sum(overhead), error, len(seconds))


def _checked(measurements: pandas.DataFrame) -> pandas.DataFrame:
    table = measurements[["workers", "bytes", "seconds"]]
    for name, least in (("workers", 1), ("bytes", 1), ("seconds", math.ulp(0))):
        values = table[name].to_numpy(np.float64)
        wrong = ~(np.isfinite(values) & (values >= least))
        if wrong.any():
            what = N_("measurement {row} has {name}={value:g}; leave it out")
            raise ClusterConfigError(_(what, row=int(wrong.argmax()), name=name, value=values[wrong][0]))
    sizes, least = table.bytes[table.workers > 1].nunique(), 5 if (table.workers == 1).any() else 4
    if sizes < 2 or len(table) < least:  # two rows more than there are unknowns
        what = N_(
            "measurements: {rows}, sizes with two workers or more: {sizes}; to tell latency from bandwidth it takes "
            "{least} measurements and two sizes"
        )
        raise ClusterConfigError(_(what, rows=len(table), sizes=sizes, least=least))
    return table


def _solve(columns: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Fit columns, `(fits, rows, unknowns)`, robustly to seconds, `(fits, rows)`, with no unknown below 0."""
    expected, weights = seconds, np.ones_like(seconds)
    for __ in range(_ROUNDS):
        scale = np.sqrt(weights) / expected
        found = _nonnegative(columns * scale[..., None], seconds * scale)
        # Relative to what is expected: relative to what was measured, a timing that is too short would count for more.
        expected = np.maximum((columns @ found[..., None])[..., 0], 0.1 * seconds)
        errors = np.maximum(np.abs(seconds / expected - 1), 1e-12)
        # The median of |error| estimates the standard deviation, undisturbed by outliers.
        weights = np.minimum(1.0, _HUBER * 1.4826 * np.median(errors, axis=1, keepdims=True) / errors)
    return found


def _nonnegative(columns: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Solve `columns @ x = target` by least squares, x >= 0: what would be negative is 0, the lowest first."""
    size = np.linalg.norm(columns, axis=1)
    kept = size > 0
    while True:
        found = kept * (np.linalg.pinv(columns * kept[:, None]) @ target[..., None])[..., 0]
        below = np.flatnonzero(found.min(axis=1) < 0)
        if not len(below):
            return found
        kept[below, (found * size)[below].argmin(axis=1)] = False


class Result(NamedTuple):
    """An efficiency at `workers` GPUs, relative to `base` GPUs, as published, and what it was measured on."""

    paper: str
    model: str
    workers: int
    base: int
    published: float
    job: Job
    cluster: Cluster

    @property
    def predicted(self) -> float:
        few, many = predict(self.job, self.cluster, [self.base, self.workers]).efficiency
        return float(many / few)


# How much workers' computation varies is nowhere published. One machine with 8 P100, 64 examples each (TensorFlow's
# benchmarks, May 2017, ResNet-50), made 1,630 of 8 × 218 images/s with real data, 1,734 of 8 × 219 with synthetic data;
# these are the spreads with which waiting for the slowest alone costs as much.
_REAL, _SYNTHETIC = 0.048020, 0.007266
_FLOAT = 4  # bytes

_GOYAL_STEP = 29 * 3600 / (90 * 1_281_167 / 256)  # s: 29 hours for 90 epochs in batches of 256 on 8 GPUs
_GOYAL = Job(
    per_example=_GOYAL_STEP / 32 / slowest_mean(8, _REAL),
    batch=32,
    gradient_bytes=(100e6 / 50,) * 50,
    backward=0.120 / _GOYAL_STEP,
    overlap=1.0,
    spread=_REAL,
)
_BIG_BASIN = Cluster(ethernet(50), "halving_doubling", 8, Link("NVLink 1", 3.4e-6, 20e9))

_PASCAL = Cluster(ethernet(25), "ring", 4, Link("PCI Express 3", 5.7e-6, 15.75e9))
_RESNET_101 = 1 / 219 + (1 / 91.8 - 1 / 219) * (7.6 - 3.8) / (11.3 - 3.8)  # s an image, between ResNet-50 and -152


def _horovod(seconds: float, parameters: float) -> Job:
    return Job(seconds, 64, parameters * _FLOAT, pack_bytes=64e6, overlap=1.0, spread=_SYNTHETIC)


# The backward pass of VGG-16 begins with the layers that hold most of the parameters and little of the work.
_VGG = replace(
    _horovod(1 / 154, 0),
    gradient_bytes=tuple(_FLOAT * count for count in (4_097_000 + 16_781_312, 102_764_544, 14_714_688)),
    ready=(0.002, 0.008, 1.0),
)
_INCEPTION, _RESNET = _horovod(1 / 142, 23_851_784), _horovod(_RESNET_101, 44_707_176)

RESULTS = (
    Result("Goyal et al. 2017", "ResNet-50", 256, 8, 0.90, _GOYAL, _BIG_BASIN),
    Result("Horovod, 32 servers", "Inception V3", 128, 1, 0.90, _INCEPTION, _PASCAL),
    Result("Horovod, 32 servers", "ResNet-101", 128, 1, 0.90, _RESNET, _PASCAL),
    Result("Horovod, 32 servers", "VGG-16", 128, 1, 0.79, _VGG, _PASCAL),
    Result("Horovod, 128 servers", "Inception V3", 512, 1, 0.90, _INCEPTION, _PASCAL),
    Result("Horovod, 128 servers", "ResNet-101", 512, 1, 0.90, _RESNET, _PASCAL),
    Result("Horovod, 128 servers", "VGG-16", 512, 1, 0.68, _VGG, _PASCAL),
)


def compare_published() -> pandas.DataFrame:
    """Scaling efficiencies that were published, and what the model predicts for them; nothing is tuned.

    Returns:
        A row for each result. Columns: paper, model, workers, published, predicted (efficiencies, from 0 to 1), points
        (predicted minus published, in percentage points). Sources are in docs/explanation/scaling_model.md.
    """
    table = pandas.DataFrame(RESULTS)[["paper", "model", "workers", "published"]]
    table["predicted"] = [result.predicted for result in RESULTS]
    return table.assign(points=100 * (table.predicted - table.published))
