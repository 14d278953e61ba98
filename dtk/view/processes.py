"""Diagrams of processes: what they send each other in a step, the fan of `strategy.run` and `reduce`, and who waited
for whom, a box per worker, when a run could not go on.
"""

from __future__ import annotations

import math
from typing import Any

import pandas
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from dtk.errors import DtkError
from dtk.language import N_, _, bytes_of, columns, ngettext
from dtk.records import WorkerFolder
from dtk.records.facts import MOVING
from dtk.records.tables import Recorded
from dtk.scaling.shares import by_step, global_loss
from dtk.scaling.timing import step_reductions
from dtk.view.canvas import NO_RECORDS, axes, blank, headline, ink, only_text, wrapped
from dtk.view.palette import replica_name, stroke, worker_color, worker_name
from dtk.watch.waiting import State, Waiting, load, names

_MOST = 4  # processes, or replicas of one process, side by side; of more, the first three and the last
_KERNEL, _TOP, _FLOOR, _BAR = (0.86, 1.0), 0.72, 0.26, (0.03, 0.15)  # heights, of the axes
_GAP = 0.03  # between two processes, of the axes' width
# From the kernel to a process: files and signals, no message of the step.
_DASHED: dict[str, Any] = {"arrowstyle": "->", "ls": (0, (3, 3)), "lw": 1.1, "alpha": 0.7, "shrinkA": 2, "shrinkB": 2}
_REPLICA = N_("replica {replica}, a device\n{examples}\nshare of loss\n{share:.4f}")
_LEFT, _MIDDLE, _RIGHT = 0.10, 0.51, 0.90  # of the fan: centers of its columns, of the axes' width
_HALF = 0.17  # a little less than half the width of a box in the middle: where its rays bend


def processes(run: Recorded, ax: Axes | None = None) -> Axes:
    """Draw one step: the kernel, a box for each process, in it its replicas, and the messages between them.

    The step is the second. All numbers are the run's own; there are no bytes where workers noted none (`DTK_MARKS=0`,
    several replicas in one process). The bar of the all-reduce is no process: workers send to each other.

    Args:
        run: from `dtk.run` or `dtk.baseline`, or the error of a run that failed.
        ax: axes to draw on; None: a new figure.
    """
    if run.folder is None or run.records.empty:
        return only_text(ax, NO_RECORDS)
    table, sent = run.records, step_reductions(run)
    numbers = sorted(set(table.step))
    step = int(sent.step.min()) if len(sent) else int(numbers[min(1, len(numbers) - 1)])
    sizes = sent[(sent.step == step) & (sent.worker == 0)].bytes  # of the gradients of each all-reduce
    workers, replicas = run.folder.workers, int(table.replica.nunique())
    lowest = -0.01 if replicas > 1 else _FLOOR - 0.01
    (ax,) = axes(ax, size=(7.0, 0.6 + 3.7 * (1.01 - lowest)))
    ax.set(xlim=(-0.005, 1.005), ylim=(lowest, 1.01))
    blank(ax)
    places, weights = _places(workers), _weights(run.folder.worker(0))
    middle = sum(_KERNEL) / 2
    _frame(ax, (0.29, 0.71), _KERNEL, ink(ax))
    _write(ax, 0.5, middle + 0.025, _("kernel: this notebook's process"), fontweight="bold")
    _write(ax, 0.5, middle - 0.03, _("starts the others, reads their records"))
    inside = workers == 1 and replicas > 1  # what is added up is added up within the process
    for worker, (left, right) in places.items():
        own = table[(table.step == step) & (table.worker == worker)]
        name = _("one process") if workers == 1 else worker_name(worker, chief=worker == 0)
        _process(ax, (left, right), name, own, weights, lowest=0.0 if inside else _FLOOR)
        start = 0.5 + ((left + right) / 2 - 0.5) * (0.35 if workers > 1 else 0.0), _KERNEL[0]
        ax.annotate("", ((left + right) / 2, _TOP), start, arrowprops={**_DASHED, "color": ink(ax)})
    if workers > _MOST:
        between = (places[2][1] + places[workers - 1][0]) / 2
        _write(ax, between, (_FLOOR + _TOP) / 2, _("…\n{count}\nmore\n…", count=workers - _MOST))
    if replicas > 1:
        ends = [(left + right) / 2 for left, right in places.values()]
        _all_reduce(ax, int(sizes.sum()), ends, (places[0][0] + 0.02, places[0][1] - 0.02) if inside else (0.0, 1.0))
    headline(ax, *_words(step, sizes, workers, replicas))
    return ax


def _weights(worker: WorkerFolder) -> int:
    """How many numbers training changes."""
    found = worker.weights
    if found is None:  # it has not come to its end
        return sum(math.prod(each["shape"]) for each in worker.lines("variables") if each["trainable"])
    pairs = zip(found.names, found.arrays, strict=True)
    return sum(a.size for name, a in pairs if a.dtype.kind == "f" and not any(word in name for word in MOVING))


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


def _frame(ax: Axes, x: tuple[float, float], y: tuple[float, float], color: Any, **style: Any) -> FancyBboxPatch:
    """Draw a frame with round corners, from x[0] to x[1] and from y[0] to y[1]."""
    rounded = "round,pad=0,rounding_size=0.015"
    options: dict[str, Any] = {"facecolor": "none", "edgecolor": color, "lw": 1.6, "boxstyle": rounded, **style}
    frame = FancyBboxPatch((x[0], y[0]), x[1] - x[0], y[1] - y[0], **options)
    ax.add_patch(frame)
    return frame


def _write(ax: Axes, x: float, y: float, words: str, **style: Any) -> None:
    ax.text(x, y, words, **{"ha": "center", "va": "center", "fontsize": 8.5, **style})


def _process(ax: Axes, x: tuple[float, float], name: str, own: pandas.DataFrame, weights: int, lowest: float) -> None:
    """A process's box, with a box for each replica; its replicas' numbers are those of the step."""
    color = stroke(worker_color(int(own.worker.iloc[0]))) if len(own) else ink(ax)
    _frame(ax, x, (lowest, _TOP), color, ls="--" if own.empty else "-")
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
        color = stroke(worker_color(int(row.replica)))
        _frame(ax, (left + 0.006, left + each - 0.006), (_FLOOR + 0.1, _TOP - 0.09), color)
        examples = ngettext("{n} example", "{n} examples", row.examples)
        words = _(_REPLICA, replica=row.replica, examples=examples, share=row.loss)
        _write(ax, left + each / 2, (_FLOOR + 0.01 + _TOP) / 2, words, fontsize=8.5 if each > 0.13 else 7.0)
    if weights:
        copies = ngettext(
            "a copy of the {weights:,} weights", "a copy each of the {weights:,} weights", len(rows), weights=weights
        )
        _write(ax, middle, _FLOOR + 0.05, "\n".join(wrapped(copies, 20 if wide < 0.27 else 60)), fontsize=8.0)


def _all_reduce(ax: Axes, size: int, middles: list[float], x: tuple[float, float]) -> None:
    """The bar, and an arrow to it and from it for each process; in a single process for all its replicas."""
    _frame(ax, x, _BAR, ink(ax), ls="--")
    gives = N_("all-reduce: each worker gives {size} of gradients, gets the sum of all")
    if not size:  # nothing was noted: by DTK_MARKS=0, or as all replicas are in one process
        gives = N_("all-reduce: each replica gives its gradients,\ngets the sum of all")
    _write(ax, sum(x) / 2, sum(_BAR) / 2, _(gives, size=bytes_of(size)))
    style: dict[str, Any] = {"arrowstyle": "-|>", "lw": 2.0, "color": ink(ax), "shrinkA": 1, "shrinkB": 1}
    for at in middles:
        ax.annotate("", (at - 0.012, _BAR[1]), (at - 0.012, _FLOOR), arrowprops=style)
        ax.annotate("", (at + 0.012, _FLOOR), (at + 0.012, _BAR[1]), arrowprops=style)


def _words(step: int, sizes: pandas.Series, workers: int, replicas: int) -> tuple[str, str]:
    own = ngettext("{n} replica", "{n} replicas", replicas)
    count = ngettext("{n} process, {replicas}", "{n} processes, {replicas}", workers, replicas=own)
    words = _("Dashed arrows: the kernel starts processes and reads files; it has no part in the step.")
    caption = [_("Step {step}.", step=step), words]
    if replicas == 1:
        caption.append(_("One replica has the whole batch."))
        return _("A step: {processes}, no message", processes=count), " ".join(caption)
    rounds = ngettext("an all-reduce", "{n} all-reduces", max(1, len(sizes)))
    if sizes.any():
        rounds = _("{rounds} of {size}", rounds=rounds, size=bytes_of(int(sizes.sum())))
    title = N_("A step: {processes}, {rounds}") if workers > 1 else N_("A step: {processes}, {rounds} inside")
    if workers > 1:
        caption.append(_("The bar is no process: workers send to each other."))
    return _(title, processes=count, rounds=rounds), " ".join(caption)


def fan(run: Recorded, step: int = 1, ax: Axes | None = None) -> Axes:
    """Draw one step: the global batch on the left, each replica's share of the loss, their sum on the right.

    The middle is what `strategy.run` returned, a PerReplica with a worker's own values; `strategy.reduce` adds them.

    Args:
        run: from `dtk.run`, or the error of a run that failed.
        step: from 1.
        ax: axes to draw on; None: a new figure.

    Raises:
        ValueError: not all replicas recorded that step.
    """
    records = run.records
    counted = by_step(records, "examples").dropna() if len(records) else records
    if counted.empty:
        return only_text(ax, NO_RECORDS)
    if step not in counted.index:
        words = N_("step={step}: the run has records of steps {first} to {last}")
        raise ValueError(_(words, step=step, first=counted.index[0], last=counted.index[-1]))
    loss, seen = by_step(records, "loss").loc[step], counted.loc[step]
    count, rows = len(loss), max(len(loss), 2)
    (ax,) = axes(ax, size=(7.0, 1.3 + 0.45 * rows))
    workers = records.drop_duplicates("replica").set_index("replica").worker
    apart = workers.nunique() == count  # one replica a worker
    for row, replica in enumerate(loss.index):
        name = replica_name(replica)
        if apart:
            name = _("worker {worker}, replica {replica}", worker=workers[replica], replica=replica)
        y, color = (count - 1) / 2 - row, stroke(worker_color(int(replica)))
        style: dict[str, Any] = {"color": color, "lw": 2.2, "zorder": 1, "solid_capstyle": "round"}
        ax.plot([_LEFT, _MIDDLE - _HALF, _MIDDLE], [0, y, y], **style)
        ax.plot([_MIDDLE, _MIDDLE + _HALF, _RIGHT], [y, y, 0], **style)
        examples = ngettext("{n} example", "{n} examples", seen[replica])
        words = _("{name}: {examples}, share {share:.4f}", name=name, examples=examples, share=loss[replica])
        _value(ax, (_MIDDLE, y), words, color)
    batch = _("global batch\n{examples}", examples=ngettext("{n} example", "{n} examples", seen.sum()))
    total = _("global loss\n{loss:.4f}", loss=global_loss([loss], [seen])[0])
    _value(ax, (_LEFT, 0), batch, ink(ax), fontsize=9)
    _value(ax, (_RIGHT, 0), total, ink(ax), fontsize=9)
    between = (_LEFT + _MIDDLE - _HALF) / 2 + 0.02, (_MIDDLE + _HALF + _RIGHT) / 2 - 0.02
    for x, words in ((between[0], "run"), (_MIDDLE, _("PerReplica: one value a replica")), (between[1], "reduce")):
        _write(ax, x, rows / 2 + 0.35, words, fontsize=9, style="italic")
    ax.set(xlim=(0, 1), ylim=(-rows / 2, rows / 2 + 0.6))
    blank(ax)
    caption = ngettext(
        "Step {step}: one replica sees the whole batch; its share is the loss.",
        "Step {step}: each of {n} replicas computes its share from its own examples; the shares add up to the loss of "
        "the whole batch.",
        count,
        step=step,
    )
    headline(ax, _("strategy.run opens the fan, strategy.reduce closes it"), caption)
    return ax


def _value(ax: Axes, place: tuple[float, float], words: str, color: Any, fontsize: float = 8.5) -> None:
    frame = {"boxstyle": "round,pad=0.45", "facecolor": ax.get_facecolor(), "edgecolor": color, "lw": 1.6}
    _write(ax, *place, words, fontsize=fontsize, bbox=frame, zorder=3)


# ---- who waited for whom

NOTHING = N_("no worker that could not go on: nothing was started, or the run ended well or goes on")
_WIDE, _HIGH = 2.3, 0.9  # of a box, in the units of the axes; the figure is as wide as _SPAN of them
_SPAN = 8.6
_INCHES = 7.0
_CHARACTERS = 26  # of a line of text in a box
_APART = 4  # workers that get a box each; of more, those that do the same and wait for the same share one


def wait_for(run: Recorded, ax: Axes | None = None) -> Axes:
    """Draw which worker waited for which when a run stalled or failed.

    A box per worker (with more than four, one for all that do the same): what it was doing, and its last line of the
    learner's code. An arrow leads to the worker that it waited for. A thick frame is one that waits for none: look
    there. A ring of arrows without one is a deadlock.

    Args:
        run: a WorkerStalled, a WorkerFailed, or a `Run`.
        ax: axes to draw on; None: a new figure.
    """
    found = None if run.folder is None else load(run.folder)
    if found is None:
        return only_text(ax, NOTHING)
    boxes = _boxes(found)
    places = _circle(len(boxes))
    low, high = min(y for __, y in places), max(y for __, y in places)
    # Those that others wait for and that wait for none.
    sources = {whom for __, whom in found.edges} - {who for who, __ in found.edges}
    title, caption = found.sentence or (str(run) if isinstance(run, DtkError) else ""), _wait_caption(found, sources)
    done, count = sum(state.what == "finished" for state in found.states), len(found.states)
    title = title[:1].upper() + title[1:] or _("{done} of {count} workers have finished", done=done, count=count)
    # In inches, by the number of lines; too high does no harm.
    words = 0.19 * -(-columns(title) // 60) + 0.14 * -(-columns(caption) // 100)
    (ax,) = axes(ax, size=(_INCHES, round((high - low + _HIGH + 0.3) * _INCHES / _SPAN + words + 0.5, 1)))
    ax.set(xlim=(-_SPAN / 2, _SPAN / 2), ylim=(low - _HIGH / 2 - 0.15, high + _HIGH / 2 + 0.15), aspect="equal")
    ax.set_anchor("NW")
    blank(ax)
    of = {state.member: number for number, states in enumerate(boxes) for state in states}
    arrows = {(of[who], of[whom]) for who, whom in found.edges}
    pairs = zip(boxes, places, strict=True)
    frames = [_box(ax, states, place, states[0].member in sources) for states, place in pairs]
    for one, other in arrows:
        # Two that wait for each other get an arrow each, apart.
        bent = f"arc3,rad={0.18 if (other, one) in arrows else 0.0}"
        ends: dict[str, Any] = {"patchA": frames[one], "patchB": frames[other], "shrinkA": 2, "shrinkB": 3}
        style: dict[str, Any] = {"arrowstyle": "-|>,head_width=3.2,head_length=6", "color": ink(ax), "lw": 1.3, **ends}
        ax.add_patch(FancyArrowPatch(places[one], places[other], connectionstyle=bent, gid="waits", zorder=2, **style))
    headline(ax, title, caption)
    return ax


def _boxes(found: Waiting) -> list[list[State]]:
    """The workers of each box."""
    groups: dict[Any, list[State]] = {}
    for state in found.states:
        waits = frozenset(whom for who, whom in found.edges if who == state.member)
        awaited = frozenset(who for who, whom in found.edges if whom == state.member)
        alike = state.said().words, state.line, waits, awaited
        groups.setdefault(state.member if len(found.states) <= _APART else alike, []).append(state)
    return list(groups.values())


def _circle(count: int) -> list[tuple[float, float]]:
    """The middle of each box: on an ellipse from the left over the top, which lets every arrow see its target."""
    across = (_SPAN - _WIDE) / 2 - 0.1
    if count <= 2:
        return [(-across * 0.75, 0.0), (across * 0.75, 0.0)][:count]
    # So flat that the figure stays small, and so high that two boxes one above the other have room for an arrow.
    up = max(1.0, count * 0.27)
    angles = [2 * math.pi * (k + 0.5 * (count % 2 == 0)) / count for k in range(count)]
    return [(-across * math.cos(angle), up * math.sin(angle)) for angle in angles]


def _box(ax: Axes, states: list[State], middle: tuple[float, float], source: bool) -> FancyBboxPatch:
    left, low = middle[0] - _WIDE / 2, middle[1] - _HIGH / 2
    style: dict[str, Any] = {"lw": 2.6 if source else 0.8, "gid": "source" if source else "box", "zorder": 3}
    style |= {"facecolor": ax.get_facecolor(), "boxstyle": "round,pad=0,rounding_size=0.06"}
    frame = _frame(ax, (left, left + _WIDE), (low, low + _HIGH), ink(ax), **style)
    high = (_HIGH - 0.16) / len(states)
    for k, each in enumerate(reversed(states)):
        corner = left + 0.07, low + 0.08 + k * high
        ax.add_patch(Rectangle(corner, 0.09, high, facecolor=worker_color(each.member), lw=0, zorder=4))
    state = max(states, key=lambda each: each.quiet)
    lines = wrapped(str(state.said()), _CHARACTERS)[:2]
    lines += wrapped(state.line, _CHARACTERS)[:1] if state.line and not state.ended else []
    name = names(states) if len(states) <= _APART else ngettext("{n} worker", "{n} workers", len(states))
    text: dict[str, Any] = {"va": "top", "zorder": 5, "linespacing": 1.15}
    ax.text(left + 0.23, middle[1] + 0.38, name, fontsize=8.5, fontweight="bold", gid="worker", **text)
    ax.text(left + 0.23, middle[1] + 0.15, "\n".join(lines), fontsize=8.0, gid="state", **text)
    return frame


def _wait_caption(found: Waiting, sources: set[int]) -> str:
    if not found.edges:
        return _("No arrow: no worker was found to wait for another.")
    caption = _("An arrow leads from a worker that can't go on to one that it waits for.")
    if sources:
        return f"{caption} " + _("Thick frame: others wait for it and it waits for no other, so look there.")
    return f"{caption} " + _("No worker is free to go on: a deadlock.")
