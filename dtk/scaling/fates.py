"""Which steps of a run with restarts were kept, which were lost, and which were computed more than once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas

    from dtk.records import RunFolder

__all__ = ["fates", "spans"]


def fates(folder: RunFolder) -> pandas.DataFrame:
    """What became of each step of each start of the cluster.

    A step counts as computed where a worker recorded it. It is lost where a later attempt went on from it or a step
    before it: that attempt's checkpoint did not hold it.

    Returns:
        One row for each step of each attempt. Columns: attempt (from 1), step, lost, again (an earlier attempt had
        computed the same step).
    """
    import pandas as pd

    each = [sorted(set(one.own_records.step)) for one in (*folder.earlier, folder)]
    rows, seen = [], set[int]()
    for k, steps in enumerate(each):
        first = min((later[0] for later in each[k + 1 :] if later), default=float("inf"))
        rows += [(k + 1, int(step), bool(step >= first), step in seen) for step in steps]
        seen.update(steps)
    table = pd.DataFrame(rows, columns=["attempt", "step", "lost", "again"])
    return table.astype({"attempt": int, "step": int, "lost": bool, "again": bool})


def spans(steps: list[int]) -> list[tuple[int, int]]:
    """Steps that follow one another, as first and last.

    >>> spans([1, 2, 3, 7, 9, 10])
    [(1, 3), (7, 7), (9, 10)]
    """
    found: list[tuple[int, int]] = []
    for step in steps:
        if found and step == found[-1][1] + 1:
            found[-1] = (found[-1][0], step)
        else:
            found.append((step, step))
    return found
