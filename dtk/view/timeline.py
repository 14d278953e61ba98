"""The figure of what each worker did when: start, build, steps, waiting; and when the evaluator evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

from dtk.language import N_, _, columns, three
from dtk.records import RunFolder, evaluations
from dtk.records.events import Failed, FaultCame, Finished, Running, Starting, of_kind
from dtk.records.tables import Recorded
from dtk.scaling import timing
from dtk.scaling.timing import Pace, pace, typical_steps, within_epochs
from dtk.view.canvas import NO_RECORDS, axes, headline, ink, legend_below, name_rows, note, only_text
from dtk.view.palette import member_color, member_name

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


class _Lane(NamedTuple):
    """One member's times in seconds since the call of `dtk.run`.

    running: its function was called. ended: it finished or failed; NaN while it runs. steps: rows of
    `pace.within_epochs`, in order. evaluations: an evaluator's, as in `Run.evaluations`; None for a worker. since: the
    start of the cluster that this lane belongs to. faults: when each came, and its kind.
    """

    name: str
    worker: int
    color: str
    running: float
    ended: float
    failed: bool
    steps: pandas.DataFrame
    evaluations: pandas.DataFrame | None
    since: float
    faults: list[tuple[float, str]]

    @property
    def last(self) -> float:
        """The last that is known of the member."""
        table = self.steps if self.evaluations is None else self.evaluations
        last = float(table.ended.iloc[-1]) if len(table) else self.running
        return float(np.fmax(last, self.ended))


def timeline(run: Recorded, ax: Axes | None = None) -> Axes:
    """Draw one lane per worker: start, build, steps, waiting, pauses, the end; and below, a few steps enlarged.

    Under them an evaluator's evaluations, with the step of the weights. Waiting is drawn at a step's end, and is a
    lower bound: no all-reduce can end before the last worker has begun the step. A wait in an epoch's first step
    is part of the pause between the epochs, and so is not hatched. The enlarged steps are of one epoch.

    Args:
        run: from `dtk.run` or `dtk.baseline`, or the error of a run that failed.
        ax: axes to draw on, without the enlargement; None: a new figure.

    Returns:
        The upper Axes.
    """
    attempts = _attempts(run)
    lanes, every = attempts[-1], [lane for attempt in attempts for lane in attempt]
    if not any(len(lane.steps) or lane.running > 0 for lane in every):
        return only_text(ax, NO_RECORDS)
    workers = [lane for lane in lanes if lane.evaluations is None]
    chosen = typical_steps(_times(workers), _ZOOMED) if all(len(lane.steps) for lane in workers) else []
    zoom = ax is None and bool(chosen)
    tall = max(1.0, 0.28 * len(lanes) + 0.5)
    top, *below = axes(ax, (1.0, 0.8) if zoom else (1.0,), (7.0, max(3.6, 1.8 + (1.8 if zoom else 1.0) * tall)))
    whole = max(lane.last for lane in every)
    for lane in every:
        _draw(top, lane, (0.0, whole), whole)
    _dress(top, lanes, (0.0, whole * 1.02))
    top.set_xlabel(_("seconds since the call of dtk.run"))
    title, caption = _words(lanes, whole)
    if len(attempts) > 1:
        title = _("{count} attempts; the run took {seconds:.1f} s", count=len(attempts), seconds=whole)
    headline(top, title, caption)
    for number, each in enumerate(attempts[1:], 2):
        at = min(lane.since for lane in each)
        top.axvline(at, color=ink(top), lw=1.0, ls=(0, (2, 2)))
        note(top, _("attempt {number}", number=number), (at, -0.48), (3, 0), fontsize=_LABEL_POINTS)
    for lower in below:
        _enlarge(lower, workers, chosen, whole)
    _legend(top, waiting=len(workers) > 1)
    for lane in every:
        _label_evaluations(top, lane)
    return top


def _attempts(run: Recorded) -> list[list[_Lane]]:
    """The lanes of each start of the cluster; one without restarts."""
    if run.folder is None:
        return [[]]
    earlier = run.folder.earlier
    if not earlier:
        return [_lanes(run.folder, run.records, 0.0)]
    before = [_lanes(folder, folder.own_records, 0.0 if k == 0 else None) for k, folder in enumerate(earlier)]
    return [*before, _lanes(run.folder, run.folder.own_records, None)]


def _lanes(folder: RunFolder, records: pandas.DataFrame, since: float | None) -> list[_Lane]:
    """since: seconds, None for when the member's process started."""
    times = within_epochs(timing.step_times(records))
    lanes = []
    for member in folder.members:
        worker, events = member.worker, member.events
        at = {event.state: event.at for event in reversed(events)}  # the first of each
        begun = at.get(Running.state, at.get(Starting.state, 0.0))
        lane = _Lane(
            name=member_name(worker, folder.workers),
            worker=worker,
            color=member_color(worker, folder.workers),
            running=begun,
            ended=at.get(Finished.state, at.get(Failed.state, float("nan"))),
            failed=Failed.state in at,
            steps=times[times.worker == worker],
            evaluations=evaluations(events) if worker == folder.workers else None,
            since=at.get(Starting.state, begun) if since is None else since,
            faults=[(event.at, event.kind) for event in of_kind(events, FaultCame)],
        )
        lanes.append(lane)
    return lanes


def _times(lanes: list[_Lane]) -> pandas.DataFrame:
    """The steps of all lanes."""
    return pandas.concat([lane.steps for lane in lanes], ignore_index=True)


def _draw(ax: Axes, lane: _Lane, span: tuple[float, float], whole: float) -> None:
    """Draw a lane's blocks, faults and failure within `span` seconds."""
    steps, long = lane.steps, span[1] - span[0]
    _blocks(ax, lane, "start", [lane.since], [lane.running])
    if lane.evaluations is not None:
        _blocks(ax, lane, "other", [lane.running], [lane.last])
        # A thin gap before each: evaluations that follow at once would look like a single long one.
        _blocks(ax, lane, "step", lane.evaluations.started + 0.003 * long, lane.evaluations.ended)
    else:
        first = float(steps.started.iloc[0]) if len(steps) else lane.ended if np.isfinite(lane.ended) else whole
        _blocks(ax, lane, "build", [lane.running], [first])
    if len(steps):
        _blocks(ax, lane, "other", [first], [lane.last])
        seen = steps[(steps.ended > span[0]) & (steps.started < span[1])]
        period = float(seen.period.median())
        if period < _THIN * long:  # gaps and waiting can't be seen: only pauses of several steps stay
            _blocks(ax, lane, "step", seen.started, seen.ended, joined=4 * period)
        else:
            busy = seen.ended - seen.waiting
            _blocks(ax, lane, "step", seen.started, busy)
            _blocks(ax, lane, "waiting", busy, seen.ended)
    for at, kind in lane.faults:
        if span[0] <= at <= span[1]:
            ax.plot(at, lane.worker - 0.36, marker="v", ms=8, color=ink(ax), mec=ax.get_facecolor(), zorder=5)
            words = note(ax, kind, (at, lane.worker - 0.36), (6, 0), fontsize=_LABEL_POINTS)
            words.set_path_effects([withStroke(linewidth=2.5, foreground=ax.get_facecolor())])  # over any block
    if lane.failed and span[0] <= lane.ended <= span[1]:
        ax.plot(lane.ended, lane.worker, marker="X", ms=10, color=ink(ax), mec=ax.get_facecolor(), zorder=5)
        note(ax, _("failed"), (lane.ended, lane.worker), (8, 0))


def _blocks(
    ax: Axes,
    lane: _Lane,
    phase: str,
    starts: Sequence[float] | pandas.Series,
    ends: Sequence[float] | pandas.Series,
    joined: float = 0.0,
) -> None:
    """Draw blocks of one phase in a lane; blocks at most `joined` seconds apart become one."""
    starts, ends = np.asarray(starts), np.asarray(ends)
    starts, ends = starts[ends > starts], ends[ends > starts]
    if not len(starts):
        return
    cut = np.flatnonzero(starts[1:] - ends[:-1] > joined) + 1
    left, right = starts[np.r_[0, cut]], ends[np.r_[cut - 1, len(ends) - 1]]
    alpha, hatch = _PHASES[phase]
    ax.broken_barh(
        np.c_[left, right - left],
        (lane.worker - 0.36, 0.72),
        facecolors=(lane.color, alpha),
        edgecolors=(lane.color, 1.0 if hatch else 0.0),
        hatch=hatch or None,
        lw=0,
    )


def _dress(ax: Axes, lanes: list[_Lane], xlim: tuple[float, float]) -> None:
    evaluated = any(lane.evaluations is not None for lane in lanes)
    name_rows(ax, [lane.name for lane in lanes], 0.1, below=0.4 if evaluated else 0.0)  # for evaluations' labels
    ax.set_xlim(xlim)
    ax.spines[["top", "right"]].set_visible(False)


def _enlarge(ax: Axes, lanes: list[_Lane], chosen: list[int], whole: float) -> None:
    """A few steps, in milliseconds."""
    table = _times(lanes)
    table = table[table.step.isin(chosen)]
    left, right = float(table.started.min()), float(table.ended.max())
    for lane in lanes:
        _draw(ax, lane, (left, right), whole)
    _dress(ax, lanes, (left, right))
    ticks = ax.xaxis.get_major_locator().tick_values(0, (right - left) * 1e3)
    ticks = [tick for tick in ticks if 0 <= tick <= (right - left) * 1e3]
    ax.set_xticks([left + tick / 1e3 for tick in ticks], [three(tick) for tick in ticks])
    ax.set_xlabel(_("milliseconds since the start of step {step}", step=chosen[0]))
    ax.set_title(_("Steps {first} to {last}, enlarged", first=chosen[0], last=chosen[-1]), loc="left", fontsize=9)


def _words(lanes: list[_Lane], whole: float) -> tuple[str, str]:
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


def _title(timed: list[_Lane], failed: list[_Lane], waits: Pace | None, whole: float) -> str:
    if failed:
        return _("{who} failed after {seconds:.1f} s", who=failed[0].name.capitalize(), seconds=failed[0].ended)
    if waits is not None and waits.share >= _MUCH and waits.often >= _ALWAYS:
        words = N_("Worker {worker} waits for worker {last}: {share:.0%} of its time in steps")
        return _(words, worker=waits.worker, last=waits.last, share=waits.share)
    if timed:
        first = max(float(lane.steps.ended.iloc[0]) for lane in timed)
        return _("The first step ended after {first:.1f} s, the run after {whole:.1f} s", first=first, whole=whole)
    return _("What each worker did in {whole:.1f} s", whole=whole)


def _label_evaluations(ax: Axes, lane: _Lane) -> None:
    """Under each evaluation the step of its weights, from the last on; those that would overlap are left out.

    Needs the axes' limits to be set.
    """
    if lane.evaluations is None:
        return
    known = lane.evaluations.dropna(subset=["step"])
    low, high = ax.get_xlim()
    letter = 0.55 * _LABEL_POINTS * (high - low) / (ax.get_window_extent().width / ax.figure.dpi * 72)  # seconds
    free = float("inf")
    for at, step in zip((known.started[::-1] + known.ended[::-1]) / 2, known.step[::-1], strict=True):
        words = _("step {step}", step=step) if free == float("inf") else str(step)
        half = columns(words) * letter / 2
        if at + half < free:
            note(ax, words, (at, lane.worker + 0.36), (0, -2), ha="center", va="top", fontsize=_LABEL_POINTS)
            free = at - half - letter


def _legend(ax: Axes, waiting: bool) -> None:
    """The phases in the ink of the page, because each lane has them in its worker's colour."""
    patches = []
    for phase, (alpha, hatch) in _PHASES.items():
        if phase != "waiting" or waiting:
            face, edge = (ink(ax), alpha * 0.8), (ink(ax), 1.0 if hatch else 0.0)
            style: dict[str, Any] = {"facecolor": face, "edgecolor": edge, "hatch": hatch or None, "lw": 0}
            patches.append(Patch(label=_(_MEANING[phase]), **style))
    legend_below(ax, patches, fontsize=8.5)
