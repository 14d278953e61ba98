"""A run, and a scaling study, in a few numbers: how a run ended; a study's efficiency, and where the rest went.

A study has two yardsticks. *Ideal* is n times what one process on one device computes, given the same threads. The
*ceiling* is what n such processes compute at the same time without any communication: no scheme gets more of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas

from dtk.language import N_, _, aligned, ngettext, three
from dtk.scaling.shares import by_step, whole_steps
from dtk.scaling.timing import PARTS, step_parts, step_times, throughput_of
from dtk.watch.waiting import ends

if TYPE_CHECKING:
    from dtk.records.tables import Recorded


def facts(run: Recorded) -> dict[str, Any]:
    """What was trained: steps, epochs, global_batch, first_loss, last_loss, examples_per_second, first_step_seconds.

    examples_per_second is `timing.throughput_of`. A value is None where the records don't have it.
    """
    table = run.records
    steps = by_step(table, "examples")
    if steps.empty:
        names = ("epochs", "global_batch", "first_loss", "last_loss", "examples_per_second", "first_step_seconds")
        return {"steps": 0, **dict.fromkeys(names)}
    losses = whole_steps(table).sum(axis=1, skipna=False)
    first, last = (None, None) if losses.empty else (_finite(losses.iloc[k]) for k in (0, -1))
    return {
        "steps": len(steps),
        "epochs": int(table.epoch.max()),
        "global_batch": int(steps.sum(axis=1).max()),
        "first_loss": first,
        "last_loss": last,
        "examples_per_second": _finite(throughput_of(run)),
        "first_step_seconds": _finite(by_step(table, "ended").iloc[0].max()),
    }


def rows(run: Recorded) -> list[dict[str, Any]]:
    """Of each worker, and of the evaluator: name, steps, examples, ended.

    ended: "finished", "failed", or "stopped" where it was ended because of another, or by whoever waited for it.
    """
    found = []
    for member, how in zip(run.folder.members, ends(run.folder), strict=True):
        own = run.records[run.records.worker == member.worker]
        ended = how if how in (N_("finished"), N_("failed")) else N_("stopped")
        steps, examples = own.step.nunique(), int(own.examples.sum())
        found.append({"name": member.name, "steps": steps, "examples": examples, "ended": ended})
    return found


def how_it_ended(run: Recorded) -> str:
    """How the last start of the cluster ended, in words."""
    attempts = run.folder.attempts
    if not attempts:
        return _("it has not come to its end")
    return attempts[-1].failed or _("finished in {seconds:.1f} s", seconds=attempts[-1].ended)


def lines(run: Recorded) -> list[str]:
    """The facts and the rows as text, a table of fixed width."""
    return [*filter(None, [_in_a_line(run)]), *aligned(_table(run), right=(1, 2))]


def as_html(run: Recorded) -> str:
    """The same for a page, with how the run ended."""
    table = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in _table(run))
    return f"<p>{escape(how_it_ended(run))}<br>{escape(_in_a_line(run))}</p><table>{table}</table>"


def _table(run: Recorded) -> list[tuple[str, ...]]:
    """The names of the columns, then the rows."""
    table = [(row["name"], f"{row['steps']:,}", f"{row['examples']:,}", _(row["ended"])) for row in rows(run)]
    return [("", _("steps"), _("examples"), _("ended")), *table]


def _in_a_line(run: Recorded) -> str:
    said = facts(run)
    if not said["steps"]:
        failed = any(each.failed for each in run.folder.attempts[-1:])
        words = N_("no step to show: a fit's are with --record or --verify, a loop's where it calls dtk.record_step")
        return "" if failed else _(words)
    rate = said["examples_per_second"]
    parts = [
        _(
            "{steps} in {epochs}, global batch {batch:,}, loss {first} to {last}",
            steps=ngettext("{n} step", "{n} steps", said["steps"]),
            epochs=ngettext("{n} epoch", "{n} epochs", said["epochs"]),
            batch=said["global_batch"],
            first=_loss(said["first_loss"]),
            last=_loss(said["last_loss"]),
        ),
        *([] if rate is None else [_("{rate} examples/s", rate=three(rate))]),
        _("first step after {seconds:.1f} s", seconds=said["first_step_seconds"]),
    ]
    return _(", ").join(parts)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _loss(value: float | None) -> str:
    return "nan" if value is None else f"{value:.4g}"


GAPS = (N_("smaller batch"), N_("cores"), N_("communication"), N_("stragglers"), N_("input"), N_("other"))
_APART = 0.2  # of a rate: what its repeats may differ by on a machine that does nothing else
MEASURES = ("examples_per_second", *PARTS)
_RANGES = (f"{kind}{end}" for kind in ("measured", "ceiling", "baseline") for end in ("", "_min", "_max", "_n"))
_COLUMNS = ["scaling", "workers", "global_batch", "per_replica_batch", *_RANGES]
_COLUMNS += ["ideal", "efficiency", "of_ceiling", *GAPS, "gap", "failed"]


def apart(records: pandas.DataFrame) -> float:
    """Examples/s of workers without communication: the sum of each one's median over the steps while all computed.

    That is from when all have ended their first step until one has ended its last. NaN where a worker has no step then.

    >>> from dtk.records.tables import frame
    >>> rows = [(w, w, step, 1, 0.5, 64, (1 + w) * step, (1 + w) * (step + 1)) for step in range(1, 9) for w in (0, 1)]
    >>> apart(frame(rows))  # 64 examples/s of one, 32 of the other
    96.0
    """
    times = step_times(records)
    if times.empty:
        return float("nan")
    by_worker = times.groupby("worker").ended
    begin, end = by_worker.min().max(), by_worker.max().min()
    inside = times[(times.ended - times.period >= begin - 1e-9) & (times.ended <= end + 1e-9) & (times.period > 0)]
    rates = (inside.examples / inside.period).groupby(inside.worker).median()
    return float(rates.reindex(times.worker.unique()).sum(skipna=False))


def measures(run: Recorded, kind: str) -> dict[str, float]:
    """Of a run: examples_per_second of all workers together, and the parts of a step, in s.

    The parts are medians over the steps, then over the workers. kind: "cluster", "baseline" or "ceiling".
    """
    total = apart(run.records) if kind == "ceiling" else throughput_of(run)
    parts = step_parts(run).groupby("worker")[list(PARTS)].median().median()
    return {"examples_per_second": float(total), **{name: float(parts[name]) for name in PARTS}}


def study_summary(points: pandas.DataFrame) -> pandas.DataFrame:
    """One row for each scaling, number of workers and global batch; points are those of a `Study`.

    measured, ceiling and baseline are medians over the repeats (examples/s), with _min, _max and _n: how many repeats;
    of one repeat there is no range, and _min and _max are NaN. ideal: workers × the baseline with the global batch
    (strong scaling) or with the per-replica batch (weak). efficiency: measured / ideal; of_ceiling: measured / ceiling.

    Then the seconds (s) that a step takes longer than ideal, by GAPS, which add up to it:

    - smaller batch: strong scaling only; what one process loses by computing the smaller batch.
    - cores: what the ceiling takes longer than one process alone.
    - communication, stragglers: the step's parts all_reduce and waiting (`dtk.scaling.timing`).
    - input: what the part input takes longer than in the ceiling.
    - other: the rest. Python's part, and computing that is slower beside communication.

    gap: which of them costs the most efficiency (`losses`); "" where nothing was lost. failed: the points' messages.
    """
    keys = {
        (scaling, int(row.workers), int(row.global_batch))
        for row in points[points.kind == "cluster"].itertuples()
        for scaling in row.scaling.split(", ")
    }
    return pandas.DataFrame([_row(points, *key) for key in sorted(keys)], columns=_COLUMNS)


def busy(summary: pandas.DataFrame) -> str:
    """A sentence if the machine was busy: repeats are far apart, or workers alone are faster than ideal; else ""."""
    apart = ((summary.measured_max - summary.measured_min) / summary.measured).max()
    faster = (summary.ceiling / summary.ideal).max()
    if apart > _APART:
        return _("Busy machine, measure again: repeats differ by up to {apart:.0%}.", apart=apart)
    words = N_("Busy machine, measure again: without communication workers reach {faster:.2f} times the ideal.")
    return _(words, faster=faster) if faster > 1 + _APART else ""


def losses(row: Mapping[str, Any]) -> dict[str, float]:
    """By gap, how much of the efficiency it costs: parts of 1 - efficiency, of a row of `summary`.

    What lies between ideal and the ceiling is divided like the seconds of smaller batch and cores, what lies between
    the ceiling and measured like those of the other four. A gap that is negative, by noise, or unknown is left out.
    """
    reached = row["efficiency"]
    ceiling = row["ceiling"] / row["ideal"]
    middle = max(reached, ceiling) if np.isfinite(ceiling) else reached
    found: dict[str, float] = {}
    for names, lost in ((GAPS[2:], middle - reached), (GAPS[:2], 1 - middle)):
        seconds = {name: float(row[name]) for name in names if row[name] > 0}
        if lost > 0 and seconds:
            found |= {name: lost * value / sum(seconds.values()) for name, value in seconds.items()}
    return found


def _row(points: pandas.DataFrame, scaling: str, workers: int, batch: int) -> dict[str, Any]:
    def at(kind: str, count: int, size: int) -> pandas.DataFrame:
        return points[(points.kind == kind) & (points.workers == count) & (points.global_batch == size)]

    each = batch // workers
    cluster, part = at("cluster", workers, batch), at("baseline", 1, each)
    whole = at("baseline", 1, batch) if scaling == "strong" else part
    ceiling = at("ceiling", workers, batch) if workers > 1 else part
    row: dict[str, Any] = {"scaling": scaling, "workers": workers, "global_batch": batch, "per_replica_batch": each}
    for name, table in (("measured", cluster), ("ceiling", ceiling), ("baseline", whole)):
        values = _measured(table, "examples_per_second")
        low, high = (values.min(), values.max()) if len(values) > 1 else (np.nan, np.nan)
        row |= {name: values.median(), f"{name}_min": low, f"{name}_max": high, f"{name}_n": len(values)}
    row["ideal"] = workers * row["baseline"]
    row["efficiency"], row["of_ceiling"] = row["measured"] / row["ideal"], row["measured"] / row["ceiling"]

    ideal, top, measured = (batch / row[name] for name in ("ideal", "ceiling", "measured"))  # s
    alone = each / _measured(part, "examples_per_second").median()
    row["smaller batch"] = alone - ideal if scaling == "strong" and workers > 1 else 0.0
    row["cores"] = top - alone
    row["communication"] = _measured(cluster, "all_reduce").median()
    row["stragglers"] = _measured(cluster, "waiting").median()
    row["input"] = _measured(cluster, "input").median() - _measured(ceiling, "input").median()
    row["other"] = measured - top - sum(row[name] for name in ("communication", "stragglers", "input"))
    known = losses(row)
    row["gap"] = max(known, key=lambda name: known[name]) if known else ""
    said = (words for table in (cluster, ceiling, whole, part) for words in table.failed if words)
    return {**row, "failed": _("; ").join(dict.fromkeys(said))}


def _measured(table: pandas.DataFrame, column: str) -> pandas.Series:
    return table[table.failed == ""][column].dropna()
