"""What the workers' namespaces hold, side by side: a table, without any collective."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dtk.language import _
from dtk.live.fold import label

if TYPE_CHECKING:
    import pandas

__all__ = ["table"]

Row = Mapping[str, Any]


def table(looks: Mapping[int, Sequence[Row]]) -> pandas.DataFrame:
    """One row a name; looks: of each worker (`dtk.interactive.inspection`)."""
    import pandas as pd

    by_worker = {worker: {row["name"]: row for row in rows} for worker, rows in looks.items()}
    names = dict.fromkeys(name for rows in by_worker.values() for name in rows)
    found = []
    for name in names:
        have = {worker: rows[name] for worker, rows in by_worker.items() if name in rows}
        first = next(iter(have.values()))
        facts = {
            "name": name,
            "called": first.get("called", ""),
            "kind": first["kind"],
            "shape": tuple(first["shape"]) if "shape" in first else "",
            "type": first.get("type", ""),
            "kept": first["kept"],
            "workers": _verdict(have, [worker for worker in looks if worker not in have], first["kept"]),
        }
        values = {f"worker {worker}": have[worker].get("text", have[worker]["digest"]) for worker in have}
        found.append({**facts, **values})
    of_workers = ["workers", *(f"worker {k}" for k in looks)]  # beside the names, so that a narrow page shows them
    columns = ["name", *of_workers, "shape", "type", "kind", "kept", "called"]
    return pd.DataFrame(found, columns=columns).fillna("")


def _verdict(have: Mapping[int, Row], lacking: Sequence[int], kept: str) -> str:
    """ "equal", "differ", "only on 0": with what is to be expected of each kind.

    >>> _verdict({0: {"digest": "a"}, 1: {"digest": "b"}}, [], "mirrored")
    'DIFFER'
    >>> _verdict({0: {"digest": "a b"}}, [], "mirrored")  # two replicas in one worker
    'DIFFER'
    >>> _verdict({0: {"digest": "a"}}, [1], "own")
    'only on 0'
    """
    if lacking:
        return _("only on {workers}", workers=label(sorted(have)))
    if len({part for row in have.values() for part in row["digest"].split()}) == 1:
        return _("equal")
    return _("DIFFER") if kept == "mirrored" else _("differ, as each has its own")
