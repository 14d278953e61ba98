"""Figures and labs: records in, matplotlib Axes out.

Each function takes what `dtk.run` and `dtk.baseline` return, or the error of a run that failed, draws on `ax` or on
a new figure, and returns the Axes. Colours of text and lines follow matplotlib's current style, light or dark.
`axes` and `headline` are for figures of your own that are to look like these.
"""

from dtk.view.canvas import axes, headline
from dtk.view.fault_lab import fault_lab
from dtk.view.loss_scaling import loss_scaling, loss_scaling_lab
from dtk.view.processes import fan, processes, wait_for
from dtk.view.proof import difference, proof
from dtk.view.ring import ring
from dtk.view.sharding import sharding
from dtk.view.throughput import efficiency, overlap, step_time, throughput
from dtk.view.timeline import restarts, timeline
from dtk.view.what_if import what_if, what_if_lab

__all__ = [
    "axes",
    "difference",
    "efficiency",
    "fan",
    "fault_lab",
    "headline",
    "loss_scaling",
    "loss_scaling_lab",
    "overlap",
    "processes",
    "proof",
    "restarts",
    "ring",
    "sharding",
    "step_time",
    "throughput",
    "timeline",
    "wait_for",
    "what_if",
    "what_if_lab",
]
