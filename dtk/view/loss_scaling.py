"""The figure of each replica's share of the loss by step, with the baseline's loss laid over their sum; and its lab.

The lab has what each divisor makes of a step's loss and gradient, with numbers for a learner to set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas
from matplotlib.axes import Axes

from dtk.environment import live_mode
from dtk.language import N_, _, ngettext
from dtk.proof.proof import kept
from dtk.records.tables import Recorded
from dtk.scaling import shares as scaling
from dtk.scaling.timing import spans
from dtk.view import canvas
from dtk.view.controls import Lab, choice, number
from dtk.view.palette import replica_name, worker_color

_MOST = 150  # steps that are drawn one by one: of more, the blocks would be too narrow to see
_VISIBLE = 1e-3  # relative difference of two losses from which the caption says that the curves differ
_ALONG = N_(
    "Each color is one replica's share; the dashed line is one device alone: it runs along the top of the stack."
)
_LEAVES = N_(
    "Each color is one replica's share; the dashed line is one device alone: it leaves the top of the stack at step "
    "{step}."
)

_NAMES = "9em"  # width of the controls' names
DIVISORS = (N_("global batch"), N_("per-replica batch"), N_("number of replicas"))
MOST_REPLICAS, MOST_EXAMPLES = 4, 8
# The lesson's four losses come first; the rest are as plain.
_LOSSES = np.array([2, 3, 4, 5, 1, 4, 6, 2, 3, 3, 5, 1, 2, 4, 4, 6, 5, 2, 1, 3, 4, 2, 6, 5, 3, 1, 2, 4, 5, 6, 3, 2.0])


def loss_scaling(run: Recorded, baseline: Recorded | None = None, ax: Axes | None = None) -> Axes:
    """Draw each replica's share stacked to the global loss by step, and the baseline's loss laid over the stack.

    Draws the steps that all replicas recorded; the axis goes to the last that any recorded. A step whose loss is
    missing, NaN or infinite is left empty and hatched. Of more than 150 steps it draws means over equal numbers of
    steps, and their largest sum. The caption says whether the baseline's line runs along the top of the stack, and
    where it leaves it if not (by a relative difference above 1e-3).

    Args:
        run: from `dtk.run`, or the error of a run that failed.
        baseline: from `dtk.baseline`; None: no line.
        ax: axes to draw on; None: a new figure.

    Raises:
        ValueError: a step is recorded twice.
    """
    if run.records.empty:
        return canvas.only_text(ax, canvas.NO_RECORDS)
    (ax,) = canvas.axes(ax)
    shares, first, last = scaling.whole_steps(run.records), run.records.step.min(), run.records.step.max()
    shares = shares.reindex(np.arange(first, shares.index[-1] + 1 if len(shares) else first))
    total = _finite(shares.sum(axis=1, skipna=False))
    bins = canvas.Bins(first, -(-(last - first + 1) // _MOST))
    drawn, count = bins.of(total), shares.shape[1]
    places = bins.edges(drawn)
    _stack(ax, bins.of(shares.where(total.notna())), places)
    # Steps without a finite loss: an empty place alone could be read as a loss of 0.
    style: dict[str, Any] = {"fill": False, "hatch": "////", "edgecolor": canvas.ink(ax), "alpha": 0.6, "lw": 0}
    for one, other in spans(np.flatnonzero(drawn.isna()).tolist()):
        ax.axvspan(places[one], places[other + 1], label=_("no finite loss"), **style)
    title = ngettext("The loss of one replica", "The shares of {n} replicas add up to the global loss", count)
    caption = _("Each color is one replica's share of the loss.")
    if baseline is not None and not baseline.records.empty:
        title, caption = _overlay(ax, total, run, baseline, bins)
    if bins.steps > 1:
        high, ink = bins.of(total, "max"), canvas.ink(ax)
        ax.stairs(high, places, baseline=drawn.to_numpy(), fill=True, lw=0, color=ink, alpha=0.3)
        words = N_("Each block is the mean of {n} steps; the shade goes up to their largest sum.")
        caption = " ".join([caption, _(words, n=bins.steps)])
    canvas.by_step(ax, first, last)
    ax.set_ylabel(_("loss"))
    canvas.legend_below(ax, ncols=4)
    canvas.headline(ax, title, caption)
    return ax


def _finite(losses: pandas.Series) -> pandas.Series:
    return losses.where(np.isfinite(losses))


def _stack(ax: Axes, shares: pandas.DataFrame, places: np.ndarray) -> None:
    """One block a bin and replica, the first replica at the bottom. `shares`: `(bins, replicas)`."""
    bottom = np.zeros(len(shares))
    for replica in shares.columns if len(shares) else ():
        top, color, name = bottom + shares[replica].to_numpy(), worker_color(replica), replica_name(replica)
        ax.stairs(top, places, baseline=bottom, fill=True, lw=0, color=color, label=name)
        bottom = top
    for left, right, loss, own in zip(places, places[1:], bottom, shares.to_numpy(), strict=False):
        parts = [f"{replica_name(replica)} {share:.4g}" for replica, share in zip(shares, own, strict=True)]
        words = [canvas.steps(round(left + 0.5), round(right - 0.5)), f"{_('loss')} {loss:.6g}", *reversed(parts)]
        canvas.block(ax, loss / 2, left, right, "\n".join(words), loss, visible=False)


def _overlay(ax: Axes, total: pandas.Series, run: Recorded, baseline: Recorded, bins: canvas.Bins) -> tuple[str, str]:
    """Draw the baseline's loss and return the title and the caption that are true of the two curves."""
    alone = _finite(scaling.whole_steps(baseline.records).sum(axis=1, skipna=False))
    drawn, count = bins.of(alone), run.records.replica.nunique()
    marker, name = "." if len(alone) < 3 else "", _("one device alone")
    style: dict[str, Any] = {"drawstyle": "steps-mid", "ls": (0, (4, 2)), "lw": 1.6, "color": canvas.ink(ax)}
    ax.plot(drawn.index, drawn, marker=marker, label=name, **style)
    both = total.index.intersection(alone.index)
    apart = (total[both] - alone[both]).abs() > _VISIBLE * alone[both].abs()
    if not apart.any():
        title = ngettext(
            "One replica's loss is the loss of one device",
            "{n} replicas' shares add up to the loss of one device",
            count,
        )
        return title, _(_ALONG)
    title = ngettext(
        "One replica's loss is not the loss of one device",
        "{n} replicas' shares do not add up to the loss of one device",
        count,
    )
    found = None if run.folder is None else kept(run.folder.path)
    if found is not None and found.verdict == "one device":
        title = _("Each step is one device's; from step to step, rounding drives two runs apart")
    return title, _(_LEAVES, step=both[apart.to_numpy()][0])


# ---- the lab


class Numbers(NamedTuple):
    """What a divisor makes of one step.

    shares: each replica's share of the loss, `(replicas,)`; loss: their sum; alone: one device's loss over the same
    examples. slopes, slope, slope_alone: the same of the gradient. divisor: the number that every replica divides by.
    ratio: how many times too large the loss is, and with it the gradient and the step.
    """

    shares: tuple[float, ...]
    loss: float
    alone: float
    slopes: tuple[float, ...]
    slope: float
    slope_alone: float
    divisor: int
    ratio: float


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
    gradients = -2 * np.sqrt(losses)
    shares, slopes = (tuple((table.sum(axis=1) / by).tolist()) for table in (losses, gradients))
    loss, alone = sum(shares), float(losses.mean())
    return Numbers(shares, loss, alone, slopes, sum(slopes), float(gradients.mean()), by, loss / alone)


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
    if live_mode() != "widgets":
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
    verdict = _("The loss and the gradient are one device's.")
    if not np.isclose(now.ratio, 1):
        verdict = _("The loss, the gradient and so the step are {ratio:.3g} times too large.", ratio=now.ratio)
    words = N_("{sum}, one device: {alone:.3g}. {verdict}")
    words = _(words, sum=f"<b>{_sum(now)}</b>", alone=now.alone, verdict=verdict)
    return words, _draw(replicas, examples, (divisor,), shown=False)


def _sum(now: Numbers) -> str:
    """ "1.25 + 2.25 = 3.5"."""
    return f"{' + '.join(f'{share:.3g}' for share in now.shares)} = {now.loss:.3g}"


def _draw(replicas: int, examples: int, divisors: Sequence[str], shown: bool = True) -> Axes:
    """Two bars per divisor, the loss and the gradient, a block per replica's share, both in units of one device's."""
    (ax,) = canvas.axes(None, size=(7.0, 1.9 + 0.8 * len(divisors)), shown=shown)
    rows = [numbers(replicas, examples, divisor) for divisor in divisors]
    for row, now in enumerate(rows):
        for line, values, unit, words in (
            (row - 0.2, now.shares, now.alone, _("loss {number}", number=_sum(now))),
            (row + 0.2, now.slopes, now.slope_alone, _("gradient {number}", number=f"{now.slope:.3g}")),
        ):
            blocks = [(value / unit, worker_color(k), replica_name(k)) for k, value in enumerate(values)]
            canvas.note(ax, f" {words}", (canvas.row_of_blocks(ax, line, blocks, 0.34), line), (3, 0), fontsize=8.5)
    ax.axvline(1, color=canvas.ink(ax), lw=1.4, ls=(0, (4, 2)))
    canvas.name_rows(ax, [f"{_(divisor)}\n({now.divisor})" for divisor, now in zip(divisors, rows, strict=True)])
    ax.set(xlim=(0, max(2.0, 1.85 * max(now.ratio for now in rows))), xlabel=_("times one device's loss or gradient"))
    canvas.legend_below(ax, ncols=replicas, loc="outside lower right", fontsize=8.5)
    first = rows[0]
    each = ngettext("{n} example", "{n} examples", examples)
    each = ngettext("{n} replica with {each} each.", "{n} replicas with {each} each.", replicas, each=each)
    words = N_("The dashed line is one device: loss {loss:.3g}, gradient {gradient:.3g}.")
    caption = f"{each} {_(words, loss=first.alone, gradient=first.slope_alone)}"
    title = N_("Divided by the {divisor}: {ratio:.3g} times one device's loss")
    if len(rows) > 1:
        title = N_("The divisor that gives one device's loss: {divisors}")
    right = [_(divisor) for divisor, now in zip(divisors, rows, strict=True) if np.isclose(now.ratio, 1)]
    facts = {"divisor": _(divisors[0]), "ratio": first.ratio, "divisors": _(" or ").join(right)}
    canvas.headline(ax, _(title, **facts), caption)
    return ax
