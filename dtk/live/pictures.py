"""Small curves as SVG for the dashboard: quick to draw twice a second, in the colours of the page."""

from __future__ import annotations

import base64
import html
import itertools
import math
import re
from collections.abc import Sequence

from dtk.language import _

__all__ = ["curve", "image", "stack"]

_WIDTH, _HEIGHT = 300, 110
_GREY = "#767676"
_LEFT, _RIGHT, _TOP, _BOTTOM = 8, 8, 26, 18
_FOOT = _HEIGHT - _BOTTOM
_NAMED, _NUMBER = 11, 6  # px: a layer that is lower at its number, so far from its beginning, has no room for it

Points = Sequence[tuple[float, float]]


def curve(points: Points, name: str, unit: str = "") -> str:
    """A curve through `points` (step, value) with its last value in figures; "" for fewer than two finite points.

    A value that is not finite leaves a gap. The lower end of the scale is 0, or the least value where that is
    negative.
    """
    finite = [y for __, y in points if math.isfinite(y)]
    if len(finite) < 2:
        return ""
    said = f"{name} {_figure(finite[-1])}{' ' + unit if unit else ''}"
    plane = _Plane(points)
    return plane.frame(said, _("{words} at step {step:.0f}", words=said, step=points[-1][0]), plane.line(points))


def stack(layers: Sequence[Points], colors: Sequence[str], labels: Sequence[str], name: str, note: str) -> str:
    """The areas of several summands, the first at the bottom, under the curve of their sum.

    layers: each with the same xs. labels: what each is called; the last word stands in its area where there is room.
    note: at the foot. Where a summand is negative the areas would not be true: then it is the curve alone.
    """
    tops = list(itertools.accumulate(([y for __, y in layer] for layer in layers), _added))
    total = [(x, top) for (x, __), top in zip(layers[0], tops[-1], strict=True)]
    if any(y < 0 for layer in layers for __, y in layer) or sum(math.isfinite(y) for __, y in total) < 2:
        return curve(total, name)
    plane = _Plane(total)
    at = next(k for k, (x, __) in enumerate(total) if (x - plane.first) * plane.across >= _NUMBER or x == plane.last)
    across, runs = plane.across_of(total), _runs([math.isfinite(y) for __, y in total])
    areas = [plane.area(across, runs, top, color) for top, color in zip(tops, colors, strict=True)]
    numbers = [
        plane.number(bottom[at], top[at], label.split()[-1], color)
        for bottom, top, label, color in zip([[0.0] * len(total), *tops], tops, labels, colors, strict=False)
    ]
    said = f"{name} {_figure(next(y for __, y in reversed(total) if math.isfinite(y)))}"
    shares = _(", ").join(f"{label} {_figure(layer[-1][1])}" for layer, label in zip(layers, labels, strict=True))
    drawn = "".join([*reversed(areas), plane.line(total), *numbers])
    alternative = _(
        "{words} at step {step:.0f}, {note}: {shares}", words=said, step=total[-1][0], note=note, shares=shares
    )
    return plane.frame(said, alternative, drawn, note)


class _Plane:
    """From steps and values to places in a picture."""

    def __init__(self, points: Points):
        finite = [y for __, y in points if math.isfinite(y)]
        self.low, self.high = min(0.0, *finite), max(finite)
        self.first, self.last = points[0][0], points[-1][0]
        self.across = (_WIDTH - _LEFT - _RIGHT) / ((self.last - self.first) or 1)
        self.up = (_FOOT - _TOP) / ((self.high - self.low) or 1)

    def at(self, x: float, y: float) -> str:
        return f"{_LEFT + (x - self.first) * self.across:.1f} {_FOOT - (y - self.low) * self.up:.1f}"

    def across_of(self, points: Points) -> list[str]:
        """The places across, as an area's path has them; the same for each layer of a stack."""
        return [f"L{_LEFT + (x - self.first) * self.across:.1f} " for x, __ in points]

    def line(self, points: Points) -> str:
        path, move = [], "M"
        for x, y in points:
            if math.isfinite(y):
                path.append(move + self.at(x, y))
            move = "L" if math.isfinite(y) else "M"
        ink = 'fill="none" stroke="currentColor" stroke-width="1.5" stroke-linejoin="round"'
        return f'<path d="{"".join(path)}" {ink}/>'

    def area(self, across: list[str], runs: Sequence[slice], top: Sequence[float], color: str) -> str:
        """From the foot to a layer's top. across: of all places; runs: those where the sum of all layers is finite."""
        path = []
        for run in runs:
            places = across[run]
            upper = "".join([f"{x}{_FOOT - y * self.up:.1f}" for x, y in zip(places, top[run], strict=True)])
            path.append(f"M{places[0][1:]}{_FOOT}{upper}{places[-1]}{_FOOT}Z")
        return f'<path d="{"".join(path)}" fill="{color}"/>'

    def number(self, bottom: float, top: float, label: str, color: str) -> str:
        """A layer's label, at its beginning, where there is room."""
        if not (top - bottom) * self.up >= _NAMED:  # NaN has none either
            return ""
        place = f'x="{_LEFT + 3}" y="{_FOOT - (bottom + top) / 2 * self.up + 3.5:.1f}"'
        return f'<text {place} font-size="10" fill="{_on(color)}">{html.escape(label)}</text>'

    def frame(self, said: str, alternative: str, drawn: str, note: str = "") -> str:
        """With the title, the scale and the steps. note: at the foot."""
        said, alternative = html.escape(said), html.escape(alternative)
        scale = _("scale {low} to {high}", low=_figure(self.low), high=_figure(self.high))
        first, last = _("step {step:.0f}", step=self.first), _("step {step:.0f}", step=self.last)
        small = 'font-size="10" opacity="0.7"'
        middle = f'<text x="{_WIDTH / 2:g}" y="{_HEIGHT - 5}" {small} text-anchor="middle">{html.escape(note)}</text>'
        return (
            f'<svg role="img" aria-label="{alternative}" width="{_WIDTH}" height="{_HEIGHT}" '
            f'viewBox="0 0 {_WIDTH} {_HEIGHT}" fill="currentColor" font-family="sans-serif">'
            f'<text x="{_LEFT}" y="14" font-size="12">{said}</text>'
            f'<line x1="{_LEFT}" y1="{_FOOT}" x2="{_WIDTH - _RIGHT}" y2="{_FOOT}" stroke="currentColor" '
            f'opacity="0.35"/>{drawn}'
            f'<text x="{_LEFT}" y="{_HEIGHT - 5}" {small}>{first}</text>{middle if note else ""}'
            f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 5}" {small} text-anchor="end">{last}</text>'
            f'<text x="{_WIDTH - _RIGHT}" y="14" {small} text-anchor="end">{scale}</text></svg>'
        )


def image(svg: str) -> str:
    """A curve as an `<img>` with a text alternative, which pages keep that drop SVG; "" for "".

    Apart from the page it can't have the colours of the page: it is grey, legible on white and on black.
    """
    said = re.search(r'aria-label="([^"]*)"', svg)
    if said is None:
        return ""
    alone = svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1).replace("currentColor", _GREY)
    alone = alone.replace('opacity="0.7"', "")
    return f'<img alt="{said[1]}" src="data:image/svg+xml;base64,{base64.b64encode(alone.encode()).decode()}">'


def _runs(wanted: Sequence[bool]) -> list[slice]:
    """Where those that are wanted stand next to each other.

    >>> _runs([True, True, False, True])
    [slice(0, 2, None), slice(3, 4, None)]
    """
    groups = [list(group) for __, group in itertools.groupby(range(len(wanted)), key=wanted.__getitem__)]
    return [slice(group[0], group[-1] + 1) for group in groups if wanted[group[0]]]


def _added(lower: list[float], layer: list[float]) -> list[float]:
    return [a + b for a, b in zip(lower, layer, strict=True)]


def _on(color: str) -> str:
    """Black or white, whichever is the more legible on a colour "#RRGGBB" (WCAG's luminance, without its curve)."""
    red, green, blue = (int(color[k : k + 2], 16) for k in (1, 3, 5))
    return "#000" if 0.3 * red + 0.59 * green + 0.11 * blue > 120 else "#fff"


def _figure(value: float) -> str:
    return f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"
