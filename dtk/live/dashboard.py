"""The live view as a dashboard in a notebook, from core ipywidgets only, which 7.7 (Colab) and 8 both have."""

from __future__ import annotations

import html
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import ipywidgets
from IPython.display import display

from dtk.environment import on_colab
from dtk.language import N_, _
from dtk.live.follow import Follower
from dtk.live.lately import Lately
from dtk.live.log_lines import LogLines
from dtk.live.pictures import curve, image, stack
from dtk.live.strips import in_words, strips
from dtk.view.controls import STYLE, beside, choice, folded, in_a_row, styled
from dtk.view.palette import member_color, member_name, worker_color, worker_name
from dtk.watch import waiting
from dtk.watch.explain import is_chatter
from dtk.watch.reader import Reader
from dtk.watch.reasons import clauses
from dtk.watch.state import Line

__all__ = ["Dashboard"]

_EVERY = 0.25  # seconds between two drawings
_PICTURES = (2, 8)  # of so many drawings one draws the curves and strips: of few workers, of very many
_ROW = "display:flex;flex-wrap:wrap;gap:16px;align-items:flex-start"
_GREYS = ("#8A8A8A", "#B9B9B9")  # of layers that are several workers', and so have no worker's colour
_LINES, _CHARACTERS = 30, 200  # of a log that are kept and shown: lines, and characters of each
_STATES = N_("starting"), N_("running"), N_("training"), N_("finished"), N_("failed"), N_("stopped")
_AFTER = {
    "finished": N_("finished after step {step}"),
    "failed": N_("failed after step {step}"),
    "stopped": N_("stopped after step {step}"),
}
_PIECE = 1 << 15  # bytes that one look reads from a log; a worker that writes more is skipped ahead


class _LogTail:
    """The last lines of one member's log, as HTML, without TensorFlow's notes on its start."""

    def __init__(self, log: LogLines):
        self.log = log
        self.lines: deque[str] = deque(maxlen=_LINES)

    def look(self, none: str) -> str:
        """none: what stands where there are no lines."""
        news = self.log.read(_PIECE, newest=True)
        self.lines.extend(line[:_CHARACTERS] for line in news if not is_chatter(line))
        shown = [*self.lines, self.log.partial[:_CHARACTERS]] if self.log.partial else list(self.lines)
        if self.log.skipped:
            size = self.log.skipped // 1000
            shown.insert(0, _("... {size:,} kB skipped, all of it is in {path}", size=size, path=self.log.path))
        text = html.escape("\n".join(shown) or none)
        # column-reverse lets the browser start at the end of the text, where the news is, after each redrawing.
        outer = "max-height:22em;overflow:auto;display:flex;flex-direction:column-reverse"
        inner = "flex:none;margin:0;line-height:1.25;font-size:12px;white-space:pre-wrap"
        return f'<div style="{outer}"><pre style="{inner};color:inherit;background:transparent">{text}</pre></div>'


def _one_of(panes: list[Any], names: list[str]) -> Any:
    """The panes, of which one is shown: chosen by mouse or keyboard, and in the page alone, while the kernel works."""
    chosen = choice([_("nothing"), *names], _("nothing"), _("show what it printed:"), "initial")
    shown = [ipywidgets.HTML(), *panes]
    stack = ipywidgets.Stack(shown, selected_index=0) if in_a_row() else folded(shown)
    ipywidgets.jslink((chosen, "index"), (stack, "selected_index"))
    return styled(ipywidgets.VBox([chosen, stack]))


def _line(state: Line | str) -> Line:
    """A state in a word, one of _STATES, as a Line."""
    return Line(_(state), what=state) if isinstance(state, str) else state


def _what(line: Line) -> str:
    """The state, where the line says no more."""
    return "" if line.waits else line.what


class Dashboard:
    """Where each worker and the evaluator are, progress with the time left, loss, throughput, the ends of the logs."""

    def __init__(self, reader: Reader, replicas: int, title: str, mode: str = "cluster"):
        self.reader, folder = reader, reader.folder
        self.follower = Follower(folder, replicas * folder.workers)
        reader.follow(self.follower)
        self.lately = Lately(reader, together=mode == "cluster")
        self.title, self.mode, self.folder = title, mode, folder
        self.workers = folder.workers
        self.tails = [_LogTail(LogLines(member.path / "log.txt")) for member in folder.members]
        self.states = [_line("starting")] * len(self.tails)
        self.ends: dict[int, str] = {}  # of a run that failed: who failed, who only in consequence
        self._drawn = self._pictured = float("-inf")
        self._pictures: list[str] = []
        self._lines: Sequence[Line | str] = ()
        self._window = self.lately.window()
        self.rows, self.curves, self.words = ipywidgets.HTML(), ipywidgets.HTML(), ipywidgets.HTML()
        self.bar = ipywidgets.IntProgress(value=0, min=0, max=1, layout=ipywidgets.Layout(width="300px"))
        self.panes = [ipywidgets.HTML() for _ in self.tails]
        self.logs = _one_of(self.panes, [self._name(member) for member in range(len(self.tails))])
        progress = ipywidgets.HBox([self.bar, self.words], layout=ipywidgets.Layout(flex_flow="row wrap"))
        self.box = ipywidgets.VBox([self.rows, progress, self.curves, self.logs])
        self._draw("")
        self._shown = display(self._bundle(f"<live view of dtk: {title}>"), raw=True, display_id=True)

    def update(self, states: Sequence[Line | str]) -> None:
        now = time.monotonic()
        if now - self._drawn >= _EVERY:
            self.states, self._lines = [_line(state) for state in states], states
            self._draw("")
            self._drawn = now

    def close(self, outcome: str, finished: bool = False) -> None:
        # What Watch last reported may be older than the end: a run that finished has finished everywhere.
        ended = {"finished": "finished", "failed": "failed"}
        self.states = [_line("finished" if finished else ended.get(_what(state), "stopped")) for state in self.states]
        graph = None if finished else waiting.load(self.folder)
        ends = [state for state in graph.states if state.what in ("failed", "consequence", "stopped")] if graph else []
        self.ends = {state.member: state.words() for state in ends}
        self._draw(outcome, finished)
        if finished:
            self.bar.value = self.bar.max
        self.bar.bar_style = "success" if finished else "danger"
        if self._shown:
            self._shown.update(self._bundle(*self._last_frame(outcome)), raw=True)

    def _bundle(self, text: str, page: str = "") -> dict[str, Any]:
        """The widgets, and beside them what stands where widgets don't run."""
        widgets = beside(self.box, text)
        if not page:
            return widgets
        # Colab's widgets end with their cell: what stays there is the page alone.
        return {"text/plain": text, "text/html": page} if on_colab() else {**widgets, "text/html": page}

    def _last_frame(self, outcome: str) -> tuple[str, str]:
        """The facts of the end as text, and with the curves as HTML, for a page without a kernel."""
        words = self.follower.words(ended=True)
        said = [(self._name(member), self._state(member)) for member in range(len(self.states))]
        lines = [_("{name}: {words}", name=name, words=each) for name, each in [(self.title, outcome), *said]]
        lines += [in_words(self._window, self._workers())] if self._window.known else []
        curves = f'<div style="{_ROW}">{"".join(map(image, self._pictures))}</div>'
        amount = f'value="{self.bar.value}" max="{self.bar.max}"'
        color = {"success": "#4CAF50", "danger": "#F44336"}.get(self.bar.bar_style, "auto")
        steps = _("steps")
        bar = f'<progress aria-label="{steps}" {amount} style="width:300px;accent-color:{color}"></progress>'
        heads = [_("{name}: what it printed", name=self._name(member)) for member in range(len(self.panes))]
        logs = [
            f"<details><summary>{head}</summary>{pane.value}</details>"
            for head, pane in zip(heads, self.panes, strict=True)
        ]
        page = f"{self.rows.value}<div>{bar} {html.escape(words)}</div>{curves}{''.join(logs)}"
        return "\n".join([*lines, words]), page

    def _name(self, worker: int) -> str:
        if self.mode == "single" and worker < self.workers:
            return _("baseline")
        return member_name(worker, self.workers) if worker else worker_name(worker, chief=True)

    def _workers(self) -> list[str]:
        """The name of each strip, short enough to stand before it."""
        return [_("baseline")] if self.mode == "single" else [worker_name(k) for k in range(self.workers)]

    def _draw(self, outcome: str, finished: bool = False) -> None:
        self.reader.look()
        self.rows.value = self._table(outcome)
        total = self.follower.total
        self.bar.max = max(1, total or 0, self.follower.step)
        self.bar.value = self.follower.step if total else 0  # how far it is, is not known
        words = html.escape(self.follower.words(ended=bool(outcome)))
        self.words.value = f'{STYLE}<span style="padding-left:1em">{words}</span>'
        least, most = _PICTURES
        if outcome or time.monotonic() - self._pictured >= _EVERY * min(most, max(least, self.workers // 2)):
            self._draw_pictures(bool(outcome), finished)
        for pane, tail in zip(self.panes, self.tails, strict=True):
            pane.value = tail.look(none=_("nothing") if outcome else _("nothing yet"))

    def _draw_pictures(self, last: bool, finished: bool) -> None:
        """The curves and strips, less often than the rest; each as soon as it has something to show."""
        self._pictured = time.monotonic()
        self.lately.refresh(self._lines, last)
        self._window = self.lately.window(finished)
        loss, rates = self._losses(), self.follower.rates.points
        self._pictures = [loss, curve(rates, _("throughput"), _("examples/s")) if loss else ""]
        self._pictures += [strips(self._window, self._workers())] if self._window.known else []
        row = "".join(self._pictures)
        self.curves.value = f'<div style="{_ROW}">{row}</div>' if row else ""

    def _losses(self) -> str:
        """The loss, over the shares that it is the sum of."""
        follower = self.follower
        if not follower.shares:
            return curve(follower.losses.points, _("loss"))
        if not follower.step:
            return ""
        layers, each = [share.points for share in follower.shares], follower.together
        colors = [worker_color(k) if each == 1 else _GREYS[k % 2] for k in range(len(layers))]
        note = _("shares by worker") if self.workers > 1 else _("shares by replica")
        note = note if each == 1 else _("shares by {count} workers", count=each)
        return stack(layers, colors, follower.layers, _("loss"), note)

    def _table(self, outcome: str) -> str:
        rows = []
        for worker in range(len(self.states)):
            swatch = f"display:inline-block;width:0.9em;height:0.9em;background:{member_color(worker, self.workers)}"
            cells = f'<span style="{swatch}"></span>', html.escape(self._name(worker)), html.escape(self._state(worker))
            rows.append(
                "<tr>"
                + "".join(f'<td style="padding:1px 8px 1px 0;text-align:left">{cell}</td>' for cell in cells)
                + "</tr>"
            )
        head = html.escape(_("{name}: {words}", name=self.title, words=outcome) if outcome else self.title)
        table = f'<table style="color:inherit;font:inherit">{"".join(rows)}</table>'  # a page may set it otherwise
        return f'<div style="line-height:1.4"><b>{head}</b>{table}</div>'

    def _state(self, worker: int) -> str:
        if worker in self.ends:
            return self.ends[worker]
        corner, total = self.follower.corners[worker], self.follower.total
        line, step = _line("failed") if corner.failed else self.states[worker], corner.step
        what = _what(line)
        if worker == self.workers:
            # What the evaluator does; once it has ended, how, and its last evaluation.
            ended = list(filter(None, (str(line), self.follower.evaluated)))
            return self.follower.evaluator if what in ("running", "training") else clauses(ended)
        if what == "finished" and any(_what(other) != "finished" for other in self.states):
            return _("finished, waits for the others")
        if what == "training" and step:
            return _("step {step} of {total}", step=step, total=total) if total else _("step {step}", step=step)
        return _(_AFTER[what], step=step) if step and what in _AFTER else str(line)
