"""Synchronous SGD played message by message, to check what `dtk.scaling.prediction` computes by formula.

What the formulas take together, this takes apart: every worker has its own seconds of computation in every step, sends
as soon as it has something to send, and begins its next step when its own last all-reduce has ended: on arrays, a row
of messages at a time. Rings, and halving and doubling; no trees.

Where the two differ from the formulas: without stragglers a ring, halving and doubling, and rings in machines whose
links are alike are exact. With stragglers the formula is an upper bound for the communication: messages for the slowest
worker may have arrived before it begins. `docs/explanation/scaling_model.md` has the sizes, `tests/test_simulate.py`
the limits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dtk.scaling.job import Cluster, Job, Link
from dtk.scaling.prediction import RESULTS, Result, compare_published, efficiency

if TYPE_CHECKING:
    import pandas

__all__ = ["all_reduce_ends", "simulate", "simulated"]


def simulate(job: Job, cluster: Cluster, workers: int, steps: int = 20, seed: int = 0) -> pandas.DataFrame:
    """A row a step: step, from 1; seconds, from the end of the step before to its end on the last worker; slowest, the
    longest computation of a worker in it, in s.

    Machines are full, and of halving and doubling their number is a power of 2.

    >>> job = Job(per_example=0.001, batch=100, gradient_bytes=1e8)
    >>> simulate(job, Cluster(), workers=8, steps=2).round(4)
       step  seconds  slowest
    0     1   0.1142      0.1
    1     2   0.1142      0.1
    """
    import pandas

    ends = _Player(cluster, workers)
    rows, begin = [], np.zeros(workers)
    for step, compute in enumerate(_computations(job, cluster, workers, steps, seed), start=1):
        forward, backward = compute * (1 - job.backward), compute * job.backward
        end = np.zeros(workers)
        for share, size in zip(job.shares, job.buckets, strict=True):
            end = ends(np.maximum(end, begin + forward + share * backward), size)
        finish = np.maximum(end, begin + compute)
        rows.append((step, finish.max() - begin.max(), compute.max()))
        begin = finish
    return pandas.DataFrame(rows, columns=["step", "seconds", "slowest"])


def _computations(job: Job, cluster: Cluster, workers: int, steps: int, seed: int) -> Iterator[np.ndarray]:
    """Each step's seconds of computation, `(workers,)`."""
    random = np.random.default_rng(seed)
    mean, sigma = job.seconds(job.batch), math.sqrt(math.log1p(job.spread**2))
    for _ in range(steps):
        yield mean * np.exp(sigma * random.standard_normal(workers) - 0.5 * sigma**2)


def all_reduce_ends(cluster: Cluster, ready: np.ndarray, size: float) -> np.ndarray:
    """When each worker has the sums of an all-reduce of `size` bytes that it can begin at `ready`: `(workers,)`, s."""
    return _Player(cluster, len(ready))(np.asarray(ready, np.float64), size)


class _Player:
    """All-reduces one after the other over the same links; remembers until when each link is busy."""

    def __init__(self, cluster: Cluster, workers: int):
        self._cluster, self._workers = cluster, workers
        self._each = min(cluster.per_machine, workers)
        self._near = cluster.link if cluster.inside is None else cluster.inside
        assert workers % self._each == 0
        assert cluster.algorithm in ("ring", "halving_doubling")
        self._busy = np.zeros(workers)

    def __call__(self, ready: np.ndarray, size: float) -> np.ndarray:
        if self._workers == 1 or size == 0:
            return ready
        cluster, machines = self._cluster, self._workers // self._each
        if cluster.algorithm == "ring" or machines == 1:
            links = _hops(cluster, self._workers)
            if machines == 1 and cluster.algorithm != "ring":
                return self._flat(self._near, ready, size)
            return self._ring(links, ready, size)
        if self._each == 1:
            return self._flat(cluster.link, ready, size)
        # Reduce and scatter inside of the machines, all-reduce each worker's part across, gather inside.
        grid = ready.reshape(machines, self._each)
        grid = _rounds(grid, self._near, size / self._each, self._each - 1)
        part = Link("a share", cluster.link.latency, cluster.link.bandwidth / self._each)
        columns = [
            _Player(Cluster(part, cluster.algorithm), machines)(grid[:, column], size / self._each)
            for column in range(self._each)
        ]
        return _rounds(np.stack(columns, axis=1), self._near, size / self._each, self._each - 1).ravel()

    def _flat(self, link: Link, ready: np.ndarray, size: float) -> np.ndarray:
        end = ready
        count = int(math.log2(self._workers))
        for power in [*reversed(range(count)), *range(count)]:
            partner = np.arange(self._workers) ^ (1 << power)
            seconds = link.latency + size * 2.0 ** (power - count) / link.bandwidth
            end = np.maximum(end, end[partner]) + seconds
        return end

    def _ring(self, links: list[Link], ready: np.ndarray, size: float) -> np.ndarray:
        latency = np.array([link.latency for link in links])
        transfer = size / self._workers / np.array([link.bandwidth for link in links])
        have, busy = ready, self._busy
        for _ in range(2 * (self._workers - 1)):
            start = np.maximum(have, busy)
            busy = start + transfer
            have = np.roll(busy + latency, 1)
        self._busy = busy
        return np.maximum(have, ready)


def _hops(cluster: Cluster, workers: int) -> list[Link]:
    """The link from each worker of a ring to the next: the last of a machine sends to the next machine."""
    near = cluster.link if cluster.inside is None else cluster.inside
    each = min(cluster.per_machine, workers)
    if workers == each:
        return [near] * workers if cluster.per_machine > 1 else [cluster.link] * workers
    return [cluster.link if (worker + 1) % each == 0 else near for worker in range(workers)]


def _rounds(ready: np.ndarray, link: Link, chunk: float, rounds: int) -> np.ndarray:
    """Half a ring in each row: reduce-scatter or all-gather. ready: `(machines, workers)`."""
    have, busy = ready, ready
    for _ in range(rounds):
        busy = np.maximum(have, busy) + chunk / link.bandwidth
        have = np.roll(busy + link.latency, 1, axis=1)
    return np.maximum(have, ready)


def simulated(steps: int = 10) -> pandas.DataFrame:
    """The table of published results (`dtk.scaling.prediction`) with more columns: so many steps played, and what
    changes with one parameter: slower_network (its bandwidth times 0.8), more_spread (twice as much), no_overlap."""
    table = compare_published()
    table["simulated"] = [_played(result, steps) for result in RESULTS]
    for name, changed in _CHANGED.items():
        jobs = [changed(result.job, result.cluster) for result in RESULTS]
        table[name] = [efficiency(*job, r.base, r.workers) for job, r in zip(jobs, RESULTS, strict=True)]
    return table


_CHANGED: dict[str, Callable[[Job, Cluster], tuple[Job, Cluster]]] = {
    "slower_network": lambda job, cluster: (
        job,
        replace(cluster, link=replace(cluster.link, bandwidth=0.8 * cluster.link.bandwidth)),
    ),
    "more_spread": lambda job, cluster: (replace(job, spread=2 * job.spread), cluster),
    "no_overlap": lambda job, cluster: (replace(job, overlap=0.0), cluster),
}


def _played(result: Result, steps: int) -> float:
    few, many = (simulate(result.job, result.cluster, n, steps).seconds.mean() for n in (result.base, result.workers))
    return few / many
