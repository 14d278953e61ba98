"""What if there were more workers: predicted throughput and efficiency up to 10,000, and what limits them where."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from dtk.environment import live_mode
from dtk.language import N_, _, ngettext, three
from dtk.scaling.job import ALGORITHMS, BIGGEST_CLUSTER, ETHERNET_100, LINKS, Cluster, Job, check_count
from dtk.scaling.prediction import LIMITS, predict
from dtk.view.canvas import axes, headline, ink, legend_below, note
from dtk.view.controls import Lab, choice, number
from dtk.view.palette import PART_COLORS, stroke

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
LIMIT_COLORS = {limit: stroke(PART_COLORS[limit]) for limit in LIMITS[:4]}
_POINTS = 49
_NAMES = "9em"  # width of the controls' names
_LOST_BY = {"straggler": N_("waiting for stragglers")}
_ALGORITHMS = {"ring": N_("ring"), "halving_doubling": N_("halving and doubling"), "tree": N_("tree")}


def what_if(job: Job = EXAMPLE, cluster: Cluster | None = None, workers: int = 256, ax: Axes | None = None) -> Axes:
    """Draw predicted throughput, and its share of the ideal, for 1 to 10,000 workers; colors name what limits it.

        dtk.plot.what_if(Job(per_example=0.001, batch=64, gradient_bytes=1.4e6), Cluster(fit.link()))

    Where the job has a critical batch, a third picture has what an example is worth, in examples of one worker's batch:
    a batch that is too large makes no step slower, it makes each example count for less.

    Args:
        job: what a replica does in a step.
        cluster: what connects the workers; None: `Cluster()`.
        workers: the number that the title is about.
        ax: axes for the throughput alone; None: a new figure with all.

    Raises:
        ClusterConfigError: what can't be predicted.
    """
    return _draw(job, cluster or Cluster(), workers, ax)


def predictions(job: Job, cluster: Cluster, workers: int) -> pandas.DataFrame:
    """Return predictions for workers spread evenly over the logarithmic axis, and for the number asked for."""
    check_count("workers", workers)
    spread = np.logspace(0, np.log10(BIGGEST_CLUSTER), _POINTS).round().astype(int)
    return predict(job, cluster, sorted({*map(int, spread), workers}))


def _by_limit(table: pandas.DataFrame) -> Iterator[tuple[str, pandas.DataFrame]]:
    """Stretches with one limit of their examples/s, each to the first point of the next, so that a line has no gap."""
    for limit, rows in itertools.groupby(table.index, key=lambda row: table.slowed_by[row]):
        first, *more = rows
        yield limit, table.iloc[first : first + len(more) + 2]


def _draw(job: Job, cluster: Cluster, workers: int, ax: Axes | None = None, shown: bool = True) -> Axes:
    table = predictions(job, cluster, workers)
    heights, size = ((1.25, 1.0, 0.6), (7.0, 6.4)) if job.critical_batch is not None else ((1.25, 1.0), (7.0, 5.2))
    top, *below = grid = axes(ax, heights, size, shown)
    top.plot(table.workers, table.ideal, color=ink(top), lw=1.2, ls=(0, (4, 2)), label=_("ideal"))
    for limit, part in _by_limit(table):
        top.plot(part.workers, part.throughput, color=LIMIT_COLORS[limit], lw=2.6, label=_(limit))
    row = table[table.workers == workers].iloc[0]
    top.plot([workers], [row.throughput], "o", ms=8, mfc="none", mec=ink(top), mew=1.4)
    top.set(yscale="log", ylabel=_("examples/s"))
    for each, draw in zip(below, (_efficiency, _worth), strict=False):
        each.plot([workers, workers], [0, 100], color=ink(each), lw=0.8, alpha=0.6)
        each.spines[["top", "right"]].set_visible(False)
        draw(each, table, job)
    for each in grid:
        each.set(xscale="log", xlim=(0.9, 1.12 * BIGGEST_CLUSTER))
        each.tick_params(labelbottom=each is grid[-1])
        for axis in (each.xaxis, each.yaxis):
            axis.set_minor_formatter(NullFormatter())  # without it, each minor tick is laid out as an empty text
    grid[-1].set_xlabel(_("workers"))
    grid[-1].xaxis.set_major_formatter(lambda value, place: f"{value:,.0f}" if value >= 1 else "")
    top.yaxis.set_major_formatter(lambda value, place: three(value))
    legend_below(top, ncols=7)
    headline(top, *_words(row, job, cluster))
    return top


def _efficiency(ax: Axes, table: pandas.DataFrame, job: Job) -> None:
    """The share of the ideal."""
    ax.axhline(100, color=ink(ax), lw=1.2, ls=(0, (4, 2)))
    for limit, part in _by_limit(table):
        ax.fill_between(part.workers, 0, 100 * part.efficiency, color=LIMIT_COLORS[limit], alpha=0.8, lw=0)
    ax.set(ylim=(0, 106), yticks=range(0, 101, 25), ylabel=_("% of the ideal"))


def _worth(ax: Axes, table: pandas.DataFrame, job: Job) -> None:
    """What an example is worth, of one in one worker's batch, and where the global batch is the critical one."""
    critical = job.critical_batch or 0.0
    ax.plot(table.workers, 100 * table.useful, color=ink(ax), lw=1.6, gid="worth")
    row = int(np.argmax(table.global_batch.to_numpy() >= critical))
    if table.global_batch[row] >= critical and row:
        at = table.workers[row] * critical / table.global_batch[row]
        ax.axvline(at, color=ink(ax), lw=1.2, ls=(0, (2, 2)))
        words = _("critical batch, {size}", size=three(critical))
        note(ax, words, (at, 0), (-4, 4), ground=True, ha="right", va="bottom", fontsize=8.5)
    ax.set(ylim=(0, 106), yticks=range(0, 101, 50), ylabel=_("worth of an\nexample, %"))


def _words(row: Any, job: Job, cluster: Cluster) -> tuple[str, str]:
    """What is predicted for the number of workers that was asked for, and what limits it; and the setting."""
    batch, size = _("{batch} examples a replica", batch=f"{job.batch:g}"), three(sum(job.buckets) / 1e6)
    numbers = {"size": size, "overlap": 100 * job.overlap, "spread": 100 * job.spread}
    words = N_(
        "{batch}, {size} MB of gradients, {link}, {algorithm}, overlap {overlap:.0f} %, stragglers ±{spread:.0f} %."
    )
    setting = _(words, batch=batch, link=cluster.link, algorithm=_(_ALGORITHMS[cluster.algorithm]), **numbers)
    color = _("Color: where most of the lost throughput goes (compute: at most a tenth is lost).")
    caption = [setting.replace(" %", "\N{NO-BREAK SPACE}%"), color]
    if job.critical_batch is not None:
        caption.append(_("Below: what an example of so large a batch is worth."))
    reached = N_("{rate} examples/s, {percent:.0f} % of the ideal")
    reached = _(reached, rate=three(row.throughput), percent=100 * row.efficiency)
    count = ngettext("{n} worker", "{n} workers", row.workers, n=f"{row.workers:,}")
    title = _("{name}: {words}", name=count, words=reached)
    if row.slowed_by != "compute":
        title = _("{words}; the limit is {limit}", words=title, limit=_(_LOST_BY.get(row.slowed_by, row.slowed_by)))
    if row.limit == "batch too large":
        more = N_("{words}; batch too large, an example is worth {percent:.0f} %")
        title = _(more, words=title, percent=100 * row.useful)
    return title.replace(" %", "\N{NO-BREAK SPACE}%"), " ".join(caption)


def what_if_lab(workers: int = 256) -> Lab | Axes:
    """`dtk.plot.what_if` with controls: workers, batch, gradient size, link, algorithm, overlap, stragglers.

    Args:
        workers: the number that it begins with.

    Returns:
        The lab; its `controls` are `workers`, `batch`, `megabytes`, `spread` (%), `overlap` (%), `link` and
        `algorithm`, widgets with a `value`. Where widgets don't run (`dtk.environment.live_mode`), the figure.

    Raises:
        ClusterConfigError: a number of workers that can't be predicted.
    """
    if live_mode() != "widgets":
        return what_if(workers=workers)
    check_count("workers", workers)
    controls = {
        "workers": number(workers, 1, BIGGEST_CLUSTER, _("workers"), _NAMES),
        "batch": number(int(EXAMPLE.batch), 1, 1024, _("per-replica batch"), _NAMES),
        "megabytes": number(sum(EXAMPLE.buckets) / 1e6, 0.1, 3000, _("gradients, MB"), _NAMES),
        "spread": number(round(100 * EXAMPLE.spread), 0, 50, _("stragglers ±, %"), _NAMES),
        "overlap": number(round(100 * EXAMPLE.overlap), 0, 100, _("overlap, %"), _NAMES),
        "link": choice([(str(link), name) for name, link in LINKS.items()], ETHERNET_100.name, _("link"), _NAMES),
        "algorithm": choice([(_(_ALGORITHMS[name]), name) for name in ALGORITHMS], "ring", _("all-reduce"), _NAMES),
    }
    return Lab("what if", controls, _shown)


def _shown(workers: int, megabytes: float, spread: int, overlap: int, link: str, algorithm: str, **given: Any) -> Any:
    """The lab's words, none, as the figure says all, and the figure, by the values of its controls."""
    job = replace(EXAMPLE, gradient_bytes=1e6 * megabytes, spread=spread / 100, overlap=overlap / 100, **given)
    return "", _draw(job, Cluster(LINKS[link], algorithm), workers, shown=False)
