"""What a predicted step is made of: what a replica does in it, the links between replicas, all-reduces, stragglers.

What an all-reduce costs is Hockney's model (1994, "The communication challenge for MPP: Intel Paragon and Meiko CS-2",
Parallel Computing 20): a message of m bytes takes latency + m / bandwidth. An all-reduce over n workers is then

| algorithm         | messages in a row | bytes out of a link | source                                                |
|-------------------|-------------------|---------------------|-------------------------------------------------------|
| ring              | 2 (n - 1)         | 2 m (n - 1) / n     | Patarasuk and Yuan 2009, J. Parallel Distrib. Comput. |
| halving, doubling | 2 ⌈log2 n⌉        | 2 m (n - 1) / n     | Thakur, Rabenseifner and Gropp 2005, IJHPCA 19(1)     |
| tree              | 2 ⌈log2 n⌉        | 2 m                 | Sanders, Speck and Träff 2009; NCCL from 2.4 on       |

2 m (n - 1) / n is the least that any all-reduce can send (Patarasuk and Yuan, section 3). For a number of workers that
is no power of 2, halving and doubling takes two steps more than for the power below (Goyal et al. 2017, section 4.1);
that some links then carry more is left out. The tree is NCCL's pair of binary trees, each for half the data: a worker
that has children in one is a leaf of the other, so no link carries more than 2 m. Its formula is the limit of
infinitely small chunks, as in NCCL's own choice of an algorithm (src/graph/tuning.cc).
The seconds for adding up numbers are not in the formulas: what was measured has them in its bandwidth.

A worker's seconds of computation in a step are taken as lognormal, with a mean and a coefficient of variation (the
standard deviation over the mean, `spread`), independent of the other workers' and of other steps. The distribution
function of the slowest of n is then F(t)^n, and its mean an integral over one variable (David and Nagaraja 2003,
"Order Statistics", section 3.1), computed by the trapezoidal rule. A worker that is always slow is another matter: then
each step takes as long as that worker's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import NamedTuple

import numpy as np

from dtk.errors import ClusterConfigError, one_of, whole_number
from dtk.language import N_, _, three

_ABOVE_0 = math.ulp(0)


def in_range(name: str, value: object, least: float = 0.0, most: float = math.inf) -> None:
    """Raise ClusterConfigError where `value` is no finite number from `least` to `most`."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not least <= value <= most or math.isinf(value):  # type: ignore[operator,arg-type]
        words = N_("{name}={value!r}: it takes a number from {least:g} to {most:g}")
        if least == _ABOVE_0:
            words = N_("{name}={value!r}: it takes a number above 0")
        raise ClusterConfigError(_(words, name=name, value=value, least=least, most=most))


@dataclass(frozen=True)
class Link:
    """A connection between two workers.

    Attributes:
        name: for figures and tables.
        latency: s per message.
        bandwidth: bytes/s in each direction, both at once.

    Raises:
        ClusterConfigError: a latency below 0, a bandwidth that is not above 0.
    """

    name: str
    latency: float
    bandwidth: float

    def __post_init__(self) -> None:
        in_range(f"{self.name}: latency", self.latency)
        in_range(f"{self.name}: bandwidth", self.bandwidth, _ABOVE_0)

    def __str__(self) -> str:
        delay = f"{three(self.latency * 1e6)} µs" if self.latency < 1e-3 else f"{three(self.latency * 1e3)} ms"
        return _("{link} ({delay}, {rate} GB/s)", link=self.name, delay=delay, rate=three(self.bandwidth / 1e9))


# NCCL's own figures for a step of a ring over a network and over NVLink (hwLat in src/graph/tuning.cc, protocol
# "Simple"); they hold for its protocol and a fast network card, not for gRPC on TCP, which is slower.
_NETWORK, _NVLINK = 14e-6, 3.4e-6


def ethernet(gigabits: float) -> Link:
    """Ethernet, nominal: the line rate, without headers or congestion, and NCCL's latency, 14 µs (src/graph/tuning.cc).

    Args:
        gigabits: line rate, in Gb/s.

    >>> print(ethernet(25))
    25 Gb/s Ethernet (14 µs, 3.12 GB/s)
    """
    return Link(f"{gigabits:g} Gb/s Ethernet", _NETWORK, gigabits * 1e9 / 8)


ETHERNET_10, ETHERNET_100, ETHERNET_400 = ethernet(10), ethernet(100), ethernet(400)
# Nominal: the fourth generation (H100) has 900 GB/s a GPU, both directions together.
H100_NVLINK = Link("NVLink", _NVLINK, 450e9)
LINKS = {link.name: link for link in (ETHERNET_10, ETHERNET_100, ETHERNET_400, H100_NVLINK)}

BIGGEST_CLUSTER = 10_000


class Cost(NamedTuple):
    """An all-reduce's cost. steps: messages one after the other. bytes: out of the busiest link. In s: latency and
    transfer, which the two take; `seconds` is their sum."""

    steps: int
    bytes: float
    latency: float
    transfer: float

    @property
    def seconds(self) -> float:
        return self.latency + self.transfer


ALGORITHMS = ("ring", "halving_doubling", "tree")


def _flat(algorithm: str, workers: int, size: float, link: Link) -> Cost:
    """An all-reduce over workers that one kind of link connects; the table above has the formulas."""
    rounds = 2 * math.ceil(math.log2(workers))
    steps, sent = {
        "ring": (2 * (workers - 1), 2 * size * (workers - 1) / workers),
        "halving_doubling": (rounds, 2 * size * (workers - 1) / workers),
        # Of two workers each is the root of one tree: half the bytes go up in one and down in the other.
        "tree": (rounds, size if workers == 2 else 2 * size),
    }[algorithm]
    return Cost(steps, sent, steps * link.latency, sent / link.bandwidth)


def _mixed_ring(workers: int, size: float, far: Link, near: Link, together: int) -> Cost:
    """A ring through machines: a chunk's way, or the slower link's bytes, whichever takes longer.

    A chunk makes 2 (n - 1) hops in a row, of which one in `together` leaves a machine. Meanwhile the slower link is
    busy with 2 (n - 1) chunks, and what of the hops' seconds is longer than that is latency.
    """
    hops = 2 * (workers - 1)
    across = math.ceil(hops / together)
    chunk = size / workers
    way = across * (far.latency + chunk / far.bandwidth) + (hops - across) * (near.latency + chunk / near.bandwidth)
    slower = far if far.bandwidth <= near.bandwidth else near
    transfer = hops * chunk / slower.bandwidth
    return Cost(hops, hops * chunk, max(slower.latency, way - transfer), transfer)


def check_count(name: str, value: float) -> None:
    """Raise ClusterConfigError for a number of workers that nothing can be computed for."""
    in_range(name, value, 1, BIGGEST_CLUSTER)
    if int(value) != value:  # 2.0 is as good as 2
        whole_number(name, value)


def slowest(workers: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the distribution of the slowest worker's time, in units of the mean time of one: values and their weights.

    Both `(points,)`; the weights add up to 1, so the mean of f(slowest) is `(weights * f(values)).sum()`.
    """
    if spread == 0:
        return np.ones(1), np.ones(1)
    at = np.linspace(-9.0, 13.0, 2001)  # standard normal quantiles
    tail = np.array([0.5 * math.erfc(abs(z) / math.sqrt(2)) for z in at])  # exact in both tails
    density, below = -0.5 * at**2 - 0.5 * math.log(2 * math.pi), np.where(at < 0, np.log(tail), np.log1p(-tail))
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


@dataclass(frozen=True)
class Job:
    """What a replica does in a step.

    Attributes:
        per_example: s; a step's computation takes per_example × batch, on average.
        batch: examples per replica.
        gradient_bytes: a number, or the buckets in the order in which the backward pass makes them.
        pack_bytes: cuts a number of gradient bytes into equal buckets of at most so many (`bytes_per_pack`); 0: one.
        backward: the share of the computation that is the backward pass.
        ready: for each bucket the share of the backward pass after which it is ready; None: by its bytes.
        overlap: all-reduces may run in the last `overlap` of the backward pass; 0: after it, 1: once a bucket is ready.
        spread: standard deviation over mean of a replica's computation, 0 to 2.
        critical_batch: Bc, in examples (McCandlish et al. 2018); None: no limit.

    Raises:
        ClusterConfigError: a number out of its range.
    """

    per_example: float
    batch: float
    gradient_bytes: float | Sequence[float]
    pack_bytes: float = 0.0
    backward: float = 2 / 3
    ready: Sequence[float] | None = None
    overlap: float = 0.0
    spread: float = 0.0
    critical_batch: float | None = None

    def __post_init__(self) -> None:
        for name in ("per_example", "batch"):
            in_range(name, getattr(self, name), _ABOVE_0)
        if self.critical_batch is not None:
            in_range("critical_batch", self.critical_batch, _ABOVE_0)
        for name, most in (("backward", 1), ("overlap", 1), ("spread", 2), ("pack_bytes", math.inf)):
            in_range(name, getattr(self, name), most=most)
        for size in np.asarray(self.gradient_bytes).ravel().tolist() or [None]:
            in_range("gradient_bytes", size)
        shares = self.shares
        if len(shares) != len(self.buckets) or not all(0 <= share <= 1 for share in shares):
            what = N_("ready has {numbers} numbers for {buckets} buckets; it takes one each, from 0 to 1")
            raise ClusterConfigError(_(what, numbers=len(shares), buckets=len(self.buckets)))

    def seconds(self, examples: float) -> float:
        """The mean computation of a step with that many examples, in s."""
        return self.per_example * examples

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
        done = np.cumsum(self.buckets)
        made = (done / done[-1] if done[-1] else np.ones(len(done))) if self.ready is None else self.ready
        return tuple(max(float(share), 1 - self.overlap) for share in made)


@dataclass(frozen=True)
class Cluster:
    """What connects the workers, each of which has its own cores.

    Attributes:
        link: between machines.
        algorithm: of the all-reduce: "ring", "halving_doubling" or "tree".
        per_machine: workers on a machine.
        inside: the link between the workers of a machine; None: as between machines.

    Raises:
        ClusterConfigError: a number out of its range, or an algorithm that is not known.
    """

    link: Link = ETHERNET_100
    algorithm: str = "ring"
    per_machine: int = 1
    inside: Link | None = None

    def __post_init__(self) -> None:
        check_count("per_machine", self.per_machine)
        one_of("algorithm", self.algorithm, ALGORITHMS)

    def all_reduce(self, workers: int, size: float) -> Cost:
        """Return the cost of an all-reduce of `size` bytes over that many workers: none with one, or without bytes.

        With several workers on a machine, the ring is one ring through all of them, which leaves each machine once and
        goes at the pace of the slower link. The others are hierarchical, as in Goyal et al. 2017, section 4.1, and
        Mikami et al. 2018: the workers of a machine reduce and scatter by a ring, the machines all-reduce, the workers
        of a machine gather. The last machine may have fewer workers; the cost is that of full ones.

        >>> link = Link("example", latency=0.001, bandwidth=1e6)
        >>> Cluster(link).all_reduce(2, 1e6)  # two workers exchange half the bytes twice
        Cost(steps=2, bytes=1000000.0, latency=0.002, transfer=1.0)
        >>> Cluster(link).all_reduce(4, 1e6)  # four a quarter six times
        Cost(steps=6, bytes=1500000.0, latency=0.006, transfer=1.5)
        >>> Cluster(link).all_reduce(1000, 1e6).steps, Cluster(link, "tree").all_reduce(1000, 1e6).steps
        (1998, 20)
        """
        check_count("workers", workers)
        if workers == 1 or size == 0:
            return Cost(0, 0.0, 0.0, 0.0)
        near = self.link if self.inside is None else self.inside
        together = min(self.per_machine, workers)
        machines = math.ceil(workers / together)
        if machines == 1 or together == 1:
            return _flat(self.algorithm, workers, size, near if machines == 1 else self.link)
        if self.algorithm == "ring":
            return _mixed_ring(workers, size, self.link, near, together)
        local, far = _flat("ring", together, size, near), _flat(self.algorithm, machines, size, self.link)
        return Cost(local.steps + far.steps, far.bytes, local.latency + far.latency, local.transfer + far.transfer)
