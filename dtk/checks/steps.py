"""Whether each step of a run is what one device makes of the same state: a follower's findings and its losses."""

from __future__ import annotations

from typing import Any

import numpy as np

from dtk.checks.evidence import Evidence
from dtk.errors import DtkError
from dtk.measure.scaling import by_step
from dtk.proof.steps import judged, recorded_whole

__all__ = ["every_step_agrees"]

RTOL = 1e-4  # of a loss that is computed from the same weights and examples
COARSE = 8.0  # units in the last place of the coarsest type that a step computes in


def every_step_agrees(ours: Evidence, theirs: Evidence) -> bool:
    """Follows the run with the baseline's function; False where it can't be followed, or anything differs.

    Compared are, at every step, all variables (weights, the optimizer's, moving statistics, counters, the state of
    random numbers), what happened to them since the step before, the numbers of examples, their fingerprints, and the
    global loss.
    """
    run: Any = ours.run
    if not hasattr(run, "followed") or ours.restarts or theirs.restarts or not recorded_whole(run.folder):
        return False
    try:
        follower, lines = run.followed(theirs.run)
    except DtkError:
        return False  # the comparison to the end has the word: its message says what differs
    found = judged(run.folder, lines)
    return found.proved and _same_steps(ours, follower.records, max(RTOL, COARSE * found.coarse))


def _same_steps(ours: Evidence, records: Any, rtol: float) -> bool:
    if records.step.nunique() != ours.steps:
        return False
    examples, losses = by_step(records, "examples").to_numpy(), by_step(records, "loss").to_numpy()
    data, mine = (
        by_step(records, "data").to_numpy().sum(axis=1),
        by_step(ours.run.records, "data").to_numpy().sum(axis=1),
    )
    seen = np.isfinite(data) & np.isfinite(mine)
    return bool(
        np.array_equal(examples.sum(axis=1), ours.examples.sum(axis=1))
        and np.allclose(data[seen], mine[seen], rtol=1e-6, atol=1e-6)
        and np.allclose(losses.sum(axis=1), ours.shares.sum(axis=1), rtol=rtol, atol=1e-6)
    )
