"""The figure of each replica's share of the loss by step, with the baseline's loss laid over their sum."""

from __future__ import annotations

import numpy as np
import pandas
from matplotlib.axes import Axes

from dtk.language import N_, _
from dtk.proof.proof import kept as kept_proof
from dtk.records.tables import Recorded
from dtk.scaling import shares as scaling
from dtk.view.canvas import NO_RECORDS, axes, by_step, edges, headline, ink, legend_below, note, only_text, thinned
from dtk.view.palette import replica_name, worker_color

__all__ = ["loss_scaling"]

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
    """Draw each replica's share stacked to the global loss by step, and the baseline's loss laid over the stack.

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
    if run.records.empty:
        return only_text(ax, NO_RECORDS)
    (ax,) = axes(ax)
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
    by_step(ax, examples.index[0], examples.index[-1])
    ax.set_ylabel(_("loss"))
    legend_below(ax, ncols=4)
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
            color, name = worker_color(replica), replica_name(replica)
            ax.stairs(top, places, baseline=bottom, fill=True, lw=0, color=color, label=name)
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
        right = step > examples.index[0] + 0.8 * (examples.index[-1] - examples.index[0])
        shift, side = (-4, "right") if right else (4, "left")
        place = ax.get_xaxis_transform()
        note(ax, words, (step + 0.5, 0.42), (shift, 0), ha=side, va="baseline", xycoords=place, fontsize=8.5)


def _overlay(ax: Axes, total: pandas.Series, run: Recorded, records: pandas.DataFrame, count: int) -> tuple[str, str]:
    """Draw the baseline's loss and return the title and the caption that are true of the two curves."""
    shares, examples = scaling.by_step(records, "loss"), scaling.by_step(records, "examples")
    alone = _finite(shares.where(examples > 0, 0.0).sum(axis=1, skipna=False))
    drawn = alone.iloc[thinned(alone.to_numpy())]
    marker, name = "." if len(alone) < 3 else "", _("one device alone")
    ax.plot(drawn.index, drawn, color=ink(ax), lw=1.6, ls=(0, (4, 2)), marker=marker, label=name)
    both = total.index.intersection(alone.index)
    apart = (total[both] - alone[both]).abs() > _VISIBLE * alone[both].abs()
    title = _(_TITLES[count > 1, bool(apart.any())], count=count)
    if apart.any() and _is_proved(run):
        title = _("Each step is one device's; from step to step, rounding drives two runs apart")
    caption = _(_LEAVES, step=both[apart.to_numpy()][0]) if apart.any() else _(_ALONG)
    if len(alone) != len(total):
        caption += " " + _("It has {steps} steps, the stack {others}.", steps=len(alone), others=len(total))
    return title, caption
