"""Letters that English has not: the font that has them, and lines of text that has no spaces.

A figure's texts have the font that matplotlib is set to, and behind it, for what that lacks, the font of the language
that is spoken. So nothing of a learner's own settings changes.
"""

from __future__ import annotations

import functools
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib import font_manager
from matplotlib.text import Text

from dtk.language import columns, language

if TYPE_CHECKING:
    from matplotlib.figure import FigureBase

__all__ = ["lend_font", "tidy", "wrapped"]

# Made by tools/fonts.py. matplotlib knows a font by the name in its file.
_FONTS = {"zh": (Path(__file__).parent.parent / "fonts" / "NotoSansCJKsc-Regular-gb2312.otf", "Noto Sans CJK SC")}


def lend_font(figure: FigureBase) -> None:
    """Gives all texts of the figure the letters of the language that is spoken, where English's don't do."""
    name = _registered(language())
    for text in figure.findobj(Text) if name else ():
        words, families = text.get_text(), text.get_fontfamily()
        if columns(words) > len(words):
            text.set_fontweight("normal")  # the only one that the font has
        if name not in families and text.get_fontweight() in ("normal", 400):
            text.set_fontfamily([*families, name])


@functools.cache
def _registered(spoken: str) -> str:
    """The name of the language's font, which matplotlib knows from now on; "" for one that needs none."""
    if spoken not in _FONTS:
        return ""
    file, name = _FONTS[spoken]
    font_manager.fontManager.addfont(file)
    return name


_WIDE = "\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef"  # ideographs, and punctuation that is as wide
_OPEN, _CLOSE = "（《“‘「", "，。；：、！？）》”’」…"  # noqa: RUF001
_KEPT = "\N{NO-BREAK SPACE}"
_ALONE = rf"(?![{_OPEN}{_CLOSE}])[{_WIDE}]"
_WORD = rf"[^ \n{_WIDE}{_OPEN}{_CLOSE}]+"
# What stays on one line: an ideograph or a word, with its punctuation; a number with the ideographs on both sides.
_PIECE = re.compile(
    rf" *(?:[{_OPEN}]*(?:(?:{_ALONE}{_KEPT})?{_WORD}(?:(?<={_KEPT}){_ALONE})?|{_ALONE})[{_CLOSE}]*|[{_OPEN}{_CLOSE}])"
)
_BESIDE_NUMBERS = re.compile(rf"(?<=[{_WIDE}]) (?=[0-9])|(?<=[0-9]) (?=[{_WIDE}])")
_AFTER_PUNCTUATION = re.compile(r"(?<=[，。；：、！？）》]) +")  # noqa: RUF001


def tidy(text: str) -> str:
    """Without the spaces that sentences are joined by, where full-width punctuation has its own.

    >>> tidy("共 3 步。 One more."), tidy("3 steps. One more.")
    ('共 3 步。One more.', '3 steps. One more.')
    """
    return _AFTER_PUNCTUATION.sub("", text)


def wrapped(text: str, width: int) -> list[str]:
    """As `textwrap.wrap`; where there are ideographs, a line may end after each, and not before what closes a sentence.

    >>> wrapped("2 个副本的份额，加起来是 all-reduce 的损失。", 12)
    ['2 个副本的份', '额，加起来是', 'all-reduce', '的损失。']
    """
    if columns(text) == len(text):
        return textwrap.wrap(text, width)
    pieces = _PIECE.findall(_BESIDE_NUMBERS.sub(_KEPT, " ".join(text.split())))
    for narrower in range(width, width // 2, -1):
        lines = _filled(pieces, narrower)
        if len(lines) == 1 or columns(lines[-1]) >= width // 5:
            break  # else a last line of one or two ideographs, as there are no words to keep them together
    return [line.replace(_KEPT, " ").strip() for line in lines]


def _filled(pieces: list[str], width: int) -> list[str]:
    lines = [""]
    for piece in pieces:
        if lines[-1] and columns(lines[-1] + piece) > width:
            lines.append(piece.lstrip())
        else:
            lines[-1] += piece
    return lines
