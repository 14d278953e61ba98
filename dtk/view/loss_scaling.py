"""Figures by step: each replica's share of the loss beside the baseline's, and examples/s of several runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from dtk.digits import three
from dtk.language import N_, _, ngettext
from dtk.proof.proof import kept as kept_proof
from dtk.scaling import shares as scaling
from dtk.scaling import timing
from dtk.view.canvas import NO_RECORDS, axes, counts, edges, headline, ink, only_text, thinned
from dtk.view.palette import replica_name, worker_color, worker_name
from dtk.view.throughput import Studied, study_throughput

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from dtk.records.tables import Recorded

__all__ = ["loss_scaling", "throughput"]

_VISIBLE = 1e-3  # relative difference of two losses from which the caption says that the curves differ
# By whether there are several replicas, and whether the curves differ.
_TITLES = {
    (True, False): N_("{count} replicas' shares add up to the loss of one device"),
    (True, True): N_("{count} replicas' shares do not add up to the loss of one device"),
    (False, False): N_("One replica's loss is the loss of one device"),
    (False, True): N_("One replica's loss is not the loss of one device"),
}
_ALONG = N_(
    "Each colour is one replica's share; the dashed line is one device alone: it runs along the top of the stack."
)
_LEAVES = N_(
    "Each colour is one replica's share; the dashed line is one device alone: it leaves the top of the stack at step "
    "{step}."
)


def loss_scaling(run: Recorded, baseline: Recorded | None = None, ax: Axes | None = None) -> Axes:
    """Each replica's share stacked to the global loss by step, and the baseline's loss laid over the stack.

    Draws the steps that all replicas recorded, and marks where a replica's records end before the others' do. A step
    whose loss is missing, NaN or infinite is left empty and hatched. Of more than 2,000 steps it draws those that stand
    out most. The caption says whether the baseline's line runs along the top of the stack, and where it leaves it if
    not (by a relative difference above 1e-3).

    Args:
        run: from `dtk.run`, or the error of a run that failed.
        baseline: from `dtk.baseline`; None: no line.
        ax: axes to draw on; None: a new figure.

    Raises:
        ValueError: a step is recorded twice.
    """
    (ax,) = axes(ax)
    if run.records.empty:
        return only_text(ax, NO_RECORDS)
    shares, examples = scaling.by_step(run.records, "loss"), scaling.by_step(run.records, "examples")
    common = examples.index[examples.notna().all(axis=1)]
    # A replica without examples adds nothing where its share is no number: see scaling.global_loss.
    shares = shares.where((examples > 0) | np.isfinite(shares), 0.0).loc[common]
    shares = shares.reindex(np.arange(examples.index[0], common[-1] + 1 if len(common) else examples.index[0]))
    total = _finite(shares.sum(axis=1, skipna=False))
    kept = thinned(total.to_numpy())
    _stack(ax, shares.iloc[kept], total.iloc[kept])
    _mark_gaps(ax, total.iloc[kept])
    _mark_ends(ax, examples)
    count = shares.shape[1]
    title, caption = _("The loss of one replica"), _("The area is the loss of each step.")
    if count > 1:
        title = _("The shares of {count} replicas add up to the global loss", count=count)
        caption = _("Each colour is one replica's share of the loss.")
    if baseline is not None and not baseline.records.empty:
        title, caption = _overlay(ax, total, run, baseline.records, count)
    ax.set(xlabel=_("step"), ylabel=_("loss"), xlim=(examples.index[0] - 0.5, examples.index[-1] + 0.5))
    ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    ax.legend(loc="upper right", frameon=False, fontsize=9, ncols=1 + count // 6)
    headline(ax, title, caption)
    return ax


def _is_proved(run: Recorded) -> bool:
    """Whether `verify` has found that every step makes the update of one device."""
    folder = getattr(run, "folder", None)
    proof = None if folder is None else kept_proof(folder.path)
    return proof is not None and proof.verdict == "one device"


def _finite(losses: pandas.Series) -> pandas.Series:
    return losses.where(np.isfinite(losses))


def _stack(ax: Axes, shares: pandas.DataFrame, total: pandas.Series) -> None:
    """One block a step and replica, the first replica at the bottom. `shares`: `(steps, replicas)`."""
    places = edges(shares.index.to_numpy())
    bottom = np.zeros(len(shares))
    for replica in shares.columns:
        top = bottom + shares[replica].where(total.notna(), np.nan).to_numpy()
        if len(shares):
            style: dict[str, Any] = {"color": worker_color(replica), "label": replica_name(replica)}
            ax.stairs(top, places, baseline=bottom, fill=True, lw=0, **style)
        bottom = top


def _mark_gaps(ax: Axes, total: pandas.Series) -> None:
    """Hatches the steps without a finite loss: an empty place alone could be read as a loss of 0."""
    places, missing = edges(total.index.to_numpy()), np.flatnonzero(total.isna())
    label = _("no finite loss")
    for group in np.split(missing, np.flatnonzero(np.diff(missing) > 1) + 1):
        if len(group):
            span = (places[group[0]], places[group[-1] + 1])
            ax.axvspan(*span, fill=False, hatch="////", edgecolor=ink(ax), alpha=0.35, lw=0, label=label)
            label = ""


def _mark_ends(ax: Axes, examples: pandas.DataFrame) -> None:
    """A line where a replica's records end before the last step that any replica recorded."""
    last = {replica: examples[replica].last_valid_index() for replica in examples.columns}
    for step in sorted(set(last.values()) - {examples.index[-1]}):
        who = ", ".join(str(replica) for replica in examples.columns if last[replica] == step)
        ax.axvline(step + 0.5, color=ink(ax), lw=1, ls=":")
        words = _("records of replica {who}\nend at step {step}", who=who, step=step)
        place: dict[str, Any] = {"xycoords": ax.get_xaxis_transform(), "textcoords": "offset points", "fontsize": 8.5}
        right = step > examples.index[0] + 0.8 * (examples.index[-1] - examples.index[0])
        ax.annotate(words, (step + 0.5, 0.42), (-4 if right else 4, 0), ha="right" if right else "left", **place)


def _overlay(ax: Axes, total: pandas.Series, run: Recorded, records: pandas.DataFrame, count: int) -> tuple[str, str]:
    """Draws the baseline's loss and returns the title and the caption that are true of the two curves."""
    shares, examples = scaling.by_step(records, "loss"), scaling.by_step(records, "examples")
    alone = _finite(shares.where(examples > 0, 0.0).sum(axis=1, skipna=False))
    drawn = alone.iloc[thinned(alone.to_numpy())]
    ax.plot(drawn.index, drawn, color=ink(ax), lw=1.6, ls=(0, (4, 2)), marker="." if len(alone) < 3 else "")
    ax.lines[-1].set_label(_("one device alone"))
    both = total.index.intersection(alone.index)
    apart = (total[both] - alone[both]).abs() > _VISIBLE * alone[both].abs()
    title = _(_TITLES[count > 1, bool(apart.any())], count=count)
    if apart.any() and _is_proved(run):
        title = _("Each step is one device's; from step to step, rounding drives two runs apart")
    caption = _(_LEAVES, step=both[apart.to_numpy()][0]) if apart.any() else _(_ALONG)
    if len(alone) != len(total):
        caption += " " + _("It has {steps} steps, the stack {others}.", steps=len(alone), others=len(total))
    return title, caption


def throughput(*runs: Any, ax: Axes | None = None, labels: Sequence[str] | None = None) -> Axes:
    """Examples/s of all workers together, a bar per run, divided by what each worker contributed to its steps.

    Medians over the steps after the first, which includes tracing. Several runs without one replica among them are one
    measurement each, and the headline says so. The mark is ideal: N times the rate of the first run
    given that has one replica, for a run of N replicas; without such a run there is none. Of a study: examples/s by
    number of workers, ideal, ceiling and measured, with the range of the repeats.

    Args:
        runs: from `dtk.run` and `dtk.baseline`, or one `dtk.Study`.
        ax: axes to draw on; None: a new figure.
        labels: one for each run; None: by their mode and size.

    Raises:
        ValueError: as many labels as runs are needed; a study is drawn by itself.
    """
    if any(isinstance(each, Studied) for each in runs):
        if len(runs) > 1 or labels is not None:
            raise ValueError("a study is drawn by itself; its rows are named by what was studied")
        return study_throughput(runs[0], ax)
    return _of_runs(runs, ax, labels)


def _of_runs(runs: Sequence[Recorded], ax: Axes | None, labels: Sequence[str] | None) -> Axes:
    names = [_label(run) for run in runs] if labels is None else list(labels)
    if len(names) != len(runs):
        raise ValueError(f"{len(names)} labels for {len(runs)} runs; give one a run")
    (ax,) = axes(ax)
    if all(run.records.empty for run in runs):
        return only_text(ax, NO_RECORDS)
    rates = [timing.throughput(run.records) for run in runs]
    sizes = [run.records.replica.nunique() for run in runs]
    single = next((k for k, size in enumerate(sizes) if size == 1 and np.isfinite(rates[k].total)), None)
    ideals = [np.nan if single is None else size * rates[single].total for size in sizes]
    longest = max([value for value in (*(rate.total for rate in rates), *ideals) if np.isfinite(value)], default=0.0)
    for row, (run, rate) in enumerate(zip(runs, rates, strict=True)):
        _bar(ax, row, rate.total, timing.parts_of_examples(run.records))
    _mark_ideal(ax, ideals, sizes)
    ax.set_yticks(range(len(runs)), names)
    ax.set_ylim(len(runs) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(_("examples/s"))
    counts(ax.xaxis)
    ax.set_xlim(0, 1.22 * longest if longest > 0 else 1)
    _legend_of_workers(ax)
    headline(ax, *_throughput_words(rates, sizes, single, names))
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


def _bar(ax: Axes, row: int, total: float, parts: pandas.Series) -> None:
    """One run's rate, with each worker's part of it, and as a number, which may hide the middle of a mark."""
    left = 0.0
    for worker, part in parts.items() if np.isfinite(total) else ():
        seen = worker_name(worker) in ax.get_legend_handles_labels()[1]
        label = "" if seen else worker_name(worker)
        ax.barh(row, part * total, left=left, height=0.62, color=worker_color(worker), label=label, lw=0)
        left += part * total
    words = three(total) if np.isfinite(total) else _("no step after the first")
    behind = {"facecolor": ax.get_facecolor(), "edgecolor": "none", "pad": 1.0}
    place: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 9}
    ax.annotate(words, (left, row), (5, 0), zorder=3, bbox=behind, **place)


def _mark_ideal(ax: Axes, ideals: Sequence[float], sizes: Sequence[int]) -> None:
    label = _("ideal")
    for row, (ideal, size) in enumerate(zip(ideals, sizes, strict=True)):
        if np.isfinite(ideal) and size > 1:
            ax.plot([ideal, ideal], [row - 0.4, row + 0.4], color=ink(ax), lw=2.2, label=label, solid_capstyle="butt")
            label = ""


def _legend_of_workers(ax: Axes) -> None:
    count = len(ax.get_legend_handles_labels()[1])
    if count:
        ax.figure.legend(loc="outside lower center", ncols=min(count, 6), frameon=False, fontsize=9)


def _throughput_words(
    rates: Sequence[timing.Throughput], sizes: Sequence[int], single: int | None, names: Sequence[str]
) -> tuple[str, str]:
    caption = _("Median over the steps after the first (which includes tracing).")
    totals = [rate.total if np.isfinite(rate.total) else -1.0 for rate in rates]
    best = max(range(len(rates)), key=lambda row: (sizes[row], totals[row]))
    name = names[best].replace("\n", " ")
    if totals[best] < 0:
        return _("No step to time yet"), caption
    if single is None and len(rates) > 1:
        low, high = min(total for total in totals if total >= 0), max(totals)
        title = _("{low} to {high} examples/s, in one run each", low=three(low), high=three(high))
        return title, " ".join([caption, _("A difference may be the machine's: repeat the runs to know.")])
    if single is None or sizes[best] == 1:
        return _("{name}: {rate} examples/s", name=name, rate=three(totals[best])), caption
    ratio = totals[best] / totals[single]
    title = _("{name}: {ratio:.2f} times one device, ideal would be {ideal}", name=name, ratio=ratio, ideal=sizes[best])
    ideal = _("The mark is ideal: as many times {name} as there are replicas.", name=names[single])
    return title, f"{caption} {ideal}"
