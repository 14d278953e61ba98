"""The what-if lab: predicted throughput and efficiency, with sliders. From core ipywidgets only (7.7 and 8).

Where widgets don't run it is the figure for what was given.
"""

from __future__ import annotations

import base64
import html
import importlib.util
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dtk.environment import live_mode
from dtk.language import _
from dtk.scaling.communication import ALGORITHMS, BIGGEST_CLUSTER, check
from dtk.scaling.job import Cluster, Job
from dtk.scaling.links import LINKS
from dtk.view.controls import beside
from dtk.view.what_if import ALGORITHM_NAMES, EXAMPLE, png, predictions, tell, what_if

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

__all__ = ["WhatIfLab", "what_if_lab"]


@dataclass(frozen=True)
class _Settings:
    """What the lab's controls start from."""

    job: Job
    cluster: Cluster
    workers: int


def what_if_lab(job: Job = EXAMPLE, cluster: Cluster | None = None, workers: int = 256) -> WhatIfLab | Axes:
    """`dtk.plot.what_if` with sliders: workers, batch, gradient size, link, algorithm, overlap, stragglers.

    Args:
        job: with the seconds of a step of your own.
        cluster: `Cluster(fit.link())` adds the loopback as measured to the links; None: `Cluster()`.
        workers: where the slider begins.

    Returns:
        The lab; where widgets don't run (`dtk.environment.live_mode`), the figure for what was given.

    Raises:
        ClusterConfigError: what can't be predicted.
    """
    check(workers, 0, "ring", 1)
    if live_mode() == "widgets" and importlib.util.find_spec("ipywidgets") is not None:
        return WhatIfLab(_Settings(job, cluster or Cluster(), workers))
    return what_if(job, cluster, workers)


class WhatIfLab:
    """The lab's controls: `workers`, `batch`, `megabytes`, `link`, `algorithm`, `overlap`, `spread` (widgets with a
    `value`), `picture` and `words`."""

    def __init__(self, start: _Settings):
        import ipywidgets

        self._start = start
        style = {"description_width": "8.5em"}
        still: dict[str, Any] = {"continuous_update": False, "style": style}

        def choice(name: str, value: float, some: list[float]) -> Any:
            options = [(f"{each:,g}", each) for each in sorted({*some, value})]
            return ipywidgets.SelectionSlider(options=options, value=value, description=name, **still)

        job, links = start.job, {**LINKS, start.cluster.link.name: start.cluster.link}
        self._links = links
        size = round(sum(job.buckets) / 1e6, 3)
        self.workers = choice(_("workers"), start.workers, [*(2**power for power in range(14)), BIGGEST_CLUSTER])
        self.batch = choice(_("per-replica batch"), job.batch, [2**power for power in range(11)])
        self.megabytes = choice(_("gradients, MB"), size, [0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000])
        wide = ipywidgets.Layout(width="26em")
        names = [(str(link), name) for name, link in links.items()]
        self.link = ipywidgets.Dropdown(
            options=names, value=start.cluster.link.name, description=_("link"), style=style, layout=wide
        )
        kinds = [(_(ALGORITHM_NAMES[name]), name) for name in ALGORITHMS]
        self.algorithm = ipywidgets.Dropdown(
            options=kinds, value=start.cluster.algorithm, description=_("all-reduce"), style=style, layout=wide
        )
        part: dict[str, Any] = {"min": 0.0, "readout_format": ".0%", **still}
        self.overlap = ipywidgets.FloatSlider(job.overlap, max=1.0, step=0.05, description=_("overlap"), **part)
        most = max(0.5, job.spread)
        self.spread = ipywidgets.FloatSlider(job.spread, max=most, step=0.01, description=_("stragglers ±"), **part)
        self.words = ipywidgets.HTML()
        self.picture = ipywidgets.Image(format="png", layout=ipywidgets.Layout(max_width="100%", object_fit="contain"))
        left = [self.workers, self.batch, self.megabytes, self.spread]
        right = [self.link, self.algorithm, self.overlap]
        rows = ipywidgets.HBox([ipywidgets.VBox(left), ipywidgets.VBox(right)], layout={"flex_flow": "row wrap"})
        self.box = ipywidgets.VBox([rows, self.words, self.picture])
        for control in (*left, *right):
            control.observe(self._redraw, "value")
        self._redraw()

    @property
    def job(self) -> Job:
        """What the controls stand for now; of another size, the job's buckets are as much larger, each."""
        first = self._start.job
        now = replace(first, batch=self.batch.value, overlap=self.overlap.value, spread=self.spread.value)
        size = round(sum(first.buckets) / 1e6, 3)
        if self.megabytes.value == size:
            return now
        factor = self.megabytes.value / size if size else 0.0
        buckets = tuple(each * factor for each in first.buckets) if size else (self.megabytes.value * 1e6,)
        return replace(now, gradient_bytes=buckets)

    @property
    def cluster(self) -> Cluster:
        return replace(self._start.cluster, link=self._links[self.link.value], algorithm=self.algorithm.value)

    @property
    def table(self) -> pandas.DataFrame:
        """The predictions that are drawn: see `dtk.scaling.prediction.predict`."""
        return predictions(self.job, self.cluster, self.workers.value, "weak")

    def __repr__(self) -> str:
        # No numbers: this text may stand in a stored output, whatever the learner last set.
        return "<lab of dtk: what if>"

    def _ipython_display_(self) -> None:
        from IPython.display import display

        # The picture beside the widget is what a page shows where no kernel answers.
        start = self._start
        table = predictions(start.job, start.cluster, start.workers, "weak")
        still = base64.b64encode(png(table, start.job, start.cluster, start.workers)).decode()
        display({**beside(self.box, repr(self)), "image/png": still}, raw=True)

    def _redraw(self, change: Any = None) -> None:
        table = self.table
        lines = [html.escape(line) for line in tell(table, self.workers.value)[1:]]
        self.words.value = _("Workers: {limits}.", limits=_("; ").join(lines))
        self.picture.value = png(table, self.job, self.cluster, self.workers.value)
