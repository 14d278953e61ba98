"""Figures of one step: the processes and what they send each other, and the fan of `strategy.run` and `reduce`."""

from __future__ import annotations

from typing import Any, NamedTuple

import pandas
from matplotlib.axes import Axes

from dtk.language import N_, _, bytes_of, ngettext
from dtk.records.facts import MOVING
from dtk.records.tables import Recorded
from dtk.scaling.parts import step_reductions
from dtk.scaling.shares import by_step
from dtk.view.canvas import NO_RECORDS, axes, blank, box, headline, ink, only_text, wrapped
from dtk.view.palette import replica_name, worker_color, worker_name

__all__ = ["fan", "processes"]

_MOST = 4  # processes, or replicas of one process, side by side; of more, the first three and the last
_KERNEL, _TOP, _FLOOR, _BAR = (0.86, 1.0), 0.72, 0.26, (0.03, 0.15)  # heights, of the axes
_GAP = 0.03  # between two processes, of the axes' width
_REPLICA = N_("replica {replica}, a device\n{examples}\nshare of loss\n{share:.4f}")
# By whether several workers take part, and whether the bytes are known.
_GIVES = {
    (True, True): N_("all-reduce: each worker gives {size} of gradients, gets the sum of all"),
    (True, False): N_("all-reduce: each worker gives its gradients, gets the sum of all"),
    (False, True): N_("all-reduce: each replica gives {size} of gradients,\ngets the sum of all"),
    (False, False): N_("all-reduce: each replica gives its gradients,\ngets the sum of all"),
}
_LEFT, _MIDDLE, _RIGHT = 0.10, 0.51, 0.90  # of the fan: centres of its columns, of the axes' width
_HALF = 0.17  # a little less than half the width of a box in the middle: where its rays bend


# ---- processes


class _Step(NamedTuple):
    """One step. records: its rows; rounds: all-reduces of gradients that worker 0 noted; size: their bytes; weights:
    how many numbers training changes."""

    number: int
    records: pandas.DataFrame
    rounds: int
    size: int
    weights: int


def processes(run: Recorded, ax: Axes | None = None) -> Axes:
    """Draw one step: the kernel, a box for each process, in it its replicas, and the messages between them.

    The step is the first after the one that is traced. All numbers are the run's own: examples and shares from its
    records, bytes from what its workers noted of their all-reduces. Where they noted none (`DTK_MARKS=0`, several
    replicas in one process), there are no bytes. The bar of the all-reduce is no process: workers send to each other.

    Args:
        run: from `dtk.run` or `dtk.baseline`, or the error of a run that failed.
        ax: axes to draw on; None: a new figure.
    """
    if run.folder is None or run.records.empty:
        return only_text(ax, NO_RECORDS)
    seen = _read(run)
    workers, replicas = run.folder.workers, int(run.records.replica.nunique())
    lowest = -0.01 if replicas > 1 else _FLOOR - 0.01
    (ax,) = axes(ax, size=(7.0, 0.6 + 3.7 * (1.01 - lowest)))
    ax.set(xlim=(-0.005, 1.005), ylim=(lowest, 1.01))
    blank(ax)
    places = _places(workers)
    middle = sum(_KERNEL) / 2
    _frame(ax, (0.29, 0.71), _KERNEL, ink(ax))
    _write(ax, 0.5, middle + 0.025, _("kernel: this notebook's process"), fontweight="bold")
    _write(ax, 0.5, middle - 0.03, _("starts the others, reads their records"))
    inside = workers == 1 and replicas > 1  # what is added up is added up within the process
    for worker, (left, right) in places.items():
        own = seen.records[seen.records.worker == worker]
        name = _("one process") if workers == 1 else worker_name(worker, chief=worker == 0)
        _process(ax, (left, right), name, own, seen.weights, lowest=0.0 if inside else _FLOOR)
        _arrow_from_kernel(ax, (left + right) / 2, workers)
    if workers > _MOST:
        between = (places[2][1] + places[workers - 1][0]) / 2
        _write(ax, between, (_FLOOR + _TOP) / 2, _("…\n{count}\nmore\n…", count=workers - _MOST))
    if replicas > 1:
        ends = [(left + right) / 2 for left, right in places.values()]
        _all_reduce(ax, seen, ends, (places[0][0] + 0.02, places[0][1] - 0.02) if inside else (0.0, 1.0))
    headline(ax, *_words(seen, workers, replicas))
    return ax


def _read(run: Recorded) -> _Step:
    table, sent = run.records, step_reductions(run)
    steps = sorted(set(table.step))
    step = int(sent.step.min()) if len(sent) else int(steps[min(1, len(steps) - 1)])
    given = sent[(sent.step == step) & (sent.worker == 0)].bytes
    found = run.folder.worker(0).weights("final") or run.folder.worker(0).weights("initial")
    pairs = [] if found is None else zip(found.names, found.arrays, strict=True)
    arrays = [a for name, a in pairs if a.dtype.kind == "f" and not any(word in name for word in MOVING)]
    return _Step(step, table[table.step == step], len(given), int(given.sum()), sum(a.size for a in arrays))


def _places(count: int) -> dict[int, tuple[float, float]]:
    """Left and right end of each process that is drawn; of many the first three and the last."""
    shown = list(range(count)) if count <= _MOST else [0, 1, 2, count - 1]
    extra = 0.05 if count > _MOST else 0.0  # for the dots
    gaps = _GAP * (len(shown) - 1) + extra
    wide = min(0.62, (1 - gaps) / len(shown))
    start = (1 - gaps - wide * len(shown)) / 2
    lefts = [start + k * (wide + _GAP) for k in range(len(shown))]
    lefts[-1] += extra
    return {worker: (left, left + wide) for worker, left in zip(shown, lefts, strict=True)}


def _frame(ax: Axes, x: tuple[float, float], y: tuple[float, float], color: Any, dashed: bool = False) -> None:
    box(ax, (x[0], y[0]), (x[1] - x[0], y[1] - y[0]), color, 0.015, ls="--" if dashed else "-")


def _write(ax: Axes, x: float, y: float, words: str, **style: Any) -> None:
    ax.text(x, y, words, **{"ha": "center", "va": "center", "fontsize": 8.5, **style})


def _process(ax: Axes, x: tuple[float, float], name: str, own: pandas.DataFrame, weights: int, lowest: float) -> None:
    """A process's box, with a box for each replica; its replicas' numbers are those of the step."""
    _frame(ax, x, (lowest, _TOP), worker_color(int(own.worker.iloc[0])) if len(own) else ink(ax), dashed=own.empty)
    middle, wide = (x[0] + x[1]) / 2, x[1] - x[0]
    _write(ax, middle, _TOP - 0.045, name, fontweight="bold")
    if own.empty:
        _write(ax, middle, (_FLOOR + _TOP) / 2, _("no record of this step"))
        return
    rows = list(own.itertuples())
    shown = rows if len(rows) <= _MOST else [*rows[:3], rows[-1]]
    each = (wide - 0.02) / len(shown)
    for k, row in enumerate(shown):
        left = x[0] + 0.01 + k * each
        _frame(ax, (left + 0.006, left + each - 0.006), (_FLOOR + 0.1, _TOP - 0.09), worker_color(int(row.replica)))
        examples = ngettext("{n} example", "{n} examples", row.examples)
        words = _(_REPLICA, replica=row.replica, examples=examples, share=row.loss)
        _write(ax, left + each / 2, (_FLOOR + 0.01 + _TOP) / 2, words, fontsize=8.5 if each > 0.13 else 7.0)
    if weights:
        copies = (
            N_("a copy of the {weights:,} weights") if len(rows) == 1 else N_("a copy each of the {weights:,} weights")
        )
        lines = wrapped(_(copies, weights=weights), 20 if wide < 0.27 else 60)
        _write(ax, middle, _FLOOR + 0.05, "\n".join(lines), fontsize=8.0)


def _arrow_from_kernel(ax: Axes, x: float, count: int) -> None:
    """From the kernel to a process: files and signals, no message of the step."""
    start = 0.5 + (x - 0.5) * (0.35 if count > 1 else 0.0), _KERNEL[0]
    style: dict[str, Any] = {"arrowstyle": "->", "ls": (0, (3, 3)), "lw": 1.1, "color": ink(ax), "alpha": 0.7}
    ax.annotate("", (x, _TOP), start, arrowprops={**style, "shrinkA": 2, "shrinkB": 2})


def _all_reduce(ax: Axes, seen: _Step, middles: list[float], x: tuple[float, float]) -> None:
    """The bar, and an arrow to it and from it for each process; in a single process for all its replicas."""
    _frame(ax, x, _BAR, ink(ax), dashed=True)
    _write(ax, sum(x) / 2, sum(_BAR) / 2, _(_GIVES[len(middles) > 1, bool(seen.size)], size=bytes_of(seen.size)))
    style: dict[str, Any] = {"arrowstyle": "-|>", "lw": 2.0, "color": ink(ax), "shrinkA": 1, "shrinkB": 1}
    for at in middles:
        ax.annotate("", (at - 0.012, _BAR[1]), (at - 0.012, _FLOOR), arrowprops=style)
        ax.annotate("", (at + 0.012, _FLOOR), (at + 0.012, _BAR[1]), arrowprops=style)


def _words(seen: _Step, workers: int, replicas: int) -> tuple[str, str]:
    own = ngettext("{n} replica", "{n} replicas", replicas)
    count = ngettext("{n} process, {replicas}", "{n} processes, {replicas}", workers, replicas=own)
    words = _("Dashed arrows: the kernel starts processes and reads files; it has no part in the step.")
    caption = [_("Step {step}.", step=seen.number), words]
    if replicas == 1:
        caption.append(_("One replica has the whole batch."))
        return _("A step: {processes}, no message", processes=count), " ".join(caption)
    rounds = ngettext("an all-reduce", "{n} all-reduces", max(1, seen.rounds))
    if seen.size:
        rounds = _("{rounds} of {size}", rounds=rounds, size=bytes_of(seen.size))
    title = N_("A step: {processes}, {rounds}") if workers > 1 else N_("A step: {processes}, {rounds} inside")
    if workers > 1:
        caption.append(_("The bar is no process: workers send to each other."))
    return _(title, processes=count, rounds=rounds), " ".join(caption)


# ---- the fan


def fan(run: Recorded, step: int = 1, ax: Axes | None = None) -> Axes:
    """Draw one step: the global batch on the left, each replica's share of the loss, their sum on the right.

    The middle is what `strategy.run` returned, a PerReplica with one value for each replica. A worker's replicas are in
    its own process: the others' values are not there, and `strategy.reduce` is how it gets the sum.

    Args:
        run: from `dtk.run`, or the error of a run that failed.
        step: from 1.
        ax: axes to draw on; None: a new figure.

    Raises:
        ValueError: not all replicas recorded that step.
    """
    records = run.records
    examples = by_step(records, "examples").dropna() if len(records) else records
    if examples.empty:
        return only_text(ax, NO_RECORDS)
    if step not in examples.index:
        words = N_("step={step}: the run has records of steps {first} to {last}")
        raise ValueError(_(words, step=step, first=examples.index[0], last=examples.index[-1]))
    loss, seen = by_step(records, "loss").loc[step], examples.loc[step]
    count, rows = len(loss), max(len(loss), 2)
    (ax,) = axes(ax, size=(7.0, 1.3 + 0.45 * rows))
    workers = records.drop_duplicates("replica").set_index("replica").worker
    apart = workers.nunique() == count  # one replica a worker
    for row, replica in enumerate(loss.index):
        name = replica_name(replica)
        if apart:
            name = _("worker {worker}, replica {replica}", worker=workers[replica], replica=replica)
        _ray(ax, (count - 1) / 2 - row, name, (loss[replica], seen[replica]), worker_color(int(replica)))
    batch = _("global batch\n{examples}", examples=ngettext("{n} example", "{n} examples", seen.sum()))
    total = _("global loss\n{loss:.4f}", loss=loss.where(seen > 0, 0.0).sum(skipna=False))
    _value(ax, (_LEFT, 0), batch, ink(ax), fontsize=9)
    _value(ax, (_RIGHT, 0), total, ink(ax), fontsize=9)
    between = (_LEFT + _MIDDLE - _HALF) / 2 + 0.02, (_MIDDLE + _HALF + _RIGHT) / 2 - 0.02
    for x, words in ((between[0], "run"), (_MIDDLE, _("PerReplica: one value a replica")), (between[1], "reduce")):
        _write(ax, x, rows / 2 + 0.35, words, fontsize=9, style="italic")
    ax.set(xlim=(0, 1), ylim=(-rows / 2, rows / 2 + 0.6))
    blank(ax)
    headline(ax, _("strategy.run opens the fan, strategy.reduce closes it"), _fan_caption(step, count))
    return ax


def _ray(ax: Axes, y: float, name: str, values: tuple[float, float], color: str) -> None:
    """From the batch to a replica and on to the sum. values: its share and examples."""
    share, examples = values
    style: dict[str, Any] = {"color": color, "lw": 2.2, "zorder": 1, "solid_capstyle": "round"}
    ax.plot([_LEFT, _MIDDLE - _HALF, _MIDDLE], [0, y, y], **style)
    ax.plot([_MIDDLE, _MIDDLE + _HALF, _RIGHT], [y, y, 0], **style)
    words = ngettext(
        "{name}: {n} example, share {share:.4f}",
        "{name}: {n} examples, share {share:.4f}",
        examples,
        name=name,
        share=share,
    )
    _value(ax, (_MIDDLE, y), words, color)


def _value(ax: Axes, place: tuple[float, float], words: str, color: Any, fontsize: float = 8.5) -> None:
    frame = {"boxstyle": "round,pad=0.45", "facecolor": ax.get_facecolor(), "edgecolor": color, "lw": 1.6}
    _write(ax, *place, words, fontsize=fontsize, bbox=frame, zorder=3)


def _fan_caption(step: int, count: int) -> str:
    words = N_(
        "Step {step}: each of {count} replicas computes its share from its own examples; the shares add up to the "
        "loss of the whole batch."
    )
    if count == 1:
        words = N_("Step {step}: one replica sees the whole batch; its share is the loss.")
    return _(words, step=step, count=count)
