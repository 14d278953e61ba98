"""One colour a worker, the same in every figure, in the dashboard and in the picture of the cluster."""

from __future__ import annotations

__all__ = ["worker_color"]

# Okabe and Ito's colour-blind-safe palette (https://jfly.uni-koeln.de/color/) without its black, which would be lost
# on a dark page; blue and orange, which differ most, come first, yellow, which is faint on white, comes last.
_OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999", "#F0E442")


def worker_color(worker: int) -> str:
    """The colour of a worker (or of a replica, counted over the cluster), as "#RRGGBB"; repeats after eight.

    >>> worker_color(0), worker_color(1), worker_color(8) == worker_color(0)
    ('#0072B2', '#E69F00', True)
    """
    return _OKABE_ITO[worker % len(_OKABE_ITO)]
