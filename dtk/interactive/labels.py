"""Whose output it is: "[worker 0-1]", in the workers' colours where these show."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import lru_cache

from dtk import environment
from dtk.language import _
from dtk.live.fold import label
from dtk.view.palette import worker_color

__all__ = ["colored", "named"]


def named(members: Sequence[int]) -> str:
    """The label of what these workers have in common.

    >>> named([0, 1])
    '[worker 0-1]'
    """
    return _("[worker {workers}]", workers=label(list(members)))


def colored(members: Sequence[int]) -> str:
    """The same as it is printed: on the workers' colours, side by side, in a notebook's page and in a terminal.

    Plain elsewhere (a file, CI, `%%capture`), and where DTK_LIVE is text or off, or NO_COLOR is set.
    """
    return _striped(tuple(members)) if _shows_colors() else named(members)


def _shows_colors() -> bool:
    plain = environment.live_mode() == "off" or os.environ.get("DTK_LIVE", "").lower() == "text"
    if plain or os.environ.get("NO_COLOR"):
        return False
    of_kernel = type(sys.stdout).__module__.partition(".")[0] == "ipykernel"
    return of_kernel or (sys.stdout is not None and sys.stdout.isatty())


@lru_cache(maxsize=256)
def _striped(members: tuple[int, ...]) -> str:
    """A stripe for each worker, with ECMA-48 sequences. The colour is the ground: legible on a light and a dark page.

    >>> _striped((1,))
    '\\x1b[48;2;230;159;0;38;2;0;0;0m[worker 1]\\x1b[0m'
    """
    text, count = named(members), len(members)
    ends = [len(text) * (k + 1) // count for k in range(count)]
    parts = zip(members, [0, *ends], ends, strict=False)
    return (
        "".join(f"\x1b[{_style(member)}m{text[begin:end]}" for member, begin, end in parts if end > begin) + "\x1b[0m"
    )


def _style(worker: int) -> str:
    """Its colour as the ground, and black or white on it, whichever differs more."""
    color = worker_color(worker)
    red, green, blue = (int(color[k : k + 2], 16) for k in (1, 3, 5))
    on = "0;0;0" if _luminance(red, green, blue) > 0.18 else "255;255;255"
    return f"48;2;{red};{green};{blue};38;2;{on}"


def _luminance(*parts: int) -> float:
    """Relative luminance, 0 to 1 (WCAG 2.2): above 0.18 black is the better one to read."""
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in (each / 255 for each in parts)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
