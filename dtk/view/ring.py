"""The ring's figure: workers × chunks after each step of an all-reduce by hand, drawn from the messages sent."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from dtk.language import N_, _
from dtk.records import RunFolder
from dtk.records.events import Finished, RingEvent, of_kind
from dtk.records.tables import Recorded
from dtk.view.canvas import axes, blank, headline, ink, legend_below, on, only_text
from dtk.view.palette import worker_color, worker_name

NO_MESSAGES = N_("no messages: let the function exchange chunks with dtk.ring()")
_GAP = 0.34  # between two rows of a grid, in cells: the room for an arrow
_ROW = 1 + _GAP
_BETWEEN = 0.75  # between two grids, in cells
_HEAD = 1.25  # over a grid, in cells: its step, and the chunks' numbers
_WIDEST = 19.0  # cells side by side; more steps go into the next line
_INCHES = 7.0


# ---- what became of the messages

Parts = tuple[int, ...] | None  # workers whose gradient is in a chunk's sum, with repetitions; None: unknown


@dataclass(frozen=True)
class Story:
    """One all-reduce. `holds[step][worker][chunk]`: the parts in that worker's chunk after that step, from step 0.

    holds[step][worker] is None where that worker did not get as far. messages: by step, sender and chunk, whether the
    receiver wrote down that it came. steps: how many there were; where the run was interrupted, how many there should
    have been, 2 (workers - 1), if that is more.
    """

    workers: int
    steps: int
    interrupted: bool
    messages: dict[tuple[int, int, int], bool]
    holds: list[list[list[Parts] | None]]


def story(folder: RunFolder) -> Story | None:
    """Reconstruct the run's first all-reduce from its messages; None where no worker wrote of one."""
    events = [(corner.worker, event) for corner in folder.each for event in of_kind(corner.events, RingEvent)]
    # By kind, worker and step, a split's step being 0.
    seen = {(event.what, worker, event.step): event for worker, event in events if event.round == 1}
    if not seen:
        return None
    workers, steps = folder.workers, max(step for _what, _worker, step in seen)
    interrupted = not all(of_kind(corner.events, Finished) for corner in folder.each)
    if interrupted:
        steps = max(steps, 2 * (workers - 1))
    known = [("split", worker, 0) in seen for worker in range(workers)]
    chunks: list[list[Parts]] = [[(worker,)] * workers for worker in range(workers)]
    messages, holds = {}, [_held(chunks, known)]
    for step in range(1, steps + 1):
        for sender in range(workers):
            worker = (sender + 1) % workers
            received, used = (seen.get((what, worker, step)) for what in ("received", "used"))
            # What at least one end wrote down: a worker that is killed may have sent without a chance to say so.
            if (message := seen.get(("sent", sender, step), received)) is not None:
                messages[step, sender, message.chunk] = received is not None
            known[worker] &= received is not None
            if received is not None:
                chunks[worker][received.chunk] = None if used is None or used.parts is None else tuple(used.parts)
        holds.append(_held(chunks, known))
    return Story(workers, steps, interrupted, messages, holds)


def _held(chunks: list[list[Parts]], known: list[bool]) -> list[list[Parts] | None]:
    """Each worker's chunks now; None from the first step on whose message it did not get."""
    return [list(own) if sure else None for own, sure in zip(chunks, known, strict=True)]


def ring(run: Recorded, ax: Axes | None = None) -> Axes:
    """Draw what each worker's chunks held after each step of the run's first all-reduce with `dtk.ring`.

    One grid per step: a row per worker, a column per chunk. A cell has a stripe for each worker whose gradient is in
    the sum, and a thick frame once all are. An arrow is a message that arrived, a cross one that did not; hatched is a
    worker that did not get as far, a question mark numbers that are no sum of the workers' gradients.

    Args:
        run: from `dtk.run`, or the error of a run that failed.
        ax: axes to draw on; None: a new figure.
    """
    seen = story(run.folder) if run.folder is not None else None
    if seen is None:
        return only_text(ax, NO_MESSAGES)
    places, width, depth = _places(seen)
    scale = _INCHES / max(width + 1.2, 11.0)  # inches a cell; a small ring is not blown up
    (ax,) = axes(ax, size=(_INCHES, round((depth + _HEAD) * scale + 0.95, 1)))
    for step, (x, y) in enumerate(places):
        _grid(ax, seen, step, (x, y))
    for (step, sender, chunk), arrived in seen.messages.items():
        x, y = places[step]
        under = (x + chunk + 0.5, y + sender * _ROW + 1)
        _arrow(ax, under, arrived, scale)
        if sender == seen.workers - 1:  # whose next is worker 0: above the first row too
            _arrow(ax, (under[0], y - _GAP), arrived, scale)
    for top in sorted({corner[1] for corner in places}):
        for worker in range(seen.workers):
            middle = top + worker * _ROW + 0.5
            ax.text(-0.12, middle, worker_name(worker), ha="right", va="center", fontsize=8.5, gid="worker")
        ax.text(-0.12, top - 0.44, _("chunk"), ha="right", va="bottom", fontsize=8.0, alpha=0.85)
    ax.set(xlim=(-1.2, max(width, 9.8)), ylim=(depth, -_HEAD), aspect="equal")
    ax.set_anchor("NW")
    blank(ax)
    names = [_("gradient of worker {worker}", worker=k) for k in range(seen.workers)]
    patches = [Patch(color=worker_color(k), label=name) for k, name in enumerate(names)]
    legend_below(ax, patches, min(4, seen.workers), loc="outside lower left", fontsize=8.5, handlelength=0.8)
    headline(ax, *_words(seen))
    return ax


def _places(seen: Story) -> tuple[list[tuple[float, float]], float, float]:
    """The upper left corner of each step's grid, and the figure's width and depth, in cells.

    The two halves, adding up and handing round, stand in a line each where one line would be too small to read.
    """
    count, across, down = seen.steps + 1, seen.workers + _BETWEEN, seen.workers * _ROW + 0.2 + _HEAD
    half = seen.workers if count * across > _WIDEST else count
    places = [(step % half * across, step // half * down) for step in range(count)]
    return places, min(half, count) * across - _BETWEEN, -(-count // half) * down - _HEAD


def _grid(ax: Axes, seen: Story, step: int, corner: tuple[float, float]) -> None:
    x, y = corner
    title = _("start") if step == 0 else _("step {step}", step=step)
    ax.text(x + seen.workers / 2, y - 0.86, title, ha="center", va="bottom", fontsize=8.5)
    for chunk in range(seen.workers):
        ax.text(x + chunk + 0.5, y - 0.44, str(chunk), ha="center", va="bottom", fontsize=8, alpha=0.85, gid="chunk")
    for worker, chunks in enumerate(seen.holds[step]):
        top = y + worker * _ROW
        if chunks is None:
            style: dict[str, Any] = {"fill": False, "hatch": "////", "edgecolor": ink(ax), "alpha": 0.6, "lw": 0}
            ax.add_patch(Rectangle((x, top), seen.workers, 1, **style))
            continue
        for chunk, parts in enumerate(chunks):
            _cell(ax, (x + chunk, top), parts, seen.workers)


def _cell(ax: Axes, corner: tuple[float, float], parts: Parts, workers: int) -> None:
    """A stripe for each worker, filled if its gradient is in; the figure in it says how often, if more than once."""
    x, y = corner[0] + 0.05, corner[1]
    wide = 0.9 / workers
    for worker, times in sorted(Counter(parts or ()).items()):
        left, color = x + worker * wide, worker_color(worker)
        ax.add_patch(Rectangle((left, y), wide, 1, facecolor=color, lw=0, gid="part"))
        if times > 1:
            ax.text(left + wide / 2, y + 0.5, str(times), ha="center", va="center", fontsize=7.5, color=on(color))
    ax.add_patch(Rectangle((x, y), 0.9, 1, fill=False, edgecolor=ink(ax), lw=1.8 if _whole(parts, workers) else 0.5))
    if parts is None:
        ax.text(x + 0.45, y + 0.5, "?", ha="center", va="center", fontsize=9)


def _arrow(ax: Axes, top: tuple[float, float], arrived: bool, scale: float) -> None:
    """In the gap under a row, from `top` down; a cross for a message that did not arrive."""
    x, y = top
    if not arrived:
        ax.plot(x, y + _GAP / 2, marker="x", color=ink(ax), ms=4.5, mew=1.6, ls="", gid="lost")
        return
    style = {"arrowstyle": f"-|>,head_width={0.14 * min(scale * 3, 1):.3f},head_length=0.2", "lw": 1.3}
    arrow: dict[str, Any] = {**style, "color": ink(ax), "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", (x, y + _GAP - 0.02), (x, y + 0.02), arrowprops=arrow, annotation_clip=False)


def _words(seen: Story) -> tuple[str, str]:
    held = [parts for row in seen.holds[-1] for parts in row or []]
    arrived = sum(seen.messages.values())
    caption = [
        _("One stripe a worker whose gradient is in the chunk's sum; thick frame: all are. Arrows are messages.")
    ]
    if seen.workers > 1:
        caption.append(_("Below worker {worker} the ring closes: it sends to worker 0.", worker=seen.workers - 1))
    if seen.interrupted:
        title = N_("The all-reduce was interrupted: {missing} of {count} messages never arrived")
        count = seen.steps * seen.workers  # one a worker and step
        title = _(title, missing=count - arrived, count=count)
        caption.append(_("Hatched: that worker did not get so far. Cross: sent, not arrived. ?: not known."))
        return title, " ".join(caption)
    cells = sum(_whole(parts, seen.workers) for parts in held)
    if cells == seen.workers**2:
        title = N_("After {steps} steps and {messages} messages, every worker has the whole sum")
    else:
        title = N_("After {steps} steps, {cells} of {count} chunks hold the whole sum")
        if any(len(set(parts)) < len(parts) for parts in held if parts):
            caption.append(_("A figure: added so many times."))
        if None in held:
            caption.append(_("A question mark: no sum of the workers' gradients."))
    return _(title, steps=seen.steps, messages=arrived, cells=cells, count=seen.workers**2), " ".join(caption)


def _whole(parts: Parts, workers: int) -> bool:
    """Whether a chunk holds each worker's gradient once."""
    return parts is not None and sorted(parts) == list(range(workers))
