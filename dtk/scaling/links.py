"""Links between workers by their latency and bandwidth, and some that one may have: nominal, none of them measured.

What the loopback of this machine does is measured, and fitted by `dtk.scaling.fitting.fit`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

from dtk.digits import three
from dtk.errors import ClusterConfigError
from dtk.language import N_, _

__all__ = ["ETHERNET_10", "ETHERNET_100", "ETHERNET_400", "H100_NVLINK", "LINKS", "Link", "ethernet"]


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
        if not isinstance(self.latency, Real) or not 0 <= self.latency < math.inf:
            what = N_("{link}: latency={value!r}, but it takes seconds from 0 up")
            raise ClusterConfigError(_(what, link=self.name, value=self.latency))
        if not isinstance(self.bandwidth, Real) or not 0 < self.bandwidth < math.inf:
            what = N_("{link}: bandwidth={value!r}, but it takes bytes/s above 0")
            raise ClusterConfigError(_(what, link=self.name, value=self.bandwidth))

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
