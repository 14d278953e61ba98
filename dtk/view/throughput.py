"""Figures of speed: examples/s of several runs, and of a study by number of workers, with its efficiency; where a
step's time goes, and when its gradients are reduced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from dtk.language import N_, _, bytes_of, columns, ngettext, three
from dtk.records.tables import Recorded
from dtk.scaling import timing
from dtk.scaling.summary import GAPS, busy, losses
from dtk.scaling.timing import PARTS, step_parts, step_reductions
from dtk.view import canvas
from dtk.view.palette import PART_COLORS, PART_NAMES, stroke, worker_color, worker_name

if TYPE_CHECKING:
    from dtk.studies.study import Study

NO_POINTS = N_("no point of this study was measured: see study.points.failed")
_MARK: dict[str, Any] = {"lw": 2.2, "solid_capstyle": "butt"}
_WIDTH = 0.82  # of a bar
_SHOWN = 0.07  # of the axes' height: a segment that is lower holds no text


def throughput(*runs: Recorded | Study, ax: Axes | None = None, labels: Sequence[str] | None = None) -> Axes:
    """Draw examples/s of all workers together, a bar per run, divided by what each worker contributed to its steps.

    Medians over the steps after the first, after restarts of the last attempt. The mark is ideal: N times the rate of
    the first run given that has one replica, for a run of N replicas. Of a study: examples/s by number of workers,
    ideal, ceiling and measured, with the range of the repeats.

    Args:
        runs: from `dtk.run` and `dtk.baseline`, or one `dtk.Study`.
        ax: axes to draw on; None: a new figure.
        labels: one for each run; None: by their mode and size.

    Raises:
        ValueError: as many labels as runs are needed; a study is drawn by itself.
    """
    if any(hasattr(each, "points") for each in runs):
        if len(runs) > 1 or labels is not None:
            raise ValueError("a study is drawn by itself; its rows are named by what was studied")
        return _each_curve(runs[0], ax, _throughput, _throughput_words)
    given: Sequence[Any] = runs
    names = canvas.names_of([_label(run) for run in given] if labels is None else labels, len(given))
    if all(run.records.empty for run in given):
        return canvas.only_text(ax, canvas.NO_RECORDS)
    (ax,) = canvas.axes(ax, size=(7.0, 1.7 + 0.65 * len(given)))
    rates = [timing.throughput_of(run) for run in given]
    sizes = [run.records.replica.nunique() for run in given]
    single = next((k for k, size in enumerate(sizes) if size == 1 and np.isfinite(rates[k])), None)
    ends = [rate for rate in rates if np.isfinite(rate)]
    for row, (run, rate, size) in enumerate(zip(given, rates, sizes, strict=True)):
        # Divided like the workers' examples; the number may hide the middle of a mark.
        examples, known = run.records.groupby("worker").examples.sum(), bool(np.isfinite(rate))
        parts = (examples / examples.sum() * rate).items() if known else ()
        end = canvas.row_of_blocks(ax, row, [(part, worker_color(k), worker_name(k)) for k, part in parts])
        words = three(rate) if known else _("no step after the first")
        canvas.note(ax, words, (end, row), (5, 0), ground=True, zorder=3)
        if single is not None and size > 1:
            ends.append(size * rates[single])
            ax.plot([ends[-1]] * 2, [row - 0.4, row + 0.4], color=canvas.ink(ax), label=_("ideal"), **_MARK)
    canvas.name_rows(ax, names, 0.1)
    ax.set(xlabel=_("examples/s"), xlim=(0, 1.22 * max(ends, default=0) or 1))
    canvas.counts(ax.xaxis)
    canvas.legend_below(ax, ncols=6)
    canvas.headline(ax, *_words_of_runs(rates, sizes, single, names))
    return ax


def _label(run: Recorded) -> str:
    records = run.records
    workers, replicas = records.worker.nunique(), records.replica.nunique()
    if getattr(run, "mode", "") == "single":
        return _("baseline")
    if replicas > workers:
        return ngettext(
            "{n} worker,\n{replicas} replicas", "{n} workers,\n{replicas} replicas", workers, replicas=replicas
        )
    return ngettext("{n} worker", "{n} workers", workers)


def _words_of_runs(
    rates: Sequence[float], sizes: Sequence[int], single: int | None, names: Sequence[str]
) -> tuple[str, str]:
    caption = _("Median over the steps after the first (which includes tracing).")
    known = [rate for rate in rates if np.isfinite(rate)]
    best = max(range(len(rates)), key=lambda row: (sizes[row], np.nan_to_num(rates[row], nan=-1.0)))
    name, rate = names[best].replace("\n", " "), rates[best]
    if not np.isfinite(rate):
        return _("No step to time yet"), caption
    if single is None and len(rates) > 1:
        title = _("{low} to {high} examples/s, in one run each", low=three(min(known)), high=three(max(known)))
        return title, " ".join([caption, _("A difference may be the machine's: repeat the runs to know.")])
    if single is None or sizes[best] == 1:
        return _("{name}: {words}", name=name, words=_("{rate} examples/s", rate=three(rate))), caption
    words = N_("{name}: {ratio:.2f} times one device, ideal would be {ideal}")
    ideal = _("The mark is ideal: as many times {name} as there are replicas.", name=names[single])
    return _(words, name=name, ratio=rate / rates[single], ideal=sizes[best]), f"{caption} {ideal}"


# ---- studies


def efficiency(study: Study, ax: Axes | None = None) -> Axes:
    """Draw examples/s in per cent of ideal by number of workers, and by name what lies between. One picture per curve.

    The mark is the ceiling: what the same workers would reach without any communication. Below it are communication,
    stragglers, input and other, above it cores and smaller batch, each by its seconds (`dtk.scaling.summary`; negative
    gaps are left out). The bracket is the range of the repeats.

    Args:
        study: from `dtk.study`.
        ax: axes to draw on; None: a new figure.
    """
    return _each_curve(study, ax, _efficiency, _efficiency_words)


def _each_curve(study: Any, ax: Axes | None, draw: Any, in_words: Any) -> Axes:
    """draw: one curve's picture. in_words: its title and caption, by the row of the most workers that has all."""
    table = study.summary
    if not table.measured.notna().any():
        return canvas.only_text(ax, NO_POINTS)
    fixed = table.global_batch.where(table.scaling == "strong", table.per_replica_batch)
    curves = [curve for __, curve in table.groupby([table.scaling, fixed], sort=False)]
    places = canvas.axes(ax, (1.0,) * len(curves), (7.0, 0.9 + 3.1 * len(curves)))
    for place, curve in zip(places, curves, strict=False):
        curve = curve.reset_index(drop=True)
        place.set_xticks(range(len(curve)), [str(count) for count in curve.workers])
        place.set(xlabel=_("workers"), xlim=(-0.35, len(curve) - 0.65))
        draw(place, curve)
        title, caption = _name(curve), _repeated(curve)
        known = curve[curve.measured.notna() & curve.baseline.notna()]
        if len(known):
            title, caption = in_words(known.loc[known.workers.idxmax()], title, caption)
        canvas.headline(place, f"{busy(curve)} {title}".strip(), caption)
    return places[0]


def _name(curve: pandas.DataFrame) -> str:
    row = curve.iloc[0]
    if row.scaling == "strong":
        return _("global batch {batch}", batch=row.global_batch)
    return _("{batch} examples a replica", batch=row.per_replica_batch)


def _throughput(ax: Axes, curve: pandas.DataFrame) -> None:
    """Ideal, ceiling and measured, and under each measured point what most of its distance from ideal is due to."""
    ax.plot(curve.index, curve.ideal, color=canvas.ink(ax), lw=1.4, ls=(0, (4, 2)), label=_("ideal"))
    ax.axhline(curve.baseline.iloc[0], color=canvas.ink(ax), lw=1.4, ls=":", label=_("one process: the baseline"))
    _line(ax, curve, "ceiling", _("ceiling: no communication"), color=stroke(PART_COLORS["ceiling"]), marker="s")
    _line(ax, curve, "measured", _("measured"), color=PART_COLORS["measured"], marker="o")
    for x, row in enumerate(curve.itertuples()):
        if row.gap and row.workers > 1 and np.isfinite(row.measured):
            canvas.note(ax, _(row.gap), (x, row.measured), (0, -9), ground=True, ha="center", va="top")
        elif row.failed and not np.isfinite(row.measured):
            _failed(ax, x, _("failed"))
    known = curve[["ideal", "ceiling", "measured", "ceiling_max", "measured_max"]].to_numpy(float)
    ax.set_ylim(0, 1.32 * np.nanmax(known[np.isfinite(known)]))  # the legend has its place above the lines
    ax.set_ylabel(_("examples/s"))
    canvas.counts(ax.yaxis)
    ax.legend(loc="upper left", frameon=False, fontsize=9, ncols=2)


def _line(ax: Axes, curve: pandas.DataFrame, name: str, label: str, **style: Any) -> None:
    values = curve[name].to_numpy(float)
    spread = np.abs(curve[[f"{name}_min", f"{name}_max"]].to_numpy(float).T - values)
    ax.errorbar(curve.index, values, spread, fmt="none", lw=1.8, capsize=4, color=style["color"])
    ax.plot(curve.index, values, ms=5, lw=1.8, label=label, **style)


def _throughput_words(last: Any, name: str, caption: str) -> tuple[str, str]:
    words = _("{times:.2f} times one process, {curve}", times=last.measured / last.baseline, curve=name)
    title = _("{name}: {words}", name=ngettext("{n} worker", "{n} workers", last.workers), words=words)
    if np.isfinite(last.ceiling) and last.workers > 1:
        words = N_(
            "Ideal would be {ideal}, and these cores reach {ceiling:.2f} without communication. Below a point: what "
            "most of its distance from ideal is due to."
        )
        caption = f"{_(words, ideal=last.workers, ceiling=last.ceiling / last.baseline)} {caption}"
    return title, caption


def _repeated(curve: pandas.DataFrame) -> str:
    counts = curve.measured_n[curve.measured_n > 0]
    if counts.empty:
        return ""
    least, most = counts.min(), counts.max()
    many = most if least == most else _("{first} to {last}", first=least, last=most)
    return ngettext("One repeat, no range.", "Medians and ranges of {repeats} repeats.", most, repeats=many)


def _efficiency(ax: Axes, curve: pandas.DataFrame) -> None:
    """From 0 up: efficiency, what lies between it and the ceiling, what lies between that and ideal."""
    parts = pandas.DataFrame([{"measured": row["efficiency"], **losses(row)} for row in curve.to_dict("records")])
    order = [N_("measured"), *GAPS[2:], *GAPS[:2]]
    tops, room = np.zeros(len(curve)), 56 / len(curve)  # letters that a bar has room for
    for name, heights in parts.reindex(columns=order).dropna(axis=1, how="all").fillna(0.0).items():
        words = heights.map("{:.0%}".format) if name == "measured" else curve.gap.map({name: _(name)}).fillna("")
        words = [each if columns(each) <= room else "" for each in words.where(heights > _SHOWN, "")]
        bars = ax.bar(curve.index, heights, _WIDTH, tops, color=PART_COLORS[name], label=name, lw=0)
        ax.bar_label(bars, words, label_type="center", color=canvas.on(PART_COLORS[name]), fontsize=8.5)
        tops += heights
    for x, row in enumerate(curve.itertuples(index=False)):
        if not np.isfinite(row.efficiency):
            _failed(ax, x, _("failed") if np.isnan(row.measured) else _("no baseline"))
            continue
        if np.isfinite(row.ceiling) and row.workers > 1:
            ends, level = [x - 0.46, x + 0.46], row.ceiling / row.ideal
            ax.plot(ends, [level, level], color=canvas.ink(ax), label=N_("ceiling"), **_MARK)
        if np.isfinite(row.measured_min):
            spread = [[row.measured - row.measured_min], [row.measured_max - row.measured]]
            ax.errorbar(x, row.efficiency, np.array(spread) / row.ideal, color=canvas.ink(ax), capsize=4, lw=1.2)
    ax.set(ylim=(0, 1.06 * max(1.0, *tops)), ylabel=_("efficiency"), xlim=(-0.6, len(curve) - 0.4))
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    first = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    order.insert(-2, "ceiling")
    named = [name for name in reversed(order) if name in first]  # as stacked
    place: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5), "frameon": False, "fontsize": 9}
    ax.legend([first[name] for name in named], [_(name) for name in named], **place)


def _efficiency_words(last: Any, name: str, repeated: str) -> tuple[str, str]:
    if last.workers == 1:
        return name, repeated
    title = N_("{workers} workers: {part:.0%} of ideal")
    if np.isfinite(last.of_ceiling):
        title = N_("{workers} workers: {part:.0%} of ideal, {of_ceiling:.0%} of what these cores can do")
    caption = [_("{sentence}.", sentence=name.capitalize())]
    if last.gap and last.efficiency < 1:
        caption.append(_("Most of the rest: {gap}.", gap=_(last.gap)))
    caption += [_("Thick mark: the ceiling."), repeated]
    values = {"workers": last.workers, "part": last.efficiency, "of_ceiling": last.of_ceiling}
    return _(title, **values), " ".join(caption)


def _failed(ax: Axes, x: int, words: str) -> None:
    ax.text(x, 0.02, words, transform=ax.get_xaxis_transform(), ha="center", va="bottom", fontsize=9, style="italic")


# ---- a step's parts

_PART_SHOWN, _SEEN = 0.075, 0.005  # of the longest bar: what is shorter holds no number, and can't be seen
NOTHING = N_("no all-reduce of gradients was noted: it takes two workers, and records of steps")
_IN_A_LANE = {  # opacity and meaning
    "compute": (0.35, N_("until its gradients are there")),
    "waiting": (1.0, N_("waiting for the last worker")),
    "all_reduce": (1.0, N_("reducing")),
}


def step_time(run: Recorded | Study, ax: Axes | None = None) -> Axes:
    """Draw where a step's time goes: python, input, compute, all_reduce and waiting (`dtk.step_parts`), in ms.

    Args:
        run: from `dtk.run`: a bar per worker, the median step after the first of all together, divided as the medians
            of its parts are. A `dtk.Study`: a bar for each number of workers and batch, of medians over the repeats.
        ax: axes to draw on; None: a new figure.
    """
    of_study = hasattr(run, "points")
    table = _of_study(run) if of_study else _of_run(run)
    if table.empty:
        return canvas.only_text(ax, canvas.NO_RECORDS)
    (ax,) = canvas.axes(ax, size=(7.0, 1.75 + 0.42 * max(2, len(table))))
    parts = table[list(PARTS)]  # whose medians don't add up to that of the steps
    table = parts.mul(1e3 * table.step / parts.sum(axis=1), axis=0)
    longest = float(table.sum(axis=1).max())
    for row, values in enumerate(table.itertuples(index=False)):
        blocks = [(value, PART_COLORS[part], _(PART_NAMES[part])) for part, value in zip(PARTS, values, strict=True)]
        end = canvas.row_of_blocks(ax, row, blocks)
        canvas.note(ax, _("{number} ms", number=three(end)), (end, row), (5, 0))
        for part, value, right in zip(PARTS, values, np.cumsum(values), strict=True):
            if value > _PART_SHOWN * longest:
                color = canvas.on(PART_COLORS[part])
                ax.text(right - value / 2, row, three(value), ha="center", va="center", color=color, fontsize=9)
    canvas.name_rows(ax, list(table.index), margin=0)
    ax.set(xlabel=_("ms a step"), xlim=(0, 1.14 * longest))
    seen = [part for part in PARTS if table[part].max() > _SEEN * longest]
    canvas.legend_below(ax, [Patch(color=PART_COLORS[part], label=_(PART_NAMES[part])) for part in seen], ncols=5)
    row = table.loc[table.drop(columns="waiting").sum(axis=1).idxmax()]  # of a run's workers the one that waits least
    biggest = str(row.idxmax())
    words = N_("The biggest part of a step is {part}: {most} of {whole} ms ({longest})")
    numbers = {"most": three(row[biggest]), "whole": three(row.sum()), "longest": row.name}
    caption = [
        _("The median of the steps after the first, divided as the medians of its parts are."),
        _("What is sent while it computes counts as computing."),
        *([_("A row: workers × examples each.")] if of_study else []),  # noqa: RUF001
    ]
    canvas.headline(ax, _(words, part=_(PART_NAMES[biggest]), **numbers), " ".join(caption))
    return ax


def _of_run(run: Any) -> pandas.DataFrame:
    """The parts by worker, and the step; empty without records."""
    if run.folder is None or run.records.empty:
        return pandas.DataFrame(columns=list(PARTS))
    table = step_parts(run).groupby("worker")[list(PARTS)].median().rename(index=worker_name)
    together = timing.step_times(run.folder.own_records.assign(worker=0))
    return table.assign(step=together.period[1:].median())  # as examples/s


def _of_study(study: Any) -> pandas.DataFrame:
    points = study.points[lambda each: (each.kind == "cluster") & (each.failed == "")]
    points = points.assign(step=points.global_batch / points.examples_per_second)
    table = points.groupby(["workers", "per_replica_batch"])[[*PARTS, "step"]].median()
    table.index = [f"{workers}\xa0×\xa0{each}" for workers, each in table.index.to_flat_index()]  # noqa: RUF001
    return table


# ---- all-reduces beside the backward pass


def overlap(*runs: Recorded, step: int | None = None, labels: list[str] | None = None, ax: Axes | None = None) -> Axes:
    """Draw a step of worker 0, a lane for each all-reduce: until its gradients are there, waiting, reducing.

    With `CommunicationOptions(bytes_per_pack=...)` there are several, and the first begin while earlier layers'
    gradients are still computed. Runs without marks (`DTK_MARKS=0`, or one worker) have nothing to draw.

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
    names = canvas.names_of(labels, len(runs))
    tables = _chosen(runs, step)
    lanes = [max(1, len(table)) for table in tables]
    high = 0.6 + sum(0.75 + 0.33 * lane for lane in lanes)
    places = canvas.axes(ax, tuple(lane + 1.4 for lane in lanes), (7.0, high))
    longest = max((float(table.period.iloc[0]) for table in tables if len(table)), default=0.0)
    kinds = [Patch(color=PART_COLORS[part], alpha=how, label=_(words)) for part, (how, words) in _IN_A_LANE.items()]
    for place, table, name in zip(places, tables, names, strict=False):
        if table.empty:
            canvas.only_text(place, NOTHING)
            continue
        for lane, row in enumerate(table.itertuples()):
            ends = (0.0, row.begin, row.waited, row.end)
            for kind, begin, end in zip(kinds, ends, ends[1:], strict=False):
                style = {"color": kind.get_facecolor(), "lw": 0, "gid": kind.get_label()}
                words = canvas.lasting(str(kind.get_label()), end - begin)
                canvas.block(place, lane, 1e3 * begin, 1e3 * end, words, 0.62, **style)
        place.axvline(1e3 * float(table.period.iloc[0]), color=canvas.ink(place), lw=1.2, ls=(0, (4, 2)))
        canvas.name_rows(place, [bytes_of(size) for size in table.bytes], 0.1)
        place.tick_params(axis="y", labelsize=9)
        place.set_xlim(0, 1.04e3 * longest)
        title, caption = _overlap_words(table)
        named = len(runs) > 1 or labels
        canvas.headline(place, _("{name}: {words}", name=name, words=title) if named else title, caption)
    places[-1].set_xlabel(_("ms since the step before ended"))
    if longest:
        canvas.legend_below(places[0], kinds)
    return places[0]


def _chosen(runs: Sequence[Recorded], step: int | None) -> list[pandas.DataFrame]:
    """Worker 0's all-reduces in one step, the same for all runs: another may hold another part of the training."""
    # Without a folder: an error from before anything started.
    every = [pandas.DataFrame() if run.folder is None else step_reductions(run) for run in runs]
    tables = [table[table.worker == 0] if len(table) else table for table in every]
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


def _overlap_words(table: pandas.DataFrame) -> tuple[str, str]:
    ready = float(table.begin.max())
    early = table[table.end < ready]
    percent = 100 * float(early.bytes.sum()) / float(table.bytes.sum())
    words = N_("{count} all-reduces, {percent:.0f} % of the bytes reduced before the last gradients are there")
    title = _(words, count=len(table), percent=percent)
    if early.empty:
        title = ngettext(
            "one all-reduce, after the backward pass",
            "{n} all-reduces, none done before the last gradients are there",
            len(table),
        )
    caption = N_(
        "Step {step} of worker 0, a lane an all-reduce. After the last gradients were there it took {ms} ms more to "
        "reduce; the line is the end of the step, with the update of the weights."
    )
    return title, _(caption, step=int(table.step.iloc[0]), ms=three(1e3 * (float(table.end.max()) - ready)))
