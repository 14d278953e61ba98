"""What colors mean, the same in every figure, in the dashboard and in the picture of the cluster: one for each worker,
with its name; one for each kind of time, which no worker has; and curves that are neither.
"""

from __future__ import annotations

from dtk.language import N_, _
from dtk.watch.waiting import called

# Workers: Okabe and Ito's color-blind-safe palette (https://jfly.uni-koeln.de/color/), dark red in place of its black;
# blue and orange, which differ most, come first, yellow, which is faint on white, comes last.
_WORKERS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#A04060", "#F0E442")

# Kinds of time: parts of a step, what a study's gaps and the limits of a prediction are called, in Paul Tol's "bright"
# palette, color-blind-safe as well (https://sronpersonalpages.nl/~pault/), so that none looks like a worker.
_PARTS = {
    "#4477AA": ("compute", "measured"),
    "#EE6677": ("all_reduce", "communication", "bandwidth"),
    "#AA3377": ("latency",),
    "#CCBB44": ("waiting", "straggler", "stragglers"),
    "#228833": ("input",),
    "#999999": ("python", "other", "ceiling"),
    "#885500": ("cores",),
    "#66CCEE": ("smaller batch",),
}
PART_COLORS = {part: color for color, parts in _PARTS.items() for part in parts}

PART_NAMES = {  # of `dtk.step_parts`
    "python": N_("Python, callbacks"),
    "input": N_("input"),
    "compute": N_("computing"),
    "all_reduce": N_("all-reduce"),
    "waiting": N_("waiting for the last"),
}

# Of those that are too light on white, a darker one with a contrast of 3:1 (WCAG 2.2, 1.4.11), for lines and frames.
_DARKER = {"#E69F00": "#C58800", "#56B4E9": "#4A9CCA", "#F0E442": "#9E952A", "#CCBB44": "#A19335", "#999999": "#939393"}


def stroke(color: str) -> str:
    """The color for lines and frames in place of one for areas."""
    return _DARKER.get(color, color)


# Curves that are no workers: from the same palette, with that contrast, without its green, which some can't tell from
# its red; the last, a brown, is far from the others for color-blind readers too.
CURVE_COLORS = ("#4477AA", "#ED6576", "#A19335", "#AA3377", "#4D9CB7", "#939393", "#885500")

# The evaluator has no replica of the model that is trained, and so none of the workers' colors.
EVALUATOR_COLOR = "#8A8A8A"


def worker_name(worker: int, chief: bool = False) -> str:
    return _("{task} (chief)", task=called("worker", worker)) if chief else called("worker", worker)


def replica_name(replica: int) -> str:
    return _("replica {replica}", replica=replica)


def worker_color(worker: int) -> str:
    """The color of a worker (or of a replica, counted over the cluster), as "#RRGGBB"; repeats after eight.

    >>> worker_color(0), worker_color(1), worker_color(8) == worker_color(0)
    ('#0072B2', '#E69F00', True)
    """
    return _WORKERS[worker % len(_WORKERS)]
