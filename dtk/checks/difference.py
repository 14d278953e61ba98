"""How far a run's loss is from the baseline's at each step, and a bound for it. Nothing is raised."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dtk.checks.losses import RTOL, allowed
from dtk.measure.scaling import by_step, global_loss

if TYPE_CHECKING:
    import pandas

    from dtk.tables import Recorded

__all__ = ["differences"]


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
