"""The wait-for graph: a box per worker with what it does, an arrow from each that waits to the one it waits for."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from dtk.errors import DtkError
from dtk.language import N_, _, columns
from dtk.records.tables import Recorded
from dtk.view.canvas import axes, blank, box, headline, ink, only_text, wrapped
from dtk.view.palette import worker_color
from dtk.watch.waiting import State, Waiting, load, names

__all__ = ["wait_for"]

NOTHING = N_("nothing was started, so no worker waits")
_WIDE, _HIGH = 2.3, 0.78  # of a box, in the units of the axes; the figure is as wide as _SPAN of them
_SPAN = 8.6
_INCHES = 7.0
_CHARACTERS = 29  # of a line of text in a box
_APART = 4  # workers that get a box each; of more, those that do the same and wait for the same share one


def wait_for(run: Recorded, ax: Axes | None = None) -> Axes:
    """Draw which worker waited for which when a run stalled or failed.

    A box per worker (with more than four, one for all that do the same): what it was doing, and its last line of the
    learner's code where dtk asked for it. An arrow leads from a worker that could not go on to one that it waited for.
    A thick frame is one that others wait for and that waits for none: look there. A ring of arrows without one is a
    deadlock.

    Args:
        run: a WorkerStalled, a WorkerFailed, or a `Run`.
        ax: axes to draw on; None: a new figure.
    """
    if run.folder is None:
        return only_text(ax, NOTHING)
    found = load(run.folder)
    if found is None:
        return only_text(ax, N_("the run ended well or goes on, so there is no worker that could not go on"))
    boxes = _boxes(found)
    places = _places(len(boxes))
    low, high = min(y for __, y in places), max(y for __, y in places)
    title, caption = _title(run, found), _caption(found)
    # In inches, by the number of lines; too high does no harm.
    words = 0.19 * -(-columns(title) // 60) + 0.14 * -(-columns(caption) // 100)
    (ax,) = axes(ax, size=(_INCHES, round((high - low + _HIGH + 0.3) * _INCHES / _SPAN + words + 0.5, 1)))
    ax.set(xlim=(-_SPAN / 2, _SPAN / 2), ylim=(low - _HIGH / 2 - 0.15, high + _HIGH / 2 + 0.15), aspect="equal")
    ax.set_anchor("NW")
    blank(ax)
    of = {state.member: number for number, states in enumerate(boxes) for state in states}
    arrows = {(of[who], of[whom]) for who, whom in found.edges}
    frames = [
        _box(ax, states, place, _is_source(found, states[0])) for states, place in zip(boxes, places, strict=True)
    ]
    for one, other in arrows:
        # Two that wait for each other get an arrow each, apart.
        bent = f"arc3,rad={0.18 if (other, one) in arrows else 0.0}"
        ends: dict[str, Any] = {"patchA": frames[one], "patchB": frames[other], "shrinkA": 2, "shrinkB": 3}
        style: dict[str, Any] = {"arrowstyle": "-|>,head_width=3.2,head_length=6", "color": ink(ax), "lw": 1.3}
        arrow = FancyArrowPatch(
            places[one], places[other], connectionstyle=bent, zorder=2, gid="waits", **style, **ends
        )
        ax.add_patch(arrow)
    headline(ax, title, caption)
    return ax


def _boxes(found: Waiting) -> list[list[State]]:
    """The workers of each box."""
    groups: dict[Any, list[State]] = {}
    for state in found.states:
        waits = frozenset(whom for who, whom in found.edges if who == state.member)
        awaited = frozenset(who for who, whom in found.edges if whom == state.member)
        alike = state.said().words, state.line, waits, awaited
        groups.setdefault(state.member if len(found.states) <= _APART else alike, []).append(state)
    return list(groups.values())


def _places(count: int) -> list[tuple[float, float]]:
    """The middle of each box: on an ellipse from the left over the top, which lets every arrow see its target."""
    across = (_SPAN - _WIDE) / 2 - 0.1
    if count <= 2:
        return [(-across * 0.75, 0.0), (across * 0.75, 0.0)][:count]
    # So flat that the figure stays small, and so high that two boxes one above the other have room for an arrow.
    up = max(0.9, count * 0.27)
    angles = [2 * math.pi * (k + 0.5 * (count % 2 == 0)) / count for k in range(count)]
    return [(-across * math.cos(angle), up * math.sin(angle)) for angle in angles]


def _is_source(found: Waiting, state: State) -> bool:
    """Whether others wait for a worker that waits for none."""
    waits = any(who == state.member for who, _ in found.edges)
    return not waits and any(whom == state.member for _, whom in found.edges)


def _box(ax: Axes, states: list[State], middle: tuple[float, float], source: bool) -> FancyBboxPatch:
    left, low = middle[0] - _WIDE / 2, middle[1] - _HIGH / 2
    style: dict[str, Any] = {"lw": 2.6 if source else 0.8, "gid": "source" if source else "box", "zorder": 3}
    frame = box(ax, (left, low), (_WIDE, _HIGH), ink(ax), 0.06, facecolor=ax.get_facecolor(), **style)
    high = (_HIGH - 0.16) / len(states)
    for k, each in enumerate(reversed(states)):
        corner = left + 0.07, low + 0.08 + k * high
        ax.add_patch(Rectangle(corner, 0.09, high, facecolor=worker_color(each.member), lw=0, zorder=4))
    state = max(states, key=lambda each: each.quiet)
    lines = wrapped(str(state.said()), _CHARACTERS)[:2]
    lines += wrapped(state.line, _CHARACTERS)[:1] if state.line and not state.ended else []
    name = names(states) if len(states) <= _APART else _("{count} workers", count=len(states))
    text: dict[str, Any] = {"va": "top", "zorder": 5, "linespacing": 1.15}
    ax.text(left + 0.23, middle[1] + 0.32, name, fontsize=8.5, fontweight="bold", gid="worker", **text)
    ax.text(left + 0.23, middle[1] + 0.1, "\n".join(lines), fontsize=7.0, gid="state", **text)
    return frame


def _title(run: Recorded, found: Waiting) -> str:
    said = found.sentence or (str(run) if isinstance(run, DtkError) else "")
    if said:
        return said[0].upper() + said[1:]
    done = sum(state.what == "finished" for state in found.states)
    return _("{done} of {count} workers have finished", done=done, count=len(found.states))


def _caption(found: Waiting) -> str:
    if not found.edges:
        return _("No arrow: no worker was found to wait for another.")
    caption = _("An arrow leads from a worker that can't go on to one that it waits for.")
    if any(_is_source(found, state) for state in found.states):
        return f"{caption} " + _("Thick frame: others wait for it and it waits for no other, so look there.")
    return f"{caption} " + _("No worker is free to go on: a deadlock.")
