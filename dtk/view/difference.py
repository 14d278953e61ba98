"""The proof as a picture: how far the cluster's loss is from the baseline's at each step, beside a bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import MaxNLocator, NullLocator

from dtk.digits import rounded, scientific, three
from dtk.language import N_, _
from dtk.proof.losses import CANCELLING, RTOL, allowed
from dtk.scaling.shares import by_step, global_loss
from dtk.view.canvas import NO_RECORDS, axes, headline, ink, only_text, thinned
from dtk.view.palette import CURVE_COLORS

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from dtk.records.tables import Recorded

__all__ = ["difference", "differences"]

NO_STEP = N_("no step that the run and its baseline have both recorded with a finite loss")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_BELOW = 0.16  # of the axes' height: the band for differences of 0, under the logarithmic part


def difference(
    run: Recorded,
    baseline: Recorded,
    *more: Recorded,
    labels: Sequence[str] | None = None,
    rtol: float = RTOL,
    ax: Axes | None = None,
) -> Axes:
    """The distance between the cluster's loss and the baseline's at each step, and a bound for it, as a line.

    The axis of the distance is logarithmic. A distance of 0 has no logarithm: it stands in a band of its own at the
    bottom. A step where one of the two losses is no finite number has no point, and the headline says so.

    Args:
        run: from `dtk.run`, or the error of a run that failed.
        baseline: from `dtk.baseline`.
        more: further runs, each followed by its own baseline: `difference(tanh, tanh_alone, relu, relu_alone)`.
        labels: one for each run; None: numbers.
        rtol: the bound, as a part of the loss. In correct runs rounding may grow beyond it, so that
            `dtk.verify` proves each step instead.
        ax: axes to draw on; None: a new figure.

    Raises:
        ValueError: a run without its baseline, or as many labels as runs are needed.
    """
    runs, alone = (run, *more[::2]), (baseline, *more[1::2])
    if len(runs) != len(alone):
        words = _(
            "{runs} runs and {baselines} baselines; give each run, then its baseline",
            runs=len(runs),
            baselines=len(alone),
        )
        raise ValueError(words)
    if labels is not None and len(labels) != len(runs):
        raise ValueError(_("{labels} labels for {runs} runs; give one a run", labels=len(labels), runs=len(runs)))
    names = [_("run {number}", number=k + 1) for k in range(len(runs))] if labels is None else list(labels)
    (ax,) = axes(ax)
    if any(each.records.empty for each in (*runs, *alone)):
        return only_text(ax, NO_RECORDS)
    tables = [differences(*pair, rtol) for pair in zip(runs, alone, strict=True)]
    if not any(table.difference.notna().any() for table in tables):
        return only_text(ax, NO_STEP)
    lowest, highest = _span(tables)
    zeros = any((table.difference == 0).any() for table in tables)
    zero = lowest * (lowest / highest) ** (_BELOW / (1 - _BELOW) / 2) if zeros else lowest  # the middle of the band
    for k, (table, name) in enumerate(zip(tables, names, strict=True)):
        several = len(tables) > 1
        _draw(ax, table, zero, name if several or labels else "", k if several else None)
    _dress(ax, tables, (zero * zero / lowest, highest), lowest)
    headline(ax, *_words(tables, names if len(tables) > 1 or labels else [""], rtol))
    return ax


def _span(tables: Sequence[pandas.DataFrame]) -> tuple[float, float]:
    """Whole powers of ten around all that is drawn but the zeros."""
    values = np.concatenate([table.to_numpy().ravel() for table in tables])
    values = values[np.isfinite(values) & (values > 0)]
    if all((table.difference.dropna() == 0).all() for table in tables):
        values = np.append(values, values.min() / 1e3)  # nothing but tolerances: they are far above 0
    return 10.0 ** np.floor(np.log10(values.min() / 1.2)), 10.0 ** np.ceil(np.log10(values.max() * 1.5))


def _draw(ax: Axes, table: pandas.DataFrame, zero: float, name: str, number: int | None) -> None:
    """Points, and the tolerance as a line. number: among several runs, which then have a colour for both."""
    color = CURVE_COLORS[(number or 0) % len(CURVE_COLORS)]
    kept = table.iloc[thinned(table.difference.to_numpy())]
    places = kept.difference.where(kept.difference != 0, zero)
    size = 5.0 if len(kept) <= 100 else 2.5
    points: dict[str, Any] = {"marker": _MARKERS[(number or 0) % len(_MARKERS)], "ms": size, "mew": 0}
    ax.plot(kept.index, kept.difference.where(kept.difference > 0), color=color, lw=1.0, alpha=0.45)
    ax.plot(kept.index, places, color=color, ls="", label=name or _("difference at a step"), gid="points", **points)
    line: dict[str, Any] = {"ls": (0, (4, 2)), "lw": 1.8, "color": ink(ax) if number is None else color}
    said = _("bound") if number is None else _("bound, {name}", name=name)
    ax.plot(kept.index, kept.allowed, label=said, gid="tolerance", **line)


def _dress(ax: Axes, tables: Sequence[pandas.DataFrame], ylim: tuple[float, float], lowest: float) -> None:
    steps = [step for table in tables for step in (table.index.min(), table.index.max())]
    ax.set(yscale="log", ylim=ylim, xlim=(min(steps) - 0.5, max(steps) + 0.5), xlabel=_("step"))
    ax.set_ylabel(_("|cluster − baseline|"))  # noqa: RUF001
    ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    powers = np.arange(round(np.log10(lowest)), round(np.log10(ylim[1])) + 1)
    powers = powers[:: max(1, -(-len(powers) // 7))]
    at, words = list(10.0**powers), [f"$10^{{{power}}}$" for power in powers]
    if ylim[0] < lowest:
        ax.axhspan(ylim[0], lowest, color=ink(ax), alpha=0.1, lw=0)
        at, words = [(ylim[0] * lowest) ** 0.5, *at], [_("equal"), *words]
    ax.set_yticks(at, words)
    ax.yaxis.set_minor_locator(NullLocator())
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": 2, "frameon": False, "fontsize": 9}
    ax.figure.legend(*ax.get_legend_handles_labels(), **place)


def _words(tables: Sequence[pandas.DataFrame], names: Sequence[str], rtol: float) -> tuple[str, str]:
    said = [_verdict(table) for table in tables]
    if len(tables) == 1:
        lower = f"{said[0][0].lower()}{said[0][1:]}"
        title = said[0] if not names[0] else _("{name}: {words}", name=names[0], words=lower)
    else:
        parts = [_part(table) for table in tables]
        how = parts if all(parts) else [_short(table) for table in tables]
        listed = _("; ").join(_("{name} {words}", name=name, words=each) for name, each in zip(names, how, strict=True))
        whole = N_("Largest difference: {words} of the bound") if all(parts) else N_("Largest difference: {words}")
        title = _(whole, words=listed)
    # Without the word for what is compared: notebooks' comparison replaces no line that has it.
    caption = _(
        "Each point is a step. Dashed: a bound of {rtol} of the loss (and {atol}, for float32).",
        rtol=scientific(rtol),
        atol=rounded(CANCELLING),
    )
    return title, caption


def _verdict(table: pandas.DataFrame) -> str:
    missing = table.index[table.difference.isna()]
    if len(missing):
        return _("The loss is no finite number from step {step} on: nothing can be compared there", step=missing[0])
    over = table.index[table.difference > table.allowed]
    if len(over):
        return _(
            "Step {step} is the first above the bound; the largest difference is {words}",
            step=over[0],
            words=_short(table),
        )
    if (table.difference == 0).all():
        return _("The two losses are equal at every step, to the last bit")
    return _("The largest difference is {words}", words=_short(table))


def _short(table: pandas.DataFrame) -> str:
    """The largest difference, measured by what is allowed at its step.

    >>> import pandas
    >>> [_short(pandas.DataFrame({"difference": [each, 0.0], "allowed": 1.0})) for each in (0.0, 0.0049, 0.41, 1.0, 35)]
    ['0 at every step', '1/200 of the bound', '41 % of the bound', '100 % of the bound', \
'35 times the bound']
    """
    if table.difference.isna().any():
        return _("not known (a loss is no finite number)")
    if part := _part(table):
        return _("{part} of the bound", part=part)
    ratio = _ratio(table)
    return _("{number} times the bound", number=three(ratio)) if ratio else _("0 at every step")


def _part(table: pandas.DataFrame) -> str:
    """ "41 %", "1/200"; "" for none and for more than all."""
    ratio = _ratio(table)
    if table.difference.isna().any() or not 0 < ratio <= 1:
        return ""
    if ratio >= 0.2:
        return f"{100 * ratio:.0f} %"
    return f"1/{float(f'{1 / ratio:.1g}' if ratio < 0.1 else f'{1 / ratio:.0f}'):,.0f}"


def _ratio(table: pandas.DataFrame) -> float:
    return float((table.difference / table.allowed).max())


def differences(run: Recorded, baseline: Recorded, rtol: float = RTOL) -> pandas.DataFrame:
    """The distance of two losses, by step, of the steps that all replicas of both have recorded.

    Args:
        run: from `dtk.run`, or the error of a run that failed.
        baseline: from `dtk.baseline`.
        rtol: the bound, as a part of the loss.

    Returns:
        Index step. Columns: difference (of the global losses, without its sign; NaN where one is no finite number) and
        allowed (the bound there). Empty where one of the two has no records.
    """
    import pandas as pd

    if run.records.empty or baseline.records.empty:
        return pd.DataFrame(columns=["difference", "allowed"], dtype=float)
    mine, other = _losses(run), _losses(baseline)
    both = mine.index.intersection(other.index)
    ours, theirs = mine[both].to_numpy(), other[both].to_numpy()
    with np.errstate(invalid="ignore"):  # infinite minus infinite
        apart = np.abs(ours - theirs)
    apart = np.where(np.isfinite(ours) & np.isfinite(theirs), apart, np.nan)
    return pd.DataFrame({"difference": apart, "allowed": allowed(theirs, rtol)}, index=both)


def _losses(run: Recorded) -> pandas.Series:
    """The global loss of each step that all replicas have recorded."""
    import pandas as pd

    shares, examples = by_step(run.records, "loss"), by_step(run.records, "examples")
    whole = examples.notna().all(axis=1)
    values = global_loss(shares[whole].to_numpy(), examples[whole].to_numpy())
    return pd.Series(values, index=shares.index[whole])
