"""TF_CONFIG as a picture: one box per process, the same cluster in every box, the task that differs highlighted."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from typing import Any

from dtk.language import _
from dtk.view.palette import EVALUATOR_COLOR, worker_color

_BOX = "border:1px solid #8888;border-top:6px solid {color};border-radius:6px;padding:6px 12px;line-height:1.5"
_TASK = "border:2px solid {color};border-radius:4px;padding:2px 6px;margin-left:-6px;font-weight:bold"
_LISTING = "margin:0;font-size:12px;line-height:1.5;color:inherit;background:transparent"


class ClusterPicture(list[dict[str, Any]]):
    """The TF_CONFIGs of a run, a list of dict by worker, that shows itself as a picture in a notebook.

    Each has `cluster`, job names to lists of "host:port", and `task`, {"type", "index"}. The chief is the task of type
    "chief", or else worker 0. evaluator: the evaluator's own, which knows the workers and is unknown to them; or None.
    """

    def __init__(self, workers: Iterable[dict[str, Any]] = (), evaluator: dict[str, Any] | None = None):
        super().__init__(workers)
        self.evaluator = evaluator

    def _repr_html_(self) -> str | None:
        if not self:
            return None
        words = _("cluster: the same for all workers") if self.evaluator else _("cluster: the same in every box")
        boxes = [_box(config, words, worker_color(k)) for k, config in enumerate(self)]
        if self.evaluator:
            boxes.append(_box(self.evaluator, _("cluster: theirs, and itself"), EVALUATOR_COLOR))
        return f'<div style="display:flex;flex-wrap:wrap;gap:16px">{"".join(boxes)}</div>'


def _box(config: Mapping[str, Any], words: str, color: str) -> str:
    """One process. words: what to say of its cluster."""
    task, cluster = config["task"], config["cluster"]
    heading = name = html.escape(f"{task['type']} {task['index']}")
    if task == {"type": "worker", "index": 0} and "chief" not in cluster:
        heading = _("{task} (chief)", task=name)
    listing = "\n".join(
        line for job, members in cluster.items() for line in (f"{job}:", *(f"  {each}" for each in members))
    )
    return (
        f'<div style="{_BOX.format(color=color)}"><b>{heading}</b><br><small>{words}</small>'
        f'<pre style="{_LISTING}">{html.escape(listing)}</pre>'
        f'<code style="{_TASK.format(color=color)}">task: {name}</code></div>'
    )
