"""Numbers and lists in verdicts and errors: short, and the same on every machine; and how large rounding is."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import numpy as np

from dtk.language import _

__all__ = [
    "AT_STEP_1",
    "CANCELLING",
    "FLOAT32",
    "OFFSET",
    "SMALL",
    "first_three",
    "percent",
    "relative",
    "rounded",
    "scientific",
]


def first_three(words: Sequence[str]) -> str:
    """A list's first three words, and a sign that there are more.

    >>> first_three(["a", "b"]), first_three(["a", "b", "c", "d"])
    ('a, b', 'a, b, c, …')
    """
    return _(", ").join([*words[:3], *["…"] * (len(words) > 3)])


def percent(part: float) -> str:
    """A part of a whole, to one significant digit.

    >>> percent(0.00185), percent(0.39), percent(0.0), percent(1e-7), percent(2.0)
    ('0.2 %', '40 %', '0 %', '0.00001 %', '200 %')
    """
    return f"{Decimal(f'{100 * part:.0e}'):f} %"


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


# How large rounding is, as it was measured. Two replicas add up the same float32 numbers as one device does, in another
# order. That moved the loss of step 1 by 1e-8 to 1e-6 of its size; a kink such as relu's enlarged it a hundredfold in
# one step (docs/explanation/facts.md).

# A loss near 0 is a difference of numbers near 1 (log-softmax), which float32 holds only to this much.
FLOAT32 = float(np.finfo(np.float32).eps)
# A mean of numbers near 1 that cancel, as a policy gradient's at the first step: the sum's rounding is some such units.
CANCELLING = 4 * FLOAT32
# Of the loss of step 1: up to this it is rounding's size, twice the largest that was seen.
AT_STEP_1 = 2e-6
# Of the loss of step 1: from this on it has another reason, twenty times the largest that was seen.
OFFSET = 2e-5
# A later difference: below this it may be rounding that was enlarged, which was seen up to half of it at once.
SMALL = 0.01
