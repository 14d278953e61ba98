"""The figure of a run that was started again: which steps were kept, which were lost, which were computed twice."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from dtk.language import N_, _
from dtk.records.tables import Recorded
from dtk.scaling.timing import fates, spans
from dtk.view.canvas import NO_RECORDS, axes, by_step, headline, ink, legend_below, name_rows, note, only_text, wrapped
from dtk.view.palette import CURVE_COLORS

__all__ = ["restarts"]

_KEPT, _AGAIN = CURVE_COLORS[0], CURVE_COLORS[2]
_HIGH = 0.46  # of a row; the words under the bar take the rest
_WIDE = 88  # letters under a bar
_KINDS = {"kept": N_("kept"), "lost": N_("computed, then lost"), "again": N_("computed again, kept")}


def restarts(run: Recorded, ax: Axes | None = None) -> Axes:
    """Draw each start of the cluster as a row: the steps that it computed, and whether they were kept.

    A step is lost where the next attempt's checkpoint did not hold it: that attempt computes it again. Under a row
    stands what ended the attempt.

    Args:
        run: from `dtk.run(..., restarts=...)`, or the error of a run that failed.
        ax: axes to draw on; None: a new figure.
    """
    table = fates(run.folder) if run.folder is not None else None
    if table is None or table.empty:
        return only_text(ax, NO_RECORDS)
    table["kind"] = np.select([table.lost, table.again], ["lost", "again"], "kept")
    said = {attempt.number: attempt.failed for attempt in run.folder.attempts}
    count, last = run.folder.attempt, int(table.step.max())
    (ax,) = axes(ax, size=(7.0, 1.75 + 0.62 * count))
    for row in range(count):
        mine = table[table.attempt == row + 1]
        for kind, part in mine.groupby("kind"):
            bars = [(first - 0.5, end - first + 1) for first, end in spans(part.step.tolist())]
            ax.broken_barh(bars, (row - _HIGH / 2, _HIGH), gid=kind, **_style(ax, kind))
        _reason(ax, row, said.get(row + 1), mine)
        if row and len(mine):
            at = int(mine.step.min()) - 0.5
            ax.plot([at, at], [row - 1 - _HIGH / 2, row + _HIGH / 2], color=ink(ax), lw=1.2, ls=(0, (2, 2)), gid="from")
    by_step(ax, 1, last)
    name_rows(ax, [_("attempt {number}", number=row + 1) for row in range(count)])
    seen = [kind for kind in _KINDS if (table.kind == kind).any()]
    legend_below(ax, [Patch(label=_(_KINDS[kind]), **_style(ax, kind)) for kind in seen])
    headline(ax, *_words(table))
    return ax


def _style(ax: Axes, kind: str) -> dict[str, Any]:
    if kind == "lost":
        return {"facecolor": "none", "edgecolor": ink(ax), "hatch": "//////", "lw": 0.8, "alpha": 0.55}
    return {"facecolor": _AGAIN if kind == "again" else _KEPT, "edgecolor": "none", "lw": 0.0}


def _reason(ax: Axes, row: int, failed: str | None, table: pandas.DataFrame) -> None:
    """What ended the attempt, beneath its bar; nothing for one that finished."""
    if failed is None:
        return
    first, *more = wrapped(re.split("; |；", failed)[0], _WIDE)  # noqa: RUF001
    words = f"{first} …" if more else first
    words = _("made no step: {why}", why=words) if table.empty else words
    ground = {"facecolor": ax.get_facecolor(), "lw": 0, "pad": 1.0}  # where a dashed line would cross the words
    note(ax, words, (0.5, row + _HIGH / 2), (3, -4), va="top", fontsize=8.5, gid="reason", bbox=ground)


def _words(table: pandas.DataFrame) -> tuple[str, str]:
    computed, count = len(table), int((~table.lost).sum())
    if table.attempt.nunique() == 1 and table.attempt.max() == 1:
        title = _("One attempt, {count} steps, each computed once", count=count)
        return title, _("Nothing was lost, so nothing was computed again.")
    times = table.groupby("step").size()
    twice = spans(times.index[times > 1].tolist())
    if not twice:
        title = _("{computed} steps computed, all of them count", computed=computed)
        return title, _("The next attempt began after the last step of the one before.")
    first, end = twice[0]
    which = N_("steps {first} to {last} were computed twice") if end > first else N_("step {first} was computed twice")
    if len(twice) > 1 or times.max() > 2:
        which = N_("{steps} steps were computed up to {times} times")
    again = _(which, steps=int((times > 1).sum()), first=first, last=end, times=times.max())
    title = _("{computed} steps computed, {count} count: {again}", computed=computed, count=count, again=again)
    return title, _("Dashed: there the next attempt went on. What its checkpoint did not hold was lost.")
