"""What a predicted step is made of: what a replica does in it, and what connects the replicas."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real

import numpy as np

from dtk.errors import ClusterConfigError
from dtk.language import N_, _
from dtk.scaling.communication import Cost, all_reduce, check
from dtk.scaling.links import ETHERNET_100, Link
from dtk.scaling.stragglers import MOST_SPREAD

__all__ = ["Cluster", "Job"]


def _in_range(name: str, value: object, least: float, most: float, what: str) -> None:
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not least <= value <= most or math.isinf(value):  # type: ignore[operator,arg-type]
        raise ClusterConfigError(_("{name}={value!r}, but it takes {what}", name=name, value=value, what=what))


@dataclass(frozen=True)
class Job:
    """What a replica does in a step.

    Attributes:
        per_example: s; a step's computation takes fixed + per_example × examples, on average.
        batch: examples per replica.
        gradient_bytes: a number, or the buckets in the order in which the backward pass makes them.
        fixed: s of computation in each step, whatever the batch.
        pack_bytes: cuts a number of gradient bytes into equal buckets of at most so many (`bytes_per_pack`); 0: one.
        backward: the share of the computation that is the backward pass.
        ready: for each bucket the share of the backward pass after which it is ready; None: by its bytes.
        overlap: all-reduces may run in the last `overlap` of the backward pass; 0: only after it, 1: as soon as a
            bucket is ready.
        spread: standard deviation over mean of a replica's computation, 0 to 2.
        cores: that a replica keeps busy.
        critical_batch: Bc, in examples (McCandlish et al. 2018); None: no limit.

    Raises:
        ClusterConfigError: a number out of its range.
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
        for name in ("per_example", "fixed"):
            _in_range(name, getattr(self, name), 0, math.inf, _("seconds from 0 up"))
        for name in ("batch", "cores", "critical_batch"):
            if getattr(self, name) is not None:
                _in_range(name, getattr(self, name), math.ulp(0), math.inf, _("a number above 0"))
        for name, most in (("backward", 1), ("overlap", 1), ("spread", MOST_SPREAD)):
            _in_range(name, getattr(self, name), 0, most, _("a number from 0 to {most:g}", most=most))
        _in_range("pack_bytes", self.pack_bytes, 0, math.inf, _("bytes from 0 up; 0 is one bucket"))
        if self.seconds(self.batch) <= 0:
            raise ClusterConfigError(_("per_example=0 and fixed=0: a step that computes nothing has no throughput"))
        sizes = np.asarray(self.gradient_bytes)
        if sizes.dtype.kind not in "iuf" or not sizes.size or not ((sizes >= 0) & np.isfinite(sizes)).all():
            what = N_("gradient_bytes={value!r}, but it takes bytes from 0 up")
            raise ClusterConfigError(_(what, value=self.gradient_bytes))
        shares = self.shares
        if len(shares) != len(self.buckets) or not all(0 <= share <= 1 for share in shares):
            what = N_("ready has {numbers} numbers for {buckets} buckets; it takes one each, from 0 to 1")
            raise ClusterConfigError(_(what, numbers=len(shares), buckets=len(self.buckets)))

    def seconds(self, examples: float) -> float:
        """The mean computation of a step with that many examples, in s."""
        return self.fixed + self.per_example * examples

    @property
    def buckets(self) -> tuple[float, ...]:
        """The bytes of each all-reduce, in order."""
        sizes = np.asarray(self.gradient_bytes, np.float64)
        if sizes.ndim:
            return tuple(sizes.tolist())
        count = max(1, math.ceil(sizes / self.pack_bytes)) if self.pack_bytes > 0 else 1
        return (float(sizes) / count,) * count

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
    """What connects the workers.

    Attributes:
        link: between machines.
        algorithm: of the all-reduce: "ring", "halving_doubling" or "tree".
        per_machine: workers on a machine.
        inside: the link between the workers of a machine; None: as between machines.
        cores: of the one machine that all workers run on; None: each worker has cores of its own.

    Raises:
        ClusterConfigError: a number out of its range, or an algorithm that is not known.
    """

    link: Link = ETHERNET_100
    algorithm: str = "ring"
    per_machine: int = 1
    inside: Link | None = None
    cores: float | None = None

    def __post_init__(self) -> None:
        check(1, 0, self.algorithm, self.per_machine)
        if self.cores is not None:
            _in_range("cores", self.cores, math.ulp(0), math.inf, _("a number above 0, or None"))

    def all_reduce(self, workers: int, size: float) -> Cost:
        return all_reduce(workers, size, self.link, self.algorithm, self.per_machine, self.inside)

    def slowdown(self, job: Job, workers: int) -> float:
        """How many times longer the computation takes because the workers share the machine's cores."""
        return 1.0 if self.cores is None else max(1.0, workers * job.cores / self.cores)
