"""Figures of where a step's time goes: its parts side by side, and when its gradients are reduced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from dtk.language import N_, _, bytes_of, three
from dtk.scaling.parts import PARTS, step_parts, step_reductions
from dtk.view import canvas
from dtk.view.palette import PART_COLORS, worker_name

__all__ = ["overlap", "step_time"]

_MEANING = {
    "python": N_("Python, callbacks"),
    "input": N_("input"),
    "compute": N_("computing"),
    "all_reduce": N_("all-reduce"),
    "waiting": N_("waiting for the last"),
}
_SHOWN = 0.075  # of the longest bar: a part that is shorter holds no number
NOTHING = N_("no all-reduce of gradients was noted: it takes two workers, and records of steps")
_OPACITY = {"compute": 0.35, "waiting": 1.0, "all_reduce": 1.0}
_IN_A_LANE = {
    "compute": N_("until its gradients are there"),
    "waiting": N_("waiting for the last worker"),
    "all_reduce": N_("reducing"),
}


def step_time(run: Any, ax: Axes | None = None) -> Axes:
    """Draw where a step's time goes: python, input, compute, all_reduce and waiting (`dtk.step_parts`), in ms.

    Args:
        run: from `dtk.run`: one bar per worker, the median of each part over the steps after the first. A `dtk.Study`:
            one bar for each number of workers and batch, the median over the repeats.
        ax: axes to draw on; None: a new figure.
    """
    of_study = hasattr(run, "points")
    table = _of_study(run) if of_study else _of_run(run)
    if table.empty:
        return canvas.only_text(ax, canvas.NO_RECORDS)
    (ax,) = canvas.axes(ax, size=(7.0, 1.75 + 0.42 * max(2, len(table))))
    longest = float(table.sum(axis=1).max())
    for row, values in enumerate(table.itertuples(index=False)):
        end = canvas.row_of_blocks(
            ax, row, [(value, PART_COLORS[part], "") for part, value in zip(PARTS, values, strict=True)]
        )
        canvas.note(ax, _("{number} ms", number=three(end)), (end, row), (5, 0))
        for part, value, right in zip(PARTS, values, np.cumsum(values), strict=True):
            if value > _SHOWN * longest:
                color = "white" if part in ("compute", "input") else "black"
                ax.text(right - value / 2, row, three(value), ha="center", va="center", color=color, fontsize=9)
    canvas.name_rows(ax, list(table.index), margin=0)
    ax.set_ylabel(_("workers × examples each") if of_study else "")  # noqa: RUF001
    ax.set(xlabel=_("ms a step"), xlim=(0, 1.14 * longest))
    canvas.legend_below(ax, [Patch(color=PART_COLORS[part], label=_(_MEANING[part])) for part in PARTS], ncols=5)
    canvas.headline(ax, *_words(table))
    return ax


def _of_run(run: Any) -> pandas.DataFrame:
    """By worker, ms; empty without records."""
    if run.folder is None or run.records.empty:
        return pandas.DataFrame(columns=list(PARTS))
    table = step_parts(run).groupby("worker")[list(PARTS)].median() * 1e3
    return table.rename(index=worker_name)


def _of_study(study: Any) -> pandas.DataFrame:
    points = study.points
    points = points[(points.kind == "cluster") & (points.failed == "")]
    table = points.groupby(["workers", "per_replica_batch"])[list(PARTS)].median() * 1e3
    table.index = [f"{workers} × {each}" for workers, each in table.index.to_flat_index()]  # noqa: RUF001
    return table


def _words(table: pandas.DataFrame) -> tuple[str, str]:
    """Names the biggest part of the bar that takes longest."""
    longest = table.sum(axis=1).idxmax()
    row = table.loc[longest]
    biggest = str(row.idxmax())
    most, whole = three(row[biggest]), three(row.sum())
    words = N_("The biggest part of a step is {part}: {most} of {whole} ms ({longest})")
    title = _(words, part=_(_MEANING[biggest]), most=most, whole=whole, longest=longest)
    caption = _("Medians of each part over the steps after the first; at the end of a bar, their sum.")
    more = _("What is sent while it computes counts as computing.")
    if (table["all_reduce"] == 0).all():
        more = _("One process alone neither reduces nor waits.")
    return title, f"{caption} {more}"


# ---- all-reduces beside the backward pass


def overlap(*runs: Any, step: int | None = None, labels: list[str] | None = None, ax: Axes | None = None) -> Axes:
    """Draw a step of worker 0, a lane for each all-reduce: until its gradients are there, waiting, reducing.

    TensorFlow puts all gradients into one all-reduce, which can begin only when the backward pass has ended. With
    `CommunicationOptions(bytes_per_pack=...)` there are several, and the first begin while earlier layers' gradients
    are still computed. Runs without marks (`DTK_MARKS=0`, or one worker) have nothing to draw, and the figure says so.

    Args:
        runs: from `dtk.run`; several are drawn one above the other, on the same scale.
        step: from 2 on, as the first is traced; None: the middle one of those that all runs have.
        labels: one for each run; None: numbers.
        ax: axes to draw on; None: a new figure.

    Returns:
        The upper Axes.

    Raises:
        ValueError: no run, as many labels as runs are needed, or a step that is not there.
    """
    if not runs:
        raise ValueError(_("overlap takes a run or more"))
    names = canvas.names_of(labels, len(runs))
    tables = _chosen([_of_worker_0(run) for run in runs], step)
    lanes = [max(1, len(table)) for table in tables]
    places = canvas.axes(
        ax, tuple(lane + 1.4 for lane in lanes), (7.0, 0.6 + sum(0.75 + 0.33 * lane for lane in lanes))
    )
    longest = max((float(table.period.iloc[0]) for table in tables if len(table)), default=0.0)
    for place, table, name in zip(places, tables, names, strict=False):
        if table.empty:
            canvas.only_text(place, NOTHING)
        else:
            _draw_lanes(place, table)
            place.set_xlim(0, 1.04e3 * longest)
            title, caption = _overlap_words(table)
            named = len(runs) > 1 or labels
            canvas.headline(place, _("{name}: {words}", name=name, words=title) if named else title, caption)
    places[min(len(places), len(tables)) - 1].set_xlabel(_("ms since the step before ended"))
    if longest:
        patches = [
            Patch(color=PART_COLORS[part], alpha=_OPACITY[part], label=_(words)) for part, words in _IN_A_LANE.items()
        ]
        canvas.legend_below(places[0], patches)
    return places[0]


def _of_worker_0(run: Any) -> pandas.DataFrame:
    """Its all-reduces in all steps."""
    if run.folder is None:  # an error from before anything started
        return pandas.DataFrame()
    table = step_reductions(run)
    return table[table.worker == 0]


def _chosen(tables: list[pandas.DataFrame], step: int | None) -> list[pandas.DataFrame]:
    """The all-reduces of one step, the same for all runs: another step may hold another part of the training."""
    full = [table for table in tables if len(table)]
    if not full:
        return tables
    if step is None:
        common = sorted(set.intersection(*(set(table.step) for table in full)))
        step = int(common[len(common) // 2] if common else full[0].step.iloc[0])
    for table in full:
        if step not in set(table.step):
            words = N_("step={step}: this run has all-reduces of the steps {first} to {last}")
            raise ValueError(_(words, step=step, first=table.step.min(), last=table.step.max()))
    return [table[table.step == step].sort_values("begin") if len(table) else table for table in tables]


def _draw_lanes(ax: Axes, table: pandas.DataFrame) -> None:
    for lane, row in enumerate(table.itertuples()):
        ends = np.array([row.begin, row.waited, row.end]) * 1e3
        lengths = np.diff(ends, prepend=0.0)
        canvas.row_of_blocks(
            ax, lane, [(long, PART_COLORS[part]) for long, part in zip(lengths, _IN_A_LANE, strict=True)]
        )
        ax.patches[-3].set_alpha(_OPACITY["compute"])
    ax.axvline(1e3 * float(table.period.iloc[0]), color=canvas.ink(ax), lw=1.2, ls=(0, (4, 2)))
    canvas.name_rows(ax, [bytes_of(size) for size in table.bytes], 0.1)
    ax.tick_params(axis="y", labelsize=9)


def _overlap_words(table: pandas.DataFrame) -> tuple[str, str]:
    ready = float(table.begin.max())
    early = table[table.end < ready]
    title = N_("{count} all-reduces, {percent:.0f} % of the bytes reduced before the last gradients are there")
    if len(table) == 1:
        title = N_("one all-reduce, after the backward pass")
    elif early.empty:
        title = N_("{count} all-reduces, none done before the last gradients are there")
    caption = N_(
        "Step {step} of worker 0, a lane an all-reduce. After the last gradients were there it took {ms} ms more to "
        "reduce; the line is the end of the step, with the update of the weights."
    )
    ms = three(1e3 * (float(table.end.max()) - ready))
    percent = 100 * float(early.bytes.sum()) / float(table.bytes.sum())
    return _(title, count=len(table), percent=percent), _(caption, step=int(table.step.iloc[0]), ms=ms)
