"""The loss-scaling lab: what each divisor makes of a step's loss and gradient, with numbers for a learner to set.

Where widgets don't run (CI, a printed page, no ipywidgets) it is a figure of what its controls would show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from dtk.language import N_, _, ngettext
from dtk.scaling import shares as scaling
from dtk.view.canvas import axes, headline, ink, legend_below, name_rows, note, row_of_blocks
from dtk.view.controls import Lab, choice, has_widgets, number
from dtk.view.palette import replica_name, worker_color

__all__ = ["DIVISORS", "Numbers", "loss_scaling_lab", "numbers"]

_NAMES = "9em"  # width of the controls' names
DIVISORS = (N_("global batch"), N_("per-replica batch"), N_("number of replicas"))
MOST_REPLICAS, MOST_EXAMPLES = 4, 8
# The lesson's four losses come first; the rest are as plain.
_LOSSES = np.array([2, 3, 4, 5, 1, 4, 6, 2, 3, 3, 5, 1, 2, 4, 4, 6, 5, 2, 1, 3, 4, 2, 6, 5, 3, 1, 2, 4, 5, 6, 3, 2.0])


@dataclass(frozen=True)
class Numbers:
    """What a divisor makes of one step.

    shares, slopes: `(replicas,)`, each replica's share of the loss and of the gradient. alone, slope_alone: one
    device's loss and gradient over the same examples. divisor: the number that every replica divides by.
    """

    shares: tuple[float, ...]
    slopes: tuple[float, ...]
    alone: float
    slope_alone: float
    divisor: int

    @property
    def loss(self) -> float:
        return sum(self.shares)

    @property
    def slope(self) -> float:
        return sum(self.slopes)

    @property
    def ratio(self) -> float:
        """How many times too large the loss is, and with it the gradient and the step."""
        return self.loss / self.alone


def numbers(replicas: int, examples: int, divisor: str) -> Numbers:
    """Return the step of `replicas` replicas with `examples` examples each, divided by one of DIVISORS.

    The model is one weight w = 0 that predicts w for everything; example i has the loss (y_i - w)², so the gradient
    -2 (y_i - w). The y_i are chosen so that the losses are 2, 3, 4, 5 and so on.

    >>> step = numbers(2, 2, "global batch")
    >>> step.shares, step.loss, step.alone
    ((1.25, 2.25), 3.5, 3.5)
    >>> numbers(2, 2, "per-replica batch").ratio
    2.0
    """
    by = dict(zip(DIVISORS, (replicas * examples, examples, replicas), strict=True))[divisor]
    losses = _LOSSES[: replicas * examples].reshape(replicas, examples)
    slopes = -2 * np.sqrt(losses)
    each = [[scaling.share(row, by) for row in table] for table in (losses, slopes)]
    return Numbers(tuple(each[0]), tuple(each[1]), float(losses.mean()), float(slopes.mean()), by)


def loss_scaling_lab(replicas: int = 2, examples: int = 2) -> Lab | Axes:
    """Set replicas, examples for each, and the divisor; watch shares, global loss and gradient against one device's.

    Args:
        replicas: 1 to 4.
        examples: of each replica, 1 to 8.

    Returns:
        In a notebook the lab, which shows itself; `controls` has its `replicas`, `examples` and `divisor`, widgets
        with a `value`. Elsewhere (`dtk.environment.live_mode` is not "widgets") a figure of all three divisors.

    Raises:
        ValueError: other numbers.
    """
    for name, value, most in (("replicas", replicas, MOST_REPLICAS), ("examples", examples, MOST_EXAMPLES)):
        if value not in range(1, most + 1):
            raise ValueError(_("{name}={value}: the lab has 1 to {most}", name=name, value=value, most=most))
    if not has_widgets():
        return _draw(replicas, examples, DIVISORS)
    controls = {
        "replicas": number(replicas, 1, MOST_REPLICAS, _("replicas"), _NAMES),
        "examples": number(examples, 1, MOST_EXAMPLES, _("examples of each"), _NAMES),
        "divisor": choice([(_(name), name) for name in DIVISORS], DIVISORS[1], _("divide by the"), _NAMES),
    }
    return Lab("loss scaling", controls, _one)


def _one(replicas: int, examples: int, divisor: str) -> tuple[str, Axes]:
    """What the lab shows of a divisor."""
    now = numbers(replicas, examples, divisor)
    words, total = N_("{sum}, one device: {alone:.3g}. {verdict}"), f"<b>{_sum(now)}</b>"
    words = _(words, sum=total, alone=now.alone, verdict=_verdict(now))
    return words, _draw(replicas, examples, (divisor,), shown=False)


def _sum(now: Numbers) -> str:
    """ "1.25 + 2.25 = 3.5"."""
    return f"{' + '.join(f'{share:.3g}' for share in now.shares)} = {now.loss:.3g}"


def _verdict(now: Numbers) -> str:
    if np.isclose(now.ratio, 1):
        return _("The loss and the gradient are one device's.")
    return _("The loss, the gradient and so the step are {ratio:.3g} times too large.", ratio=now.ratio)


def _draw(replicas: int, examples: int, divisors: Sequence[str], shown: bool = True) -> Axes:
    """Two bars per divisor, the loss and the gradient, a block per replica's share, both in units of one device's."""
    (ax,) = axes(None, size=(7.0, 1.9 + 0.8 * len(divisors)), shown=shown)
    rows = [numbers(replicas, examples, divisor) for divisor in divisors]
    for row, now in enumerate(rows):
        for line, values, unit, words in (
            (row - 0.2, now.shares, now.alone, _("loss {number}", number=_sum(now))),
            (row + 0.2, now.slopes, now.slope_alone, _("gradient {number}", number=f"{now.slope:.3g}")),
        ):
            blocks = [(value / unit, worker_color(k), replica_name(k)) for k, value in enumerate(values)]
            note(ax, f" {words}", (row_of_blocks(ax, line, blocks, 0.34), line), (3, 0), fontsize=8.5)
    ax.axvline(1, color=ink(ax), lw=1.4, ls=(0, (4, 2)))
    names = [
        _("{divisor}\n({number})", divisor=_(divisor), number=now.divisor)
        for divisor, now in zip(divisors, rows, strict=True)
    ]
    name_rows(ax, names)
    ax.set(xlim=(0, max(2.0, 1.85 * max(now.ratio for now in rows))), xlabel=_("times one device's loss or gradient"))
    legend_below(ax, ncols=replicas, loc="outside lower right", fontsize=8.5)
    headline(ax, *_headline(rows, divisors, replicas, examples))
    return ax


def _headline(rows: Sequence[Numbers], divisors: Sequence[str], replicas: int, examples: int) -> tuple[str, str]:
    first = rows[0]
    each = ngettext("{n} example", "{n} examples", examples)
    each = ngettext("{n} replica with {each} each.", "{n} replicas with {each} each.", replicas, each=each)
    words = N_("The dashed line is one device: loss {loss:.3g}, gradient {gradient:.3g}.")
    caption = f"{each} {_(words, loss=first.alone, gradient=first.slope_alone)}"
    if len(rows) == 1:
        words = _("one device's loss")
        if not np.isclose(first.ratio, 1):
            words = _("{ratio:.3g} times one device's loss", ratio=first.ratio)
        return _("Divided by the {divisor}: {words}", divisor=_(divisors[0]), words=words), caption
    right = [_(divisor) for divisor, now in zip(divisors, rows, strict=True) if np.isclose(now.ratio, 1)]
    return _("The divisor that gives one device's loss: {divisors}", divisors=_(" or ").join(right)), caption
