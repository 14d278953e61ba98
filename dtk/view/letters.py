"""Letters that English has not: the font that has them, and lines of text that has no spaces.

A figure's texts have the font that matplotlib is set to, and behind it, for what that lacks, the font of the language
that is spoken. So nothing of a learner's own settings changes.
"""

from __future__ import annotations

import functools
import re
import textwrap
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib import font_manager
from matplotlib.text import Text

from dtk.language import language

if TYPE_CHECKING:
    from matplotlib.figure import FigureBase

__all__ = ["columns", "lend_font", "tidy", "wrapped"]

# Made by tools/fonts.py. matplotlib knows a font by the name in its file.
_FONTS = {"zh": (Path(__file__).parent.parent / "fonts" / "NotoSansCJKsc-Regular-gb2312.otf", "Noto Sans CJK SC")}


def lend_font(figure: FigureBase) -> None:
    """Gives all texts of the figure the letters of the language that is spoken, where English's don't do."""
    name = _registered(language())
    for text in figure.findobj(Text) if name else ():
        families = text.get_fontfamily()
        if name not in families:
            text.set_fontfamily([*families, name])


@functools.cache
def _registered(spoken: str) -> str:
    """The name of the language's font, which matplotlib knows from now on; "" for one that needs none."""
    if spoken not in _FONTS:
        return ""
    file, name = _FONTS[spoken]
    known = font_manager.fontManager
    known.addfont(file)
    # Its one face stands in for bold and italic ones, of which matplotlib would say that they lack.
    plain = known.ttflist[-1]
    ways = [(style, weight) for style in ("normal", "italic") for weight in (400, 700)]
    known.ttflist += [replace(plain, style=style, weight=weight) for style, weight in ways]
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


def columns(text: str) -> int:
    """The width of a text, in Latin letters: an ideograph takes two.

    >>> columns("step 3"), columns("第 3 步")
    (6, 7)
    """
    return len(text) + sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)


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
    lines = [""]
    for piece in _PIECE.findall(_BESIDE_NUMBERS.sub(_KEPT, " ".join(text.split()))):
        if lines[-1] and columns(lines[-1] + piece) > width:
            lines.append(piece.lstrip())
        else:
            lines[-1] += piece
    return [line.replace(_KEPT, " ").strip() for line in lines]
