"""Who takes part in a step, from a run's records: the kernel, the processes, their replicas, and what they send."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.patches import FancyBboxPatch

from dtk.digits import bytes_of
from dtk.language import N_, _, ngettext
from dtk.records.facts import MOVING
from dtk.scaling.parts import step_messages
from dtk.view.canvas import NO_RECORDS, axes, headline, ink, only_text
from dtk.view.palette import EVALUATOR_COLOR, worker_color, worker_name

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from dtk.records.tables import Recorded

__all__ = ["processes"]

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
# By whether the process has one replica, and whether its box is narrow.
_COPIES = {
    (True, True): N_("a copy of {weights:,}\nweights"),
    (True, False): N_("a copy of the {weights:,} weights"),
    (False, True): N_("a copy each of {weights:,}\nweights"),
    (False, False): N_("a copy each of the {weights:,} weights"),
}


@dataclass(frozen=True)
class _Step:
    """One step. records: its rows; gradients: bytes that each worker gave to all-reduces of gradients, NaN where that
    was not noted; rounds: how many these were; small: bytes of each other all-reduce; weights: numbers and bytes."""

    number: int
    records: pandas.DataFrame
    gradients: float
    rounds: int
    small: list[int]
    weights: tuple[int, int]

    @property
    def size(self) -> float:
        """Bytes of gradients, as noted or else as many as the weights have; 0 where neither is known."""
        return self.weights[1] if np.isnan(self.gradients) else self.gradients


def processes(run: Recorded, step: int | None = None, ax: Axes | None = None) -> Axes:
    """One step: the kernel, a box for each process, in it its replicas, and the messages between them.

    All numbers are the run's own: examples and shares from its records, bytes from what its workers noted of their
    all-reduces. Where they noted none (`DTK_MARKS=0`, several replicas in one process), the bytes are those of the
    weights, as each weight has a gradient. The bar of the all-reduce is no process: workers send to each other.

    Args:
        run: from `dtk.run` or `dtk.baseline`, or the error of a run that failed.
        step: from 1; None: the first after the one that is traced.
        ax: axes to draw on; None: a new figure.

    Raises:
        ValueError: no replica recorded that step.
    """
    if run.folder is None or run.records.empty:
        (ax,) = axes(ax)
        return only_text(ax, NO_RECORDS)
    seen = _read(run, step)
    replicas = int(run.records.replica.nunique())
    lowest = -0.01 if replicas > 1 else _FLOOR - 0.01
    (ax,) = axes(ax, size=(7.0, 0.6 + 3.7 * (1.01 - lowest)))
    ax.set(xlim=(-0.005, 1.005), ylim=(lowest, 1.01), xticks=[], yticks=[])
    workers = list(range(run.folder.workers))
    places = _places(len(workers))
    _kernel(ax, run.folder.has_evaluator)
    inside = len(workers) == 1  # what is added up is added up within the process
    for worker, (left, right) in places.items():
        own = seen.records[seen.records.worker == worker]
        name = _("one process") if inside else worker_name(worker, chief=worker == 0)
        _process(ax, (left, right), name, own, seen.weights[0], frame=not inside or len(own) < 2)
        _link(ax, ((left + right) / 2, _TOP), len(workers))
        if inside and len(own) > 1:
            _box(ax, (left, right), (0.0, _TOP), worker_color(worker))
    if len(workers) > _MOST:
        _dots(ax, places, len(workers))
    if replicas > 1:
        ends = [(left + right) / 2 for left, right in places.values()]
        _all_reduce(ax, seen, ends, (places[0][0] + 0.02, places[0][1] - 0.02) if inside else (0.0, 1.0))
    headline(ax, *_words(seen, len(workers), replicas))
    ax.spines[:].set_visible(False)
    return ax


def _read(run: Recorded, step: int | None) -> _Step:
    table, messages = run.records, step_messages(run)
    steps = sorted(set(table.step))
    if step is None:
        step = int(messages.step.min()) if len(messages) else int(steps[min(1, len(steps) - 1)])
    if step not in steps:
        words = _(
            "step={step}: the run has records of steps {first} to {last}", step=step, first=steps[0], last=steps[-1]
        )
        raise ValueError(words)
    mine = messages[(messages.step == step) & (messages.worker == 0)]
    given = mine[mine.gradients].bytes
    small = sorted(int(each) for each in mine[~mine.gradients.astype(bool)].bytes)
    gradients = float(given.sum()) if len(given) else float("nan")
    return _Step(step, table[table.step == step], gradients, len(given), small, _weights(run))


def _weights(run: Recorded) -> tuple[int, int]:
    """How many numbers training changes, and their bytes; zeros where nothing recorded them."""
    found = run.folder.worker(0).weights("final") or run.folder.worker(0).weights("initial")
    if found is None:
        return 0, 0
    pairs = zip(found.names, found.arrays, strict=True)
    arrays = [a for name, a in pairs if a.dtype.kind == "f" and not any(word in name for word in MOVING)]
    return sum(a.size for a in arrays), sum(a.nbytes for a in arrays)


def _places(count: int) -> dict[int, tuple[float, float]]:
    """Left and right end of each process that is drawn; of many the first three and the last."""
    shown = list(range(count)) if count <= _MOST else [0, 1, 2, count - 1]
    columns = min(count, _MOST)
    extra = 0.05 if count > _MOST else 0.0  # for the dots
    wide = min(0.62, (1 - extra - _GAP * (columns - 1)) / columns)
    start = (1 - extra - wide * columns - _GAP * (columns - 1)) / 2
    found = {}
    for k, worker in enumerate(shown):
        left = start + k * (wide + _GAP) + (extra if k == columns - 1 else 0.0)
        found[worker] = (left, left + wide)
    return found


def _box(ax: Axes, x: tuple[float, float], y: tuple[float, float], color: Any, dashed: bool = False) -> None:
    style: dict[str, Any] = {"facecolor": "none", "edgecolor": color, "lw": 1.6, "ls": "--" if dashed else "-"}
    shape = "round,pad=0,rounding_size=0.015"
    ax.add_patch(FancyBboxPatch((x[0], y[0]), x[1] - x[0], y[1] - y[0], boxstyle=shape, **style))


def _say(ax: Axes, x: float, y: float, words: str, **style: Any) -> None:
    ax.text(x, y, words, **{"ha": "center", "va": "center", "fontsize": 8.5, **style})


def _kernel(ax: Axes, evaluator: bool) -> None:
    _box(ax, (0.29, 0.71), _KERNEL, ink(ax))
    middle = sum(_KERNEL) / 2
    _say(ax, 0.5, middle + 0.025, _("kernel: this notebook's process"), fontweight="bold")
    _say(ax, 0.5, middle - 0.03, _("starts the others, reads their records"))
    if evaluator:
        _box(ax, (0.77, 1.0), _KERNEL, EVALUATOR_COLOR, dashed=True)
        _say(ax, 0.885, middle + 0.025, _("evaluator"), fontweight="bold")
        _say(ax, 0.885, middle - 0.03, _("no part in the step"))


def _process(ax: Axes, x: tuple[float, float], name: str, own: pandas.DataFrame, weights: int, frame: bool) -> None:
    """A process's box, framed or not, with a box for each replica; its replicas' numbers are those of the step."""
    color = worker_color(int(own.worker.iloc[0])) if len(own) else ink(ax)
    if frame:
        _box(ax, x, (_FLOOR, _TOP), color, dashed=own.empty)
    middle, wide = (x[0] + x[1]) / 2, x[1] - x[0]
    _say(ax, middle, _TOP - 0.045, name, fontweight="bold")
    if own.empty:
        _say(ax, middle, (_FLOOR + _TOP) / 2, _("no record of this step"))
        return
    rows = list(own.itertuples())
    shown = rows if len(rows) <= _MOST else [*rows[:3], rows[-1]]
    each = (wide - 0.02) / len(shown)
    for k, row in enumerate(shown):
        left = x[0] + 0.01 + k * each
        _box(ax, (left + 0.006, left + each - 0.006), (_FLOOR + 0.1, _TOP - 0.09), worker_color(int(row.replica)))
        examples = ngettext("{n} example", "{n} examples", row.examples)
        words = _(_REPLICA, replica=row.replica, examples=examples, share=row.loss)
        _say(ax, left + each / 2, (_FLOOR + 0.01 + _TOP) / 2, words, fontsize=8.5 if each > 0.13 else 7.0)
    if weights:
        words = _COPIES[len(rows) == 1, wide < 0.27]
        _say(ax, middle, _FLOOR + 0.05, _(words, weights=weights), fontsize=8.0)


def _link(ax: Axes, end: tuple[float, float], count: int) -> None:
    """From the kernel to a process: files and signals, no message of the step."""
    start = 0.5 + (end[0] - 0.5) * (0.35 if count > 1 else 0.0), _KERNEL[0]
    style: dict[str, Any] = {"arrowstyle": "->", "ls": (0, (3, 3)), "lw": 1.1, "color": ink(ax), "alpha": 0.7}
    ax.annotate("", end, start, arrowprops={**style, "shrinkA": 2, "shrinkB": 2})


def _dots(ax: Axes, places: dict[int, tuple[float, float]], count: int) -> None:
    between = (places[2][1] + places[count - 1][0]) / 2
    _say(ax, between, (_FLOOR + _TOP) / 2, _("…\n{count}\nmore\n…", count=count - _MOST))


def _all_reduce(ax: Axes, seen: _Step, middles: list[float], x: tuple[float, float]) -> None:
    """The bar, and an arrow to it and from it for each process; in a single process for all its replicas."""
    _box(ax, x, _BAR, ink(ax), dashed=True)
    height, middle = sum(_BAR) / 2, (x[0] + x[1]) / 2
    if seen.small:
        least, most = min(seen.small), max(seen.small)
        span = f"{least:,}" if least == most else _("{least:,} to {most:,}", least=least, most=most)
        more = ngettext(
            "besides, {n} small all-reduce, of {span} bytes",
            "besides, {n} small all-reduces, of {span} bytes",
            len(seen.small),
            span=span,
        )
        _say(ax, middle, height - 0.027, more, fontsize=8.0, alpha=0.85)
        height += 0.027
    _say(ax, middle, height, _(_GIVES[len(middles) > 1, bool(seen.size)], size=bytes_of(seen.size)))
    for at in middles:
        for shift, (y, to) in ((-0.012, (_FLOOR, _BAR[1])), (0.012, (_BAR[1], _FLOOR))):
            style: dict[str, Any] = {"arrowstyle": "-|>", "lw": 2.0, "color": ink(ax), "shrinkA": 1, "shrinkB": 1}
            ax.annotate("", (at + shift, to), (at + shift, y), arrowprops=style)


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
    if np.isnan(seen.gradients) and seen.size:
        caption.append(_("Bytes: those of the weights, each of which has a gradient."))
    return _(title, processes=count, rounds=rounds), " ".join(caption)
