"""The language that dtk speaks: sentences marked by `_`, their other languages in `dtk/locale/`.

    raise VerificationError(_("{run} ran {steps} steps, the baseline {others}", run=name, steps=4, others=5))
    ngettext("{n} update", "{n} updates", 3)
    HINT = N_("a sentence that is shown later")  # and there: _(HINT)

English is what stands in the code. `DTK_LANG=zh` chooses another language; where it is not set, the folder that the
kernel runs in does: `notebooks/zh` has the lessons in Chinese, and figures and checks there speak it as well.
A sentence that the catalogue lacks stays English. `make translations` (tools/catalogues.py) finds what is marked.
"""

from __future__ import annotations

import functools
import gettext
import os
import re
import unicodedata
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["ASKED", "DOMAIN", "ENGLISH", "LOCALE", "N_", "_", "aligned", "columns", "language", "languages", "ngettext"]

ENGLISH, DOMAIN, ASKED = "en", "dtk", "DTK_LANG"
LOCALE = Path(__file__).parent / "locale"


@functools.cache
def languages() -> tuple[str, ...]:
    """English and each language that has a catalogue, such as ("en", "zh")."""
    return (ENGLISH, *sorted(found.parent.parent.name for found in LOCALE.glob(f"*/LC_MESSAGES/{DOMAIN}.mo")))


def language() -> str:
    """The language that is spoken now, one of `languages()`."""
    asked = os.environ.get(ASKED)
    if not asked:
        try:
            return _known(Path.cwd().name) or ENGLISH
        except OSError:
            return ENGLISH  # the folder is gone
    found = _known(asked)
    if found is None:
        warnings.warn(f"{ASKED}={asked}: dtk speaks {', '.join(languages())}; it goes on in English", stacklevel=2)
    return found or ENGLISH


def _known(name: str) -> str | None:
    """zh of zh, zh_CN.UTF-8 and zh-Hans."""
    short = re.split(r"[-_.]", name.lower())[0]
    return short if short in languages() else None


@functools.cache
def _catalogue(name: str) -> gettext.NullTranslations:
    if name == ENGLISH:
        return gettext.NullTranslations()
    return gettext.translation(DOMAIN, str(LOCALE), [name])


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
