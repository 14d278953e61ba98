"""What the evaluator writes down: one event per evaluation, with its times, its step and its metrics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dtk.environment import Here
from dtk.records.events import Evaluating, Evaluation

__all__ = ["evaluated", "evaluating"]


def evaluating(place: Here, step: int | None = None) -> float:
    """Says that an evaluation begins, for those who watch; returns its start, in seconds since the call of `dtk.run`.

    step: of the weights that are evaluated, None where it is not known yet.
    """
    started = place.now()
    place.journal.event(Evaluating(started, step=step))
    return started


def evaluated(place: Here, *, step: int | None, started: float, metrics: Mapping[str, Any]) -> None:
    """Writes down an evaluation that ends now: its start, the step of its weights, and its metrics by name.

    Metrics are numbers, also NumPy's and TensorFlow's. An array becomes a list, what JSON can't hold its text.
    """
    plain = {str(name): _plain(value) for name, value in metrics.items()}
    step = None if step is None else int(step)
    place.journal.event(Evaluation(place.now(), started=started, step=step, metrics=plain))


def _plain(value: Any) -> Any:
    for convert in ("numpy", "tolist"):
        value = getattr(value, convert)() if hasattr(value, convert) else value
    try:
        json.dumps(value)
    except TypeError:
        return str(value)
    return value
