"""A study's figures: examples/s and efficiency by number of workers, against ideal and the machine's ceiling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from matplotlib.ticker import PercentFormatter

from dtk.language import N_, _, columns, ngettext
from dtk.scaling.efficiency import GAPS, losses
from dtk.view.canvas import axes, counts, headline, ink, only_text
from dtk.view.palette import PART_COLORS, worker_color

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

__all__ = ["Studied", "efficiency", "study_throughput"]

NO_POINTS = N_("no point of this study was measured: see study.points.failed")
_CEILING = "#999999"
_MEASURED = worker_color(0)
_BELOW, _ABOVE = GAPS[2:], GAPS[:2]  # the ceiling
_NAMES = {
    "smaller batch": N_("smaller batch"),
    "cores": N_("cores"),
    "communication": N_("communication"),
    "stragglers": N_("stragglers"),
    "input": N_("input"),
    "other": N_("other"),
    "measured": N_("measured"),
    "ceiling": N_("ceiling"),
}
_WIDTH = 0.82  # of a bar
_SHOWN = 0.07  # of the axes' height: a segment that is lower holds no text


@runtime_checkable
class Studied(Protocol):
    """A `dtk.Study`."""

    @property
    def points(self) -> pandas.DataFrame: ...

    @property
    def summary(self) -> pandas.DataFrame: ...


def study_throughput(study: Studied, ax: Axes | None = None) -> Axes:
    """Examples/s by number of workers: ideal, the ceiling, and measured, with the range of the repeats.

    One picture for each curve (strong or weak, and its batch) of the plain study, or of one that `ax` has room for.
    Beside each measured point stands what most of its distance from ideal is due to.
    """
    return _each_curve(study, ax, _throughput)


def efficiency(study: Studied, ax: Axes | None = None) -> Axes:
    """Examples/s in per cent of ideal by number of workers, and by name what lies between. One picture per curve.

    The mark is the ceiling: what the same workers would reach without any communication. What lies below it, down to
    what was measured, is divided like the seconds of communication, stragglers, input and other; what lies above, up
    to ideal, like those of cores and smaller batch (`dtk.scaling.efficiency.summary`; a gap that noise made negative
    is left out). The bracket is the range of the repeats.

    Args:
        study: from `dtk.study`.
        ax: axes to draw on; None: a new figure.
    """
    return _each_curve(study, ax, _efficiency)


def _each_curve(study: Studied, ax: Axes | None, draw: Any) -> Axes:
    table = study.summary
    table = table[table.switch == ""] if len(table) else table
    if not table.measured.notna().any():
        (ax,) = axes(ax)
        return only_text(ax, NO_POINTS)
    fixed = table.global_batch.where(table.scaling == "strong", table.per_replica_batch)
    curves = [curve for __, curve in table.groupby([table.scaling, fixed], sort=False)]
    places = axes(ax, (1.0,) * len(curves), (7.0, 0.9 + 3.1 * len(curves)))
    for place, curve in zip(places, curves, strict=False):
        draw(place, curve.reset_index(drop=True))
    return places[0]


def _name(curve: pandas.DataFrame) -> str:
    row = curve.iloc[0]
    if row.scaling == "strong":
        return _("global batch {batch}", batch=row.global_batch)
    return _("{batch} examples a replica", batch=row.per_replica_batch)


def _throughput(ax: Axes, curve: pandas.DataFrame) -> None:
    at, workers = range(len(curve)), curve.workers
    ax.plot(at, curve.ideal, color=ink(ax), lw=1.4, ls=(0, (4, 2)), label=_("ideal"))
    _line(ax, at, curve, "ceiling", _CEILING, "s", _("ceiling: no communication"))
    _line(ax, at, curve, "measured", _MEASURED, "o", _("measured"))
    for x, row in zip(at, curve.itertuples(), strict=True):
        if row.gap and row.workers > 1 and np.isfinite(row.measured):
            beneath: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "top", "size": 9}
            ax.annotate(_(_NAMES[row.gap]), (x, row.measured), (0, -9), **beneath)
        elif row.failed and not np.isfinite(row.measured):
            _failed(ax, x, _("failed"))
    _frame(ax, workers)
    known = curve[["ideal", "ceiling", "measured", "ceiling_max", "measured_max"]].to_numpy(float)
    ax.set_ylim(0, 1.22 * np.nanmax(known[np.isfinite(known)]))  # the legend has its place above the lines
    ax.set_ylabel(_("examples/s"))
    counts(ax.yaxis)
    ax.legend(loc="upper left", frameon=False, fontsize=9, ncols=3)
    headline(ax, *_throughput_words(curve))


def _line(ax: Axes, at: range, curve: pandas.DataFrame, name: str, color: str, marker: str, label: str) -> None:
    values = curve[name].to_numpy(float)
    spread = np.abs(curve[[f"{name}_min", f"{name}_max"]].to_numpy(float).T - values)
    style: dict[str, Any] = {"color": color, "marker": marker, "ms": 5, "lw": 1.8, "capsize": 4, "label": label}
    ax.errorbar(at, values, spread, **style)


def _throughput_words(curve: pandas.DataFrame) -> tuple[str, str]:
    last = _largest(curve)
    caption = _repeated(curve)
    if last is None:
        return _("Examples/s, {curve}", curve=_name(curve)), caption
    times = last.measured / last.baseline
    title = ngettext(
        "{n} worker: {times:.2f} times one process, {curve}",
        "{n} workers: {times:.2f} times one process, {curve}",
        last.workers,
        times=times,
        curve=_name(curve),
    )
    if np.isfinite(last.ceiling) and last.workers > 1:
        words = _(
            "Ideal would be {ideal}, and these cores reach {ceiling:.2f} without communication. Below a point: what "
            "most of its distance from ideal is due to.",
            ideal=last.workers,
            ceiling=last.ceiling / last.baseline,
        )
        caption = f"{words} {caption}"
    return title, caption


def _largest(curve: pandas.DataFrame) -> Any:
    """The row of the most workers that has a measurement and a baseline; None without."""
    known = curve[curve.measured.notna() & curve.baseline.notna()]
    return known.loc[known.workers.idxmax()] if len(known) else None


def _repeated(curve: pandas.DataFrame) -> str:
    repeats = curve.measured_n[curve.measured_n > 0]
    if repeats.max() == 1:
        return _("One repeat, no range.")
    least, most = repeats.min(), repeats.max()
    many = least if least == most else _("{first} to {last}", first=least, last=most)
    return _("Medians and ranges of {repeats} repeats.", repeats=many)


def _efficiency(ax: Axes, curve: pandas.DataFrame) -> None:
    at = range(len(curve))
    highest = 1.0
    for x, row in zip(at, curve.itertuples(index=False), strict=True):
        if not np.isfinite(row.efficiency):
            _failed(ax, x, _("failed") if np.isnan(row.measured) else _("no baseline"))
            continue
        highest = max(highest, _stack(ax, x, curve.iloc[x], 56 / len(curve)))
        if np.isfinite(row.ceiling) and row.workers > 1:
            _mark(ax, x, row.ceiling / row.ideal)
        if np.isfinite(row.measured_min):
            spread = [[row.measured - row.measured_min], [row.measured_max - row.measured]]
            ax.errorbar(x, row.efficiency, np.array(spread) / row.ideal, color=ink(ax), capsize=4, lw=1.2)
    _frame(ax, curve.workers)
    ax.set(ylim=(0, 1.06 * highest), ylabel=_("efficiency"), xlim=(-0.6, len(curve) - 0.4))
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    _legend(ax)
    headline(ax, *_efficiency_words(curve))


def _stack(ax: Axes, x: int, row: pandas.Series, room: float) -> float:
    """From 0 up: efficiency, what lies between it and the ceiling, what lies between that and ideal. Returns the top.

    room: letters that a bar has room for.
    """
    bottom = float(row.efficiency)
    _block(ax, x, (0.0, bottom), "measured", f"{bottom:.0%}", "white")
    for name, height in losses(row.to_dict()).items():
        words = _(_NAMES[name]) if name == row.gap and columns(_(_NAMES[name])) <= room else ""
        _block(ax, x, (bottom, bottom + height), name, words, "white" if name == "cores" else "black")
        bottom += height
    return bottom


def _block(ax: Axes, x: int, span: tuple[float, float], name: str, words: str, color: str) -> None:
    low, high = span
    label = name if name not in ax.get_legend_handles_labels()[1] else ""
    ax.bar(x, high - low, bottom=low, width=_WIDTH, color=PART_COLORS.get(name, _MEASURED), label=label, lw=0)
    if high - low > _SHOWN:
        ax.text(x, (low + high) / 2, words, ha="center", va="center", color=color, fontsize=8.5)


def _mark(ax: Axes, x: int, top: float) -> None:
    ax.plot([x - 0.46, x + 0.46], [top, top], color=ink(ax), lw=2.2, label="ceiling", solid_capstyle="butt")


def _efficiency_words(curve: pandas.DataFrame) -> tuple[str, str]:
    last = _largest(curve)
    if last is None or last.workers == 1:
        return _("Efficiency, {curve}", curve=_name(curve)), _repeated(curve)
    title = N_("{workers} workers: {part:.0%} of ideal")
    if np.isfinite(last.of_ceiling):
        title = N_("{workers} workers: {part:.0%} of ideal, {of_ceiling:.0%} of what these cores can do")
    caption = [_("{sentence}.", sentence=_name(curve).capitalize())]
    if last.gap and last.efficiency < 1:
        caption.append(_("Most of the rest: {gap}.", gap=_(_NAMES[last.gap])))
    caption += [_("Thick mark: the ceiling."), _repeated(curve)]
    values = {"workers": last.workers, "part": last.efficiency, "of_ceiling": last.of_ceiling}
    return _(title, **values), " ".join(caption)


def _failed(ax: Axes, x: int, said: str) -> None:
    words: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": 9, "style": "italic"}
    ax.text(x, 0.02, said, transform=ax.get_xaxis_transform(), **words)


def _frame(ax: Axes, workers: pandas.Series) -> None:
    ax.set_xticks(range(len(workers)), [str(count) for count in workers])
    ax.set_xlabel(_("workers"))
    ax.set_xlim(-0.35, len(workers) - 0.65)


def _legend(ax: Axes) -> None:
    handles, labels = ax.get_legend_handles_labels()
    first = dict(zip(labels, handles, strict=True))
    order = [name for name in ("measured", *_BELOW, "ceiling", *_ABOVE) if name in first]
    place: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5), "frameon": False, "fontsize": 9}
    order.reverse()
    ax.legend([first[name] for name in order], [_(_NAMES[name]) for name in order], **place)
