"""The live view as a dashboard in a notebook, from core ipywidgets only, which 7.7 (Colab) and 8 both have."""

from __future__ import annotations

import base64
import html
import os
import re
import signal
import time
from collections.abc import Sequence
from typing import Any

import ipywidgets
import numpy as np
from IPython import get_ipython
from IPython.display import display

from dtk.environment import on_colab
from dtk.language import N_, _
from dtk.live import Live
from dtk.live.run_progress import RunProgress
from dtk.live.text import NOT_ALL
from dtk.records import WorkerFolder
from dtk.scaling.timing import spans
from dtk.view.controls import STYLE, beside, one_of
from dtk.view.palette import EVALUATOR_COLOR, replica_name, worker_color, worker_name
from dtk.watch import waiting
from dtk.watch.explain import is_chatter
from dtk.watch.reader import Reader
from dtk.watch.waiting import Line, called, clauses

_EVERY = 0.5  # seconds between two drawings
_MOST_POINTS = 200  # of the loss
_LINES, _CHARACTERS = 30, 200  # of a log that are shown: lines, and characters of each
_ENDS = N_("finished"), N_("failed"), N_("stopped")

# Of the picture of the loss, in px.
_WIDTH, _HEIGHT = 300, 110
_LEFT, _RIGHT, _TOP, _FOOT = 8, _WIDTH - 8, 26, _HEIGHT - 18
_SMALL = 'opacity="0.7"'
_INK = "<style>svg {color: #000} @media (prefers-color-scheme: dark) {svg {color: #e0e0e0}}</style>"  # the page's theme


def _end_of(member: WorkerFolder) -> str:
    """The last lines of a log, as HTML, without TensorFlow's notes on its start."""
    lines = [line[:_CHARACTERS] for line in member.log_end() if not is_chatter(line)]
    head = [_(NOT_ALL, path=member.path / "log.txt")] if len(lines) > _LINES else []
    text = html.escape("\n".join([*head, *lines[-_LINES:]]) or _("nothing"))
    # column-reverse lets the browser start at the end of the text, where the news is, after each redrawing.
    outer = "max-height:22em;overflow:auto;display:flex;flex-direction:column-reverse"
    inner = "flex:none;margin:0;line-height:1.25;font-size:12px;white-space:pre-wrap"
    return f'<div style="{outer}"><pre style="{inner};color:inherit;background:transparent">{text}</pre></div>'


def _cancel() -> list[Any]:
    """A button that interrupts the kernel; none where the kernel would hear of a click only when the cell has ended.

    JupyterLab 4.4 and Notebook 7.4 send clicks to a subshell, which ipykernel 7 has. VS Code doesn't.
    """
    features = getattr(getattr(get_ipython(), "kernel", None), "kernel_info", {}).get("supported_features", ())
    if "kernel subshells" not in features or "JPY_SESSION_NAME" not in os.environ:
        return []
    button = ipywidgets.Button(description=_("cancel"))
    # ipykernel 7.4 takes a click to where the button was made: to the cell that is to be canceled.
    button.comm._reply_subshell_for = lambda _data, subshell: subshell
    button.on_click(lambda _button: os.kill(os.getpid(), signal.SIGINT))
    return [button]


class Dashboard(Live):
    """Where each worker and the evaluator are, progress with the time left, the loss, the ends of the logs."""

    def __init__(self, reader: Reader, replicas: int, title: str, mode: str = "cluster"):
        self.reader, self.folder = reader, reader.folder
        self.title, self.mode, self.workers = title, mode, reader.folder.workers
        self.progress = RunProgress(reader, replicas)
        self.states = [Line.of("starting")] * len(self.folder.members)
        self.ends: dict[int, str] = {}  # of a run that failed: who failed, who only in consequence
        self._drawn = float("-inf")
        self.page, self.panes = ipywidgets.HTML(), [ipywidgets.HTML() for __ in self.states]
        names = [_("nothing"), *(self._name(member) for member in range(len(self.states)))]
        self.logs = one_of([ipywidgets.HTML(), *self.panes], names, _("what it printed"))
        self.cancel = _cancel()
        self.box = ipywidgets.VBox([self.page, *self.cancel, self.logs])
        self._draw()
        self._shown = display(beside(self.box, f"<live view of dtk: {title}>"), raw=True, display_id=True)

    def update(self, states: Sequence[Line]) -> None:
        now = time.monotonic()
        if now - self._drawn >= _EVERY:
            self.states = list(states)
            self._draw()
            self._drawn = now

    def close(self, outcome: str, finished: bool = False) -> None:
        # What Watch last reported may be older than the end: a run that finished has finished everywhere.
        how = [line.what if line.what in ("finished", "failed") else "stopped" for line in self.states]
        self.states = [Line.of("finished" if finished else what) for what in how]
        graph = None if finished else waiting.load(self.folder)
        ends = [state for state in graph.states if state.what in ("failed", "consequence", "stopped")] if graph else []
        self.ends = {state.member: str(state.said()) for state in ends}
        self._draw(outcome, finished)
        self.box.children = [self.page] if finished else [self.page, self.logs]
        for button in self.cancel:
            button.close()  # a click that comes too late is for nobody
        if finished:
            self.page.value = self._last_page(outcome, finished)
        if self._shown:
            said = [(self.title, outcome), *((self._name(k), self._state(k)) for k in range(len(self.states)))]
            lines = [_("{name}: {words}", name=name, words=words) for name, words in said]
            text = "\n".join([*lines, self.progress.words(ended=True)])
            # Colab's widgets end with their cell: what stays there is the page alone.
            bundle = {"text/plain": text} if on_colab() else beside(self.box, text)
            self._shown.update({**bundle, "text/html": self._last_page(outcome, finished)}, raw=True)

    def _last_page(self, outcome: str, finished: bool) -> str:
        """The last frame, with all logs, folded; of a run that finished folded into a line itself."""
        page = self._table(outcome) + self._progress(outcome, finished) + _image(self._loss())
        for member, pane in enumerate(self.panes):
            head = _("{name}: {words}", name=self._name(member), words=_("what it printed"))
            page += f"<details><summary>{head}</summary>{pane.value}</details>"
        if not finished:
            return page
        words = _(", ").join([_("{name}: {words}", name=self.title, words=outcome), self.progress.words(ended=True)])
        return f"<details><summary>{html.escape(words)}</summary>{page}</details>"

    def _name(self, member: int) -> str:
        if self.mode == "single" and member < self.workers:
            return _("baseline")
        return called(self.folder.members[member].name, member) if member else worker_name(member, chief=True)

    def _draw(self, outcome: str = "", finished: bool = False) -> None:
        """Show what is known now. outcome: how the run ended."""
        self.reader.look()
        self.page.value = self._table(outcome) + self._progress(outcome, finished) + self._loss() + STYLE
        for pane, member in zip(self.panes, self.folder.members, strict=True):
            pane.value = _end_of(member)

    def _progress(self, outcome: str, finished: bool) -> str:
        """A bar, empty where it is not known how far the run is, and the progress in words."""
        step, most = self.progress.step, max(1, self.progress.total or 0, self.progress.step)
        value = most if finished else step if self.progress.total else 0
        color = "" if not outcome else "accent-color:#4CAF50" if finished else "accent-color:#F44336"
        name, words = _("steps"), html.escape(self.progress.words(ended=bool(outcome)))
        bar = f'<progress aria-label="{name}" value="{value}" max="{most}" style="width:300px;{color}"></progress>'
        return f"<div>{bar} {words}</div>"

    def _loss(self) -> str:
        """The loss, over the shares that it is the sum of; "" before there are two points."""
        name = worker_name if self.workers > 1 else replica_name
        layers = [(name(k), worker_color(k), each) for k, each in enumerate(self.progress.losses)]
        return curve(self.progress.steps, layers) if self.progress.step else ""

    def _table(self, outcome: str) -> str:
        rows = []
        for member in range(len(self.states)):
            color = worker_color(member) if member < self.workers else EVALUATOR_COLOR
            swatch = f"display:inline-block;width:0.9em;height:0.9em;background:{color}"
            cells = f'<span style="{swatch}"></span>', html.escape(self._name(member)), html.escape(self._state(member))
            columns = "".join(f'<td style="padding:1px 8px 1px 0;text-align:left">{cell}</td>' for cell in cells)
            rows.append(f"<tr>{columns}</tr>")
        head = html.escape(_("{name}: {words}", name=self.title, words=outcome) if outcome else self.title)
        table = f'<table style="color:inherit;font:inherit">{"".join(rows)}</table>'  # a page may set it otherwise
        return f'<div style="line-height:1.4"><b>{head}</b>{table}</div>'

    def _state(self, member: int) -> str:
        if member in self.ends:
            return self.ends[member]
        line, step, total = self.states[member], self.progress.reached[member], self.progress.total
        what = line.what
        if member == self.workers:
            # What the evaluator does; once it has ended, how, and its last evaluation.
            ended = list(filter(None, (str(line), self.progress.evaluated)))
            return self.progress.evaluator if what in ("running", "training") else clauses(ended)
        if what == "finished" and any(other.what != "finished" for other in self.states):
            return _("finished, waits for the others")
        if what == "training" and step:
            return _("step {step} of {total}", step=step, total=total) if total else _("step {step}", step=step)
        return _("{what} after step {step}", what=_(what), step=step) if step and what in _ENDS else str(line)


# ---- the loss as a picture in SVG, quick to draw, in the colors of the page


def curve(steps: Sequence[float], layers: Sequence[tuple[str, str, Sequence[float]]]) -> str:
    """Draw the loss by step over the layers that it is the sum of; "" for fewer than two finite points.

    Of many steps a point is the mean of several. One that is not finite leaves a gap. The lower end of the scale is 0,
    or the least loss where that is negative. Each layer has a name, a color, and a value at each point; a single one
    is the loss itself. Where one is negative none is drawn, because areas would not be true then.
    """
    cuts = np.linspace(0, len(steps), min(len(steps), _MOST_POINTS) + 1).astype(int)
    names, colors, shares = zip(*layers, strict=True)
    values = np.add.reduceat(shares, cuts[:-1], axis=1) / np.diff(cuts)
    at = np.asarray(steps)[cuts[1:] - 1]
    losses = values.sum(axis=0)
    known = np.isfinite(losses)
    if known.sum() < 2:
        return ""
    low, high = min(0.0, losses[known].min()), losses[known].max()
    xs = _LEFT + (at - at[0]) * ((_RIGHT - _LEFT) / ((at[-1] - at[0]) or 1))
    heights = _FOOT - (values.cumsum(axis=0) - low) * ((_FOOT - _TOP) / ((high - low) or 1))
    said, last = f"{_('loss')} {_figure(losses[known][-1])}", _("step {step}", step=round(at[-1]))
    words, areas = _("{words} at step {step:.0f}", words=said, step=at[-1]), []
    if len(layers) > 1 and not (values < 0).any():
        pairs = zip(colors, heights, strict=True)
        areas = [f'<path d="{_path(xs, ys, known, _FOOT)}" fill="{color}"/>' for color, ys in pairs]
        parts = _(", ").join(f"{name} {_figure(value)}" for name, value in zip(names, values[:, -1], strict=True))
        words = _("{name}: {words}", name=words, words=parts)
    pen = 'fill="none" stroke="currentColor" stroke-width="1.5" stroke-linejoin="round"'
    drawn = [
        _text(_LEFT, 14, said, size=12),
        _text(_RIGHT, 14, _("scale {low} to {high}", low=_figure(low), high=_figure(high)), _SMALL, "end"),
        f'<line x1="{_LEFT}" y1="{_FOOT}" x2="{_RIGHT}" y2="{_FOOT}" stroke="currentColor" opacity="0.35"/>',
        *reversed(areas),  # each covers the lower end of the one above
        f'<path d="{_path(xs, heights[-1], known)}" {pen}/>',
        _text(_LEFT, _HEIGHT - 5, _("step {step}", step=round(at[0])), _SMALL),
        _text(_RIGHT, _HEIGHT - 5, last, _SMALL, "end"),
    ]
    return (
        f'<svg role="img" aria-label="{html.escape(words)}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" fill="currentColor" font-family="sans-serif">{"".join(drawn)}</svg>'
    )


def _image(picture: str) -> str:
    """Return the picture as a page keeps it that doesn't trust its notebook, and drops SVG; "" for ""."""
    said = re.search('aria-label="(.*?)"', picture)
    source = base64.b64encode(picture.replace(">", f' xmlns="http://www.w3.org/2000/svg">{_INK}', 1).encode()).decode()
    return f'<img alt="{said[1]}" src="data:image/svg+xml;base64,{source}">' if said else ""


def _path(xs: np.ndarray, ys: np.ndarray, known: np.ndarray, foot: int | None = None) -> str:
    """A line through the places that are known, with gaps where they are not; with a foot, the area down to it."""
    parts = []
    for first, last in spans(np.flatnonzero(known).tolist()):
        places = [f"{xs[k]:.1f} {ys[k]:.1f}" for k in range(first, last + 1)]
        if foot is not None:
            places = [f"{xs[first]:.1f} {foot}", *places, f"{xs[last]:.1f} {foot}Z"]
        parts.append("M" + "L".join(places))
    return "".join(parts)


def _text(x: float, y: float, words: str, style: str = "", anchor: str = "start", size: int = 10) -> str:
    place = f'x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}"'
    return f"<text {place} {style}>{html.escape(words)}</text>"


def _figure(value: float) -> str:
    return f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"
