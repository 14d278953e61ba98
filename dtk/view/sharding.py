"""The figure of who saw which example: a tile per example, or bars where they are too many to number."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, MaxNLocator

from dtk.language import N_, _, ngettext
from dtk.scaling.timing import spans
from dtk.view.canvas import axes, headline, ink, name_rows, on
from dtk.view.palette import replica_name, worker_color, worker_name

if TYPE_CHECKING:
    from dtk.studies.shards import Sharding

_WIDTH = 6.1  # inches that a figure of 7 leaves for the axes
_TALL, _TALLEST = 0.7, 4.6  # of a replica's row, and of all rows together, inches
_LARGEST, _SMALLEST = 9.0, 5.0  # points


def sharding(seen: Sharding, ax: Axes | None = None) -> Axes:
    """Draw which example went to which replica at which step; outlined if seen twice, those not seen in a last row.

    Where the numbers can't be read in 7 by 7 inches, the picture has bars without numbers and leaves the steps out.

    Args:
        seen: from `dtk.shards`.
        ax: axes to draw on; None: a new figure.
    """
    height = min(_TALL, _TALLEST / (seen.replicas + bool(seen.gaps)))  # of a row of tiles
    tiles = _layout(seen, height)
    rows = seen.replicas + bool(seen.gaps) + (tiles is None and bool(seen.repeated))
    (ax,) = axes(ax, size=(7.0, 1.45 + rows * (height if tiles else 0.5)))
    name = worker_name if seen.replicas == seen.workers else replica_name
    labels = [name(k) for k in range(seen.replicas)]
    if tiles:
        _draw_tiles(ax, seen, *tiles, height)
        what = [_("A tile is an example: its row says who was given it, its column at which step.")]
        what += [_("Outlined: seen more than once.")] if seen.repeated else []
    else:
        labels += [_("repeated")] if seen.repeated else []
        _draw_spans(ax, seen)
        what = [_("A bar is an example: its row says who was given it.")]
    name_rows(ax, [*labels, _("no worker")] if seen.gaps else labels)
    last = math.floor(ax.get_xlim()[1])
    few = tiles is not None and last <= 20
    ax.xaxis.set_major_locator(FixedLocator(range(1, last + 1)) if few else MaxNLocator("auto", integer=True))
    if seen.policy:
        words = N_("Divided by input_context.") if seen.policy == "input_context" else N_("Policy {policy}.")
        what.insert(0, _(words, policy=seen.policy))
    if len(seen.table) and seen.replicas > 1:
        same = _("Step by step, together, they see what one device sees.")
        other = N_("At step {step} they see, together, other examples than one device.")
        what.append(same if seen.parts_at is None else _(other, step=seen.parts_at))
    headline(ax, in_words(seen), " ".join(what))
    ax.spines["left"].set_visible(False)
    return ax


def _layout(seen: Sharding, height: float) -> tuple[int, int, float] | None:
    """How the tiles of one cell (a replica's step) are laid out: columns, lines, and the size of numbers, in points.

    Of those whose numbers are easiest to read, the one with the fewest lines; None where none can be read.
    """
    if not len(seen.table):
        return 1, 1, _LARGEST
    steps, letters = int(seen.table.step.max()), _letters(seen)
    most = int(seen.table.groupby(["replica", "step"]).size().max())
    found = []
    for columns in range(1, most + 1):
        lines = math.ceil(most / columns)
        wide, high = 0.92 * _WIDTH / steps / columns, 0.86 * height / lines
        points = 72 * min(0.92 * wide / letters, 0.9 * high / 1.25, _LARGEST / 72)
        found.append((points, -lines, -columns))
    points, lines, columns = max(found)
    return (-columns, -lines, points) if points >= _SMALLEST else None


def _letters(seen: Sharding) -> float:
    """Room that the longest number takes with some space around it, in heights of a letter."""
    return 0.62 * len(str(max([*seen.table.example, *seen.alone.example], default=0))) + 0.4


def _draw_tiles(ax: Axes, seen: Sharding, columns: int, lines: int, points: float, height: float) -> None:
    steps = int(seen.table.step.max()) if len(seen.table) else 1
    wide, tall = 0.92 / columns, 0.86 / lines  # of a tile, in steps and rows
    twice = set(seen.repeated)
    for (replica, step), group in seen.table.groupby(["replica", "step"]):
        for place, number in enumerate(group.example):
            line, column = divmod(place, columns)
            corner = (step - 0.46 + column * wide, replica - 0.43 + line * tall)
            _tile(ax, corner, (wide, tall), number, points, worker_color(replica), number in twice)
    for border in range(1, steps):
        ax.axvline(border + 0.5, color=ink(ax), lw=0.6, alpha=0.25)
    ax.set(xlim=(0.5, steps + 0.5), xlabel=_("step"))
    # Empty tiles in a row of their own: who was forgotten belongs to no step.
    wide = min(wide, steps / _WIDTH * max(0.3, points / 72 * (_letters(seen) + 0.4)))
    across = int((steps - 0.04) / wide)
    most = max(lines, int(0.86 * height / (points * 1.35 / 72)))
    used = min(most, math.ceil(len(seen.gaps) / across))
    tall = 0.86 / max(used, lines)
    shown: list[int | str] = [*seen.gaps]
    if len(shown) > across * used:
        shown = [*shown[: across * used - 1], "…"]
    for place, number in enumerate(shown):
        line, column = divmod(place, across)
        corner = (0.54 + column * wide, seen.replicas + (line - used / 2) * tall)
        _tile(ax, corner, (wide, tall), number, points)


def _tile(
    ax: Axes, corner: tuple[float, float], size: tuple[float, float], number: int | str, points: float,
    color: str | None = None, twice: bool = False,
) -> None:  # fmt: skip
    """A tile with its number, upper left corner and size in the axes' units; without a color, an empty one."""
    x, y, w, h = corner[0] + 0.04 * size[0], corner[1] + 0.05 * size[1], 0.92 * size[0], 0.9 * size[1]
    edge, words = ink(ax) if twice or not color else "none", on(color) if color else ink(ax)
    line: dict[str, Any] = {"lw": min(1.6, 0.2 * points) if twice else 0.8, "ls": "-" if color else (0, (2, 2))}
    ax.add_patch(Rectangle((x, y), w, h, facecolor=color or "none", edgecolor=edge, **line))
    ax.text(x + w / 2, y + h / 2, str(number), color=words, fontsize=points, ha="center", va="center_baseline")


def _draw_spans(ax: Axes, seen: Sharding) -> None:
    """Rows of bars over the examples' numbers; those of neighbors make one."""
    rows = [(k, group.example, worker_color(k)) for k, group in seen.table.groupby("replica")]
    extra = [numbers for numbers in (seen.repeated, seen.gaps) if numbers]
    rows += [(seen.replicas + k, numbers, ink(ax)) for k, numbers in enumerate(extra)]
    for row, numbers, color in rows:
        bars = [(first - 0.5, last - first + 1) for first, last in spans(sorted({*numbers}))]
        ax.broken_barh(bars, (row - 0.4, 0.8), color=color, lw=0)
    ax.set_xlabel(_("example"))


def in_words(sharding: Sharding) -> str:
    """What happened to the examples, in one sentence.

    >>> from dtk.studies.shards import from_lists
    >>> in_words(from_lists([[[0, 1]], [[2, 3]]], [range(4)]))
    'Each of 4 examples went to one replica'
    >>> in_words(from_lists([[[0, 1]], [[0, 1]]], [range(2)]))
    'Every replica saw all 2 examples'
    >>> in_words(from_lists([[[0, 1]], [[0, 2]]], [range(4)]))
    'Of 4 examples, 1 was seen more than once and 1 by no worker'
    """
    count, more, fewer = sharding.examples, len(sharding.repeated), len(sharding.gaps)
    if sharding.each_sees_all:
        return _("Every replica saw all {count:,} examples", count=count)
    if not more and not fewer:
        sentence = N_("Each of {count:,} examples went to one replica")
        if sharding.alone.example.duplicated().any():
            sentence = N_("Each of {count:,} examples was seen as often as by one device")
        return _(sentence, count=count)
    seen = ngettext("{n} was seen more than once", "{n} were seen more than once", more, n=f"{more:,}")
    if fewer:
        less = N_("{seen} and {fewer:,} less often than by one device")
        if set(sharding.gaps).isdisjoint(sharding.table.example):
            less = N_("{seen} and {fewer:,} by no worker")
        seen = _(less, seen=seen, fewer=fewer)
    return _("Of {count:,} examples, {seen}", count=count, seen=seen)
