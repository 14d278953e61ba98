"""The figure of where a step's time goes: its parts side by side, a bar per worker, or per point of a study."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dtk.digits import three
from dtk.language import N_, _
from dtk.scaling.parts import PARTS, step_parts
from dtk.view.canvas import NO_RECORDS, axes, headline, ink, only_text
from dtk.view.palette import PART_COLORS, worker_name

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

__all__ = ["step_time"]

_MEANING = {
    "python": N_("Python, callbacks"),
    "input": N_("input"),
    "compute": N_("computing"),
    "all_reduce": N_("all-reduce"),
    "waiting": N_("waiting for the last"),
}
_SHOWN = 0.075  # of the longest bar: a part that is shorter holds no figure


def step_time(run: Any, ax: Axes | None = None) -> Axes:
    """Where a step's time goes: python, input, compute, all_reduce and waiting (`dtk.step_parts`), in ms.

    Args:
        run: from `dtk.run`: one bar per worker, the median of each part over the steps after the first. A `dtk.Study`:
            one bar for each number of workers and batch, the median over the repeats of the plain study.
        ax: axes to draw on; None: a new figure.
    """
    table = _of_study(run) if hasattr(run, "points") else _of_run(run)
    if table.empty:
        (ax,) = axes(ax)
        return only_text(ax, NO_RECORDS)
    (ax,) = axes(ax, size=(7.0, 1.75 + 0.42 * max(2, len(table))))
    longest = float(table.sum(axis=1).max())
    for row, values in enumerate(table.itertuples(index=False)):
        _bar(ax, row, dict(zip(table.columns, values, strict=True)), longest)
    ax.set_yticks(range(len(table)), list(table.index))
    ax.set_ylim(len(table) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.set_ylabel(_("workers × examples each") if hasattr(run, "points") else "")  # noqa: RUF001
    ax.set(xlabel=_("ms a step"), xlim=(0, 1.14 * longest))
    shown = [name for name in PARTS if name in ax.get_legend_handles_labels()[1]]
    handles = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": 5, "frameon": False, "fontsize": 9}
    ax.figure.legend([handles[name] for name in shown], [_(_MEANING[name]) for name in shown], **place)
    headline(ax, *_words(table))
    return ax


def _of_run(run: Any) -> pandas.DataFrame:
    """By worker, ms; empty without records."""
    import pandas as pd

    if run.folder is None or run.records.empty:
        return pd.DataFrame(columns=list(PARTS))
    read = None if run.folder.earlier else run.records  # after restarts those hold the earlier starts' steps as well
    table = step_parts(run, read).groupby("worker")[list(PARTS)].median() * 1e3
    table.index = [worker_name(worker) for worker in table.index]
    return table


def _of_study(study: Any) -> pandas.DataFrame:
    points = study.points
    points = points[(points.kind == "cluster") & (points.switch == "") & (points.failed == "")]
    table = points.groupby(["workers", "per_replica_batch"])[list(PARTS)].median() * 1e3
    table.index = [f"{workers} × {each}" for workers, each in table.index.to_flat_index()]  # noqa: RUF001
    return table


def _bar(ax: Axes, row: int, parts: dict[str, float], longest: float) -> None:
    left = 0.0
    for name, value in parts.items():
        label = name if name not in ax.get_legend_handles_labels()[1] else ""
        ax.barh(row, value, left=left, height=0.62, color=PART_COLORS[name], label=label, lw=0)
        if value > _SHOWN * longest:
            color = "white" if name in ("compute", "input") else "black"
            ax.text(left + value / 2, row, three(value), ha="center", va="center", color=color, fontsize=9)
        left += value
    beside: dict[str, Any] = {"textcoords": "offset points", "va": "center", "size": 9, "color": ink(ax)}
    ax.annotate(_("{number} ms", number=three(left)), (left, row), (5, 0), **beside)


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
