"""What if there were more workers: predicted throughput and efficiency up to 10,000, and what limits them where.

`tell` says the same in words; `what_if_lab` has sliders.
"""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from dtk.digits import three
from dtk.language import N_, _, columns, ngettext
from dtk.scaling.job import ALGORITHMS, BIGGEST_CLUSTER, LINKS, Cluster, Job, check
from dtk.scaling.prediction import LIMITS, TOLERATED, predict
from dtk.view.canvas import axes, headline, ink, legend_below, note, png
from dtk.view.controls import Lab, has_widgets

__all__ = ["EXAMPLE", "LIMIT_COLORS", "WhatIfLab", "predictions", "tell", "what_if", "what_if_lab"]

# ResNet-50 on ImageNet with P100 GPUs: TensorFlow's benchmarks of May 2017 for the seconds, 25.6 million float32 for
# the gradients, "tens of thousands" for the critical batch (McCandlish et al. 2018). Overlap and spread are made up.
EXAMPLE = Job(
    per_example=1 / 219,
    batch=64,
    gradient_bytes=102.4e6,
    pack_bytes=6.4e6,
    overlap=1.0,
    spread=0.03,
    critical_batch=20_000,
)
# Of Okabe and Ito's palette; no worker has a colour here.
LIMIT_COLORS = dict(zip(LIMITS[:4], ("#009E73", "#E69F00", "#0072B2", "#CC79A7"), strict=True))
_POINTS = 49
_FEW = 256  # workers, up to which the axis counts in powers of 2
_MOST_A_CORE = 32  # workers on one machine, to which the axis goes
_LIMITS = {
    "compute": N_("compute"),
    "straggler": N_("straggler"),
    "bandwidth": N_("bandwidth"),
    "latency": N_("latency"),
}
_LOST_BY = {**_LIMITS, "compute": N_("no limit but the computation"), "straggler": N_("waiting for stragglers")}
_ALGORITHMS = {"ring": N_("ring"), "halving_doubling": N_("halving and doubling"), "tree": N_("tree")}
_SETTING = N_(
    "{batch}, {size} MB of gradients, {link}, {algorithm}, overlap {overlap:.0f} %, stragglers ±{spread:.0f} %."
)
_COLOUR = N_("Colour: where most of the lost throughput goes (compute: at most a tenth is lost).")
_COLOUR_WITH_CORES = N_(
    "Colour: where most of the lost throughput goes (compute: at most a tenth is lost, or the cores are too few)."
)
_STRIP = (106, 124)  # above the efficiency, in %
_CHARACTER = 0.013  # of the width of the axis, of a name in the strip


def what_if(
    job: Job = EXAMPLE,
    cluster: Cluster | None = None,
    workers: int = 256,
    ax: Axes | None = None,
) -> Axes:
    """Draw predicted throughput, and its share of the ideal, for 1 to 10,000 workers; colours name what limits it.

        dtk.plot.what_if(Job(per_example=0.001, batch=64, gradient_bytes=1.4e6), Cluster(fit.link()))

    The ceiling, without communication and stragglers, is drawn where it is below the ideal. Where the job has a
    critical batch, a third picture has what an example is worth, in examples of one worker's batch: a batch that is too
    large makes no step slower, it makes each example count for less.

    Args:
        job: what a replica does in a step.
        cluster: what connects the workers; None: `Cluster()`.
        workers: the number that the title is about.
        ax: axes for the throughput alone; None: a new figure with all.

    Raises:
        ClusterConfigError: what can't be predicted.
    """
    cluster = cluster or Cluster()
    table = predictions(job, cluster, workers)
    grid = axes(ax, *_layout(job))
    _draw(grid, table, job, cluster, workers)
    return grid[0]


def tell(table: pandas.DataFrame, workers: int) -> list[str]:
    """The figure in words: the number of workers asked for, then each limit with the workers from which on it holds.

    >>> from dtk.scaling.job import ETHERNET_10
    >>> job = Job(per_example=0.001, batch=64, gradient_bytes=1e8)
    >>> for line in tell(predict(job, Cluster(ETHERNET_10), [1, 2, 100]), workers=100):
    ...     print(line)
    100 workers: 28,400 examples/s, 28 % of the ideal; the limit is bandwidth
    from 1: no limit but the computation
    from 2: bandwidth
    """
    row = table[table.workers == workers].iloc[0]
    lines = [_headline(row, workers)]
    for first, last, limit in _runs(table):
        words = _(_LOST_BY[limit])
        if limit == "compute" and table.ceiling[last] < (1 - TOLERATED) * table.ideal[last]:
            words = _("the computation itself, which takes longer with more workers")
        lines.append(_("from {workers:,}: {words}", workers=table.workers[first], words=words))
    large = table.workers[table.limit == "batch too large"]
    if len(large):
        words = _("the batch is too large, which costs more than anything else")
        lines.append(_("from {workers:,}: {words}", workers=large.iloc[0], words=words))
    return lines


def _headline(row: Any, workers: int) -> str:
    words = ngettext(
        "{count} worker: {rate} examples/s, {percent:.0f} % of the ideal",
        "{count} workers: {rate} examples/s, {percent:.0f} % of the ideal",
        workers,
        count=f"{workers:,}",
        rate=three(row.throughput),
        percent=100 * row.efficiency,
    )
    if row.slowed_by != "compute":
        words = _("{words}; the limit is {limit}", words=words, limit=_(_LOST_BY[row.slowed_by]))
    elif row.ceiling < (1 - TOLERATED) * row.ideal:
        words = _(
            "{words}, at most {percent:.0f} % with these cores", words=words, percent=100 * row.ceiling / row.ideal
        )
    if row.limit == "batch too large":
        more = N_("{words}; batch too large, an example is worth {percent:.0f} %")
        words = _(more, words=words, percent=100 * row.useful)
    return words


def predictions(job: Job, cluster: Cluster, workers: int) -> pandas.DataFrame:
    """Return predictions for workers spread evenly over the logarithmic axis, and for the number asked for."""
    check(workers, 0, cluster.algorithm, cluster.per_machine)
    most = BIGGEST_CLUSTER if cluster.cores is None else max(workers, int(_MOST_A_CORE * cluster.cores))
    spread = np.logspace(0, np.log10(min(most, BIGGEST_CLUSTER)), _POINTS).round().astype(int)
    return predict(job, cluster, sorted({*map(int, spread), workers}))


def _runs(table: pandas.DataFrame) -> Iterator[tuple[int, int, str]]:
    """Rows in a row with one limit of their examples/s: first, last, limit."""
    for limit, rows in itertools.groupby(range(len(table)), key=lambda row: table.slowed_by[row]):
        first, *more = rows
        yield first, [first, *more][-1], limit


def _draw(grid: list[Axes], table: pandas.DataFrame, job: Job, cluster: Cluster, workers: int) -> None:
    top, *below = grid
    top.plot(table.workers, table.ideal, color=ink(top), lw=1.2, ls=(0, (4, 2)), label=_("ideal"))
    if (table.ceiling < 0.99 * table.ideal).any():
        top.plot(table.workers, table.ceiling, color=ink(top), lw=1.2, ls=":", label=_("ceiling"))
    for first, last, limit in _runs(table):
        part = table.iloc[first : last + 2]  # to the first point of the next colour, so that the line has no gap
        top.plot(part.workers, part.throughput, color=LIMIT_COLORS[limit], lw=2.6, label=_(_LIMITS[limit]))
    row = table[table.workers == workers].iloc[0]
    top.plot([workers], [row.throughput], "o", ms=8, mfc="none", mec=ink(top), mew=1.4)
    top.set(yscale="log", ylabel=_("examples/s"))
    for ax, draw in zip(below, (_efficiency, _worth), strict=False):
        ax.plot([workers, workers], [0, 100], color=ink(ax), lw=0.8, alpha=0.6)
        ax.spines[["top", "right"]].set_visible(False)
        draw(ax, table, job)
    most = table.workers.max()
    for ax in grid:
        ax.set(xscale="log", xlim=(0.9, 1.12 * most))
        ax.tick_params(labelbottom=ax is grid[-1])
        if most <= _FEW:
            ax.set_xticks([2**power for power in range(int(np.log2(most)) + 1)])
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_minor_formatter(NullFormatter())  # without it, each minor tick is laid out as an empty text
    grid[-1].set_xlabel(_("workers"))
    grid[-1].xaxis.set_major_formatter(lambda value, place: f"{value:,.0f}" if value >= 1 else "")
    top.yaxis.set_major_formatter(lambda value, place: three(value))
    legend_below(top, ncols=7)
    headline(top, *_words(table, job, cluster, workers))


def _efficiency(ax: Axes, table: pandas.DataFrame, job: Job) -> None:
    """The share of the ideal, and above it the limits by name where there is room; elsewhere the legend has them."""
    ax.axhline(100, color=ink(ax), lw=1.2, ls=(0, (4, 2)))
    whole = np.log(table.workers.iloc[-1] / table.workers.iloc[0]) or 1.0
    for first, last, limit in _runs(table):
        part = table.iloc[first : last + 2]
        fill: dict[str, Any] = {"color": LIMIT_COLORS[limit], "alpha": 0.8, "lw": 0}
        ax.fill_between(part.workers, 0, 100 * part.efficiency, **fill)
        low, high = part.workers.iloc[0], part.workers.iloc[-1]
        ax.fill_between([low, high], *_STRIP, **fill)
        name = _(_LIMITS[limit])
        if np.log(high / low) >= columns(name) * _CHARACTER * whole:
            middle = (low * high) ** 0.5, sum(_STRIP) / 2
            ax.text(*middle, name, ha="center", va="center_baseline", fontsize=8.5, gid="limit")
    ax.set(ylim=(0, _STRIP[1]), yticks=range(0, 101, 25), ylabel=_("% of the ideal"))


def _worth(ax: Axes, table: pandas.DataFrame, job: Job) -> None:
    """What an example is worth, of one in one worker's batch, and where the global batch is the critical one."""
    critical = job.critical_batch or 0.0
    ax.plot(table.workers, 100 * table.useful, color=ink(ax), lw=1.6, gid="worth")
    row = int(np.argmax(table.global_batch.to_numpy() >= critical))
    if table.global_batch[row] >= critical and row:
        at = table.workers[row] * critical / table.global_batch[row]
        ax.axvline(at, color=ink(ax), lw=1.2, ls=(0, (2, 2)))
        words = _("critical batch, {size}", size=three(critical))
        note(ax, words, (at, 0), (-4, 4), ha="right", va="bottom", fontsize=8.5)
    ax.set(ylim=(0, 106), yticks=range(0, 101, 50), ylabel=_("worth of an\nexample, %"))


def _words(table: pandas.DataFrame, job: Job, cluster: Cluster, workers: int) -> tuple[str, str]:
    total = sum(job.buckets) / 1e6
    setting = _(
        _SETTING,
        batch=_("{batch} examples a replica", batch=f"{job.batch:g}"),
        size=three(total),
        link=cluster.link,
        algorithm=_(_ALGORITHMS[cluster.algorithm]),
        overlap=100 * job.overlap,
        spread=100 * job.spread,
    )
    caption = [setting.replace(" %", "\N{NO-BREAK SPACE}%"), _(_COLOUR)]
    if cluster.cores is not None:
        caption[1:] = [_("{cores:g} cores for all.", cores=cluster.cores), _(_COLOUR_WITH_CORES)]
    if job.critical_batch is not None:
        caption.append(_("Below: what an example of so large a batch is worth."))
    return tell(table, workers)[0].replace(" %", "\N{NO-BREAK SPACE}%"), " ".join(caption)


def _layout(job: Job) -> tuple[tuple[float, ...], tuple[float, float]]:
    """The heights of the pictures, relative to one another, and the figure's size in inches."""
    return ((1.25, 1.0), (7.0, 5.2)) if job.critical_batch is None else ((1.25, 1.0, 0.6), (7.0, 6.4))


# ---- the lab


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
    if has_widgets():
        return WhatIfLab(job, cluster or Cluster(), workers)
    return what_if(job, cluster, workers)


class WhatIfLab(Lab):
    """The lab's controls: `workers`, `batch`, `megabytes`, `link`, `algorithm`, `overlap`, `spread` (widgets with a
    `value`), `picture` and `words`."""

    title = "what if"

    def __init__(self, job: Job, cluster: Cluster, workers: int):
        import ipywidgets

        self._start = job, cluster, workers
        self._links = {**LINKS, cluster.link.name: cluster.link}
        style, wide = {"description_width": "8.5em"}, ipywidgets.Layout(width="26em")

        def slider(name: str, value: float, some: list[float], form: str = ",g") -> Any:
            options = [(f"{each:{form}}", each) for each in sorted({*some, value})]
            given: dict[str, Any] = {"continuous_update": False, "style": style}
            return ipywidgets.SelectionSlider(options=options, value=value, description=name, **given)

        def menu(name: str, value: str, some: Mapping[str, str]) -> Any:
            options = [(words, key) for key, words in some.items()]
            return ipywidgets.Dropdown(options=options, value=value, description=name, style=style, layout=wide)

        powers: list[float] = [2**power for power in range(14)]
        self.workers = slider(_("workers"), workers, [*powers, BIGGEST_CLUSTER])
        self.batch = slider(_("per-replica batch"), job.batch, powers[:11])
        sizes = [0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000]
        self.megabytes = slider(_("gradients, MB"), round(sum(job.buckets) / 1e6, 3), sizes)
        self.spread = slider(_("stragglers ±"), job.spread, [k / 100 for k in range(51)], ".0%")
        self.link = menu(_("link"), cluster.link.name, {name: str(link) for name, link in self._links.items()})
        kinds = {name: _(_ALGORITHMS[name]) for name in ALGORITHMS}
        self.algorithm = menu(_("all-reduce"), cluster.algorithm, kinds)
        self.overlap = slider(_("overlap"), job.overlap, [k / 20 for k in range(21)], ".0%")
        left = [self.workers, self.batch, self.megabytes, self.spread]
        right = [self.link, self.algorithm, self.overlap]
        rows = ipywidgets.HBox([ipywidgets.VBox(left), ipywidgets.VBox(right)], layout={"flex_flow": "row wrap"})
        self.arrange([*left, *right], [rows])

    @property
    def job(self) -> Job:
        """What the controls stand for now; of another size, the job's buckets are as much larger, each."""
        first = self._start[0]
        now = replace(first, batch=self.batch.value, overlap=self.overlap.value, spread=self.spread.value)
        size = round(sum(first.buckets) / 1e6, 3)
        if self.megabytes.value == size:
            return now
        factor = self.megabytes.value / size if size else 0.0
        buckets = tuple(each * factor for each in first.buckets) if size else (self.megabytes.value * 1e6,)
        return replace(now, gradient_bytes=buckets)

    @property
    def cluster(self) -> Cluster:
        return replace(self._start[1], link=self._links[self.link.value], algorithm=self.algorithm.value)

    @property
    def table(self) -> pandas.DataFrame:
        """The predictions that are drawn: see `dtk.scaling.prediction.predict`."""
        return predictions(self.job, self.cluster, self.workers.value)

    def still(self) -> bytes:
        return png(_figure(*self._start))

    def draw(self) -> tuple[str, Figure]:
        lines = [html.escape(line) for line in tell(self.table, self.workers.value)[1:]]
        words = _("Workers: {limits}.", limits=_("; ").join(lines))
        return words, _figure(self.job, self.cluster, self.workers.value)


def _figure(job: Job, cluster: Cluster, workers: int) -> Figure:
    # Not by pyplot, which would show the figure under the cell as well.
    rows, size = _layout(job)
    figure = Figure(figsize=size, layout="constrained")
    grid = list(figure.subplots(len(rows), 1, gridspec_kw={"height_ratios": rows}))
    _draw(grid, predictions(job, cluster, workers), job, cluster, workers)
    return figure
