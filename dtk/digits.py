"""Numbers for readers: three digits, no powers of ten."""

from __future__ import annotations

from decimal import Decimal

from dtk.language import ENGLISH, N_, _, language, ngettext

__all__ = ["bytes_of", "three"]

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
