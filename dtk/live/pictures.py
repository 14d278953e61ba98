"""Small pictures as SVG for the dashboard, quick to draw, in the colours of the page: curves, and strips of activity.

A strip has what a worker did in the last seconds: in each of its short spans of time the parts stand one upon the
other, in the order of `SHOWN`, each as high as its share of that time, in its colour of `dtk.plot.step_time`. What is
not known stays empty. Strips of many workers are too low for that: there each span has the colour of its biggest part.
"""

from __future__ import annotations

import base64
import html
import itertools
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dtk.language import N_, _
from dtk.live.recent import BINS, Window
from dtk.scaling.parts import PARTS
from dtk.view.palette import PART_COLORS, worker_color

__all__ = ["SHOWN", "Layer", "curve", "image", "in_words", "strips"]

_WIDTH, _HEIGHT = 300, 110
_LEFT, _RIGHT, _TOP, _BOTTOM = 8, 8, 26, 18
_END, _FOOT = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
_NAMED, _NUMBER = 11, 6  # px: a layer that is lower at its number, so far from its beginning, has no room for it
_STRIP = 72  # where the strips begin
_GREY = "#767676"
# In the order in which they are stacked, from the bottom up.
SHOWN = {
    "compute": N_("computing"),
    "all_reduce": N_("all-reduce"),
    "waiting": N_("waiting"),
    "input": N_("input"),
    "python": "Python",
}
_UNKNOWN = N_("not known")
_EACH_IN_WORDS = 4  # workers that are named one by one; of more, the least and the most
_ALIKE = 5  # %: shares that differ by less are one number


class Layer(NamedTuple):
    """One summand under a curve. label: its last word stands in the layer where there is room."""

    label: str
    color: str
    values: Sequence[float]


def curve(
    points: Sequence[tuple[float, float]], name: str, unit: str = "", layers: Sequence[Layer] = (), note: str = ""
) -> str:
    """Draw a curve through `points` (step, value) with its last value as a number; "" for fewer than two finite points.

    A value that is not finite leaves a gap. The lower end of the scale is 0, or the least value where that is
    negative. layers: of what the values are the sum, the first at the bottom; they are left out where one is negative,
    as areas would not be true then. note: at the foot.
    """
    finite = [y for __, y in points if math.isfinite(y)]
    if len(finite) < 2:
        return ""
    layers = () if any(y < 0 for layer in layers for y in layer.values) else layers
    low, high, first, last = min(0.0, *finite), max(finite), points[0][0], points[-1][0]
    across, up = (_END - _LEFT) / ((last - first) or 1), (_FOOT - _TOP) / ((high - low) or 1)
    xs = [f"{_LEFT + (x - first) * across:.1f}" for x, __ in points]
    known = [math.isfinite(y) for __, y in points]

    def heights(values: Sequence[float]) -> list[str]:
        return [f"{_FOOT - (y - low) * up:.1f}" if there else "" for y, there in zip(values, known, strict=True)]

    at = next((k for k, (x, __) in enumerate(points) if (x - first) * across >= _NUMBER), len(points) - 1)
    areas, numbers, bottom = [], [], [0.0] * len(points)
    for layer in layers:
        top = [a + b for a, b in zip(bottom, layer.values, strict=True)]
        areas.append(f'<path d="{_path(xs, heights(top), _FOOT)}" fill="{layer.color}"/>')
        if (top[at] - bottom[at]) * up >= _NAMED:  # NaN has no room either
            y = _FOOT - (bottom[at] + top[at]) / 2 * up + 3.5
            numbers.append(_text(_LEFT + 3, y, layer.label.split()[-1], f'fill="{_on(layer.color)}"'))
        bottom = top
    pen = 'fill="none" stroke="currentColor" stroke-width="1.5" stroke-linejoin="round"'
    line = f'<path d="{_path(xs, heights([y for __, y in points]))}" {pen}/>'
    said = f"{name} {_figure(finite[-1])}{' ' + unit if unit else ''}"
    words = _("{words} at step {step:.0f}", words=said, step=last)
    if layers:
        shares = _(", ").join(f"{layer.label} {_figure(layer.values[-1])}" for layer in layers)
        words = _("{words} at step {step:.0f}, {note}: {shares}", words=said, step=last, note=note, shares=shares)
    scale = _("scale {low} to {high}", low=_figure(low), high=_figure(high))
    drawn = [
        _text(_LEFT, 14, said, size=12),
        f'<line x1="{_LEFT}" y1="{_FOOT}" x2="{_END}" y2="{_FOOT}" stroke="currentColor" opacity="0.35"/>',
        *reversed(areas),  # each covers the lower end of the one above
        line,
        *numbers,
        _text(_LEFT, _HEIGHT - 5, _("step {step:.0f}", step=first), _SMALL),
        _text(_WIDTH / 2, _HEIGHT - 5, note, _SMALL, "middle") if layers else "",
        _text(_END, _HEIGHT - 5, _("step {step:.0f}", step=last), _SMALL, "end"),
        _text(_END, 14, scale, _SMALL, "end"),
    ]
    return _svg(words, drawn, _HEIGHT)


def strips(window: Window, names: Sequence[str]) -> str:
    """Draw a strip for each worker, by name, with its colour, and a legend that has the means of all."""
    count, parts = len(names), window.parts
    # The height of a row, and which rows are named: every one, or every eighth where there are too many.
    pitch, named = (20, 1) if count <= 4 else (15, 1) if count <= 8 else (12, 1) if count <= 16 else (5, 8)
    head = N_("the last {seconds:.0f} s of each worker") if count > 1 else N_("the last {seconds:.0f} s")
    drawn = [_text(_LEFT, 14, _(head, seconds=window.seconds), size=12)]
    high, shares, y = pitch - 2, window.shares, 22
    if named > 1:
        high, shares = pitch - 1, _biggest(shares)
    for worker, name in enumerate(names):
        title = _("{name}: {words}", name=name, words=_words(parts[worker]))
        row = f'<rect x="{_LEFT}" y="{y}" width="7" height="{high}" fill="{worker_color(worker)}"/>'
        row += _text(_LEFT + 12, y + pitch / 2 + 3, name) if worker % named == 0 else ""
        drawn.append(f"<g><title>{html.escape(title)}</title>{row}{_strip(shares[worker], y, high)}</g>")
        y += pitch
    first, last = (N_("-{seconds:.0f} s"), N_("end")) if window.ended else (N_("{seconds:.0f} s ago"), N_("now"))
    drawn.append(_text(_STRIP, y + 9, _(first, seconds=window.seconds), _SMALL))
    drawn.append(_text(_END, y + 9, _(last), _SMALL, "end"))
    for place, (part, name, share) in enumerate(_named(parts.mean(axis=0))):
        left, low = _LEFT + 98 * (place % 3), y + 12 + 15 * (place // 3)
        ink = 'fill-opacity="0.12" stroke="currentColor" stroke-opacity="0.5"'
        ink = f'fill="{PART_COLORS[part]}"' if part else ink
        drawn.append(f'<rect x="{left + 0.5}" y="{low + 3.5}" width="8" height="8" {ink}/>')
        drawn.append(_text(left + 12, low + 11, f"{name} {_percent(share)}"))
    return _svg(in_words(window, names), drawn, y + 12 + 2 * 15 + 2)


def image(svg: str) -> str:
    """Return a picture as an `<img>` with a text alternative, which pages keep that drop SVG; "" for "".

    Apart from the page it can't have the colours of the page: it is grey, legible on white and on black.
    """
    said = re.search(r'aria-label="([^"]*)"', svg)
    if said is None:
        return ""
    alone = svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1).replace("currentColor", _GREY)
    alone = alone.replace('opacity="0.7"', "")
    return f'<img alt="{said[1]}" src="data:image/svg+xml;base64,{base64.b64encode(alone.encode()).decode()}">'


def in_words(window: Window, names: Sequence[str]) -> str:
    """Return what the strips show: "the last 10 s: worker 0 computing 62 %, all-reduce 38 %; worker 1 ..."."""
    if len(names) <= _EACH_IN_WORDS:
        each = [_("{name} {words}", name=k, words=_words(part)) for k, part in zip(names, window.parts, strict=True)]
        words = _("; ").join(each)
    else:
        found = [_range(name, shares) for __, name, shares in _named(window.parts)]
        words = _(", ").join(filter(None, found))
    return _("the last {seconds:.0f} s: {words}", seconds=window.seconds, words=words)


def _words(parts: np.ndarray) -> str:
    return _(", ").join(f"{name} {_percent(share)}" for __, name, share in _named(parts) if round(100 * share))


def _named(parts: np.ndarray) -> list[tuple[str, str, Any]]:
    """parts: `(..., len(PARTS))`. Each part, its name and its shares; at last, without a part, what is not known."""
    named = [(part, _(name), parts[..., PARTS.index(part)]) for part, name in SHOWN.items()]
    return [*named, ("", _(_UNKNOWN), np.maximum(0.0, 1.0 - parts.sum(axis=-1)))]


def _range(name: str, shares: np.ndarray) -> str:
    """The least and the most, and whose the most is if one worker stands out; of shares that are alike the mean."""
    least, most = (round(100 * share) for share in (shares.min(), shares.max()))
    if most - least < _ALIKE:
        return f"{name} {_percent(shares.mean())}" if most else ""
    words = N_("{name} {least} to {most} %")
    if (100 * shares > most - _ALIKE).sum() == 1:
        words = N_("{name} {least} to {most} % (most: worker {worker})")
    return _(words, name=name, least=least, most=most, worker=int(shares.argmax()))


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _biggest(shares: np.ndarray) -> np.ndarray:
    """1 for the biggest part of each bin and 0 for the others; 0 for all where most is not known."""
    all_of_it = np.concatenate([shares, 1.0 - shares.sum(axis=1, keepdims=True)], axis=1)
    most = all_of_it.argmax(axis=1)[:, None] == np.arange(len(PARTS) + 1)[:, None]
    return most[:, : len(PARTS)].astype(float)


def _strip(shares: np.ndarray, y: int, height: int) -> str:
    """shares: `(len(PARTS), BINS)`. Areas from the top part down, each lying over the lower end of the one before."""
    tops = np.cumsum([100 * shares[PARTS.index(part)] for part in SHOWN], axis=0).round().astype(int).tolist()
    across = (_END - _STRIP) / BINS
    paths = []
    for part, top, below in reversed(list(zip(SHOWN, tops, [[0] * BINS, *tops], strict=False))):
        if top != below:
            steps = "".join(f"V{100 - each}h{len(list(same))}" for each, same in itertools.groupby(top))
            paths.append(f'<path d="M0 100{steps}V100Z" fill="{PART_COLORS[part]}"/>')
    return (
        f'<rect x="{_STRIP}" y="{y}" width="{_END - _STRIP}" height="{height}" opacity="0.12"/>'
        f'<g transform="translate({_STRIP} {y}) scale({across:g} {height / 100:g})">{"".join(paths)}</g>'
    )


def _path(xs: Sequence[str], ys: Sequence[str], foot: int | None = None) -> str:
    """A line through these places, with a gap where a `y` is ""; with a foot, the area down to it."""
    parts = []
    for there, run in itertools.groupby(zip(xs, ys, strict=True), key=lambda place: bool(place[1])):
        places = list(run)
        line = "L".join(f"{x} {y}" for x, y in places)
        if there:
            parts.append(f"M{line}" if foot is None else f"M{places[0][0]} {foot}L{line}L{places[-1][0]} {foot}Z")
    return "".join(parts)


_SMALL = 'opacity="0.7"'


def _text(x: float, y: float, words: str, style: str = "", anchor: str = "start", size: int = 10) -> str:
    style += f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:g}" y="{y:.4g}" font-size="{size}" {style}>{html.escape(words)}</text>'


def _svg(said: str, drawn: Sequence[str], height: int) -> str:
    return (
        f'<svg role="img" aria-label="{html.escape(said)}" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" fill="currentColor" font-family="sans-serif">{"".join(drawn)}</svg>'
    )


def _on(color: str) -> str:
    """Black or white, whichever is the more legible on a colour "#RRGGBB" (WCAG's luminance, without its curve)."""
    red, green, blue = (int(color[k : k + 2], 16) for k in (1, 3, 5))
    return "#000" if 0.3 * red + 0.59 * green + 0.11 * blue > 120 else "#fff"


def _figure(value: float) -> str:
    return f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"
