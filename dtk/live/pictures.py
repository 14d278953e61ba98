"""The loss as a small SVG picture for the dashboard, quick to draw, in the colours of the page."""

from __future__ import annotations

import base64
import html
import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dtk.language import _

__all__ = ["Layer", "curve", "image"]

_WIDTH, _HEIGHT = 300, 110
_LEFT, _RIGHT, _TOP, _FOOT = 8, _WIDTH - 8, 26, _HEIGHT - 18
_GREY = "#767676"
_SMALL = 'opacity="0.7"'


class Layer(NamedTuple):
    """One summand of the loss: its name, its colour, and its value at each point."""

    name: str
    color: str
    values: Sequence[float]


def curve(steps: Sequence[float], layers: Sequence[Layer], note: str = "") -> str:
    """Draw the loss by step over the layers that it is the sum of; "" for fewer than two finite points.

    A point that is not finite leaves a gap. The lower end of the scale is 0, or the least loss where that is negative.
    A single layer is the loss itself. Where one is negative none is drawn, because areas would not be true then.
    note: whose the layers are.
    """
    values = np.array([layer.values for layer in layers], float)
    losses = values.sum(axis=0)
    known = np.isfinite(losses)
    if known.sum() < 2:
        return ""
    low, high = min(0.0, losses[known].min()), losses[known].max()
    xs = _LEFT + (np.array(steps) - steps[0]) * ((_RIGHT - _LEFT) / ((steps[-1] - steps[0]) or 1))
    heights = _FOOT - (values.cumsum(axis=0) - low) * ((_FOOT - _TOP) / ((high - low) or 1))
    said, last = f"{_('loss')} {_figure(losses[known][-1])}", _("step {step:.0f}", step=steps[-1])
    words, areas = _("{words} at step {step:.0f}", words=said, step=steps[-1]), []
    if len(layers) > 1 and not (values < 0).any():
        pairs = zip(layers, heights, strict=True)
        areas = [f'<path d="{_path(xs, ys, known, _FOOT)}" fill="{layer.color}"/>' for layer, ys in pairs]
        shares = _(", ").join(f"{layer.name} {_figure(layer.values[-1])}" for layer in layers)
        words = _("{words} at step {step:.0f}, {note}: {shares}", words=said, step=steps[-1], note=note, shares=shares)
    pen = 'fill="none" stroke="currentColor" stroke-width="1.5" stroke-linejoin="round"'
    drawn = [
        _text(_LEFT, 14, said, size=12),
        _text(_RIGHT, 14, _("scale {low} to {high}", low=_figure(low), high=_figure(high)), _SMALL, "end"),
        f'<line x1="{_LEFT}" y1="{_FOOT}" x2="{_RIGHT}" y2="{_FOOT}" stroke="currentColor" opacity="0.35"/>',
        *reversed(areas),  # each covers the lower end of the one above
        f'<path d="{_path(xs, heights[-1], known)}" {pen}/>',
        _text(_LEFT, _HEIGHT - 5, _("step {step:.0f}", step=steps[0]), _SMALL),
        _text(_WIDTH / 2, _HEIGHT - 5, note, _SMALL, "middle") if areas else "",
        _text(_RIGHT, _HEIGHT - 5, last, _SMALL, "end"),
    ]
    return (
        f'<svg role="img" aria-label="{html.escape(words)}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" fill="currentColor" font-family="sans-serif">{"".join(drawn)}</svg>'
    )


def image(svg: str) -> str:
    """Return a picture as an `<img>` with a text alternative, which pages keep that drop SVG; "" for "".

    Apart from the page it can't have the colours of the page: it is grey, legible on white and on black.
    """
    said = re.search(r'aria-label="([^"]*)"', svg)
    if said is None:
        return ""
    alone = svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1).replace("currentColor", _GREY)
    source = base64.b64encode(alone.replace(_SMALL, "").encode()).decode()
    return f'<img alt="{said[1]}" src="data:image/svg+xml;base64,{source}">'


def _path(xs: np.ndarray, ys: np.ndarray, known: np.ndarray, foot: int | None = None) -> str:
    """A line through the places that are known, with gaps where they are not; with a foot, the area down to it."""
    parts = []
    for there, run in itertools.groupby(zip(known, xs, ys, strict=True), key=lambda place: bool(place[0])):
        places = [f"{x:.1f} {y:.1f}" for __, x, y in run] if there else []
        if places and foot is not None:
            places = [f"{places[0].split()[0]} {foot}", *places, f"{places[-1].split()[0]} {foot}Z"]
        parts.append("M" + "L".join(places) if places else "")
    return "".join(parts)


def _text(x: float, y: float, words: str, style: str = "", anchor: str = "start", size: int = 10) -> str:
    place = f'x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}"'
    return f"<text {place} {style}>{html.escape(words)}</text>"


def _figure(value: float) -> str:
    return f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"
