"""Step time and throughput for numbers of workers that were not run, up to 10,000, and what limits them.

A step of synchronous SGD: every replica computes (`fixed` seconds, and `per_example` for each example); the slowest
decides (`dtk.scaling.stragglers`); gradients become ready one bucket after the other during the backward pass, and are
all-reduced in that order (`dtk.scaling.communication`), one at a time, from the moment the slowest replica has them.
What of that comes after the backward pass is added to the step. The mean over the slowest replica's distribution is
taken of the whole step, not of its parts. Left out: that communication takes time of the cores that compute, that a
fast worker's messages may be waiting when the slowest begins, and the input pipeline, callbacks and validation; those
that the seconds measured include are in `fixed`. `simulate` plays the step message by message.

Batches: the learning rate grows with the global batch (Goyal et al. 2017, the linear scaling rule), until the batch
nears the critical one, Bc. To get equally far with a batch B takes 1 + B / Bc times the examples that a small batch
takes, and a learning rate of the best one times 1 / (1 + Bc / B) (McCandlish et al. 2018, "An Empirical Model of
Large-Batch Training", sections 2.2 and 2.3): beyond Bc, more examples a second hardly mean more progress.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dtk.errors import ClusterConfigError
from dtk.language import N_, _
from dtk.scaling.communication import Cost, check
from dtk.scaling.job import Cluster, Job
from dtk.scaling.stragglers import slowest

if TYPE_CHECKING:
    import pandas

__all__ = ["LIMITS", "TOLERATED", "predict", "schedule"]

LIMITS = (N_("compute"), N_("straggler"), N_("bandwidth"), N_("latency"), N_("batch too large"))
TOLERATED = 0.1  # of the ideal; as long as no more is lost, nothing but the computation limits


def schedule(compute: np.ndarray, job: Job, costs: Sequence[Cost]) -> np.ndarray:
    """When the last all-reduce has ended, in s: `(points,)`, for each of the slowest replica's seconds `compute`."""
    forward, backward = compute * (1 - job.backward), compute * job.backward
    end = np.zeros_like(compute)
    for share, cost in zip(job.shares, costs, strict=True):
        end = np.maximum(end, forward + share * backward) + cost.seconds
    return np.maximum(end, compute)


def predict(job: Job, cluster: Cluster, workers: Iterable[int], scaling: str = "weak") -> pandas.DataFrame:
    """Step time and throughput for numbers of workers that were not run, and what limits them.

    Args:
        job: what a replica does in a step.
        cluster: what connects the workers.
        workers: numbers of workers, each from 1 to 10,000.
        scaling: "weak": the per-replica batch stays; "strong": job.batch is the global batch, which the workers share.

    Returns:
        A row for each number of workers, in the order given. Columns:

        - workers, batch (examples per replica), global_batch (examples)
        - seconds: a step's mean, and its parts in s, which add up to it: compute, straggler (waiting for the slowest),
          latency and bandwidth (of the communication, what the backward pass does not hide)
        - communication: the whole, in s
        - throughput, ceiling (without communication and stragglers), ideal (n times one worker's), in examples/s;
          efficiency: throughput over ideal
        - useful: what an example is worth, in examples of one worker's batch; learning_rate, in one worker's
        - limit: what costs most, one of "compute", "straggler", "bandwidth", "latency" and "batch too large", once more
          than a tenth of the ideal is lost or the global batch is beyond the critical one; otherwise "compute".
        - slowed_by: the same for examples/s alone, which no batch is too large for

    Raises:
        ClusterConfigError: what can't be computed, such as strong scaling to more workers than examples.

    >>> from dtk.scaling.links import ETHERNET_100
    >>> job = Job(per_example=0.001, batch=100, gradient_bytes=1e8, spread=0.05)
    >>> table = predict(job, Cluster(ETHERNET_100), [1, 8, 64, 1000])
    >>> table[["workers", "throughput", "efficiency", "limit"]].round(2)
       workers  throughput  efficiency      limit
    0        1     1000.00        1.00    compute
    1        8     6585.18        0.82  bandwidth
    2       64    49296.33        0.77  bandwidth
    3     1000   619540.10        0.62    latency
    """
    import pandas

    if scaling not in ("weak", "strong"):
        raise ClusterConfigError(_("scaling={scaling!r}, but it takes 'weak' or 'strong'", scaling=scaling))
    counts = list(workers)
    if not counts:
        raise ClusterConfigError(_("no number of workers given; it takes one or more, from 1 up"))
    return pandas.DataFrame([_row(job, cluster, count, scaling) for count in counts])


def _row(job: Job, cluster: Cluster, workers: int, scaling: str) -> dict[str, Any]:
    check(workers, 0, cluster.algorithm, cluster.per_machine)
    batch = job.batch if scaling == "weak" else job.batch / workers
    if batch < 1 and scaling == "strong":
        what = N_("{workers} workers for a global batch of {batch:g}: some have no example")
        raise ClusterConfigError(_(what, workers=workers, batch=job.batch))
    compute = job.seconds(batch) * cluster.slowdown(job, workers)
    values, weights = slowest(workers, job.spread)
    costs = [cluster.all_reduce(workers, size) for size in job.buckets]
    ends = schedule(values * compute, job, costs)
    last, seconds = compute * float((values * weights).sum()), float((ends * weights).sum())
    whole = sum(cost.seconds for cost in costs)
    waits = sum(cost.latency for cost in costs) / whole if whole else 0.0
    alone = job.seconds(job.batch) / job.batch  # s an example with one worker
    total, ideal = batch * workers, workers / alone
    useful, rate = 1.0, total / job.batch
    if job.critical_batch is not None:
        useful = (job.batch + job.critical_batch) / (total + job.critical_batch)
        rate = (1 + job.critical_batch / job.batch) / (1 + job.critical_batch / total)
    row: dict[str, Any] = {
        "workers": workers,
        "batch": batch,
        "global_batch": total,
        "seconds": seconds,
        "compute": compute,
        "straggler": max(0.0, last - compute),
        "latency": max(0.0, seconds - last) * waits,
        "bandwidth": max(0.0, seconds - last) * (1 - waits),
        "communication": whole,
        "throughput": total / seconds,
        "ceiling": total / compute,
        "ideal": ideal,
        "efficiency": total / seconds / ideal,
        "useful": useful,
        "learning_rate": rate,
    }
    row["limit"], row["slowed_by"] = _limit(row, job.critical_batch), _limit(row, None)
    return row


def _limit(row: dict[str, Any], critical: float | None) -> str:
    """What costs most, compared with the ideal: seconds of the step; for examples that are worth less, as many."""
    large = critical is not None and row["global_batch"] > critical
    if row["efficiency"] >= 1 - TOLERATED and not large:
        return LIMITS[0]
    lost = {name: row[name] for name in ("straggler", "bandwidth", "latency")}
    lost["compute"] = row["compute"] - row["global_batch"] / row["ideal"]
    lost["batch too large"] = row["seconds"] * (1 / row["useful"] - 1) if large else 0.0
    return max(LIMITS, key=lambda name: lost[name])
