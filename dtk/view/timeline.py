"""Figures of what happened when: each worker's start, steps and waiting, the evaluator's evaluations; and of a run that
was started again, which steps were kept, which were lost, which were computed twice.
"""

from __future__ import annotations

import itertools
import json
import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from dtk.language import N_, _, columns, ngettext, three
from dtk.records import RunFolder, WorkerFolder
from dtk.records.events import Failed, FaultCame, Finished, Running, Starting, of_kind
from dtk.records.tables import Recorded, evaluations
from dtk.scaling import timing
from dtk.scaling.timing import PARTS, fates, last_to_begin, spans, typical_steps, within_epochs
from dtk.view import canvas
from dtk.view.canvas import NO_RECORDS, axes, by_step, headline, ink, legend_below, name_rows, note, only_text, wrapped
from dtk.view.palette import CURVE_COLORS, EVALUATOR_COLOR, PART_COLORS, PART_NAMES
from dtk.watch.waiting import called, ends

_LABEL_POINTS = 8.0
_ZOOMED = 6  # steps in the lower picture
_MUCH, _ALWAYS = 0.25, 0.9  # of a worker's time, of the steps: a wait for one and the same worker is the message
_COLUMNS = 75  # of a lane, where it has more steps than that
_LONG = 170  # letters of a headline
_SILENT = 2.0  # seconds without a step before the end that are no pause

_PHASES = {  # what is no step: how it is drawn in the ink of the page, opacity and hatch, and what it means
    "start": (0.07, "", N_("start of the process")),
    "build": (0.17, "", N_("build: until the first step's end")),
    "silence": (0.0, "//////", N_("nothing more came")),
}
_NAMES = {**PART_NAMES, **{phase: meaning for phase, (*_how, meaning) in _PHASES.items()}}


class _Lane:
    """One member's times in seconds since the call of `dtk.run`.

    since, until: of the cluster that this lane belongs to. running: its function was called. built: its first step
    ended. how: it ended, as `waiting.ends` says. ended: when, or the last that is known of one that was killed. last:
    the last that is known of it. NaN where something did not come. silent: whether the run went on for long after the
    last. steps: by number, with begin, end, loss and examples of its replicas. parts: rows of `timing.step_spans`.
    evaluator: whether it is one. evaluations: as in `Run.evaluations`. faults: when each came, and its kind.
    """

    def __init__(
        self, member: WorkerFolder, how: str, steps: pandas.DataFrame, parts: pandas.DataFrame, first: bool, till: float
    ):
        """steps, parts: of all workers. first: it begins with the call of `dtk.run`, and not with the process."""
        events = member.events
        at = {event.state: event.at for event in reversed(events)}  # the first of each
        self.worker, self.name = member.worker, called(member.name, member.worker)
        self.running = at.get(Running.state, at.get(Starting.state, 0.0))
        self.how, self.ended = how, at.get(Finished.state, at.get(Failed.state, float("nan")))
        self.steps = steps[steps.index == self.worker].set_index("step")
        self.parts = parts[parts.worker == self.worker]
        self.evaluator, self.evaluations = member.name == "evaluator", evaluations(events)
        self.since, self.until = 0.0 if first else at.get(Starting.state, self.running), till
        self.faults = [(event.at, event.kind) for event in of_kind(events, FaultCame)]
        self.built = float(self.steps.end.iloc[0]) if len(self.steps) else float("nan")
        known = [self.running, self.built, self.ended, *self.parts.end[-1:], *self.evaluations.ended[-1:]]
        self.last = float(np.nanmax([*known, *(at for at, __ in self.faults)]))
        self.silent = not np.isfinite(self.ended) and till - self.last > _SILENT
        if how == "failed":
            self.ended = float(np.fmin(self.ended, self.last))


def timeline(run: Recorded, ax: Axes | None = None) -> Axes:
    """Draw one lane per worker: start, build, the parts of its steps, silence; and below, a few steps enlarged.

    The parts are `dtk.step_parts`', in the colors of `dtk.plot.step_time`: above, each column is a step, or several of
    more than 75, divided as its time was; below, they follow one another as they did. Under the workers an evaluator's
    evaluations, with the step of the weights. The enlarged steps are of one epoch.

    Args:
        run: from `dtk.run` or `dtk.baseline`, or the error of a run that failed.
        ax: axes to draw on, without the enlargement; None: a new figure.

    Returns:
        The upper Axes.
    """
    attempts = [] if run.folder is None else _attempts(run.folder)
    every = [lane for attempt in attempts for lane in attempt]
    if not any(np.isfinite(lane.built) or lane.running > 0 for lane in every):
        return only_text(ax, NO_RECORDS)
    lanes, times = attempts[-1], within_epochs(timing.step_times(run.folder.own_records))
    workers = [lane for lane in lanes if not lane.evaluator]
    chosen = typical_steps(times, _ZOOMED) if all(np.isfinite(lane.built) for lane in workers) else []
    zoom = ax is None and bool(chosen)
    tall = max(1.0, 0.28 * len(lanes) + 0.5)
    top, *below = axes(ax, (1.0, 0.8) if zoom else (1.0,), (7.0, max(3.6, 1.8 + (1.8 if zoom else 1.0) * tall)))
    whole = max(lane.until if lane.silent else lane.last for lane in every)
    for lane in every:
        _draw(top, lane)
    name_rows(top, [lane.name for lane in lanes], 0.1, below=0.4 if lanes[-1].evaluator else 0.0)  # for its labels
    top.set(xlim=(0.0, whole * 1.02), xlabel=_("seconds since the call of dtk.run"))
    title, caption = _words(run, lanes, times, whole)
    if len(attempts) > 1:
        title = _("{count} attempts; the run took {seconds:.1f} s", count=len(attempts), seconds=whole)
    headline(top, title, caption)
    for number, each in enumerate(attempts[1:], 2):
        at = min(lane.since for lane in each)
        top.axvline(at, color=ink(top), lw=1.0, ls=(0, (2, 2)))
        note(top, _("attempt {number}", number=number), (at, -0.48), (3, 0), fontsize=_LABEL_POINTS)
    for lower in below:
        _enlarge(lower, workers, times, chosen)
    seen = {part for lane in every for part in lane.parts.part}
    phases = [phase for phase in _PHASES if phase != "silence" or any(lane.silent for lane in every)]
    shown = [*(part for part in PARTS if part in seen), *phases]
    legend_below(top, [Patch(label=_(_NAMES[each]), **_style_of(top, each)) for each in shown], ncols=4, fontsize=8.5)
    for lane in every:
        _label_evaluations(top, lane)
    return top


def _attempts(folder: RunFolder) -> list[list[_Lane]]:
    """The lanes of each start of the cluster; one without restarts."""
    until = {attempt.number: attempt.ended for attempt in folder.attempts}
    how: Any = {"begin": ("started", "min"), "end": ("ended", "max"), "loss": ("loss", "sum")}
    found = []
    for number, each in enumerate((*folder.earlier, folder), 1):
        steps = each.own_records.groupby(["worker", "step"]).agg(**how, examples=("examples", "sum"))
        facts = steps.reset_index("step"), timing.step_spans(each), number == 1, until.get(number, 0.0)
        found.append([_Lane(*which, *facts) for which in zip(each.members, ends(each), strict=True)])
    return found


def _draw(ax: Axes, lane: _Lane, span: tuple[float, float] | None = None) -> None:
    """Draw a lane's blocks, faults and failure; span: the seconds that are looked at, where that is not all of it."""
    _block(ax, lane, "start", lane.since, lane.running)
    if lane.evaluator:
        # A thin line around each: evaluations that follow at once would look like a single long one.
        colors = {"facecolor": EVALUATOR_COLOR, "edgecolor": ax.get_facecolor()}
        for its in lane.evaluations.itertuples():
            words = canvas.lasting(_("step {step}", step=its.step), its.ended - its.started)
            canvas.block(ax, lane.worker, its.started, its.ended, words, gid="evaluation", lw=1, **colors)
    else:
        _block(ax, lane, "build", lane.running, lane.built if np.isfinite(lane.built) else lane.last)
        _stacked(ax, lane, span)
    if lane.silent:
        _block(ax, lane, "silence", lane.last, lane.until)
    low, high = span or (-np.inf, np.inf)
    for at, kind in lane.faults:
        if low <= at <= high:
            ax.plot(at, lane.worker - 0.36, marker="v", ms=8, color=ink(ax), mec=ax.get_facecolor(), zorder=5)
            note(ax, kind, (at, lane.worker - 0.36), (7, 0), ground=True, fontsize=_LABEL_POINTS)
    if lane.how == "failed" and low <= lane.ended <= high:
        ax.plot(lane.ended, lane.worker, marker="X", ms=10, color=ink(ax), mec=ax.get_facecolor(), zorder=5)
        note(ax, _("failed"), (lane.ended, lane.worker), (8, 0))


def _block(ax: Axes, lane: _Lane, phase: str, begin: float, end: float) -> None:
    if end > begin:
        words = canvas.lasting(_(_NAMES[phase]), end - begin)
        canvas.block(ax, lane.worker, begin, end, words, gid=phase, **_style_of(ax, phase))


def _style_of(ax: Axes, phase: str) -> dict[str, Any]:
    if phase in PART_NAMES:
        return {"color": PART_COLORS[phase], "lw": 0, "antialiased": False}  # or a light seam between two
    alpha, hatch, __ = _PHASES[phase]
    return {"facecolor": (ink(ax), alpha), "edgecolor": (ink(ax), 0.6 if hatch else 0.0), "hatch": hatch, "lw": 0}


def _stacked(ax: Axes, lane: _Lane, span: tuple[float, float] | None) -> None:
    """Draw the parts of a lane's steps: how a column's time is divided; of a span, each part by itself."""
    parts = lane.parts if span is None else lane.parts[(lane.parts.end > span[0]) & (lane.parts.begin < span[1])]
    if span is not None or parts.empty:
        for its in parts.itertuples():
            _block(ax, lane, its.part, its.begin, its.end)
        return
    each = parts.groupby("step").agg(begin=("begin", "min"), end=("end", "max"))
    paused = each[each.end < each.begin.shift(-1)]  # between epochs
    after = each[each.begin > each.end.shift()]
    columns_of_steps = [each.begin[:: -(-len(each) // _COLUMNS)], each.end[-1:], paused.end, after.begin]
    edges = np.unique(np.concatenate(columns_of_steps))
    low, inside = np.full(len(edges), lane.worker + 0.36), {}
    for part in reversed(PARTS):
        mine = parts[parts.part == part]
        ends = mine[["begin", "end"]].to_numpy().ravel()
        so_far = np.cumsum(np.c_[np.zeros(len(mine)), mine.end - mine.begin].ravel())
        inside[part] = np.diff(np.interp(edges, ends, so_far)) if len(mine) else np.zeros(len(edges) - 1)
        high = low - 0.72 * np.append(inside[part] / np.diff(edges), 0.0)
        ax.fill_between(edges, low, high, step="post", color=PART_COLORS[part], lw=0, gid=part)
        low = high
    for k, (begin, end) in enumerate(itertools.pairwise(edges)):
        own = each.index[(each.begin >= begin) & (each.begin < end)]
        if len(own):
            parts = [canvas.lasting(_(PART_NAMES[part]), inside[part][k]) for part in PARTS if inside[part][k]]
            words = "\n".join([canvas.steps(own[0], own[-1]), *parts])
            canvas.block(ax, lane.worker, begin, end, words, visible=False)


def _enlarge(ax: Axes, lanes: list[_Lane], times: pandas.DataFrame, chosen: list[int]) -> None:
    """A few steps, in milliseconds."""
    table = times[times.step.isin(chosen)]
    left, right = float(table.started.min()), float(table.ended.max())
    for lane in lanes:
        _draw(ax, lane, (left, right))
    name_rows(ax, [lane.name for lane in lanes], 0.1)
    ax.set_xlim(left, right)
    ax.spines[["top", "right"]].set_visible(False)
    ticks = ax.xaxis.get_major_locator().tick_values(0, (right - left) * 1e3)
    ticks = [tick for tick in ticks if 0 <= tick <= (right - left) * 1e3]
    ax.set_xticks([left + tick / 1e3 for tick in ticks], [three(tick) for tick in ticks])
    ax.set_xlabel(_("milliseconds since the start of step {step}", step=chosen[0]))
    ax.set_title(_("Steps {first} to {last}, enlarged", first=chosen[0], last=chosen[-1]), loc="left", fontsize=9)


def _words(run: Recorded, lanes: list[_Lane], times: pandas.DataFrame, whole: float) -> tuple[str, str]:
    caption = [_("Gray: start and build.")]
    if times.empty:
        words = _(NO_RECORDS)
        caption = [_("{sentence}.", sentence=words[0].upper() + words[1:])]
    else:
        words = N_("Each column: a step, divided as its time was.")
        many = -(-max(lane.parts.step.nunique() for lane in lanes) // _COLUMNS)  # steps of a column
        if many > 1:
            words = N_("Each column: {many} steps, divided as their time was.")
        caption.append(_(words, many=many))
    if lanes[-1].evaluator:
        caption.append(_("Under them the evaluator; each block is an evaluation, with the step of its weights."))
    return _title(run, lanes, times, whole), " ".join(caption)


def _title(run: Recorded, lanes: list[_Lane], times: pandas.DataFrame, whole: float) -> str:
    why = next((attempt.failed for attempt in reversed(run.folder.attempts) if attempt.failed), None)
    if why:
        return textwrap.shorten(why[0].upper() + why[1:], _LONG, placeholder=" …")
    parts = pandas.concat([lane.parts for lane in lanes])
    seconds = (parts.end - parts.begin).groupby([parts.part == "waiting", parts.worker]).sum().unstack(0, 0.0)
    last, often = last_to_begin(times) or (0, 0.0)
    if often >= _ALWAYS and True in seconds:
        shares = seconds[True] / seconds.sum(axis=1)
        if shares.max() >= _MUCH:
            words = N_("Worker {worker} waits for worker {last}: {share:.0%} of its time in steps")
            return _(words, worker=shares.idxmax(), last=last, share=shares.max())
    if len(times):
        words = N_("The first step ended after {first:.1f} s, the run after {whole:.1f} s")
        return _(words, first=max(lane.built for lane in lanes if np.isfinite(lane.built)), whole=whole)
    return _("What each worker did in {whole:.1f} s", whole=whole)


def _label_evaluations(ax: Axes, lane: _Lane) -> None:
    """Under each evaluation the step of its weights, from the last on; those that would overlap are left out.

    Needs the axes' limits to be set.
    """
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


def trace(run: Recorded, path: Path) -> Path:
    """Write what `timeline` draws as a trace, a process for each member; `Run.trace` says what is in it.

    Source: Chrome's trace event format, complete events ("X") and instants ("i"), in microseconds.
    """
    found: list[dict[str, Any]] = []
    for lane in itertools.chain(*_attempts(run.folder)):

        def add(name: str, begin: float, end: float | None = None, pid: int = lane.worker, **args: Any) -> None:
            at = round(begin * 1e6)  # both ends are rounded: parts stay within their step
            how = {"ph": "i", "s": "p"} if end is None else {"ph": "X", "dur": round(end * 1e6) - at}
            found.append({"name": name, "ts": at, "pid": pid, "tid": 0, "args": args, **how})

        found.append({"name": "process_name", "ph": "M", "pid": lane.worker, "args": {"name": lane.name}})
        add("start", lane.since, lane.running)
        add("build", lane.running, min([lane.last, *lane.steps.begin]))
        begins = lane.parts.groupby("step").begin.min()  # from the end of the step before
        for its in lane.steps.itertuples():
            begin = float(begins.get(its.Index, its.begin))
            add(f"step {its.Index}", begin, its.end, loss=f"{its.loss:.6g}", examples=int(its.examples))
        for part in lane.parts.itertuples():
            add(part.part, part.begin, part.end)
        for each in lane.evaluations.itertuples():
            add("evaluation", each.started, each.ended)
        for at, kind in lane.faults:
            add(f"fault: {kind}", at)
        if np.isfinite(lane.ended):
            add(lane.how, lane.ended)
    path.write_text(json.dumps({"traceEvents": found}))
    return path


# ---- a run that was started again

_HIGH = 0.46  # of a row; the words under the bar take the rest
_WIDE = 88  # letters under a bar
_KINDS = {"kept": N_("kept"), "lost": N_("computed, then lost"), "again": N_("computed again, kept")}


def restarts(run: Recorded, ax: Axes | None = None) -> Axes:
    """Draw each start of the cluster as a row: the steps that it computed, and whether they were kept.

    A step is lost where the next attempt's checkpoint did not hold it: that attempt computes it again. Under a row
    stands what ended the attempt.

    Args:
        run: from `dtk.run(..., restarts=...)`, or the error of a run that failed.
        ax: axes to draw on; None: a new figure.
    """
    table = fates(run.folder) if run.folder is not None else None
    if table is None or table.empty:
        return only_text(ax, NO_RECORDS)
    table["kind"] = np.select([table.lost, table.again], ["lost", "again"], "kept")
    said = {attempt.number: attempt.failed for attempt in run.folder.attempts}
    count, last = run.folder.attempt, int(table.step.max())
    (ax,) = axes(ax, size=(7.0, 1.75 + 0.62 * count))
    for row in range(count):
        mine = table[table.attempt == row + 1]
        for kind, part in mine.groupby("kind"):
            for begin, end in spans(part.step.tolist()):
                words = _("{name}: {words}", name=_(_KINDS[kind]), words=canvas.steps(begin, end))
                canvas.block(ax, row, begin - 0.5, end + 0.5, words, _HIGH, gid=kind, **_style(ax, kind))
        if failed := said.get(row + 1):  # what ended the attempt stands beneath its bar
            first, *more = wrapped(re.split("; |；", failed)[0], _WIDE)  # noqa: RUF001
            place: dict[str, Any] = {"va": "top", "fontsize": 8.5, "gid": "reason", "ground": True}
            note(ax, f"{first} …" if more else first, (0.5, row + _HIGH / 2), (3, -4), **place)
        if row and len(mine):
            at = int(mine.step.min()) - 0.5
            ax.plot([at, at], [row - 1 - _HIGH / 2, row + _HIGH / 2], color=ink(ax), lw=1.2, ls=(0, (2, 2)), gid="from")
    by_step(ax, 1, last)
    name_rows(ax, [_("attempt {number}", number=row + 1) for row in range(count)])
    seen = [kind for kind in _KINDS if (table.kind == kind).any()]
    legend_below(ax, [Patch(label=_(_KINDS[kind]), **_style(ax, kind)) for kind in seen])
    headline(ax, *_restarts_words(table))
    return ax


def _style(ax: Axes, kind: str) -> dict[str, Any]:
    if kind == "lost":
        return {"facecolor": "none", "edgecolor": ink(ax), "hatch": "//////", "lw": 0.8, "alpha": 0.55}
    return {"facecolor": CURVE_COLORS[2 if kind == "again" else 0], "edgecolor": "none", "lw": 0.0}


def _restarts_words(table: pandas.DataFrame) -> tuple[str, str]:
    computed, count = len(table), int((~table.lost).sum())
    times = table.groupby("step").size()
    twice = spans(times.index[times > 1].tolist())
    if not twice:
        title = _("{computed} steps computed, all of them count", computed=computed)
        return title, _("Nothing was lost, so nothing was computed again.")
    first, end = twice[0]
    again = ngettext(
        "step {first} was computed twice",
        "steps {first} to {last} were computed twice",
        end - first + 1,
        first=first,
        last=end,
    )
    if len(twice) > 1 or times.max() > 2:
        words = N_("{steps} steps were computed up to {times} times")
        again = _(words, steps=int((times > 1).sum()), times=times.max())
    title = _("{computed} steps computed, {count} count: {again}", computed=computed, count=count, again=again)
    return title, _("Dashed: there the next attempt went on. What its checkpoint did not hold was lost.")
