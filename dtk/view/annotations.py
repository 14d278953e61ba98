"""Marks on the timeline: where the cluster started again, and where a fault of `dtk.faults` came."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from dtk.language import N_, _
from dtk.view.canvas import ink

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["mark_faults", "mark_start", "restarted"]

_NO_STEP, _ANEW = N_("attempt {number} made no step"), N_("attempt {number} began anew")
_FURTHER = N_("attempt {number} went on from step {step}")
_BESIDE: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 8.0}


def mark_start(ax: Axes, number: int, at: float) -> None:
    """A dashed line at `at` seconds, where attempt `number` began."""
    ax.axvline(at, color=ink(ax), lw=1.0, ls=(0, (2, 2)))
    ax.annotate(_("attempt {number}", number=number), (at, -0.48), (3, 0), **_BESIDE)


def mark_faults(ax: Axes, row: int, faults: Iterable[tuple[float, str]], span: tuple[float, float]) -> None:
    """A wedge into the lane of the row for each fault (when, kind) within `span` seconds."""
    from matplotlib.patheffects import withStroke

    for at, kind in faults:
        if span[0] <= at <= span[1]:
            ax.plot(at, row - 0.36, marker="v", ms=8, color=ink(ax), mec=ax.get_facecolor(), zorder=5)
            note = ax.annotate(kind, (at, row - 0.36), (6, 0), **_BESIDE)
            note.set_path_effects([withStroke(linewidth=2.5, foreground=ax.get_facecolor())])  # over any block


def restarted(firsts: Sequence[int | None], whole: float) -> str:
    """The headline of a run with restarts; firsts: the first step of each further attempt, None without a step.

    >>> restarted([17], 12.34)
    'Attempt 2 went on from step 17; the run took 12.3 s'
    >>> restarted([1, None], 12.34)
    'Attempt 2 began anew, attempt 3 made no step; the run took 12.3 s'
    """
    words = ""
    for number, first in enumerate(firsts, 2):
        how = _NO_STEP if first is None else _ANEW if first == 1 else _FURTHER
        part = _(how, number=number, step=first)
        words = _("{first}, {more}", first=words, more=part) if words else part
    return _("{what}; the run took {seconds:.1f} s", what=f"{words[0].upper()}{words[1:]}", seconds=whole)
