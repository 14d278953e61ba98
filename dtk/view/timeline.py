"""The figure of what each worker did when: start, build, steps, waiting; and when the evaluator evaluated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.patches import Patch

from dtk.digits import three
from dtk.language import N_, _, columns
from dtk.scaling.pace import Pace, pace, typical_steps
from dtk.view.annotations import mark_faults, mark_start, restarted
from dtk.view.canvas import NO_RECORDS, axes, headline, ink, only_text
from dtk.view.lanes import Lane, end, starts

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from dtk.records.tables import Recorded

__all__ = ["timeline"]

_LABEL_POINTS = 8.0
_ZOOMED = 6  # steps in the lower picture
_MUCH, _ALWAYS = 0.25, 0.9  # of a worker's time, of the steps: a wait for one and the same worker is the message
_THIN = 1 / 150  # part of the picture's width: steps that are thinner are drawn as one block


# How a phase is drawn, in the worker's colour: (opacity, hatch). Brighter is more use to the training.
_PHASES = {"start": (0.25, ""), "build": (0.5, ""), "step": (1.0, ""), "waiting": (0.25, "/////"), "other": (0.12, "")}
_MEANING = {
    "start": N_("start of the process"),
    "build": N_("build: until the first step"),
    "step": N_("steps"),
    "waiting": N_("waiting for the last worker"),
    "other": N_("between and after the steps"),
}
_HATCHED = N_(
    "Pale: start and build; full colour: steps; hatched: waiting, at least, for the last worker to begin (most at "
    "worker {worker}: {share:.0%} of its time in steps)."
)


def timeline(run: Recorded, ax: Axes | None = None) -> Axes:
    """One lane per worker: start, build, steps, waiting, what lies between the steps, the end; a few steps enlarged.

    Under them an evaluator's evaluations, with the step of the weights. Waiting is drawn at a step's end, and is a
    lower bound: no all-reduce can end before the last worker has begun the step. A wait in an epoch's first step
    is part of the pause between the epochs, and so is not hatched. The enlarged steps are of one epoch.

    Args:
        run: from `dtk.run` or `dtk.baseline`, or the error of a run that failed.
        ax: axes to draw on, without the enlargement; None: a new figure.

    Returns:
        The upper Axes.
    """
    attempts = starts(run)
    lanes, every = attempts[-1], [lane for attempt in attempts for lane in attempt]
    workers = [lane for lane in lanes if lane.evaluations is None]
    chosen = typical_steps(_times(workers), _ZOOMED) if workers and all(len(lane.steps) for lane in workers) else []
    zoom = ax is None and bool(chosen)
    tall = max(1.0, 0.28 * len(lanes) + 0.5)
    top, *below = axes(ax, (1.0, 0.8) if zoom else (1.0,), (7.0, max(3.6, 1.8 + (1.8 if zoom else 1.0) * tall)))
    if not any(len(lane.steps) or lane.running > 0 for lane in every):
        return only_text(top, NO_RECORDS)
    whole = max(end(lane) for lane in every)
    for lane in every:
        _draw(top, lane, (0.0, whole), whole)
    _dress(top, lanes, (0.0, whole * 1.02), _("seconds since the call of dtk.run"))
    title, caption = _words(lanes, whole)
    if len(attempts) > 1:
        firsts = [[int(lane.steps.step.iloc[0]) for lane in each if len(lane.steps)] for each in attempts[1:]]
        title = restarted([min(steps, default=None) for steps in firsts], whole)
    headline(top, title, caption)
    for number, each in enumerate(attempts[1:], 2):
        mark_start(top, number, min(lane.since for lane in each))
    for lower in below:
        _enlarge(lower, workers, chosen, whole)
    _legend(below[0] if below else top, lanes)
    for lane in every:
        _label_evaluations(top, lane)
    return top


def _times(workers: list[Lane]) -> pandas.DataFrame:
    """The steps of all workers."""
    import pandas as pd

    return pd.concat([lane.steps for lane in workers], ignore_index=True)


def _draw(ax: Axes, lane: Lane, span: tuple[float, float], whole: float) -> None:
    """Draws a lane's blocks within `span` seconds."""
    steps = lane.steps
    bar = _Bar(ax, lane)
    if lane.evaluations is not None:
        bar.blocks("start", np.array([lane.since]), np.array([lane.running]))
        bar.blocks("other", np.array([lane.running]), np.array([end(lane)]))
        # A thin gap before each: evaluations that follow at once would look like a single long one.
        gap = 0.003 * (span[1] - span[0])
        bar.blocks("step", lane.evaluations.started.to_numpy() + gap, lane.evaluations.ended.to_numpy())
        return _mark_failure(ax, lane, span)
    first = float(steps.started.iloc[0]) if len(steps) else lane.ended if np.isfinite(lane.ended) else whole
    bar.blocks("start", np.array([lane.since]), np.array([lane.running]))
    bar.blocks("build", np.array([lane.running]), np.array([first]))
    if len(steps):
        seen = steps[(steps.ended > span[0]) & (steps.started < span[1])]
        bar.blocks("other", np.array([first]), np.array([end(lane)]))
        period = float(seen.period.median())
        if period < _THIN * (span[1] - span[0]):  # gaps and waiting can't be seen: only pauses of several steps stay
            bar.blocks("step", seen.started.to_numpy(), seen.ended.to_numpy(), joined=4 * period)
        else:
            busy = (seen.ended - seen.waiting).to_numpy()
            bar.blocks("step", seen.started.to_numpy(), busy)
            bar.blocks("waiting", busy, seen.ended.to_numpy())
    _mark_failure(ax, lane, span)


def _mark_failure(ax: Axes, lane: Lane, span: tuple[float, float]) -> None:
    mark_faults(ax, lane.worker, lane.faults, span)
    if lane.failed and span[0] <= lane.ended <= span[1]:
        ax.plot(lane.ended, lane.worker, marker="X", ms=10, color=ink(ax), mec=ax.get_facecolor(), zorder=5)
        beside: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 9}
        ax.annotate(_("failed"), (lane.ended, lane.worker), (8, 0), **beside)


class _Bar:
    """Draws blocks of one phase in one lane; blocks at most `joined` seconds apart become one."""

    def __init__(self, ax: Axes, lane: Lane):
        self.ax, self.lane = ax, lane

    def blocks(self, phase: str, starts: np.ndarray, ends: np.ndarray, joined: float = 0.0) -> None:
        wide = ends > starts
        starts, ends = starts[wide], ends[wide]
        if not len(starts):
            return
        cut = np.flatnonzero(starts[1:] - ends[:-1] > joined) + 1
        left, right = starts[np.r_[0, cut]], ends[np.r_[cut - 1, len(ends) - 1]]
        alpha, hatch = _PHASES[phase]
        color = self.lane.color
        self.ax.broken_barh(
            np.c_[left, right - left],
            (self.lane.worker - 0.36, 0.72),
            facecolors=(color, alpha),
            edgecolors=(color, 1.0 if hatch else 0.0),
            hatch=hatch or None,
            lw=0,
        )


def _dress(ax: Axes, lanes: list[Lane], xlim: tuple[float, float], xlabel: str) -> None:
    below = 0.4 if any(lane.evaluations is not None for lane in lanes) else 0.0  # for the labels of evaluations
    ax.set(xlim=xlim, ylim=(len(lanes) - 0.4 + below, -0.6), xlabel=xlabel)
    ax.set_yticks(range(len(lanes)), [lane.name for lane in lanes])
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right"]].set_visible(False)


def _enlarge(ax: Axes, lanes: list[Lane], chosen: list[int], whole: float) -> None:
    """A few steps, in milliseconds."""
    table = [lane.steps[lane.steps.step.isin(chosen)] for lane in lanes]
    left = min(float(steps.started.min()) for steps in table)
    right = max(float(steps.ended.max()) for steps in table)
    for lane in lanes:
        _draw(ax, lane, (left, right), whole)
    _dress(ax, lanes, (left, right), "")
    ticks = ax.xaxis.get_major_locator().tick_values(0, (right - left) * 1e3)
    ticks = [tick for tick in ticks if 0 <= tick <= (right - left) * 1e3]
    ax.set_xticks([left + tick / 1e3 for tick in ticks], [three(tick) for tick in ticks])
    ax.set_xlabel(_("milliseconds since the start of step {step}", step=chosen[0]))
    title = _("Steps {first} to {last}, enlarged", first=chosen[0], last=chosen[-1])
    ax.set_title(title, loc="left", fontsize=9)


def _words(lanes: list[Lane], whole: float) -> tuple[str, str]:
    timed = [lane for lane in lanes if len(lane.steps)]
    caption = [_("Pale: start and build; full colour: steps.")]
    waits = pace(_times(timed)) if timed else None
    title = _title(timed, [lane for lane in lanes if lane.failed], waits, whole)
    if not timed:
        words = _(NO_RECORDS)
        caption = [_("{sentence}.", sentence=words[0].upper() + words[1:])]
    elif waits is not None:
        caption = [_(_HATCHED, worker=waits.worker, share=waits.share)]
    if lanes[-1].evaluations is not None:
        caption.append(_("Grey: the evaluator; each block is an evaluation, with the step of its weights."))
    return title, " ".join(caption)


def _title(timed: list[Lane], failed: list[Lane], waits: Pace | None, whole: float) -> str:
    if failed:
        return _("{who} failed after {seconds:.1f} s", who=failed[0].name.capitalize(), seconds=failed[0].ended)
    if waits is not None and waits.share >= _MUCH and waits.often >= _ALWAYS:
        words = N_("Worker {worker} waits for worker {last}: {share:.0%} of its time in steps")
        return _(words, worker=waits.worker, last=waits.last, share=waits.share)
    if timed:
        first = max(float(lane.steps.ended.iloc[0]) for lane in timed)
        return _("The first step ended after {first:.1f} s, the run after {whole:.1f} s", first=first, whole=whole)
    return _("What each worker did in {whole:.1f} s", whole=whole)


def _label_evaluations(ax: Axes, lane: Lane) -> None:
    """Under each evaluation the step of its weights; where they would overlap the last stays and others are left out.

    Needs the axes' limits to be set.
    """
    known = lane.evaluations.dropna(subset=["step"]) if lane.evaluations is not None else None
    if known is None or known.empty:
        return
    places = ((known.started + known.ended) / 2).tolist()
    low, high = ax.get_xlim()
    points = ax.get_window_extent().width / ax.figure.dpi * 72 / (high - low)  # a second's width
    for words in (N_("step {step}"), "{step}"):
        labels = [_(words, step=step) for step in known.step]
        widths = [0.55 * _LABEL_POINTS * columns(label) for label in labels]
        kept = _apart([place * points for place in places], widths)
        if len(kept) == len(labels):
            break
    beneath: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "top", "fontsize": _LABEL_POINTS}
    for k in kept:
        ax.annotate(labels[k], (places[k], lane.worker + 0.36), (0, -2), **beneath)


def _apart(places: list[float], widths: list[float]) -> list[int]:
    """Which labels of these centres and widths (points) can stand side by side: the last, and those left of it.

    >>> _apart([0.0, 10.0, 50.0], [20.0, 20.0, 20.0])
    [2, 1]
    """
    kept: list[int] = []
    for k in reversed(range(len(places))):
        if not kept or places[kept[-1]] - places[k] > (widths[kept[-1]] + widths[k]) / 2 + 4:
            kept.append(k)
    return kept


def _legend(ax: Axes, lanes: list[Lane]) -> None:
    """The phases in the ink of the page, because each lane has them in its worker's colour."""
    alone = sum(lane.evaluations is None for lane in lanes) == 1
    patches = []
    for phase, (alpha, hatch) in _PHASES.items():
        if phase == "waiting" and alone:
            continue
        face, edge = (ink(ax), alpha * 0.8), (ink(ax), 1.0 if hatch else 0.0)
        patches.append(Patch(facecolor=face, edgecolor=edge, hatch=hatch or None, lw=0, label=_(_MEANING[phase])))
    ax.figure.legend(handles=patches, loc="outside lower center", ncols=3, frameon=False, fontsize=8.5)
