"""A proof as a picture: how far each update is from the one that a follower made of the same state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np

from dtk.digits import rounded
from dtk.language import N_, _
from dtk.view.canvas import axes, headline, ink, only_text, png
from dtk.view.palette import CURVE_COLORS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dtk.proof.proof import Proof

__all__ = ["picture", "proof"]

_LEAST = 1e-9  # where a difference of 0 is drawn
_PARTS = 6  # variables in the strip
_MARKERS = ("o", "s")


def proof(found: Proof, ax: Axes | None = None) -> Axes:
    """Draws, for each follower, the difference of the updates at each step, and how much of it rounding may be.

    Where a step differs, it is marked; below are the variables that differ most there, if `ax` is None.

    Args:
        found: what `dtk.verify` returned, or `VerificationError.proof`.
        ax: axes to draw on; None: a new figure.
    """
    table = found.table
    if not len(table):
        return only_text(axes(ax)[0], _("No step was followed"))
    differing = [steps for steps in found.followers.values() if steps.parts and found.verdict == "failed"]
    both = axes(ax, (2.0, 1.0) if differing and ax is None else (1.0,))
    for k, (replicas, rows) in enumerate(table.groupby("replicas", sort=False)):
        whom = _("one device") if replicas == 1 else _("{n} replicas in one process", n=replicas)
        color = CURVE_COLORS[k % len(CURVE_COLORS)]
        values = np.maximum(rows.apart.to_numpy(), _LEAST)
        both[0].plot(rows.step, values, ls="", marker=_MARKERS[k % 2], ms=3.5, mew=0, color=color, label=whom)
        said = _("rounding level") if k == 0 else None
        both[0].plot(rows.step, np.maximum(rows.rounding, _LEAST), ls="--", lw=1.2, color=ink(both[0]), label=said)
    both[0].set(yscale="log", xlabel=_("step"), ylabel=_("difference of the updates"))
    both[0].set_xlim(0.5, max(found.steps, 1) + 0.5)
    low, high = (np.log10(value) for value in both[0].get_ylim())
    both[0].set_ylim(10 ** np.floor(low), 10 ** np.ceil(high))
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": 3, "frameon": False, "fontsize": 9}
    both[0].figure.legend(*both[0].get_legend_handles_labels(), **place)
    if differing:
        both[0].axvline(differing[0].step or 0, color=ink(both[0]), lw=0.8, ls=":")
        if len(both) > 1:
            _strip(both[1], found)
    headline(both[0], _title(found), _("Both updates start from the state that the run recorded before the step."))
    return both[0]


def picture(found: Proof) -> bytes:
    """The figure as a PNG, for a cell that ends with a proof."""
    drawn = proof(found).get_figure(root=True)
    assert drawn is not None
    plt.close(drawn)  # or the cell would show it once more
    return png(drawn)


def _strip(ax: Axes, found: Proof) -> None:
    """The variables that differ at the first step that does, beside its rounding level."""
    steps = next(steps for steps in found.followers.values() if steps.parts)
    parts = sorted(steps.parts, key=lambda part: -min(part.apart, 1e3))[:_PARTS]
    places = np.arange(len(parts))
    ax.barh(places, [max(min(part.apart, 1e3), _LEAST) for part in parts], color=CURVE_COLORS[0], height=0.6)
    ax.plot([max(part.level, _LEAST) for part in parts], places, ls="", marker="|", ms=9, color=ink(ax))
    ax.set_yticks(places, [part.name for part in parts], fontsize=8)
    ax.invert_yaxis()
    ax.set(xscale="log", xlabel=_("difference at step {step}, as a part of the variable's change", step=steps.step))


def _title(found: Proof) -> str:
    table = found.table
    last = table[table.replicas == table.replicas.iloc[-1]]
    differs = table[table.differs].step
    most = float(last.apart.max())
    if found.verdict == "one device":
        words = N_("Every update is one device's: they differ by at most {most}")
        words = words if most else N_("Every update is one device's, to the last bit")
    elif found.verdict == "replicas":
        words = N_("Every update is that of as many replicas in one process: they differ by at most {most}")
        words = words if most else N_("Every update is that of as many replicas in one process, to the last bit")
    elif len(differs):
        words = N_("The update of step {step} is not the one that the follower made")
    else:
        words = N_("The updates of all steps that were followed agree, or are undecided")
    return _(words, most=rounded(most), step=int(differs.min()) if len(differs) else 0)
