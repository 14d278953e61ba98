"""The figure of a run that was started again: which steps were kept, which were lost, which were computed twice."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from dtk.language import N_, _, columns
from dtk.scaling.fates import fates, spans
from dtk.view.canvas import NO_RECORDS, axes, headline, ink, only_text
from dtk.view.letters import wrapped
from dtk.view.palette import CURVE_COLORS

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from dtk.records.tables import Recorded

__all__ = ["restarts"]

_KEPT, _AGAIN = CURVE_COLORS[0], CURVE_COLORS[2]
_HIGH = 0.46  # of a row; the words under the bar take the rest
_LETTER = 0.0115  # of the axes' width, of the figures in a bar
_WIDE = 88  # letters under a bar
_TILES = 60  # steps up to which each has an edge of its own
_LOST = N_("computed, then lost")
# By whether a step was lost, and whether it had been computed before.
_MEANING = {
    (False, False): N_("kept"),
    (True, False): _LOST,
    (False, True): N_("computed again, kept"),
    (True, True): _LOST,
}


def restarts(run: Recorded, ax: Axes | None = None) -> Axes:
    """Each start of the cluster in a row: the steps that it computed, and whether they were kept.

    A step is lost where the next attempt's checkpoint did not hold it: that attempt computes it again. Beside a row
    stands what ended the attempt.

    Args:
        run: from `dtk.run(..., restarts=...)`, or the error of a run that failed.
        ax: axes to draw on; None: a new figure.
    """
    table = fates(run.folder) if run.folder is not None else None
    if table is None or table.empty:
        (ax,) = axes(ax)
        return only_text(ax, NO_RECORDS)
    said = {attempt.number: attempt.failed for attempt in run.folder.attempts}
    count = run.folder.attempt
    (ax,) = axes(ax, size=(7.0, 1.75 + 0.62 * count))
    last = int(table.step.max())
    for row in range(count):
        mine = table[table.attempt == row + 1]
        _row(ax, row, mine, last)
        _reason(ax, row, said.get(row + 1), mine, last)
        if row and len(mine):
            at = int(mine.step.min()) - 0.5
            ax.plot([at, at], [row - 1 - _HIGH / 2, row + _HIGH / 2], color=ink(ax), lw=1.2, ls=(0, (2, 2)), gid="from")
    ax.set(xlim=(0.5, last + 0.5), ylim=(count - 0.45, -0.5), xlabel=_("step"))
    ax.set_yticks(range(count), [_("attempt {number}", number=row + 1) for row in range(count)])
    ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    ax.tick_params(axis="y", length=0)
    _legend(ax, table)
    headline(ax, *_words(table))
    return ax


def _row(ax: Axes, row: int, table: pandas.DataFrame, last: int) -> None:
    for (lost, again), part in table.groupby(["lost", "again"]):
        style = _style(ax, bool(lost), bool(again))
        for first, end in spans(part.step.tolist()):
            blocks = [(first - 0.5, end - first + 1)]
            if last <= _TILES:
                blocks = [(step - 0.5, 1) for step in range(first, end + 1)]
                style |= {"edgecolor": style["edgecolor"] if lost else ax.get_facecolor(), "lw": 0.8}
            kind = "lost" if lost else "again" if again else "kept"
            ax.broken_barh(blocks, (row - _HIGH / 2, _HIGH), gid=kind, **style)
            words = _("{first} to {last}", first=first, last=end) if end > first else f"{first}"
            if columns(words) * _LETTER * last <= end - first + 1:
                ground = {"facecolor": ax.get_facecolor() if lost else style["facecolor"], "lw": 0, "pad": 1.0}
                color = ink(ax) if lost else "black" if again else "white"
                place: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 9, "bbox": ground}
                ax.text((first + end) / 2, row, words, color=color, **place)


def _style(ax: Axes, lost: bool, again: bool) -> dict[str, Any]:
    if lost:
        return {"facecolor": "none", "edgecolor": ink(ax), "hatch": "//////", "lw": 0.8, "alpha": 0.55}
    return {"facecolor": _AGAIN if again else _KEPT, "edgecolor": "none", "lw": 0.0}


def _reason(ax: Axes, row: int, failed: str | None, table: pandas.DataFrame, last: int) -> None:
    """What ended the attempt, beside its bar or, where there is no room, beneath; nothing for one that finished."""
    if failed is None:
        return
    words = _shortened(re.split("; |；", failed)[0])  # noqa: RUF001
    words = _("made no step: {why}", why=words) if table.empty else words
    end = int(table.step.max()) if len(table) else 0
    ground = {"facecolor": ax.get_facecolor(), "lw": 0, "pad": 1.0}
    place: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8.5, "bbox": ground, "gid": "reason"}
    if columns(words) * _LETTER * last <= last - end:
        ax.annotate(words, (end + 0.5, row), (6, 0), va="center", **place)
    else:
        ax.annotate(words, (0.5, row + _HIGH / 2), (3, -4), va="top", **place)


def _legend(ax: Axes, table: pandas.DataFrame) -> None:
    found = {_MEANING[bool(lost), bool(again)]: _style(ax, bool(lost), bool(again)) for lost, again in _kinds(table)}
    order = [name for name in dict.fromkeys(_MEANING.values()) if name in found]
    handles = [Patch(label=_(name), **found[name]) for name in order]
    ax.figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=9)


def _kinds(table: pandas.DataFrame) -> list[tuple[bool, bool]]:
    return [(bool(lost), bool(again)) for lost, again in table[["lost", "again"]].drop_duplicates().to_numpy()]


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
    if len(twice) > 1:
        which = N_("{steps} steps were computed twice"), N_("{steps} steps were computed up to {times} times")
    elif end > first:
        which = (
            N_("steps {first} to {last} were computed twice"),
            N_("steps {first} to {last} were computed up to {times} times"),
        )
    else:
        which = N_("step {first} was computed twice"), N_("step {first} was computed up to {times} times")
    again = _(which[bool(times.max() > 2)], steps=int((times > 1).sum()), first=first, last=end, times=times.max())
    title = _("{computed} steps computed, {count} count: {again}", computed=computed, count=count, again=again)
    return title, _("Dashed: there the next attempt went on. What its checkpoint did not hold was lost.")


def _shortened(words: str) -> str:
    """As much as stands beside a bar."""
    if len(wrapped(words, _WIDE)) == 1:
        return words
    return f"{wrapped(words, _WIDE - 2)[0]} …"
