"""TF_CONFIG as a picture: one box per worker, the same cluster in every box, the task that differs highlighted."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dtk.language import N_, _
from dtk.view.palette import EVALUATOR_COLOR, worker_color

__all__ = ["ClusterPicture", "svg"]

_GAP, _LINE, _PAD = 16, 18, 12
_NARROWEST = 200
_COLUMNS = 4  # boxes side by side; more go into the next row
_LETTER = 7.4  # width of a letter of the listing at 12 px, in px; a little more than the usual fonts need
_MONO = 'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="12"'
_SANS = 'font-family="sans-serif"'
_SMALL = f'{_SANS} font-size="11" opacity="0.75"'
_ALTERNATIVE = N_("TF_CONFIG of {count} processes: the same cluster in each, the task differs")
_ALTERNATIVE_BESIDE = N_(
    "TF_CONFIG of {count} processes: the same cluster in each, the task differs; and of the evaluator, which stands "
    "apart"
)


def svg(tf_configs: Sequence[Mapping[str, Any]]) -> str:
    """Return the picture of a cluster's TF_CONFIGs, as SVG text in the page's own colours; "" for none.

    Each item has `cluster`, job names to lists of "host:port", and `task`, {"type", "index"}. Addresses stand in
    the picture as they stand in the configuration. The chief is the task of type "chief", or else worker 0. An
    evaluator stands below a line, apart from those that train together.
    """
    if not tf_configs:
        return ""
    evaluators = [config for config in tf_configs if config["task"]["type"] == "evaluator"]
    groups = [config for config in tf_configs if config not in evaluators], evaluators
    lines = [line for config in tf_configs for line in _listing(config)]
    width = max(_NARROWEST, 2 * _PAD + _LETTER * max(map(len, lines)))
    columns = min(_COLUMNS, max(map(len, groups)))
    parts, top, wide = [], 2.0, columns * (width + _GAP) - _GAP + 4
    one = all(config["cluster"] == tf_configs[0]["cluster"] for config in tf_configs)
    for apart, group in enumerate(groups):
        words = _("cluster: theirs, and itself") if apart else _("cluster: the same for all workers")
        words = _("cluster: the same in every box") if one else words
        if apart and group:
            line = f'y1="{top}" x2="{wide - 2:.1f}" y2="{top}" stroke="currentColor" stroke-dasharray="4 4"'
            below = _("apart from them:") if one else _("apart from them, and unknown to them:")
            parts.append(f'<line x1="2" {line}/><text x="2" y="{top + _LINE + 2}" {_SMALL}>{below}</text>')
            top += _LINE + _GAP
        height = 2 * _PAD + _LINE * (4 + max((len(_listing(config)) for config in group), default=0))
        for k, config in enumerate(group):
            color = EVALUATOR_COLOR if apart else worker_color(k)
            place = f"{2 + k % columns * (width + _GAP):.1f} {top + k // columns * (height + _GAP):.1f}"
            parts.append(f'<g transform="translate({place})">{_box(config, words, color, width, height)}</g>')
        top += -(-len(group) // columns) * (height + _GAP)
    high = top - _GAP + 2
    said = _(_ALTERNATIVE_BESIDE if evaluators else _ALTERNATIVE, count=len(groups[0]))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{said}" width="{wide:.0f}" '
        f'height="{high:.0f}" viewBox="0 0 {wide:.0f} {high:.0f}" style="max-width:100%;height:auto" '
        f'fill="currentColor">{"".join(parts)}</svg>'
    )


def _listing(config: Mapping[str, Any]) -> list[str]:
    """Its cluster line by line: each job's name, and indented (by no-break spaces, which SVG keeps) its members."""
    jobs = config["cluster"].items()
    return [line for job, members in jobs for line in (f"{job}:", *(f"\u00a0\u00a0{member}" for member in members))]


def _box(config: Mapping[str, Any], words: str, color: str, width: float, height: float) -> str:
    """One process; `words`: what to say of its cluster."""
    task, listing = config["task"], _listing(config)
    heading = name = html.escape(f"{task['type']} {task['index']}")
    if task == {"type": "worker", "index": 0} and "chief" not in config["cluster"]:
        heading = _("{task} (chief)", task=name)
    row = 3.2 + len(listing) - 0.3
    parts = [
        f'<rect width="{width:.1f}" height="{height}" rx="6" fill="none" stroke="currentColor" stroke-opacity="0.5"/>',
        f'<rect width="{width:.1f}" height="6" rx="3" fill="{color}"/>',
        _text(1, heading, f'{_SANS} font-size="13" font-weight="bold"'),
        _text(2.2, words, _SMALL),
        *(_text(3.2 + row, html.escape(line), _MONO) for row, line in enumerate(listing)),
        f'<rect x="{_PAD / 2}" y="{_PAD + row * _LINE:.1f}" width="{width - _PAD:.1f}" height="{1.4 * _LINE:.1f}" '
        f'rx="4" fill="{color}" fill-opacity="0.25" stroke="{color}" stroke-width="2"/>',
        _text(row + 0.93, f"task: {name}", f'{_MONO} font-weight="bold"'),
    ]
    return "".join(parts)


def _text(row: float, content: str, style: str) -> str:
    return f'<text x="{_PAD}" y="{_PAD + row * _LINE:.1f}" {style}>{content}</text>'


class ClusterPicture(list[dict[str, Any]]):
    """The TF_CONFIGs of a run, a list of dict by worker, that shows itself as a picture in a notebook.

    evaluator: the evaluator's own, which knows the workers and is unknown to them; None in a run without one.
    """

    def __init__(self, workers: Iterable[dict[str, Any]] = (), evaluator: dict[str, Any] | None = None):
        super().__init__(workers)
        self.evaluator = evaluator

    # No _repr_svg_: notebooks show that as an image apart from the page, where currentColor is always black.
    def _repr_html_(self) -> str | None:
        return svg([*self, self.evaluator] if self.evaluator else self) or None
