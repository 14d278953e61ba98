"""Scaling efficiency against two yardsticks, and where the rest went. Pure arithmetic on a study's measurements.

*Ideal* is n times what one process on one device computes, given the same threads. The *ceiling* is what n such
processes compute at the same time without any communication: no distribution scheme gets more out of these cores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dtk.language import N_
from dtk.scaling.parts import PARTS, step_parts
from dtk.scaling.timing import step_times, throughput

if TYPE_CHECKING:
    import pandas

    from dtk.records.tables import Recorded


__all__ = ["GAPS", "MEASURES", "apart", "losses", "measures", "summary"]

GAPS = (N_("smaller batch"), N_("cores"), N_("communication"), N_("stragglers"), N_("input"), N_("other"))
MEASURES = ("examples_per_second", *PARTS)
_POINT = ["scaling", "switch", "workers", "global_batch"]


def apart(records: pandas.DataFrame) -> float:
    """Examples/s of workers without communication: the sum of each one's median over the steps while all computed.

    That is from when the last of them ended its first step until the first of them ended its last. NaN where a worker
    has no step in that time.

    >>> from dtk.records import frame
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
    records = run.folder.records
    total = apart(records) if kind == "ceiling" else throughput(records).total
    parts = step_parts(run).groupby("worker")[list(PARTS)].median().median()
    return {"examples_per_second": float(total), **{name: float(parts[name]) for name in PARTS}}


def summary(points: pandas.DataFrame) -> pandas.DataFrame:
    """One row for each scaling, switch, number of workers and global batch; points are those of a `Study`.

    measured, ceiling and baseline are medians over the repeats (examples/s), with _min, _max and _n: how many repeats;
    of one repeat there is no range, and _min and _max are NaN. ideal: workers × the baseline with the global batch
    (strong scaling) or with the per-replica batch (weak). efficiency: measured / ideal; of_ceiling: measured / ceiling.

    Then the seconds (s) that a step takes longer than ideal, by GAPS, which add up to it:

    - smaller batch: strong scaling only; what one process loses by computing the smaller batch.
    - cores: what the ceiling takes longer than one process alone.
    - communication, stragglers: the step's parts all_reduce and waiting (`dtk.scaling.parts`).
    - input: what the part input takes longer than in the ceiling.
    - other: the rest. Python's part, and computing that is slower beside communication.

    gap: which of them costs the most efficiency (`losses`); "" where nothing was lost. failed: what was said of the
    points that failed, or "".
    """
    import pandas as pd

    rows = [_row(points, *key) for key in _keys(points)]
    return pd.DataFrame(rows, columns=_columns())


def losses(row: Mapping[str, Any]) -> dict[str, float]:
    """By gap, how much of the efficiency it costs: parts of 1 - efficiency, of a row of `summary`.

    What lies between ideal and the ceiling is divided like the seconds of smaller batch and cores, what lies between
    the ceiling and measured like those of the other four. A gap that noise made negative, or that is not known, is
    left out.
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


def _columns() -> list[str]:
    several = [f"{kind}{end}" for kind in ("measured", "ceiling", "baseline") for end in ("", "_min", "_max", "_n")]
    return [*_POINT, "per_replica_batch", *several, "ideal", "efficiency", "of_ceiling", *GAPS, "gap", "failed"]


def _keys(points: pandas.DataFrame) -> list[tuple[str, str, int, int]]:
    cluster = points[points.kind == "cluster"]
    found = {
        (scaling, str(row.switch), int(row.workers), int(row.global_batch))
        for row in cluster.itertuples()
        for scaling in row.scaling.split(", ")
    }
    order = list(dict.fromkeys(points.switch))
    return sorted(found, key=lambda key: (key[0], order.index(key[1]), _curve(key), key[2]))


def _curve(key: tuple[str, str, int, int]) -> float:
    """The batch that is the same all along a curve."""
    return key[3] if key[0] == "strong" else key[3] / key[2]


def _row(points: pandas.DataFrame, scaling: str, switch: str, workers: int, batch: int) -> dict[str, Any]:
    each = batch // workers
    ours = points[(points.switch == switch)]
    at = ours[(ours.workers == workers) & (ours.global_batch == batch)]
    alone = ours[(ours.kind == "baseline") & (ours.threads == _threads(at))]
    whole, part = (alone[alone.global_batch == size] for size in (batch if scaling == "strong" else each, each))
    cluster, ceiling = at[at.kind == "cluster"], at[at.kind == "ceiling"] if workers > 1 else part
    row: dict[str, Any] = dict(zip(_POINT, (scaling, switch, workers, batch), strict=True))
    row["per_replica_batch"] = each
    for name, table in (("measured", cluster), ("ceiling", ceiling), ("baseline", whole)):
        row |= _median_and_range(name, table)
    row["ideal"] = workers * row["baseline"]
    row["efficiency"], row["of_ceiling"] = row["measured"] / row["ideal"], row["measured"] / row["ceiling"]
    gaps = _gaps(row, _median(part, "examples_per_second"), cluster, ceiling)
    row |= gaps
    known = losses(row)
    row["gap"] = max(known, key=lambda name: known[name]) if known else ""
    row["failed"] = "; ".join(dict.fromkeys(words for table in (at, whole, part) for words in table.failed if words))
    return row


def _threads(at: pandas.DataFrame) -> int:
    return int(at.threads.iloc[0])


def _gaps(row: dict[str, Any], part_alone: float, cluster: Any, ceiling: Any) -> dict[str, float]:
    workers, batch, each = row["workers"], row["global_batch"], row["per_replica_batch"]
    ideal, alone = batch / row["ideal"], each / part_alone
    top, measured = batch / row["ceiling"], batch / row["measured"]
    gaps = {"smaller batch": alone - ideal if row["scaling"] == "strong" and workers > 1 else 0.0}
    gaps["cores"] = top - alone
    gaps["communication"] = _median(cluster, "all_reduce")
    gaps["stragglers"] = _median(cluster, "waiting")
    gaps["input"] = _median(cluster, "input") - _median(ceiling, "input")
    gaps["other"] = measured - top - sum(gaps[name] for name in ("communication", "stragglers", "input"))
    return gaps


def _median(table: pandas.DataFrame, column: str) -> float:
    values = table[table.failed == ""][column].dropna()
    return float(values.median()) if len(values) else float("nan")


def _median_and_range(name: str, table: pandas.DataFrame) -> dict[str, Any]:
    values: Sequence[float] = table[table.failed == ""].examples_per_second.dropna().tolist()
    many = len(values) > 1
    low, high = (min(values), max(values)) if many else (np.nan, np.nan)
    median = float(np.median(values)) if values else np.nan
    return {name: median, f"{name}_min": low, f"{name}_max": high, f"{name}_n": len(values)}
