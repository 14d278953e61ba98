"""TF_CONFIG as a picture: one box a worker, the same cluster in every box, the task that differs highlighted."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from dtk.view.palette import worker_color

__all__ = ["ClusterPicture", "svg"]

_GAP, _LINE, _PAD = 16, 18, 12
_NARROWEST = 200
_COLUMNS = 4  # boxes side by side; more go into the next row
_LETTER = 7.4  # width of a letter of the listing at 12 px, in px; a little more than the usual fonts need
_MONO = 'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="12"'
_SANS = 'font-family="sans-serif"'


def svg(tf_configs: Sequence[Mapping[str, Any]]) -> str:
    """The picture of a cluster's TF_CONFIGs, as SVG text in the page's own colours; "" for none.

    Each item has `cluster`, job names to lists of "host:port", and `task`, {"type", "index"}. Addresses stand in
    the picture as they stand in the configuration. The chief is the task of type "chief", or else worker 0.
    """
    if not tf_configs:
        return ""
    listings = [_listing(config["cluster"]) for config in tf_configs]
    width = max(_NARROWEST, 2 * _PAD + _LETTER * max(len(line) for listing in listings for line in listing))
    height = 2 * _PAD + _LINE * (4 + max(map(len, listings)))
    columns = min(_COLUMNS, len(tf_configs))
    rows = -(-len(tf_configs) // columns)
    wide, high = columns * (width + _GAP) - _GAP + 4, rows * (height + _GAP) - _GAP + 4
    boxes = "".join(
        f'<g transform="translate({2 + k % columns * (width + _GAP):.1f} {2 + k // columns * (height + _GAP)})">'
        f"{_box(config['task'], _is_chief(config), listings[k], worker_color(k), (width, height))}</g>"
        for k, config in enumerate(tf_configs)
    )
    said = f"TF_CONFIG of {len(tf_configs)} processes: the same cluster in each, the task differs"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{said}" width="{wide:.0f}" height="{high}" '
        f'viewBox="0 0 {wide:.0f} {high}" style="max-width:100%;height:auto" fill="currentColor">{boxes}</svg>'
    )


def _listing(cluster: Mapping[str, Sequence[str]]) -> list[str]:
    """The cluster line by line: each job's name, and indented (by no-break spaces, which SVG keeps) its members."""
    return [line for job, members in cluster.items() for line in (f"{job}:", *(f"\u00a0\u00a0{m}" for m in members))]


def _is_chief(config: Mapping[str, Any]) -> bool:
    """Whether a worker is the chief without being called so: worker 0 of a cluster that names no chief."""
    return config["task"] == {"type": "worker", "index": 0} and "chief" not in config["cluster"]


def _box(task: Mapping[str, Any], chief: bool, listing: Sequence[str], color: str, size: tuple[float, float]) -> str:
    width, height = size
    name = html.escape(f"{task['type']} {task['index']}")
    parts = [
        f'<rect width="{width:.1f}" height="{height}" rx="6" fill="none" stroke="currentColor" stroke-opacity="0.5"/>',
        f'<rect width="{width:.1f}" height="6" rx="3" fill="{color}"/>',
        _text(1, name + (" (chief)" if chief else ""), f'{_SANS} font-size="13" font-weight="bold"'),
        _text(2.2, "cluster: the same in every box", f'{_SANS} font-size="11" opacity="0.75"'),
        *(_text(3.2 + row, html.escape(line), _MONO) for row, line in enumerate(listing)),
    ]
    row = 3.2 + len(listing) - 0.3
    parts.append(
        f'<rect x="{_PAD / 2}" y="{_PAD + row * _LINE:.1f}" width="{width - _PAD:.1f}" height="{1.4 * _LINE:.1f}" '
        f'rx="4" fill="{color}" fill-opacity="0.25" stroke="{color}" stroke-width="2"/>'
    )
    parts.append(_text(row + 0.93, f"task: {name}", f'{_MONO} font-weight="bold"'))
    return "".join(parts)


def _text(row: float, content: str, style: str) -> str:
    return f'<text x="{_PAD}" y="{_PAD + row * _LINE:.1f}" {style}>{content}</text>'


class ClusterPicture(list[dict[str, Any]]):
    """The TF_CONFIGs of a run, a list of dict by worker, that shows itself as a picture in a notebook."""

    # No _repr_svg_: notebooks show that as an image apart from the page, where currentColor is always black.
    def _repr_html_(self) -> str | None:
        return svg(self) or None
