"""A user's program, for mypy alone: the public names have types. `make wheel` checks it against the installed wheel.

mypy --strict also complains of a `type: ignore` that it does not need: each of them says that a mistake is found.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

import dtk


def train(strategy: Any, steps: int = 3) -> float:
    return float(steps)


run = dtk.run(train, workers=2, kwargs={"steps": 4})
baseline = dtk.baseline(train)
assert_type(run, dtk.Run)
assert_type(baseline, dtk.Run)
assert_type(run.workers, int)
assert_type(run.logs, list[str])
assert_type(dtk.verify(run, baseline).verdict, str)
assert_type(dtk.is_chief(), bool)
assert_type(dtk.run_dir(), Path)
dtk.plot.timeline(run)
dtk.plot.loss_scaling(run, baseline)
try:
    dtk.diagnose(run, baseline)
except dtk.WorkerFailed as error:
    assert_type(error.worker, int | str)  # a number, or "evaluator"
    assert_type(error.remedy, str)

dtk.run(train, workers="two")  # type: ignore[arg-type]
dtk.plot.time_line(run)  # type: ignore[attr-defined]
run.losses  # type: ignore[attr-defined]  # noqa: B018
dtk.verify(baseline=baseline)  # type: ignore[call-arg]
