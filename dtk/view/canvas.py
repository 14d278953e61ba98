"""What all figures share: axes, headline and caption, ink that follows the theme, rows, notes, legends, the font of the
language, and one HTML file for figures, tables and text.
"""

from __future__ import annotations

import base64
import functools
import html
import re
import textwrap
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from IPython.core.pylabtools import print_figure
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_hex, to_rgb
from matplotlib.container import BarContainer
from matplotlib.figure import Figure, FigureBase
from matplotlib.text import Annotation, Text
from matplotlib.ticker import FixedLocator, MaxNLocator
from matplotlib.transforms import Bbox

from dtk.environment import in_notebook, live_mode
from dtk.language import ENGLISH, N_, _, columns, language, three
from dtk.view.palette import CURVE_COLORS

SIZE = (7.0, 3.6)  # inches: the width of a notebook's output cell
NO_RECORDS = N_("no records: add dtk.Recorder() to the callbacks of fit, or dtk.record_step to a loop")
_CAPTION_POINTS = 8.5


class Described(Figure):
    """A figure whose text form is its label: a notebook stores it beside the picture, for those who see none."""

    def __repr__(self) -> str:
        return f"<Figure: {self.get_label()}>" if self.get_label() else super().__repr__()

    def draw(self, renderer: Any) -> None:
        lend_font(self)
        super().draw(renderer)

    def _repr_html_(self) -> str | None:
        """In a notebook that someone looks at, beside the PNG: a picture that follows the page's theme, with values."""
        return image(self) if live_mode() == "widgets" else None


class Shown(Axes):
    """Axes of a new figure. A cell that ends with them shows the figure alone; a terminal, what the figure says."""

    def _ipython_display_(self) -> None:
        """Nothing in a notebook, which shows the figure itself, at the end of the cell. `print(ax)` is as ever."""
        if not in_notebook():
            print(repr(self.figure))


def axes(
    ax: Axes | None, rows: tuple[float, ...] = (1.0,), size: tuple[float, float] = SIZE, shown: bool = True
) -> list[Axes]:
    """Return the axes to draw on. A new figure is pyplot's, so that a notebook shows it once, at the end of its cell.

    Lines that are drawn on new axes have colors that no worker has, and that a color-blind reader can tell apart.

    Args:
        ax: given axes, which are then all; None: a new figure.
        rows: one axes each, with these relative heights.
        size: of the new figure, width and height in inches.
        shown: whether the figure is pyplot's; if not, it is for a page or a lab that shows it itself.
    """
    if ax is not None:
        return [ax]
    if shown:
        figure: Any = plt.figure(figsize=size, layout="constrained", FigureClass=Described)
        _drawn.append(figure)
    else:
        figure = Described(figsize=size, layout="constrained")
    grid = figure.subplots(len(rows), 1, squeeze=False, height_ratios=rows, subplot_kw={"axes_class": Shown})
    for each in grid[:, 0]:
        each.set_prop_cycle(color=CURVE_COLORS)
    return list(grid[:, 0])


def counts(axis: Axis) -> None:
    """Set ticks as people write numbers: 20,000 and 2.5 million, not 20000 and 2.5e6."""
    axis.set_major_locator(MaxNLocator(7, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(lambda value, _: three(value))


_drawn: deque[Figure] = deque(maxlen=12)  # a lesson draws fewer


def drawn() -> list[Figure]:
    """Return the last figures of this kernel that say something, oldest first; of equal ones the newest."""
    return list({figure.get_label(): figure for figure in _drawn if figure.get_label()}.values())


_INK, _PAPER = "#000000", "#ffffff"  # what a theme turns round; letters on a color are written by `on`
_THEMES = (
    "<style>.dtk {--ink: #000; --paper: #fff; fill: var(--ink)} "
    "@media (prefers-color-scheme: dark) {.dtk {--ink: #e0e0e0; --paper: #111}}</style>"
)


def image(figure: Figure, style: str = "") -> str:
    """Return the figure as HTML, with what it says for those who see none, and numbers where the mouse points.

    It is light or dark as the page's `color-scheme` is, such as JupyterLab's. A figure of another style than
    matplotlib's, whose ground is not white, keeps its colors.
    """
    lend_font(figure)
    if (layout := figure.get_layout_engine()) is not None:
        layout.execute(figure)
    label, box = str(figure.get_label()), figure.get_tightbbox().padded(0.1)  # inches
    figure.set_layout_engine("none")  # printing would lay it out again, which takes longer than drawing it
    drawn = print_figure(figure, "svg", box, metadata={"Title": label, "Date": None})
    figure.set_layout_engine(layout)
    drawn = drawn[drawn.index("<svg") :]
    if to_hex(figure.get_facecolor()) == _PAPER:
        drawn = drawn.replace(_INK, "var(--ink)").replace(_PAPER, "var(--paper)")
        drawn = drawn.replace(">", f">{_THEMES}", 1).replace("<svg", '<svg class="dtk"', 1)
    source = f"data:image/svg+xml;base64,{base64.b64encode(drawn.encode()).decode()}"
    shown = f'<img alt="{html.escape(label)}" style="display:block;width:100%" src="{source}">'
    seen = Bbox(np.multiply(box.get_points(), figure.dpi))  # px
    places = list(_pointed_at(figure))
    for ax, corners, words in places[:: -(-len(places) // _MOST_PLACES) or 1]:
        area = Bbox.intersection(Bbox([corners.min, corners.max]), ax.bbox)
        if area is not None and min(area.size) >= 1:
            at = f"left:{(area.x0 - seen.x0) / seen.width:.2%};top:{(seen.y1 - area.y1) / seen.height:.2%}"
            size = f"width:{area.width / seen.width:.2%};height:{area.height / seen.height:.2%}"
            said = html.escape("\n".join(_(each) for each in words if each[:1] not in ("", "_")))
            shown += f'<span style="position:absolute;{at};{size}" title="{said}"></span>'
    return f'<figure style="position:relative;display:inline-block;margin:1em 0;{style}">{shown}</figure>\n'


_MOST_PLACES = 1000  # of a figure, that say their numbers; of more, every second, third or so
_NEAR = 5.0  # px around a point
_NO_LEGEND = "_ "  # begins the label of a block


def _pointed_at(figure: Figure) -> Iterator[tuple[Axes, Bbox, Sequence[str]]]:
    """What says its numbers, the uppermost last: its axes, where it is (px), and lines, the first a label."""
    for ax in figure.axes:
        names, labels = (ax.get_xlabel(), ax.get_ylabel()), {}
        for block in (each for each in ax.collections if str(each.get_label()).startswith(_NO_LEGEND)):
            yield ax, block.get_paths()[0].get_extents(ax.transData), [str(block.get_label())[len(_NO_LEGEND) :]]
        if isinstance(ax.xaxis.get_major_locator(), FixedLocator):
            labels = {at: label.get_text() for at, label in zip(ax.get_xticks(), ax.get_xticklabels(), strict=True)}
        for line in (each for each in ax.lines if each.get_transform() == ax.transData):
            points = np.asarray(line.get_xydata(), float)
            for x, y in points if len(points) > 2 and line.get_label() != "_nolegend_" else ():  # ends of error bars
                at = ax.transData.transform((x, y))
                numbers = f"{names[0]} {labels.get(x, f'{x:,.6g}')}", f"{names[1]} {y:,.6g}"
                yield ax, Bbox([at - _NEAR, at + _NEAR]), [str(line.get_label()), *numbers]
        for bars in (each for each in ax.containers if isinstance(each, BarContainer)):
            flat = bars.orientation == "horizontal"
            for bar in bars:
                long = bar.get_width() if flat else bar.get_height()
                yield ax, bar.get_window_extent(), [str(bars.get_label()), f"{names[not flat]} {long:,.6g}"]


def ink(ax: Axes) -> Any:
    """Return the color of text on these axes: black on a light theme, white on a dark one."""
    return ax.xaxis.label.get_color()


def on(color: str) -> str:
    """Return the color of letters on a block of this color, whatever the theme.

    >>> on("#0072B2"), on("#F0E442")
    ('#fffffe', '#000001')
    """
    return "#fffffe" if np.dot(to_rgb(color), (0.299, 0.587, 0.114)) < 0.5 else "#000001"


def headline(ax: Axes, title: str, caption: str, **values: Any) -> None:
    """Write the message as title, and under it, smaller, what to look at; both start at the left edge of the axes.

    The words of a lesson's figure, those of its axes and legend too, are shown in the language of the lesson.

    Args:
        ax: the axes.
        title: the figure's message, in one sentence.
        caption: what to look at. Title and caption are the figure's text alternative as well.
        values: what stands in braces in title and caption, as `str.format` takes it.
    """
    title, caption = _(title, **values), _(caption, **values)
    if language() != ENGLISH:
        _translate(ax)
    inches = ax.get_window_extent().width / ax.figure.dpi
    lines = wrapped(tidy(caption), max(30, int(inches * 17)))
    pad = 6 + 1.35 * _CAPTION_POINTS * len(lines)
    # A worker's number, or that of workers, stays on the line of the word.
    numbered = r"\b(workers?|replica|step|line) (?=\d)|(?<=\d) (?=workers?\b)"
    whole = re.sub(numbered, lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), title)
    rows = "\n".join(wrapped(tidy(whole), max(30, int(inches * 12)))).replace("\N{NO-BREAK SPACE}", " ")
    ax.set_title(rows, loc="left", pad=pad, fontsize=11)
    place: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "annotation_clip": False}
    ax.annotate("\n".join(lines), (0, 1), (0, 4), va="bottom", fontsize=_CAPTION_POINTS, alpha=0.85, **place)
    ax.spines[["top", "right"]].set_visible(False)
    _describe(ax, tidy(_("{title}. {caption}", title=title, caption=caption)))


def _translate(ax: Axes) -> None:
    """Translate what axes, ticks and legend say, where the catalogue has it: a lesson's cells are all in English."""
    for axis in (ax.xaxis, ax.yaxis):
        if isinstance(axis.get_major_locator(), FixedLocator):
            axis.set_ticklabels([_(each.get_text()) for each in axis.get_ticklabels()])
    for each in ax.figure.findobj(Text):
        each.set_text(_(each.get_text()))


def only_text(ax: Axes | None, message: str) -> Axes:
    """Draw nothing but a message, marked by `N_`: what is missing and how to get it. None: on a new figure."""
    (ax,) = axes(ax)
    ax.text(0.5, 0.5, _(message), ha="center", va="center", transform=ax.transAxes, wrap=True)
    ax.set(xticks=[], yticks=[])
    _describe(ax, _(message))
    return ax


def _describe(ax: Axes, words: str) -> None:
    ax.set_label(" ".join(words.split()))
    if isinstance(ax.figure, Described):
        ax.figure.set_label(ax.get_label())
    else:  # a learner's own figure, which does not ask for the letters itself
        lend_font(ax.figure)


# ---- what several figures draw


def by_step(ax: Axes, first: int, last: int, label: str = N_("step")) -> None:
    """Make the horizontal axis one of whole steps, from `first` to `last`."""
    ax.set(xlabel=_(label), xlim=(first - 0.5, last + 0.5))
    ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True))


def name_rows(ax: Axes, names: Sequence[str], margin: float = 0.05, below: float = 0.0) -> None:
    """Name rows of height 1 at 0, 1, 2 and so on, from the top down. margin, below: room above and under them."""
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5 + margin + below, -0.5 - margin)
    ax.tick_params(axis="y", length=0)


def row_of_blocks(ax: Axes, row: float, blocks: Sequence[tuple[Any, ...]], height: float = 0.62) -> float:
    """Draw blocks (width, color, and a label if it has one) side by side from 0 on; return where the last one ends."""
    left = 0.0
    for width, color, *label in blocks:
        ax.barh(row, width, height, left, color=color, label="".join(label), lw=0)
        left += width
    return left


def block(ax: Axes, row: float, begin: float, end: float, words: str, high: float = 0.72, **style: Any) -> None:
    """Draw a block of a row, which says these words where the mouse points."""
    ax.broken_barh([(begin, end - begin)], (row - high / 2, high), label=f"{_NO_LEGEND}{words}", **style)


def lasting(what: str, seconds: float) -> str:
    return _("{name}: {words}", name=what, words=_("{number} ms", number=three(1e3 * seconds)))


def steps(first: int, last: int) -> str:
    return _("step {step}", step=first) if first == last else _("steps {first} to {last}", first=first, last=last)


def note(
    ax: Axes, words: str, at: tuple[float, float], offset: tuple[float, float], ground: bool = False, **style: Any
) -> Annotation:
    """Write beside a point of the axes, `offset` points (1/72 inch) away; with `ground` over what is drawn there."""
    if ground:
        style["bbox"] = {"facecolor": ax.get_facecolor(), "lw": 0, "pad": 1.0}
    return ax.annotate(words, at, offset, textcoords="offset points", **{"va": "center", "fontsize": 9, **style})


def legend_below(ax: Axes, handles: Sequence[Any] | None = None, ncols: int = 3, **options: Any) -> None:
    """Put a legend under the figure. handles: with their labels; None: of what is drawn on `ax`, each label once."""
    if handles is None:
        drawn, labels = ax.get_legend_handles_labels()
        handles = list(dict(zip(labels, drawn, strict=True)).values())
    if handles:
        place: dict[str, Any] = {"loc": "outside lower center", "frameon": False, "fontsize": 9, **options}
        ax.figure.legend(handles=handles, ncols=ncols, **place)


def blank(ax: Axes) -> None:
    """Remove ticks and frame, where places mean no numbers."""
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)


def names_of(labels: Sequence[str] | None, runs: int) -> list[str]:
    """Return a name for each run: the labels, or else numbers.

    Raises:
        ValueError: there are not as many labels as runs.
    """
    if labels is None:
        return [_("run {number}", number=k + 1) for k in range(runs)]
    if len(labels) != runs:
        raise ValueError(_("{labels} labels for {runs} runs; give one a run", labels=len(labels), runs=runs))
    return [_(each) for each in labels]  # a lesson's, in the language of the lesson


# ---- very many steps


class Bins(NamedTuple):
    """Which steps are drawn as one: so many from each of `first`, `first + steps` and so on."""

    first: int
    steps: int

    def of(self, table: Any, how: str = "mean") -> Any:
        """Of a table, or a series, by step; NaN where a step has none. index: the middle of each bin."""
        bins = (table.index - self.first) // self.steps
        found = table.groupby(bins).agg(how).where(table.notna().groupby(bins).all())
        found.index = self.first + found.index * self.steps + (self.steps - 1) / 2
        return found

    def edges(self, means: Any) -> np.ndarray:
        return np.append(means.index, means.index[-1:] + self.steps) - self.steps / 2


# ---- letters that English has not, and lines of a text without spaces

# Made by tools/fonts.py. matplotlib knows a font by the name in its file.
_FONTS = {"zh": (Path(__file__).parent.parent / "fonts" / "NotoSansCJKsc-Regular-gb2312.otf", "Noto Sans CJK SC")}


def lend_font(figure: FigureBase) -> None:
    """Give all texts of the figure the font of the language in use, behind the font that matplotlib is set to."""
    name = _registered(language())
    for text in figure.findobj(Text) if name else ():
        words, families = text.get_text(), text.get_fontfamily()
        if columns(words) > len(words):
            text.set_fontweight("normal")  # the only one that the font has
        if name not in families and text.get_fontweight() in ("normal", 400):
            text.set_fontfamily([*families, name])


@functools.cache
def _registered(spoken: str) -> str:
    """Register the language's font with matplotlib and return its name; "" for a language that needs none."""
    if spoken not in _FONTS:
        return ""
    file, name = _FONTS[spoken]
    font_manager.fontManager.addfont(file)
    return name


_WIDE = "\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef"  # ideographs, and punctuation that is as wide
_OPEN, _CLOSE = "（《“‘「", "，。；：、！？）》”’」…"  # noqa: RUF001
_BOUND = "\N{NO-BREAK SPACE}"
_ALONE = rf"(?![{_OPEN}{_CLOSE}])[{_WIDE}]"
_WORD = rf"[^ \n{_WIDE}{_OPEN}{_CLOSE}]+"
# What stays on one line: an ideograph or a word, with its punctuation; a number with the ideographs on both sides.
_PIECE = re.compile(
    rf" *(?:[{_OPEN}]*(?:(?:{_ALONE}{_BOUND})?{_WORD}(?:(?<={_BOUND}){_ALONE})?|{_ALONE})[{_CLOSE}]*|[{_OPEN}{_CLOSE}])"
)
_BESIDE_NUMBERS = re.compile(rf"(?<=[{_WIDE}]) (?=[0-9])|(?<=[0-9]) (?=[{_WIDE}])")
_AFTER_PUNCTUATION = re.compile(r"(?<=[，。；：、！？）》]) +")  # noqa: RUF001


def tidy(text: str) -> str:
    """Remove the spaces that sentences are joined by, where full-width punctuation has its own.

    >>> tidy("共 3 步。 One more."), tidy("3 steps. One more.")
    ('共 3 步。One more.', '3 steps. One more.')
    """
    return _AFTER_PUNCTUATION.sub("", text)


def wrapped(text: str, width: int) -> list[str]:
    """Wrap a text as `textwrap.wrap` does; a line may end after any ideograph, but not before closing punctuation.

    >>> wrapped("2 个副本的份额，加起来是 all-reduce 的损失。", 12)
    ['2 个副本的份', '额，加起来是', 'all-reduce', '的损失。']
    """
    if columns(text) == len(text):
        return textwrap.wrap(text, width)
    pieces = _PIECE.findall(_BESIDE_NUMBERS.sub(_BOUND, " ".join(text.split())))
    for narrower in range(width, width // 2, -1):
        lines = _filled(pieces, narrower)
        if len(lines) == 1 or columns(lines[-1]) >= width // 5:
            break  # else a last line of one or two ideographs, as there are no words to keep them together
    return [line.replace(_BOUND, " ").strip() for line in lines]


def _filled(pieces: list[str], width: int) -> list[str]:
    lines = [""]
    for piece in pieces:
        if lines[-1] and columns(lines[-1] + piece) > width:
            lines.append(piece.lstrip())
        else:
            lines[-1] += piece
    return lines


# ---- one HTML file without anything beside it, light and dark

_PAGE = """<!doctype html>
<html lang="{language}"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>
:root {{color-scheme: light dark}}
body {{font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem}}
table {{border-collapse: collapse; width: 100%}}
th, td {{text-align: left; vertical-align: top; padding: .4rem .8rem .4rem 0; border-bottom: 1px solid #8886}}
figure {{max-width: 100%; min-width: 30rem}}
pre {{white-space: pre-wrap; overflow-wrap: anywhere; padding: .8rem; border: 1px solid #8886; font-size: .8rem}}
</style></head><body>
<h1>{title}</h1><p>{ended}</p>
{parts}</body></html>
"""


def page(title: str, summary: str, parts: Iterable[str]) -> str:
    """Return the whole file; parts are made by the functions below, summary is a sentence without its full stop."""
    when = time.strftime("%Y-%m-%d %H:%M")
    ended = _("{sentence}.", sentence=_("{title}. {caption}", title=html.escape(summary), caption=when))
    return _PAGE.format(language=language(), title=html.escape(title), ended=ended, parts="".join(parts))


def table(title: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table under its title; "" where it has no rows."""
    if not rows:
        return ""
    cells = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(value))}</td>" for value in row) + "</tr>\n" for row in rows
    )
    names = "".join(f"<th>{html.escape(head)}</th>" for head in heads)
    return f"<h2>{html.escape(title)}</h2>\n<table><tr>{names}</tr>\n{cells}</table>\n"


def text(title: str, lines: Sequence[str]) -> str:
    """Return lines as they are, under their title; "" where there are none."""
    return f"<h2>{html.escape(title)}</h2>\n<pre>{html.escape(chr(10).join(lines))}</pre>\n" if lines else ""
