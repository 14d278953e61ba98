"""The fan: `strategy.run` opens it, one value per replica; `strategy.reduce` closes it. With a run's own numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dtk.language import _, ngettext
from dtk.scaling import shares as scaling
from dtk.view.canvas import NO_RECORDS, axes, headline, ink, only_text
from dtk.view.palette import replica_name, worker_color

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from dtk.records.tables import Recorded

__all__ = ["fan"]

_LEFT, _MIDDLE, _RIGHT = 0.10, 0.51, 0.90  # centres of the three columns, of the axes' width
_HALF = 0.17  # a little less than half the width of a box in the middle: where its rays bend
_ROW = 1.0  # height of one replica, in rows


def fan(run: Recorded, step: int = 1, ax: Axes | None = None) -> Axes:
    """One step: the global batch on the left, each replica's share of the loss in the middle, their sum on the right.

    The middle is what `strategy.run` returned, a PerReplica with one value for each replica. A worker's replicas are in
    its own process: the others' values are not there, and `strategy.reduce` is how it gets the sum. A replica without a
    record of that step has a dashed frame, and then there is no sum.

    Args:
        run: from `dtk.run`, or the error of a run that failed.
        step: from 1.
        ax: axes to draw on; None: a new figure.

    Raises:
        ValueError: no replica recorded that step.
    """
    records = run.records
    if records.empty:
        (ax,) = axes(ax)
        return only_text(ax, NO_RECORDS)
    shares, examples = scaling.by_step(records, "loss"), scaling.by_step(records, "examples")
    if step not in shares.index:
        words = _(
            "step={step}: the run has records of steps {first} to {last}",
            step=step,
            first=shares.index[0],
            last=shares.index[-1],
        )
        raise ValueError(words)
    loss, seen = shares.loc[step], examples.loc[step]
    count = len(loss)
    (ax,) = axes(ax, size=(7.0, 1.3 + 0.45 * max(count, 2)))
    workers = records.drop_duplicates("replica").set_index("replica").worker
    for row, replica in enumerate(loss.index):
        color = worker_color(int(replica))
        missing = bool(np.isnan(seen[replica]))
        _ray(ax, row, count, color, missing)
        name = replica_name(replica)
        if workers.nunique() == count:
            name = _("worker {worker}, replica {replica}", worker=workers[replica], replica=replica)
        _box(
            ax,
            (_MIDDLE, _height(row, count)),
            _value(name, loss[replica], seen[replica]),
            color,
            8.5,
            np.isnan(seen[replica]),
        )
    whole = bool(seen.notna().all())
    total = float(loss.where(seen > 0, 0.0).sum(skipna=False)) if whole else np.nan
    _box(ax, (_LEFT, 0), _("global batch\n{examples}", examples=_examples(seen)), ink(ax), 9)
    loss_words = _("global loss\n{loss:.4f}", loss=total) if whole else _("global loss\nnot known")
    _box(ax, (_RIGHT, 0), loss_words, ink(ax), 9)
    _verbs(ax, count)
    rows = max(count, 2) / 2 * _ROW
    ax.set(xlim=(0, 1), ylim=(-rows, rows + 0.6), xticks=[], yticks=[])
    headline(ax, _("strategy.run opens the fan, strategy.reduce closes it"), _words(step, count, whole))
    ax.spines[:].set_visible(False)
    return ax


def _height(row: int, count: int) -> float:
    """The first replica on top; 0 is the middle."""
    return ((count - 1) / 2 - row) * _ROW


def _ray(ax: Axes, row: int, count: int, color: str, missing: bool) -> None:
    """From the batch to the replica and on to the sum; a replica without a record sends nothing on."""
    y = _height(row, count)
    style: dict[str, Any] = {"color": color, "lw": 2.2, "zorder": 1, "solid_capstyle": "round"}
    if missing:
        ax.plot([_LEFT, _MIDDLE], [0, y], **style, ls=(0, (2, 2)))
    else:
        ax.plot([_LEFT, _MIDDLE - _HALF, _MIDDLE], [0, y, y], **style)
        ax.plot([_MIDDLE, _MIDDLE + _HALF, _RIGHT], [y, y, 0], **style)


def _box(ax: Axes, place: tuple[float, float], words: str, color: Any, size: float, missing: bool = False) -> None:
    frame = {"boxstyle": "round,pad=0.45", "facecolor": ax.get_facecolor(), "edgecolor": color}
    frame |= {"lw": 1.6, "ls": "--" if missing else "-"}
    ax.text(*place, words, ha="center", va="center", fontsize=size, bbox=frame, zorder=3)


def _value(name: str, share: float, examples: float) -> str:
    if np.isnan(examples):
        return _("{name}: no record", name=name)
    return ngettext(
        "{name}: {n} example, share {share:.4f}",
        "{name}: {n} examples, share {share:.4f}",
        examples,
        name=name,
        share=share,
    )


def _examples(seen: pandas.Series) -> str:
    if seen.notna().all():
        return ngettext("{n} example", "{n} examples", seen.sum())
    return ngettext("{n} example recorded", "{n} examples recorded", seen.sum())


def _verbs(ax: Axes, count: int) -> None:
    """Over the rays what opens and what closes, and over the middle column what the values are together."""
    top = max(count, 2) / 2 * _ROW
    between = (_LEFT + _MIDDLE - _HALF) / 2 + 0.02, (_MIDDLE + _HALF + _RIGHT) / 2 - 0.02
    for x, words in ((between[0], "run"), (_MIDDLE, _("PerReplica: one value a replica")), (between[1], "reduce")):
        ax.text(x, top + 0.35, words, ha="center", va="center", fontsize=9, style="italic")


def _words(step: int, count: int, whole: bool) -> str:
    if not whole:
        return _(
            "Step {step}: a replica with a dashed frame has no record of it, so its share and the sum are not known.",
            step=step,
        )
    if count == 1:
        return _("Step {step}: one replica sees the whole batch; its share is the loss.", step=step)
    return _(
        "Step {step}: each of {count} replicas computes its share from its own examples; the shares add up to the "
        "loss of the whole batch.",
        step=step,
        count=count,
    )
