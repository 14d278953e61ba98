"""Numbers and lists for readers: three digits without powers of ten; in verdicts, one or two that stay the same."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from dtk.language import ENGLISH, N_, _, language, ngettext

__all__ = ["bytes_of", "first_three", "relative", "rounded", "scientific", "three"]

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


def scientific(value: float) -> str:
    """A tolerance as people write it.

    >>> scientific(0.0001), scientific(0.001), scientific(2.5e-06), scientific(0), scientific(2.0)
    ('1e-4', '1e-3', '2.5e-6', '0', '2')
    """
    if value == 0 or 1 <= abs(value) < 1e5:
        return f"{value:g}"
    return f"{Decimal(repr(float(value))).normalize():e}".replace("e+", "e")


def rounded(value: float) -> str:
    """A measured difference, to one significant digit: enough to act on, and stable in a stored output.

    >>> rounded(0.000212), rounded(0.31), rounded(float("inf"))
    ('2e-4', '3e-1', 'inf')
    """
    return scientific(float(f"{value:.0e}")) if abs(value) < float("inf") else f"{value:g}"


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
