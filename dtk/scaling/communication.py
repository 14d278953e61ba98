"""What an all-reduce costs: messages one after the other, bytes through the busiest link, seconds.

Hockney's model (1994, "The communication challenge for MPP: Intel Paragon and Meiko CS-2", Parallel Computing 20):
a message of m bytes takes latency + m / bandwidth. An all-reduce of m bytes over n workers is then

| algorithm         | messages in a row | bytes out of a link | source                                                |
|-------------------|-------------------|---------------------|-------------------------------------------------------|
| ring              | 2 (n - 1)         | 2 m (n - 1) / n     | Patarasuk and Yuan 2009, J. Parallel Distrib. Comput. |
| halving, doubling | 2 ⌈log2 n⌉        | 2 m (n - 1) / n     | Thakur, Rabenseifner and Gropp 2005, IJHPCA 19(1)     |
| tree              | 2 ⌈log2 n⌉        | 2 m                 | Sanders, Speck and Träff 2009; NCCL from 2.4 on       |

2 m (n - 1) / n is the least that any all-reduce can send (Patarasuk and Yuan, section 3). For a number of workers that
is no power of 2, halving and doubling takes two steps more than for the power below (Goyal et al. 2017, section 4.1);
that some links then carry more is left out. The tree is NCCL's pair of binary trees, each for half the data: a worker
that has children in one is a leaf of the other, so no link carries more than 2 m. Its formula is the limit of
infinitely small chunks, as in NCCL's own choice of an algorithm (src/graph/tuning.cc); `simulate` says how
far real chunks are from it. The seconds for adding up numbers are not in the formulas: where they were in what was
measured, they are in the bandwidth.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import NamedTuple

from dtk.errors import ClusterConfigError
from dtk.language import N_, _
from dtk.scaling.links import Link

__all__ = ["ALGORITHMS", "BIGGEST_CLUSTER", "Cost", "Link", "all_reduce", "check"]

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


def _ring(workers: int, size: float, link: Link) -> Cost:
    steps, sent = 2 * (workers - 1), 2 * size * (workers - 1) / workers
    return Cost(steps, sent, steps * link.latency, sent / link.bandwidth)


def _halving_doubling(workers: int, size: float, link: Link) -> Cost:
    steps, sent = 2 * math.ceil(math.log2(workers)), 2 * size * (workers - 1) / workers
    return Cost(steps, sent, steps * link.latency, sent / link.bandwidth)


def _tree(workers: int, size: float, link: Link) -> Cost:
    # Of two workers each is the root of one tree: half the bytes go up in one and down in the other.
    steps, sent = 2 * math.ceil(math.log2(workers)), size if workers == 2 else 2 * size
    return Cost(steps, sent, steps * link.latency, sent / link.bandwidth)


ALGORITHMS: dict[str, Callable[[int, float, Link], Cost]] = {
    "ring": _ring,
    "halving_doubling": _halving_doubling,
    "tree": _tree,
}


def all_reduce(
    workers: int, size: float, link: Link, algorithm: str = "ring", per_machine: int = 1, inside: Link | None = None
) -> Cost:
    """What an all-reduce of `size` bytes over that many workers costs; nothing with one worker, or without bytes.

    algorithm: "ring", "halving_doubling" or "tree". With several workers on a machine, connected by `inside`, the ring
    is one ring through all of them, which leaves each machine once and goes at the pace of the slower link.
    The others are hierarchical, as in Goyal et al. 2017, section 4.1, and Mikami et al. 2018: the workers of a machine
    reduce and scatter by a ring, the machines all-reduce, the workers of a machine gather. The last machine may have
    fewer workers; the cost is that of full ones.

    Two workers exchange half the bytes twice, four a quarter six times:

    >>> link = Link("example", latency=0.001, bandwidth=1e6)
    >>> all_reduce(2, 1e6, link)
    Cost(steps=2, bytes=1000000.0, latency=0.002, transfer=1.0)
    >>> all_reduce(4, 1e6, link)
    Cost(steps=6, bytes=1500000.0, latency=0.006, transfer=1.5)

    A ring of 1,000 workers waits for 1,998 messages, a tree for 20:

    >>> all_reduce(1000, 1e6, link).steps, all_reduce(1000, 1e6, link, "tree").steps
    (1998, 20)
    """
    check(workers, size, algorithm, per_machine)
    if workers == 1 or size == 0:
        return Cost(0, 0.0, 0.0, 0.0)
    near = link if inside is None else inside
    together = min(per_machine, workers)
    machines = math.ceil(workers / together)
    if machines == 1 or together == 1:
        return ALGORITHMS[algorithm](workers, size, near if machines == 1 else link)
    if algorithm == "ring":
        return _mixed_ring(workers, size, link, near, together)
    local, far = _ring(together, size, near), ALGORITHMS[algorithm](machines, size, link)
    parts = local.latency + far.latency, local.transfer + far.transfer
    return Cost(local.steps + far.steps, far.bytes, *parts)


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


def check(workers: int, size: float, algorithm: str, per_machine: int) -> None:
    """Raises ClusterConfigError where nothing can be computed for these."""
    for name, value in (("workers", workers), ("per_machine", per_machine)):
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not number or not 1 <= value <= BIGGEST_CLUSTER or int(value) != value:
            what = N_("{name}={value!r}, but it takes a whole number from 1 to {most:,}")
            raise ClusterConfigError(_(what, name=name, value=value, most=BIGGEST_CLUSTER))
    if not isinstance(size, Real) or not 0 <= size < math.inf:
        raise ClusterConfigError(_("an all-reduce of {size!r} bytes: it takes a number from 0 up", size=size))
    if algorithm not in ALGORITHMS:
        known = _(", ").join(repr(name) for name in ALGORITHMS)
        what = N_("algorithm={algorithm!r} is not known; it takes one of {known}")
        raise ClusterConfigError(_(what, algorithm=algorithm, known=known))
