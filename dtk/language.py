"""Sentences and numbers as readers see them: sentences are marked by `_`, their other languages are in `dtk/locale/`.

    raise VerificationError(_("{run} ran {steps} steps, the baseline {others}", run=name, steps=4, others=5))
    ngettext("{n} update", "{n} updates", 3)
    HINT = N_("a sentence that is shown later")  # and there: _(HINT)

English is what stands in the code. `DTK_LANG=zh` chooses another language; where it is not set, the folder that the
kernel runs in does: `notebooks/zh` has the lessons in Chinese, and figures and checks there speak it as well.
A sentence that the catalogue lacks stays English. `make translations` (tools/catalogues.py) finds what is marked.
Numbers have three digits without powers of ten; in verdicts, one or two that stay the same.
"""

from __future__ import annotations

import functools
import gettext
import os
import re
import unicodedata
import warnings
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

ENGLISH, DOMAIN, ASKED = "en", "dtk", "DTK_LANG"
LOCALE = Path(__file__).parent / "locale"


@functools.cache
def languages() -> tuple[str, ...]:
    """English and each language that has a catalogue, such as ("en", "zh")."""
    return (ENGLISH, *sorted(found.parent.parent.name for found in LOCALE.glob(f"*/LC_MESSAGES/{DOMAIN}.mo")))


def language() -> str:
    """The language that is spoken now, one of `languages()`."""
    asked = os.environ.get(ASKED)
    try:
        name = asked or Path.cwd().name
    except OSError:
        return ENGLISH  # the folder is gone
    short = re.split(r"[-_.]", name.lower())[0]  # zh of zh, zh_CN.UTF-8 and zh-Hans
    if short in languages():
        return short
    if asked:
        warnings.warn(f"{ASKED}={asked}: dtk speaks {', '.join(languages())}; it goes on in English", stacklevel=2)
    return ENGLISH


@functools.cache
def _catalogue(name: str) -> gettext.NullTranslations:
    return gettext.translation(DOMAIN, str(LOCALE), [name], fallback=True)  # English, as there is none


def _(message: str, /, **values: Any) -> str:
    """The sentence in the language that is spoken, with its values, by name and as `str.format` takes them."""
    text = _catalogue(language()).gettext(message) if message else message  # "" is the catalogue's own head
    return text.format(**values) if values else text


def ngettext(one: str, several: str, number: float, /, **values: Any) -> str:
    """As `_`, of a number of things, which both sentences call {n}: one: of 1; several: of any other.

    >>> ngettext("{n} model", "{n} models", 1), ngettext("{n} update", "{n} updates", 0)
    ('1 model', '0 updates')
    """
    text = _catalogue(language()).ngettext(one, several, int(number))
    return text.format(**{"n": f"{number:.0f}", **values})


def N_(message: str, /) -> str:
    """The sentence as it is: marks for the catalogue what `_` translates where it is shown."""
    return message


def columns(text: str) -> int:
    """The width of a text, in Latin letters: an ideograph takes two.

    >>> columns("step 3"), columns("第 3 步")
    (6, 7)
    """
    return len(text) + sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)


def aligned(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Rows of words as lines, their columns two spaces apart. right: columns whose words end at one place.

    >>> aligned([["", "steps"], ["worker 0", "94"]], right=[1])
    ['          steps', 'worker 0     94']
    """
    widths = [max(map(columns, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        free = [(word, " " * (width - columns(word))) for word, width in zip(row, widths, strict=True)]
        filled = [space + word if k in right else word + space for k, (word, space) in enumerate(free)]
        lines.append("  ".join(filled).rstrip())
    return lines


# ---- numbers

# (from, unit, words): a translated word alone would not do, as other languages count large numbers in other units.
_LARGE = {
    ENGLISH: ((1e9, 1e9, N_("{number} billion")), (1e6, 1e6, N_("{number} million"))),
    "zh": ((1e8, 1e8, "{number} 亿"), (1e6, 1e4, "{number} 万")),
}


def three(value: float) -> str:
    """To three significant digits, with a comma after the thousands, and millions as a word.

    >>> three(2_524_471), three(1_140.2), three(39_997), three(195), three(34.04), three(0.0123), three(0)
    ('2.52 million', '1,140', '40,000', '195', '34', '0.0123', '0')
    >>> three(3.2e-7), three(float("nan")), three(4_050_000_000)
    ('0.00000032', 'nan', '4.05 billion')
    """
    if value != value or abs(value) == float("inf"):
        return f"{value:g}"
    short = float(f"{value:.3g}")
    for least, unit, words in _LARGE.get(language(), _LARGE[ENGLISH]):
        if abs(short) >= least:
            return _(words, number=f"{short / unit:,g}")
    return f"{short:,.0f}" if abs(short) >= 1000 else f"{Decimal(repr(short)).normalize():f}"


def bytes_of(number: float) -> str:
    """A number of bytes, in units of 1,000.

    >>> bytes_of(8), bytes_of(348_200), bytes_of(1_048_576), bytes_of(1_400), bytes_of(4.02e9)
    ('8 bytes', '348 kB', '1.05 MB', '1.4 kB', '4.02 GB')
    """
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= size:
            return f"{three(number / size)} {unit}"
    return ngettext("{count} byte", "{count} bytes", number, count=f"{number:,.0f}")


def first_three(words: Sequence[str]) -> str:
    """A list's first three words, and a sign that there are more.

    >>> first_three(["a", "b"]), first_three(["a", "b", "c", "d"])
    ('a, b', 'a, b, c, …')
    """
    return _(", ").join([*words[:3], *["…"] * (len(words) > 3)])


def rounded(value: float) -> str:
    """A tolerance or a measured difference, to one significant digit: enough to act on, and stable in a stored output.

    >>> [rounded(each) for each in (0.000212, 1e-5, 0.31, 0, 0.9996, 2.0, float("inf"))]
    ['2e-4', '1e-5', '3e-1', '0', '1', '2', 'inf']
    """
    short = f"{value:.0e}"
    digit, _, power = short.partition("e")
    return f"{digit}e{int(power)}" if 0 < abs(float(short)) < 1 else f"{float(short):g}"


def relative(value: float) -> str:
    """A relative difference, to two significant digits, and the same as a percentage.

    >>> relative(0.9957), relative(0.00042), relative(0.0000213), relative(31.4), relative(float("inf"))
    ('1.0 (100 %)', '0.00042 (0.042 %)', '2.1e-5 (0.0021 %)', '31 (3100 %)', 'inf')
    """
    if not abs(value) < float("inf"):
        return f"{value:g}"
    digits = Decimal(f"{value:.1e}")
    short = f"{digits:e}" if 0 < abs(digits) < Decimal("1e-4") else f"{digits:f}"
    return f"{short} ({digits.scaleb(2):f} %)"
