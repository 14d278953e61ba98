"""What a predicted step is made of: what a replica does in it, and what connects the replicas."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dtk.analysis.communication import Cost, all_reduce, check
from dtk.analysis.links import ETHERNET_100, Link
from dtk.analysis.stragglers import MOST_SPREAD
from dtk.errors import ClusterConfigError

__all__ = ["Cluster", "Job"]


@dataclass(frozen=True)
class Job:
    """What a replica does in a step.

    per_example, fixed: s; a step's computation takes fixed + per_example × examples, on average. batch: examples a
    replica. gradient_bytes: a number, or the buckets in the order in which the backward pass makes them. pack_bytes:
    a number is cut into equal buckets of at most so many bytes (`bytes_per_pack` of TensorFlow); 0: one. backward: the
    share of the computation that is the backward pass. ready: for each bucket the share of the backward pass after
    which it is ready; by its bytes unless given. overlap: all-reduces may run in the last `overlap` of the backward
    pass; 0: only after it, 1: as soon as a bucket is ready. spread: standard deviation over mean of a replica's
    computation. cores: that a replica keeps busy. critical_batch: Bc, in examples; None: no limit.
    """

    per_example: float
    batch: float
    gradient_bytes: float | Sequence[float]
    fixed: float = 0.0
    pack_bytes: float = 0.0
    backward: float = 2 / 3
    ready: Sequence[float] | None = None
    overlap: float = 0.0
    spread: float = 0.0
    cores: float = 1.0
    critical_batch: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("per_example", self.per_example), ("fixed", self.fixed)):
            if not 0 <= value < math.inf:
                raise ClusterConfigError(f"{name}={value!r}, but it takes seconds from 0 up")
        critical = 1.0 if self.critical_batch is None else self.critical_batch
        for name, value in (("batch", self.batch), ("cores", self.cores), ("critical_batch", critical)):
            if not 0 < value < math.inf:
                raise ClusterConfigError(f"{name}={value!r}, but it takes a number above 0")
        for name, value, most in (
            ("backward", self.backward, 1.0),
            ("overlap", self.overlap, 1.0),
            ("spread", self.spread, MOST_SPREAD),
        ):
            if not 0 <= value <= most:
                raise ClusterConfigError(f"{name}={value!r}, but it takes a number from 0 to {most:g}")
        if self.seconds(self.batch) <= 0:
            raise ClusterConfigError("per_example=0 and fixed=0: a step that computes nothing has no throughput")
        if not self.buckets or not all(0 <= size < math.inf for size in self.buckets):
            raise ClusterConfigError(f"gradient_bytes={self.gradient_bytes!r}, but it takes bytes from 0 up")
        shares = self.shares
        if len(shares) != len(self.buckets) or not all(0 <= share <= 1 for share in shares):
            raise ClusterConfigError(
                f"ready has {len(shares)} numbers for {len(self.buckets)} buckets; it takes one each, from 0 to 1"
            )

    def seconds(self, examples: float) -> float:
        """The mean computation of a step with that many examples, in s."""
        return self.fixed + self.per_example * examples

    @property
    def buckets(self) -> tuple[float, ...]:
        """The bytes of each all-reduce, in order."""
        if isinstance(self.gradient_bytes, Sequence):
            return tuple(self.gradient_bytes)
        count = max(1, math.ceil(self.gradient_bytes / self.pack_bytes)) if self.pack_bytes > 0 else 1
        return (self.gradient_bytes / count,) * count

    @property
    def shares(self) -> tuple[float, ...]:
        """How much of the backward pass is done when each bucket may be all-reduced."""
        made = self.ready
        if made is None:
            total = sum(self.buckets)
            made = (
                tuple(float(each) for each in np.cumsum(self.buckets) / total) if total else (1.0,) * len(self.buckets)
            )
        return tuple(max(share, 1 - self.overlap) for share in made)


@dataclass(frozen=True)
class Cluster:
    """What connects the workers. algorithm, per_machine, inside: as for `communication.all_reduce`.

    cores: of the one machine that all workers run on; None: each worker has cores of its own.
    """

    link: Link = ETHERNET_100
    algorithm: str = "ring"
    per_machine: int = 1
    inside: Link | None = None
    cores: float | None = None

    def __post_init__(self) -> None:
        check(1, 0, self.algorithm, self.per_machine)
        if self.cores is not None and not 0 < self.cores < math.inf:
            raise ClusterConfigError(f"cores={self.cores!r}, but it takes a number above 0, or None")

    def all_reduce(self, workers: int, size: float) -> Cost:
        return all_reduce(workers, size, self.link, self.algorithm, self.per_machine, self.inside)

    def slowdown(self, job: Job, workers: int) -> float:
        """How many times longer the computation takes because the workers share the machine's cores."""
        return 1.0 if self.cores is None else max(1.0, workers * job.cores / self.cores)
