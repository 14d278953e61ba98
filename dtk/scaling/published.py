"""Scaling efficiencies that were published, and what the model says of them: parameters in, nothing tuned.

Where each parameter comes from, and which had to be assumed, is in `docs/explanation/scaling_model.md`, which holds the
table that `compare` returns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dtk.scaling.job import Cluster, Job
from dtk.scaling.links import Link, ethernet
from dtk.scaling.prediction import predict
from dtk.scaling.stragglers import MOST_SPREAD, slowest_mean

if TYPE_CHECKING:
    import pandas

__all__ = ["RESULTS", "Result", "compare", "efficiency", "spread_of"]


@dataclass(frozen=True)
class Result:
    """An efficiency at `workers` GPUs, relative to `base` GPUs, as published, and what it was measured on."""

    paper: str
    model: str
    workers: int
    base: int
    published: float
    job: Job
    cluster: Cluster


def spread_of(lost: float, workers: int) -> float:
    """The spread of workers of whose throughput the slowest costs that share: at most, if other things cost some of it.

    >>> round(slowest_mean(8, spread_of(0.05, 8)), 4) == round(1 / 0.95, 4)
    True
    """
    low, high = 0.0, MOST_SPREAD
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if slowest_mean(workers, middle) < 1 / (1 - lost) else (low, middle)
    return low


# One machine with 8 P100, 64 examples each, images/s (TensorFlow's benchmarks, May 2017): ResNet-50 on 1 and 8.
_REAL, _SYNTHETIC = spread_of(1 - 1630 / (8 * 218), 8), spread_of(1 - 1734 / (8 * 219), 8)
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


def efficiency(result: Result, job: Job | None = None, cluster: Cluster | None = None) -> float:
    """The predicted throughput of a worker, relative to that at `base`; with another job or cluster where given."""
    table = predict(job or result.job, cluster or result.cluster, [result.base, result.workers])
    rates = table.throughput / table.workers
    return float(rates.iloc[1] / rates.iloc[0])


def compare() -> pandas.DataFrame:
    """Scaling efficiencies that were published, and what the model predicts for them; nothing is tuned.

    Returns:
        A row for each result. Columns: paper, model, workers, published, predicted (efficiencies, from 0 to 1), points
        (predicted minus published, in percentage points); and predicted with one parameter changed: slower_network (its
        bandwidth times 0.8), more_spread (twice as much), no_overlap. Sources are in docs/explanation/scaling_model.md.
    """
    import pandas

    rows = []
    for result in RESULTS:
        link, job = result.cluster.link, result.job
        slower = replace(result.cluster, link=replace(link, bandwidth=0.8 * link.bandwidth))
        predicted = efficiency(result)
        row: dict[str, object] = {
            "paper": result.paper,
            "model": result.model,
            "workers": result.workers,
            "published": result.published,
            "predicted": predicted,
            "points": 100 * (predicted - result.published),
            "slower_network": efficiency(result, cluster=slower),
            "more_spread": efficiency(result, replace(job, spread=2 * job.spread)),
            "no_overlap": efficiency(result, replace(job, overlap=0.0)),
        }
        rows.append(row)
    return pandas.DataFrame(rows)
