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
from dtk.live import Live
from dtk.live.follow import Follower
from dtk.live.log_lines import LogLines
from dtk.live.pictures import Layer, curve, image, in_words, strips
from dtk.live.recent import RecentActivity
from dtk.view.controls import STYLE, beside, choice, folded, in_a_row, styled
from dtk.view.palette import member_color, member_name, replica_name, worker_color, worker_name
from dtk.watch import waiting
from dtk.watch.explain import is_chatter
from dtk.watch.reader import Reader
from dtk.watch.waiting import Line, clauses

__all__ = ["Dashboard"]

_EVERY = 0.25  # seconds between two drawings
_PICTURES = (2, 8)  # of so many drawings one draws the curves and strips: of few workers, of very many
_ROW = "display:flex;flex-wrap:wrap;gap:16px;align-items:flex-start"
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


class Dashboard(Live):
    """Where each worker and the evaluator are, progress with the time left, loss, throughput, the ends of the logs."""

    def __init__(self, reader: Reader, replicas: int, title: str, mode: str = "cluster"):
        self.reader, self.folder = reader, reader.folder
        self.title, self.mode, self.workers = title, mode, reader.folder.workers
        self.follower = Follower(self.folder, replicas * self.workers)
        reader.follow(self.follower)
        self.activity = RecentActivity(reader, together=mode == "cluster")
        self.tails = [_LogTail(LogLines(member.path / "log.txt")) for member in self.folder.members]
        self.states = [_line("starting")] * len(self.tails)
        self.ends: dict[int, str] = {}  # of a run that failed: who failed, who only in consequence
        self._drawn = self._pictured = float("-inf")
        self._pictures: list[str] = []
        self._window = self.activity.window()
        self.rows, self.curves, self.words = ipywidgets.HTML(), ipywidgets.HTML(), ipywidgets.HTML()
        self.bar = ipywidgets.IntProgress(value=0, min=0, max=1, layout=ipywidgets.Layout(width="300px"))
        self.panes = [ipywidgets.HTML() for _ in self.tails]
        self.logs = _one_of(self.panes, [self._name(member) for member in range(len(self.tails))])
        progress = ipywidgets.HBox([self.bar, self.words], layout=ipywidgets.Layout(flex_flow="row wrap"))
        self.box = ipywidgets.VBox([self.rows, progress, self.curves, self.logs])
        self._draw("")
        first = beside(self.box, f"<live view of dtk: {title}>")
        self._shown = display(first, raw=True, display_id=True)

    def update(self, states: Sequence[Line | str]) -> None:
        now = time.monotonic()
        if now - self._drawn >= _EVERY:
            self.states = [_line(state) for state in states]
            self._draw("")
            self._drawn = now

    def close(self, outcome: str, finished: bool = False) -> None:
        # What Watch last reported may be older than the end: a run that finished has finished everywhere.
        how = [_what(state) for state in self.states]
        how = ["finished" if finished else state if state in ("finished", "failed") else "stopped" for state in how]
        self.states = [_line(state) for state in how]
        graph = None if finished else waiting.load(self.folder)
        ends = [state for state in graph.states if state.what in ("failed", "consequence", "stopped")] if graph else []
        self.ends = {state.member: state.words() for state in ends}
        self._draw(outcome, finished)
        if finished:
            self.bar.value = self.bar.max
        self.bar.bar_style = "success" if finished else "danger"
        if self._shown:
            text, page = self._last_frame(outcome)
            # Colab's widgets end with their cell: what stays there is the page alone.
            bundle = {"text/plain": text} if on_colab() else beside(self.box, text)
            self._shown.update({**bundle, "text/html": page}, raw=True)

    def _last_frame(self, outcome: str) -> tuple[str, str]:
        """The facts of the end as text, and with the curves as HTML, for a page without a kernel."""
        words = self.follower.words(ended=True)
        said = [(self._name(member), self._state(member)) for member in range(len(self.states))]
        lines = [_("{name}: {words}", name=name, words=each) for name, each in [(self.title, outcome), *said]]
        lines += [in_words(self._window, self._workers())] if self._window.known else []
        curves = f'<div style="{_ROW}">{"".join(map(image, self._pictures))}</div>'
        amount = f'value="{self.bar.value}" max="{self.bar.max}"'
        color = {"success": "#4CAF50", "danger": "#F44336"}[self.bar.bar_style]
        steps = _("steps")
        bar = f'<progress aria-label="{steps}" {amount} style="width:300px;accent-color:{color}"></progress>'
        heads = [_("{name}: what it printed", name=name) for name, __ in said]
        logs = [
            f"<details><summary>{head}</summary>{pane.value}</details>"
            for head, pane in zip(heads, self.panes, strict=True)
        ]
        page = f"{self.rows.value}<div>{bar} {html.escape(words)}</div>{curves}{''.join(logs)}"
        return "\n".join([*lines, words]), page

    def _name(self, member: int) -> str:
        if self.mode == "single" and member < self.workers:
            return _("baseline")
        return member_name(member, self.workers) if member else worker_name(member, chief=True)

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
        self.activity.refresh(self.states, last)
        self._window = self.activity.window(finished)
        loss, rates = self._loss(), self.follower.rates.points
        self._pictures = [loss, curve(rates, _("throughput"), _("examples/s")) if loss else ""]
        self._pictures += [strips(self._window, self._workers())] if self._window.known else []
        row = "".join(self._pictures)
        self.curves.value = f'<div style="{_ROW}">{row}</div>' if row else ""

    def _loss(self) -> str:
        """The loss, over the shares that it is the sum of."""
        shares = [share.points for share in self.follower.shares]
        if not shares or not shares[0]:
            return curve(self.follower.losses.points, _("loss"))
        several = self.workers > 1
        name, note = (worker_name, _("shares by worker")) if several else (replica_name, _("shares by replica"))
        values = [[y for __, y in share] for share in shares]
        layers = [Layer(name(k), worker_color(k), each) for k, each in enumerate(values)]
        total = [(x, sum(each)) for (x, __), each in zip(shares[0], zip(*values, strict=True), strict=True)]
        return curve(total, _("loss"), layers=layers, note=note)

    def _table(self, outcome: str) -> str:
        rows = []
        for member in range(len(self.states)):
            swatch = f"display:inline-block;width:0.9em;height:0.9em;background:{member_color(member, self.workers)}"
            cells = f'<span style="{swatch}"></span>', html.escape(self._name(member)), html.escape(self._state(member))
            columns = "".join(f'<td style="padding:1px 8px 1px 0;text-align:left">{cell}</td>' for cell in cells)
            rows.append(f"<tr>{columns}</tr>")
        head = html.escape(_("{name}: {words}", name=self.title, words=outcome) if outcome else self.title)
        table = f'<table style="color:inherit;font:inherit">{"".join(rows)}</table>'  # a page may set it otherwise
        return f'<div style="line-height:1.4"><b>{head}</b>{table}</div>'

    def _state(self, member: int) -> str:
        if member in self.ends:
            return self.ends[member]
        progress, total = self.follower.members[member], self.follower.total
        line, step = _line("failed") if progress.failed else self.states[member], progress.step
        what = _what(line)
        if member == self.workers:
            # What the evaluator does; once it has ended, how, and its last evaluation.
            ended = list(filter(None, (str(line), self.follower.evaluated)))
            return self.follower.evaluator if what in ("running", "training") else clauses(ended)
        if what == "finished" and any(_what(other) != "finished" for other in self.states):
            return _("finished, waits for the others")
        if what == "training" and step:
            return _("step {step} of {total}", step=step, total=total) if total else _("step {step}", step=step)
        return _(_AFTER[what], step=step) if step and what in _AFTER else str(line)
