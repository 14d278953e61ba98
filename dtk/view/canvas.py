"""What all figures share: size, headline, caption, ink that follows the theme, and the figure without records."""

from __future__ import annotations

import io
import re
from collections import deque
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dtk.digits import three
from dtk.environment import in_notebook
from dtk.language import N_, _
from dtk.view.letters import lend_font, tidy, wrapped
from dtk.view.palette import CURVE_COLORS

if TYPE_CHECKING:
    from matplotlib.axis import Axis

__all__ = [
    "MOST",
    "NO_RECORDS",
    "alternative",
    "axes",
    "counts",
    "drawn",
    "edges",
    "headline",
    "ink",
    "only_text",
    "png",
    "thinned",
]

SIZE = (7.0, 3.6)  # inches: the width of a notebook's output cell
NO_RECORDS = N_("no records: add dtk.Recorder() to the callbacks of fit, or dtk.record_step to a loop")
_CAPTION, _CAPTION_POINTS = "caption", 8.5


class Described(Figure):
    """A figure whose text form is what it says: a notebook stores it beside the picture, for those who see none."""

    words: str = ""

    def __repr__(self) -> str:
        return f"<Figure: {self.words}>" if self.words else super().__repr__()

    def draw(self, renderer: Any) -> None:
        lend_font(self)
        super().draw(renderer)


class Shown(Axes):
    """Axes of a new figure. A cell that ends with them shows the figure alone; a terminal, what the figure says."""

    def _ipython_display_(self) -> None:
        """Nothing in a notebook, which shows the figure itself, at the end of the cell. `print(ax)` is as ever."""
        if not in_notebook():
            print(repr(self.figure))


def axes(ax: Axes | None, rows: tuple[float, ...] = (1.0,), size: tuple[float, float] = SIZE) -> list[Axes]:
    """The axes to draw on. A new figure is made by pyplot, so that a notebook shows it once, at the end of its cell.

    Lines that are drawn on new axes have colours that no worker has, and that a colour-blind reader can tell apart.

    Args:
        ax: given axes, which are then all; None: a new figure.
        rows: one axes each, with these relative heights.
        size: of the new figure, width and height in inches.
    """
    if ax is not None:
        return [ax]
    ratios = {"height_ratios": rows}
    shape: Any = {"figsize": size, "layout": "constrained", "FigureClass": Described}
    figure, grid = plt.subplots(
        len(rows), 1, squeeze=False, gridspec_kw=ratios, subplot_kw={"axes_class": Shown}, **shape
    )
    for each in grid[:, 0]:
        each.set_prop_cycle(color=CURVE_COLORS)
    _drawn.append(figure)
    return list(grid[:, 0])


def counts(axis: Axis) -> None:
    """Ticks in figures that people read: 20,000 and 2.5 million, not 20000 and 2.5e6."""
    axis.set_major_locator(MaxNLocator(7, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(lambda value, _: three(value))


_KEPT = 12  # figures; a lesson draws fewer
_drawn: deque[Figure] = deque(maxlen=_KEPT)


def drawn() -> list[tuple[Figure, str]]:
    """The last figures of this kernel and what they say, oldest first; of several that say the same the newest."""
    newest = {figure.words: figure for figure in _drawn if isinstance(figure, Described) and figure.words}
    return [(figure, words) for words, figure in newest.items()]


def png(figure: Figure, dpi: float | str = "figure") -> bytes:
    """The figure as a PNG, for a page that shows it by itself."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=dpi)
    return file.getvalue()


def ink(ax: Axes) -> Any:
    """The colour of text on these axes: black on a light theme, white on a dark one."""
    return ax.xaxis.label.get_color()


def alternative(ax: Axes) -> str:
    """A figure's text alternative: its headline and its caption, on one line."""
    captions = [text.get_text() for text in ax.texts if text.get_gid() == _CAPTION]
    return _in_a_line(ax.get_title(loc="left"), " ".join(captions))


def headline(ax: Axes, title: str, caption: str) -> None:
    """Writes the message as title, and under it, smaller, what to look at; both start at the left edge of the axes.

    Args:
        ax: the axes.
        title: the figure's message, in one sentence.
        caption: what to look at. Title and caption are the figure's text alternative as well.
    """
    inches = ax.get_window_extent().width / ax.figure.dpi
    lines = wrapped(tidy(caption), max(30, int(inches * 17)))
    pad = 6 + 1.35 * _CAPTION_POINTS * len(lines)
    # A worker's number stays on the line of the word.
    whole = re.sub(r"\b(workers?|replica|step|line) (?=\d)", "\\1\N{NO-BREAK SPACE}", title)
    rows = "\n".join(wrapped(tidy(whole), max(30, int(inches * 12)))).replace("\N{NO-BREAK SPACE}", " ")
    ax.set_title(rows, loc="left", pad=pad, fontsize=11)
    ax.annotate(
        "\n".join(lines),
        (0.0, 1.0),
        (0.0, 4.0),
        xycoords="axes fraction",
        textcoords="offset points",
        va="bottom",
        fontsize=_CAPTION_POINTS,
        alpha=0.85,
        annotation_clip=False,
        gid=_CAPTION,
    )
    ax.spines[["top", "right"]].set_visible(False)
    _describe(ax, _in_a_line(title, caption))


def only_text(ax: Axes, sentence: str) -> Axes:
    """Axes that hold nothing but one sentence, marked by `N_`: what is missing and how to get it."""
    ax.text(0.5, 0.5, _(sentence), ha="center", va="center", transform=ax.transAxes, wrap=True)
    ax.set_xticks([])
    ax.set_yticks([])
    _describe(ax, _(sentence))
    return ax


def _describe(ax: Axes, words: str) -> None:
    if isinstance(ax.figure, Described):
        ax.figure.words = " ".join(words.split())
    else:  # a learner's own figure, which does not ask for the letters itself
        lend_font(ax.figure)


def _in_a_line(title: str, caption: str) -> str:
    return " ".join(tidy(_("{title}. {caption}", title=title, caption=caption)).split())


# ---- which of very many steps to draw, so that none that stands out is left out

MOST = 2000  # steps that are drawn; a figure is some 1,000 pixels wide


def thinned(values: np.ndarray) -> np.ndarray:
    """Positions, in order, of at most some MOST values: of each of MOST / 2 stretches the least and the greatest.

    The first and the last are among them, and of a stretch with NaN one NaN.

    >>> thinned(np.arange(10.0)).tolist() == list(range(10))
    True
    """
    count = len(values)
    if count <= MOST:
        return np.arange(count)
    starts = np.linspace(0, count, MOST // 2, endpoint=False).astype(int)
    kept = [0, count - 1]
    for begin, end in zip(starts, [*starts[1:], count], strict=True):
        part = values[begin:end]
        missing = np.isnan(part)
        if missing.any():
            kept.append(begin + int(missing.argmax()))
        if not missing.all():
            kept += [begin + int(np.nanargmin(part)), begin + int(np.nanargmax(part))]
    return np.unique(kept)


def edges(steps: np.ndarray) -> np.ndarray:
    """Where the blocks of these steps meet: half-way between two, and half a step beyond the ends."""
    if not len(steps):
        return np.array([0.5])
    between = (steps[:-1] + steps[1:]) / 2
    return np.concatenate([[steps[0] - 0.5], between, [steps[-1] + 0.5]])
