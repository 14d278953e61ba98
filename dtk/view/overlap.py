"""The figure of when a worker reduces its gradients: after its backward pass, or while that still goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dtk.digits import bytes_of, three
from dtk.language import N_, _
from dtk.scaling.parts import step_reductions
from dtk.view.canvas import axes, headline, ink, only_text
from dtk.view.palette import PART_COLORS

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

__all__ = ["overlap"]

NOTHING = N_("no all-reduce of gradients was noted: it takes two workers, and records of steps")
_HIGH = 0.62  # of a lane
_OPACITY = {"compute": 0.35, "waiting": 1.0, "all_reduce": 1.0}


def overlap(*runs: Any, step: int | None = None, labels: list[str] | None = None, ax: Axes | None = None) -> Axes:
    """One step of worker 0, a lane for each all-reduce: until its gradients are there, waiting for peers, reducing.

    TensorFlow puts all gradients into one all-reduce, which can begin only when the backward pass has ended. With
    `CommunicationOptions(bytes_per_pack=...)` there are several, and the first begin while earlier layers' gradients
    are still computed. Runs without marks (`DTK_MARKS=0`, or one worker) have nothing to draw, and the figure says so.

    Args:
        runs: from `dtk.run`; several are drawn one above the other, on the same scale.
        step: from 2 on, as the first is traced; None: of the steps that all runs have, the one whose duration is
            nearest to the median of each run.
        labels: one for each run; None: numbers.
        ax: axes to draw on; None: a new figure.

    Returns:
        The upper Axes.

    Raises:
        ValueError: no run, as many labels as runs are needed, or a step that is not there.
    """
    if not runs or (labels is not None and len(labels) != len(runs)):
        words = _(
            "{labels} labels for {runs} runs; give a run or more, and one label each",
            labels=len(labels or []),
            runs=len(runs),
        )
        raise ValueError(words)
    tables = _chosen([_of_worker_0(run) for run in runs], step)
    names = labels or [_("run {number}", number=k + 1) for k in range(len(runs))]
    lanes = [max(1, len(table)) for table in tables]
    places = axes(ax, tuple(lane + 1.4 for lane in lanes), (7.0, 0.6 + sum(0.75 + 0.33 * lane for lane in lanes)))
    longest = max((float(table.period.iloc[0]) for table in tables if len(table)), default=0.0)
    for place, table, name in zip(places, tables, names, strict=False):
        if table.empty:
            only_text(place, NOTHING)
            continue
        _draw(place, table, 1e3 * longest)
        headline(place, *_words(table, name if len(runs) > 1 or labels else ""))
    places[min(len(places), len(tables)) - 1].set_xlabel(_("ms since the step before ended"))
    if longest:
        _legend(places[0])
    return places[0]


def _of_worker_0(run: Any) -> pandas.DataFrame:
    """Its all-reduces in all steps."""
    import pandas as pd

    if run.folder is None:  # an error from before anything started
        return pd.DataFrame()
    table = step_reductions(run)
    return table[table.worker == 0]


def _chosen(tables: list[pandas.DataFrame], step: int | None) -> list[pandas.DataFrame]:
    """The all-reduces of one step, the same for all runs: another step may hold another part of the training."""
    full = [table for table in tables if len(table)]
    for table in full:
        if step is not None and step not in set(table.step):
            span = table.step.min(), table.step.max()
            words = _(
                "step={step}: this run has all-reduces of the steps {first} to {last}",
                step=step,
                first=span[0],
                last=span[1],
            )
            raise ValueError(words)
    if not full:
        return tables
    if step is None:
        periods = [table.groupby("step").period.first() for table in full]
        off = sum(np.abs(np.log(each / each.median())) for each in periods).dropna()
        if off.empty:
            raise ValueError(_("the runs have no step in common: draw each by itself"))
        step = int(off.idxmin())
    return [table[table.step == step].sort_values("begin") if len(table) else table for table in tables]


def _draw(ax: Axes, table: pandas.DataFrame, longest: float) -> None:
    for lane, row in enumerate(table.itertuples()):
        begin, waited, end = (1e3 * each for each in (row.begin, row.waited, row.end))
        for left, right, name in (
            (0.0, begin, "compute"),
            (begin, waited, "waiting"),
            (waited, end, "all_reduce"),
        ):
            style: dict[str, Any] = {"color": PART_COLORS[name], "alpha": _OPACITY[name], "lw": 0}
            ax.barh(lane, right - left, left=left, height=_HIGH, **style)
    whole = 1e3 * float(table.period.iloc[0])
    ax.axvline(whole, color=ink(ax), lw=1.2, ls=(0, (4, 2)))
    ax.set(xlim=(0, 1.04 * longest), ylim=(len(table) - 0.4, -0.6))
    ax.set_yticks(range(len(table)), [bytes_of(size) for size in table.bytes], size=9)
    ax.tick_params(axis="y", length=0)


def _legend(ax: Axes) -> None:
    from matplotlib.patches import Patch

    named = {
        "compute": _("until its gradients are there"),
        "waiting": _("waiting for the last worker"),
        "all_reduce": _("reducing"),
    }
    patches = [Patch(color=PART_COLORS[part], alpha=_OPACITY[part], label=words) for part, words in named.items()]
    ax.figure.legend(handles=patches, loc="outside lower center", ncols=3, frameon=False, fontsize=9)


def _words(table: pandas.DataFrame, name: str) -> tuple[str, str]:
    ready = float(table.begin.max())
    early = table[table.end < ready]
    sent, whole = float(early.bytes.sum()), float(table.bytes.sum())
    if len(table) == 1:
        title = _("one all-reduce, after the backward pass")
    elif early.empty:
        title = _("{count} all-reduces, none done before the last gradients are there", count=len(table))
    else:
        title = _(
            "{count} all-reduces, {percent:.0f} % of the bytes reduced before the last gradients are there",
            count=len(table),
            percent=100 * sent / whole,
        )
    caption = _(
        "Step {step} of worker 0, a lane an all-reduce. After the last gradients were there it took {ms} ms more to "
        "reduce; the line is the end of the step, with the update of the weights.",
        step=int(table.step.iloc[0]),
        ms=three(1e3 * (float(table.end.max()) - ready)),
    )
    return _("{name}: {words}", name=name, words=title) if name else title, caption
