"""What each worker did in the last seconds: a strip a worker as SVG, and the same in words.

In each of a strip's short spans of time the parts stand one upon the other, in the order of `SHOWN`, each as high as
its share of that time, in its colour of `dtk.plot.step_time`. What is not known stays empty. Strips of many workers are
too low for that: there each span has the colour of its biggest part.
"""

from __future__ import annotations

import html
import itertools
from collections.abc import Sequence

import numpy as np

from dtk.language import N_, _
from dtk.live.lately import BINS, Window
from dtk.scaling.parts import PARTS
from dtk.view.palette import PART_COLORS, worker_color

__all__ = ["SHOWN", "in_words", "strips"]

# In the order in which they are stacked, from the bottom up.
SHOWN = {
    "compute": N_("computing"),
    "all_reduce": N_("all-reduce"),
    "waiting": N_("waiting"),
    "input": N_("input"),
    "python": "Python",
}
_UNKNOWN = N_("not known")
_WIDTH, _LEFT, _RIGHT, _TOP = 300, 8, 8, 22
_HEADS = {  # by whether there are several workers, and whether the strips are low
    (False, False): N_("the last {seconds:.0f} s"),
    (True, False): N_("the last {seconds:.0f} s of each worker"),
    (False, True): N_("the last {seconds:.0f} s: the biggest part"),
    (True, True): N_("the last {seconds:.0f} s of each worker: the biggest part"),
}
_LOW = 8  # px: a row in which parts one upon the other can't be told apart
_STRIP = 72  # where the strips begin
_EACH_IN_WORDS = 4  # workers that are spoken of one by one; of more, the least and the most
_ALIKE = 5  # %: shares that differ by less are said as one


def strips(window: Window, names: Sequence[str]) -> str:
    """A strip for each worker, by name, with its colour, and a legend that says the means of all."""
    pitch, named = _sizes(len(names))
    low = pitch < _LOW
    gap, shares = (1, _biggest(window.shares)) if low else (2, window.shares)
    y, parts = _TOP, window.parts
    rows = []
    for worker, name in enumerate(names):
        said = _("{name}: {words}", name=name, words=_words(parts[worker]))
        text = f'<text x="{_LEFT + 12}" y="{y + pitch / 2 + 3:g}" font-size="10">{html.escape(name)}</text>'
        rows.append(
            f"<g><title>{html.escape(said)}</title>"
            f'<rect x="{_LEFT}" y="{y}" width="7" height="{pitch - gap}" fill="{worker_color(worker)}"/>'
            f"{text if worker % named == 0 else ''}{_strip(shares[worker], y, pitch - gap)}</g>"
        )
        y += pitch
    small = 'font-size="10" opacity="0.7"'
    said = html.escape(in_words(window, names))
    height = y + 12 + 2 * 15 + 2
    first, last = (N_("-{seconds:.0f} s"), N_("end")) if window.ended else (N_("{seconds:.0f} s ago"), N_("now"))
    return (
        f'<svg role="img" aria-label="{said}" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}" '
        f'fill="currentColor" font-family="sans-serif"><text x="{_LEFT}" y="14" font-size="12">'
        f"{_(_HEADS[len(names) > 1, low], seconds=window.seconds)}</text>"
        f'{"".join(rows)}<text x="{_STRIP}" y="{y + 9}" {small}>{_(first, seconds=window.seconds)}</text>'
        f'<text x="{_WIDTH - _RIGHT}" y="{y + 9}" {small} text-anchor="end">{_(last)}</text>'
        f"{_legend(parts.mean(axis=0), y + 12)}</svg>"
    )


def _sizes(workers: int) -> tuple[int, int]:
    """The height of a row, and which rows are named: every one, or every eighth where there are too many."""
    return (20, 1) if workers <= 4 else (15, 1) if workers <= 8 else (12, 1) if workers <= 16 else (5, 8)


def _biggest(shares: np.ndarray) -> np.ndarray:
    """1 for the biggest part of each bin and 0 for the others; 0 for all where most is not known."""
    all_of_it = np.concatenate([shares, 1.0 - shares.sum(axis=1, keepdims=True)], axis=1)
    most = all_of_it.argmax(axis=1)[:, None] == np.arange(len(PARTS) + 1)[:, None]
    return most[:, : len(PARTS)].astype(float)


def _strip(shares: np.ndarray, y: int, height: int) -> str:
    """shares: `(len(PARTS), BINS)`. Areas from the top part down, each lying over the lower end of the one before."""
    tops = np.cumsum([100 * shares[PARTS.index(part)] for part in SHOWN], axis=0).round().astype(int).tolist()
    across = (_WIDTH - _RIGHT - _STRIP) / BINS
    paths = []
    for part, top, below in reversed(list(zip(SHOWN, tops, [[0] * BINS, *tops], strict=False))):
        if top != below:
            steps = "".join(f"V{100 - each}h{len(list(same))}" for each, same in itertools.groupby(top))
            paths.append(f'<path d="M0 100{steps}V100Z" fill="{PART_COLORS[part]}"/>')
    return (
        f'<rect x="{_STRIP}" y="{y}" width="{_WIDTH - _RIGHT - _STRIP}" height="{height}" opacity="0.12"/>'
        f'<g transform="translate({_STRIP} {y}) scale({across:g} {height / 100:g})">{"".join(paths)}</g>'
    )


def _legend(means: np.ndarray, y: int) -> str:
    """Each part's colour, name and share of all workers' time."""
    entries = [(name, PART_COLORS[part], means[PARTS.index(part)]) for part, name in SHOWN.items()]
    drawn = []
    for place, (name, color, share) in enumerate([*entries, (_UNKNOWN, "", 1.0 - means.sum())]):
        x, at = _LEFT + 98 * (place % 3), y + 15 * (place // 3)
        ink = f'fill="{color}"' if color else 'fill-opacity="0.12" stroke="currentColor" stroke-opacity="0.5"'
        drawn.append(
            f'<rect x="{x + 0.5}" y="{at + 3.5}" width="8" height="8" {ink}/>'
            f'<text x="{x + 12}" y="{at + 11}" font-size="10">{_(name)} {_percent(share)}</text>'
        )
    return "".join(drawn)


def in_words(window: Window, names: Sequence[str]) -> str:
    """What the strips show: "the last 10 s: worker 0 computing 62 %, all-reduce 38 %; worker 1 ..."."""
    if len(names) <= _EACH_IN_WORDS:
        each = [_("{name} {words}", name=k, words=_words(part)) for k, part in zip(names, window.parts, strict=True)]
        words = _("; ").join(each)
    else:
        words = _(", ").join(_range(*part) for part in _shares(window.parts) if round(100 * max(part[1])))
    return _("the last {seconds:.0f} s: {words}", seconds=window.seconds, words=words)


def _words(parts: np.ndarray) -> str:
    return _(", ").join(f"{_(name)} {_percent(each[0])}" for name, each in _shares(parts[None]) if round(100 * each[0]))


def _shares(parts: np.ndarray) -> list[tuple[str, list[float]]]:
    """parts: `(workers, len(PARTS))`. Each by its name, and what is not known, by worker."""
    named = [(name, parts[:, PARTS.index(part)].tolist()) for part, name in SHOWN.items()]
    return [*named, (_UNKNOWN, np.maximum(0.0, 1.0 - parts.sum(axis=1)).tolist())]


def _range(name: str, shares: list[float]) -> str:
    """The least and the most of the workers, and whose the most is if one stands out; where all are alike, the mean."""
    percents = [round(100 * share) for share in shares]
    least, most = min(percents), max(percents)
    if most - least < _ALIKE:
        return f"{_(name)} {_percent(sum(shares) / len(shares))}"
    top = [worker for worker, percent in enumerate(percents) if percent > most - _ALIKE]
    words = N_("{name} {least} to {most} %")
    if len(top) == 1:
        words = N_("{name} {least} to {most} % (most: worker {worker})")
    return _(words, name=_(name), least=least, most=most, worker=top[0])


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
