"""Exercises of lab 5, time to accuracy: the warm-up, when the target was reached, the seconds expected, the choice."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from functools import partial
from numbers import Integral, Real
from typing import Any

from dtk import runs
from dtk.course.exercise import Exercise, Hints, Trial
from dtk.language import N_, _

_WARM_UP = Exercise(
    "lab5.warm_up",
    right=lambda step, rate, warm_up: rate * min(1.0, (step + 1) / max(1, warm_up)),
    wrong={
        "rate * min(1.0, step / max(1, warm_up))": Hints.RATE_0,
        "rate * (step + 1) / max(1, warm_up)": Hints.RATE_RISES,
        "rate": "this is the rate without a warm-up",
    },
    plain=[(0, 0.8, 4), (3, 0.8, 4), (1, 0.8, 4), (9, 0.5, 4), (0, 0.2, 0), (7, 0.2, 0)],
    drawn=lambda draw: [(draw.randint(2, 8), 0.3, 10)],
)

_REACHED = Exercise(
    "lab5.reached",
    right=lambda seconds, accuracies, target: next(
        (at for at, value in zip(seconds, accuracies, strict=True) if value >= target), math.inf
    ),
    wrong={
        "seconds[-1]": "this is when training ended, not when the target came",
        "next((at for at, value in zip(seconds, accuracies) if value > target), math.inf)": (
            "an accuracy that equals the target has reached it"
        ),
        "next((at for at, value in zip(seconds, accuracies) if value >= target), seconds[-1])": (
            "where the target was never reached there is no time: math.inf"
        ),
    },
    plain=[
        ([1.0, 2.0, 3.0, 4.0], [0.5, 0.92, 0.88, 0.95], 0.9),
        ([0.5, 0.7, 1.1], [0.2, 0.9, 0.91], 0.9),
        ([1.0, 2.0, 3.0], [0.1, 0.1, 0.2], 0.9),
        ([0.4, 0.6, 0.9], [0.95, 0.8, 0.97], 0.9),
    ],
    drawn=lambda draw: [
        (sorted(draw.uniform(0, 9) for _ in range(8)), [0.3, 0.5, 0.7, 0.82, 0.79, 0.84, 0.9, 0.86], 0.8)
        for _ in range(2)
    ],
    hint="go through both lists at once, and stop at the first accuracy that is high enough",
)


def _seconds(
    examples: int, batch: int, workers: int, each: float, reduce: float, *, shared: bool = True, alone: bool = False
) -> float:
    compute = batch / workers * each if shared else batch * each
    return examples / batch * (compute + (reduce if workers > 1 or alone else 0.0))


_EXPECTED = Exercise(
    "lab5.expected",
    right=_seconds,
    wrong={
        partial(_seconds, alone=True): "one worker has no other to all-reduce with",
        partial(_seconds, shared=False): "the global batch is shared: each worker computes its own part",
        "examples * each / workers": Hints.REDUCES,
    },
    # (examples needed, global batch, workers, seconds an example, seconds an all-reduce)
    plain=[(6400, 64, 1, 0.0001, 0.002), (6400, 64, 2, 0.0001, 0.002), (12000, 100, 4, 0.0002, 0.001)],
    drawn=lambda draw: [
        (256 * draw.randint(10, 90), 256, workers, draw.randint(1, 9) * 1e-4, draw.randint(1, 9) * 1e-3)
        for workers in (1, 2, 8)
    ],
    hint="how many steps are there, and what does one of them take?",
)

SEED = 11  # not the lab's
LEAST = 1.5  # times as fast as the lab's first choice
_LIMITS: dict[str, tuple[Any, float, float]] = {
    "workers": (Integral, 1, 8),
    "batch": (Integral, 1, 8192),
    "rate": (Real, 0, 1e3),
    "warm_up": (Integral, 0, 10**6),
}


def _is_possible(choice: Any) -> bool:
    """Whether a choice has a number within its limits for each name, and a batch that the workers share evenly."""
    if not isinstance(choice, Mapping) or set(choice) != set(_LIMITS):
        return False
    for name, (kind, least, most) in _LIMITS.items():
        value: Any = choice[name]
        if not isinstance(value, kind) or isinstance(value, bool) or not least <= value <= most:
            return False
    return bool(choice["batch"] % choice["workers"] == 0)


def _raced(train: Callable[..., Any], choice: Mapping[str, Any], settings: Mapping[str, Any]) -> Mapping[str, Any]:
    numbers = {"batch": int(choice["batch"]), "rate": float(choice["rate"]), "warm_up": int(choice["warm_up"])}
    kwargs = {**settings, **numbers}
    run = runs.run(train, workers=int(choice["workers"]), kwargs=kwargs, seed=SEED, force=True, timeout=300.0)
    return run.results[0]


def _hint_for(
    choice: Any, train: Callable[..., Any], start: Mapping[str, Any], settings: Mapping[str, Any], draw: random.Random
) -> str:
    """Runs the choice and the lab's first one, on a seed that the lab does not show.

    draw: not used, as what a choice needs differs too much from seed to seed to be judged by one bound.
    """
    if not _is_possible(choice):
        return _(
            "a choice is a dictionary with workers (1 to 8), batch (1 to 8192, in equal parts for the workers), rate "
            "(0 to 1000) and warm_up (0 to 1000000): whole numbers, but for the rate"
        )
    mine = _raced(train, choice, settings)
    if mine["seconds"] == math.inf:
        return _why_never(choice, mine)
    first = _raced(train, start, settings)
    times, steps = first["seconds"] / mine["seconds"], mine["reached"] / first["reached"]
    if times >= LEAST:
        return ""
    words = N_(
        "{times:.2g} times as fast as the lab's first choice, and {least:g} are asked for; it needs {steps:.2g} times "
        "as many steps, and a step takes {each:.2g} times as long: which of the two can become less?"
    )
    return _(words, times=times, least=LEAST, steps=steps, each=1 / steps / times)


def _why_never(choice: Mapping[str, Any], mine: Mapping[str, Any]) -> str:
    if choice["warm_up"] >= mine["steps"]:
        return _("the target was never reached: in {steps} steps the warm-up was not over", steps=mine["steps"])
    first, last = mine["loss"][0], mine["loss"][-1]
    if not math.isfinite(last) or last > first:
        return _("the target was never reached: the loss did not fall: the rate is too large")
    if last > 0.9 * first and choice["rate"] < 0.005:
        return _("the target was never reached: the loss hardly moved, so the rate is too small")
    words = N_("the target was never reached: {steps} steps were too few; a smaller batch makes more of them")
    return _(words, steps=mine["steps"])


EXERCISES = [_REACHED, _WARM_UP, _EXPECTED, Trial("lab5.choice", _hint_for, of_function=False)]
