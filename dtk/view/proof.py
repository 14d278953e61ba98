"""Proofs as pictures: how far each loss is from the baseline's, and each update from the follower's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas
from IPython.core.pylabtools import print_figure
from matplotlib.axes import Axes

from dtk.language import N_, _, rounded, three
from dtk.proof.evidence import CANCELING, RTOL, allowed
from dtk.proof.proof import Proof, kept
from dtk.records.tables import Recorded
from dtk.scaling.shares import whole_steps
from dtk.view import canvas
from dtk.view.palette import CURVE_COLORS

NO_STEP = N_("no step that the run and its baseline have both recorded with a finite loss")
_LARGEST = N_("The largest difference is {words}")
_MARKERS = ("o", "s", "^", "D", "v", "P")


def difference(
    run: Recorded,
    baseline: Recorded | None = None,
    *more: Recorded,
    labels: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the distance of the cluster's loss from the baseline's at each step, and a bound for it, as a line.

    Without a baseline, draw what `dtk.verify` found of the run, as `dtk.plot.proof` does.

    In correct runs rounding may grow beyond the bound, so that `dtk.verify` proves each step instead. The axis is
    logarithmic, and linear from the smallest distance down to 0. A step whose loss is not finite has no point.

    Args:
        run: from `dtk.run`, or the error of a run that failed.
        baseline: from `dtk.baseline`; None: the run has been verified.
        more: further runs, each followed by its own baseline: `difference(tanh, tanh_alone, relu, relu_alone)`.
        labels: one for each run; None: numbers.
        ax: axes to draw on; None: a new figure.

    Raises:
        ValueError: a run without its baseline, or as many labels as runs are needed.
    """
    if baseline is None and not more:
        found = None if run.folder is None else kept(run.folder.path)
        if found is None:
            raise ValueError(_("a run that has not been verified needs its baseline: difference(run, baseline)"))
        return proof(found, ax)
    runs, alone = (run, *more[::2]), (*filter(None, [baseline]), *more[1::2])
    if len(runs) != len(alone):
        words = N_("{runs} runs and {baselines} baselines; give each run, then its baseline")
        raise ValueError(_(words, runs=len(runs), baselines=len(alone)))
    names = canvas.names_of(labels, len(runs))
    if any(each.records.empty for each in (*runs, *alone)):
        return canvas.only_text(ax, canvas.NO_RECORDS)
    tables = [differences(*pair) for pair in zip(runs, alone, strict=True)]
    if not any(table.difference.notna().any() for table in tables):
        return canvas.only_text(ax, NO_STEP)
    (ax,) = canvas.axes(ax)
    several = len(tables) > 1
    names = names if several or labels else [""]
    for k, (table, name) in enumerate(zip(tables, names, strict=True)):
        _draw(ax, table, name, k if several else None)
    canvas.by_step(ax, min(table.index.min() for table in tables), max(table.index.max() for table in tables))
    _logarithmic(ax, np.concatenate([table.to_numpy().ravel() for table in tables]))
    ax.set_ylabel(_("|cluster − baseline|"))  # noqa: RUF001
    canvas.legend_below(ax, ncols=2)
    canvas.headline(ax, *_words(tables, names))
    return ax


def _logarithmic(ax: Axes, values: np.ndarray) -> None:
    """Set a logarithmic axis for these values, linear from the smallest above 0 down to 0, which has its own tick."""
    powers = np.log10(values[np.isfinite(values) & (values > 0)])
    lowest, highest = (10 ** np.floor(powers.min()), 10 ** np.ceil(powers.max() + 0.1)) if len(powers) else (1e-9, 1)
    ax.set_yscale("symlog", linthresh=lowest, linscale=0.5)
    ax.set_ylim(-0.3 * lowest if (values == 0).any() else lowest, highest)


def _draw(ax: Axes, table: pandas.DataFrame, name: str, number: int | None) -> None:
    """Points, and the bound as a line. number: among several runs, which then have a color for both."""
    color, marker = (kinds[(number or 0) % len(kinds)] for kinds in (CURVE_COLORS, _MARKERS))
    bins = canvas.Bins(table.index[0], -(-len(table) // 2000))  # of more steps, a point is the largest of several
    kept, allowed = bins.of(table.difference, "max"), bins.of(table.allowed, "min")
    points: dict[str, Any] = {"marker": marker, "ms": 5.0 if len(kept) <= 100 else 2.5, "mew": 0, "lw": 0.5}
    ax.plot(kept.index, kept, color=color, label=name or _("difference at a step"), gid="points", **points)
    line: dict[str, Any] = {"ls": (0, (4, 2)), "lw": 1.8, "color": canvas.ink(ax) if number is None else color}
    said = _("bound") if number is None else _("{name}: {words}", name=name, words=_("bound"))
    ax.plot(kept.index, allowed, label=said, gid="tolerance", **line)


def _words(tables: Sequence[pandas.DataFrame], names: Sequence[str]) -> tuple[str, str]:
    if len(tables) > 1:
        pairs = zip(names, map(_largest, tables), strict=True)
        title = _(_LARGEST, words=_("; ").join(f"{name} {largest}" for name, largest in pairs))
    else:
        title = _verdict(tables[0])
        title = _("{name}: {words}", name=names[0], words=f"{title[0].lower()}{title[1:]}") if names[0] else title
    # Without the word for what is compared: notebooks' comparison replaces no line that has it.
    caption = N_("Each point is a step. Dashed: a bound of {rtol} of the loss (and {atol}, for float32).")
    return title, _(caption, rtol=rounded(RTOL), atol=rounded(CANCELING))


def _verdict(table: pandas.DataFrame) -> str:
    missing = table.index[table.difference.isna()]
    if len(missing):
        return _("The loss is no finite number from step {step} on: nothing can be compared there", step=missing[0])
    over = table.index[table.difference > table.allowed]
    if len(over):
        words = N_("Step {step} is the first above the bound; the largest difference is {words}")
        return _(words, step=over[0], words=_largest(table))
    return _(_LARGEST, words=_largest(table))


def _largest(table: pandas.DataFrame) -> str:
    """The largest difference, measured by what is allowed at its step.

    >>> import pandas
    >>> tables = [pandas.DataFrame({"difference": [each, 0.0], "allowed": 1.0}) for each in (0.0, 0.0049, 0.41, 35)]
    >>> [_largest(table) for table in tables]
    ['0 at every step', '1/200 of the bound', '41 % of the bound', '35 times the bound']
    """
    if table.difference.isna().any():
        return _("not known (a loss is no finite number)")
    ratio = float((table.difference / table.allowed).max())
    if ratio == 0:
        return _("0 at every step")
    if ratio > 1:
        return _("{number} times the bound", number=three(ratio))
    part = f"{100 * ratio:.0f} %" if ratio >= 0.2 else f"1/{float(f'{1 / ratio:.{1 if ratio < 0.1 else 2}g}'):,.0f}"
    return _("{part} of the bound", part=part)


def differences(run: Recorded, baseline: Recorded) -> pandas.DataFrame:
    """Return the distance of two losses by step, for the steps that all replicas of both have recorded.

    Index step. Columns: difference (of the global losses, without its sign; NaN where one is no finite number) and
    allowed (the bound there).
    """
    mine, other = (whole_steps(each.records).sum(axis=1, skipna=False) for each in (run, baseline))
    both = mine.index.intersection(other.index)
    apart = (mine[both] - other[both]).abs()
    bound = allowed(other[both].to_numpy(), RTOL)
    return pandas.DataFrame({"difference": apart.where(np.isfinite(apart)), "allowed": bound}, index=both)


def proof(found: Proof, ax: Axes | None = None) -> Axes:
    """Draw, for each follower, the difference of the updates at each step, and how much of it rounding may be.

    A line marks the first step that differs.

    Args:
        found: what `dtk.verify` returned, or `VerificationError.proof`.
        ax: axes to draw on; None: a new figure.
    """
    table = found.table
    if not len(table):
        return canvas.only_text(ax, N_("No step was followed"))
    (ax,) = canvas.axes(ax)
    for k, (replicas, rows) in enumerate(table.groupby("replicas", sort=False)):
        name = _("one device") if replicas == 1 else _("{n} replicas in one process", n=replicas)
        ax.plot(rows.step, rows.apart, _MARKERS[k], ms=3.5, mew=0, color=CURVE_COLORS[k], label=name)
        ax.plot(rows.step, rows.rounding, "--", lw=1.2, color=canvas.ink(ax), label=_("rounding level"))
    canvas.by_step(ax, 1, max(found.steps, table.step.max()), N_("step") if found.steps else N_("call that trains"))
    _logarithmic(ax, table[["apart", "rounding"]].to_numpy(float).ravel())
    ax.set_ylabel(_("difference of the updates"))
    differs = table[table.differs].step
    where = _(N_("step {step}") if found.steps else N_("call {step}"), step=differs.min())
    if found.verdict == "failed" and len(differs):
        ax.axvline(differs.min(), color=canvas.ink(ax), lw=0.8, ls=":", label=where)
    canvas.legend_below(ax)
    last = table[table.replicas == table.replicas.iloc[-1]]
    by = found.followers[last.replicas.iloc[0]]
    words = N_("The updates of all steps that were followed agree, or are undecided")
    if not by.whole and found.verdict in ("one device", "replicas"):
        words = N_("Each update that was followed agrees ({n} of {steps}): they differ by at most {most}")
    elif found.verdict == "one device":
        words = N_("Every update is one device's: they differ by at most {most}")
    elif found.verdict == "replicas":
        words = N_("Every update is that of as many replicas in one process: they differ by at most {most}")
    elif len(differs):
        words = N_("The update of {step} is not the one that the follower made")
    numbers = {"n": len(by.followed), "steps": found.steps or by.made or "?", "step": where}
    title = _(words, most=rounded(float(last.apart.max())), **numbers)
    canvas.headline(ax, title, _("Both updates start from the state that the run recorded before the step."))
    return ax


def pictures(found: Proof) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the figure as a PNG and, where someone looks, as HTML, for the end of a cell, and its words."""
    drawn: Any = proof(found).get_figure(root=True)
    plt.close(drawn)  # or the cell would show it once more
    page = drawn._repr_html_()
    words = {"image/png": {"alt": drawn.get_label()}}
    return {"image/png": print_figure(drawn, bbox_inches=None), **({"text/html": page} if page else {})}, words
