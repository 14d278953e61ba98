"""The figure of what each worker did when: start, build, steps, waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.patches import Patch

from dtk.analysis import timing
from dtk.view.canvas import NO_RECORDS, Recorded, axes, headline, ink, only_text
from dtk.view.palette import worker_color

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

__all__ = ["timeline"]

_ZOOMED = 6  # steps in the lower picture
_THIN = 1 / 150  # part of the picture's width: steps that are thinner are drawn as one block


class Lane(NamedTuple):
    """One worker's times in seconds since the call of `dtk.run`.

    running: its function was called. ended: it finished or failed; NaN while it runs. steps: rows of
    `timing.step_times`, in order.
    """

    worker: int
    running: float
    ended: float
    failed: bool
    steps: pandas.DataFrame


# How a phase is drawn, in the worker's colour: (opacity, hatch). Brighter is more use to the training.
_PHASES = {
    "start": (0.25, ""),
    "build": (0.5, ""),
    "step": (1.0, ""),
    "waiting": (0.25, "/////"),
    "other": (0.12, ""),
}
_MEANING = {
    "start": "start of the process",
    "build": "build: until the first step",
    "step": "steps",
    "waiting": "waiting for the last worker",
    "other": "between and after the steps",
}


def timeline(run: Recorded, ax: Axes | None = None) -> Axes:
    """One lane a worker: start, build, steps, waiting, what lies between the steps, and the end; a few steps enlarged.

    start lasts from the call of `dtk.run` to the call of the function; build from there to the first step. Within a
    step, waiting is drawn at its end and is a lower bound: no all-reduce can end before the last worker has begun
    the step (`dtk.analysis.timing.step_times`). With an `ax` of one's own the enlargement is left out. Returns the
    upper Axes.
    """
    lanes = _lanes(run)
    common = _common_steps(lanes)
    zoom = ax is None and len(common) >= 3
    tall = max(1.0, 0.28 * len(lanes) + 0.5)
    top, *below = axes(ax, (1.0, 0.8) if zoom else (1.0,), (7.0, max(3.6, 1.8 + (1.8 if zoom else 1.0) * tall)))
    if not any(len(lane.steps) or lane.running > 0 for lane in lanes):
        return only_text(top, NO_RECORDS)
    whole = max(_end(lane) for lane in lanes)
    for lane in lanes:
        _draw(top, lane, (0.0, whole), whole)
    _dress(top, lanes, (0.0, whole * 1.02), "seconds since the call of dtk.run")
    headline(top, *_words(lanes, whole))
    for lower in below:
        _enlarge(lower, lanes, common, whole)
    _legend(below[0] if below else top, lanes)
    return top


def _lanes(run: Recorded) -> list[Lane]:
    times = timing.step_times(run.records)
    lanes = []
    for worker in range(run.folder.workers if run.folder is not None else 0):
        at: dict[str, float] = {}
        for event in run.folder.worker(worker).events:
            at.setdefault(event["state"], event["at"])
        ended = at.get("finished", at.get("failed", float("nan")))
        steps = times[times.worker == worker]
        lanes.append(Lane(worker, at.get("running", at.get("starting", 0.0)), ended, "failed" in at, steps))
    return lanes


def _end(lane: Lane) -> float:
    """The last that is known of a worker."""
    last = float(lane.steps.ended.iloc[-1]) if len(lane.steps) else lane.running
    return max(last, lane.ended) if np.isfinite(lane.ended) else last


def _common_steps(lanes: list[Lane]) -> list[int]:
    """Steps that each worker recorded, without the first, in which tracing hides the rest."""
    sets = [set(lane.steps.step) for lane in lanes]
    return sorted(set.intersection(*sets) - {1}) if sets else []


def _draw(ax: Axes, lane: Lane, span: tuple[float, float], whole: float) -> None:
    """Draws a lane's blocks within `span` seconds."""
    steps = lane.steps
    bar = _Bar(ax, lane.worker)
    first = float(steps.started.iloc[0]) if len(steps) else lane.ended if np.isfinite(lane.ended) else whole
    bar.blocks("start", np.array([0.0]), np.array([lane.running]))
    bar.blocks("build", np.array([lane.running]), np.array([first]))
    if len(steps):
        seen = steps[(steps.ended > span[0]) & (steps.started < span[1])]
        bar.blocks("other", np.array([first]), np.array([_end(lane)]))
        period = float(seen.period.median())
        if period < _THIN * (span[1] - span[0]):  # gaps and waiting can't be seen: only pauses of several steps stay
            bar.blocks("step", seen.started.to_numpy(), seen.ended.to_numpy(), joined=4 * period)
        else:
            busy = (seen.ended - seen.waiting).to_numpy()
            bar.blocks("step", seen.started.to_numpy(), busy)
            bar.blocks("waiting", busy, seen.ended.to_numpy())
    if lane.failed and span[0] <= lane.ended <= span[1]:
        ax.plot(lane.ended, lane.worker, marker="X", ms=10, color=ink(ax), mec=ax.get_facecolor(), zorder=5)
        ax.annotate("failed", (lane.ended, lane.worker), (8, 0), textcoords="offset points", va="center", fontsize=9)


class _Bar:
    """Draws blocks of one phase in one lane; blocks at most `joined` seconds apart become one."""

    def __init__(self, ax: Axes, worker: int):
        self.ax, self.worker = ax, worker

    def blocks(self, phase: str, starts: np.ndarray, ends: np.ndarray, joined: float = 0.0) -> None:
        wide = ends > starts
        starts, ends = starts[wide], ends[wide]
        if not len(starts):
            return
        cut = np.flatnonzero(starts[1:] - ends[:-1] > joined) + 1
        left, right = starts[np.r_[0, cut]], ends[np.r_[cut - 1, len(ends) - 1]]
        alpha, hatch = _PHASES[phase]
        color = worker_color(self.worker)
        self.ax.broken_barh(
            np.c_[left, right - left],
            (self.worker - 0.36, 0.72),
            facecolors=(color, alpha),
            edgecolors=(color, 1.0 if hatch else 0.0),
            hatch=hatch or None,
            lw=0,
        )


def _dress(ax: Axes, lanes: list[Lane], xlim: tuple[float, float], xlabel: str) -> None:
    ax.set(xlim=xlim, ylim=(len(lanes) - 0.4, -0.6), xlabel=xlabel)
    ax.set_yticks(range(len(lanes)), [f"worker {lane.worker}" for lane in lanes])
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right"]].set_visible(False)


def _enlarge(ax: Axes, lanes: list[Lane], common: list[int], whole: float) -> None:
    """A few steps from the middle of the run, in milliseconds."""
    middle = max(0, (len(common) - _ZOOMED) // 2)
    chosen = common[middle : middle + _ZOOMED]
    table = [lane.steps[lane.steps.step.isin(chosen)] for lane in lanes]
    begin = min(float(steps.started.min()) for steps in table)
    end = max(float(steps.ended.max()) for steps in table)
    for lane in lanes:
        _draw(ax, lane, (begin, end), whole)
    _dress(ax, lanes, (begin, end), "")
    ticks = ax.xaxis.get_major_locator().tick_values(0, (end - begin) * 1e3)
    ticks = [tick for tick in ticks if 0 <= tick <= (end - begin) * 1e3]
    ax.set_xticks([begin + tick / 1e3 for tick in ticks], [f"{tick:g}" for tick in ticks])
    ax.set_xlabel(f"milliseconds since the start of step {chosen[0]}")
    ax.set_title(f"Steps {chosen[0]} to {chosen[-1]}, enlarged", loc="left", fontsize=9)


def _words(lanes: list[Lane], whole: float) -> tuple[str, str]:
    timed = [lane for lane in lanes if len(lane.steps)]
    failed = [lane.worker for lane in lanes if lane.failed]
    if failed:
        title = f"Worker {failed[0]} failed after {next(lane.ended for lane in lanes if lane.failed):.1f} s"
    elif timed:
        first = max(float(lane.steps.ended.iloc[0]) for lane in timed)
        title = f"The first step ended after {first:.1f} s, the run after {whole:.1f} s"
    else:
        title = f"What each worker did in {whole:.1f} s"
    if not timed:
        return title, NO_RECORDS[0].upper() + NO_RECORDS[1:] + "."
    shares = [float((lane.steps.waiting.sum()) / lane.steps.period.sum()) for lane in timed]
    most = int(np.argmax(shares))
    caption = "Pale: start and build; full colour: steps; hatched: waiting, at least, for the last worker to begin"
    if len(timed) > 1:
        return title, f"{caption} (most at worker {timed[most].worker}: {shares[most]:.0%} of its time in steps)."
    return title, "Pale: start and build; full colour: steps."


def _legend(ax: Axes, lanes: list[Lane]) -> None:
    """The phases in the ink of the page, because each lane has them in its worker's colour."""
    alone = len(lanes) == 1
    patches = []
    for phase, (alpha, hatch) in _PHASES.items():
        if phase == "waiting" and alone:
            continue
        face, edge = (ink(ax), alpha * 0.8), (ink(ax), 1.0 if hatch else 0.0)
        patches.append(Patch(facecolor=face, edgecolor=edge, hatch=hatch or None, lw=0, label=_MEANING[phase]))
    ax.figure.legend(handles=patches, loc="outside lower center", ncols=3, frameon=False, fontsize=8.5)
