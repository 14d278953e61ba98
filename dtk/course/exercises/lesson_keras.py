"""Exercises of the appendix on Keras: where to resume, clipping, loss scaling, and what prefetch saves."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from dtk.course.exercise import Exercise, Hints, Trial, not_solved, same
from dtk.language import N_, _
from dtk.runs import run


def _done(names: list[str]) -> list[int]:
    return [int(name.split(".")[0]) for name in names]


# ---- clipping: each mistake, as what the update comes to; a gradient is the sum of the replicas' parts

_NUMBERS = (  # replicas, and the numbers whose mean is the gradient; the replicas get equally many, one after the other
    (2, (1.0, 5.0, 0.1, 0.3)),
    (2, (-8.0, -6.0, 1.0, 1.0)),
    (2, (0.5, 0.7, -0.2, 0.2)),
    (3, (4.0, 5.0, 0.3, 0.9, 0.6, 1.2)),
)


def _clip(number: float) -> float:
    return max(-1.0, min(1.0, number))


_CLIP_WRONG: dict[Callable[[list[float]], float], str] = {
    lambda parts: sum(map(_clip, parts)): N_(
        "each replica clips its own part, before it knows the sum: all_reduce comes first"
    ),
    lambda parts: _clip(sum(parts)) * len(parts): N_(
        "the clipped sum is the same on each replica, and apply_gradients adds these up"
    ),
    lambda parts: math.copysign(1.0, sum(parts)): N_(
        "clipping is not normalizing: a gradient that is shorter than 1 stays as it is"
    ),
    lambda parts: _clip(sum(parts) / len(parts)) * len(parts): N_(
        "the replicas' gradients add up to one device's; their mean is smaller, and passes below the bound"
    ),
}


def _clip_hint(apply: Any, update: Any, draw: random.Random) -> str:
    got, parts, times = [], [], draw.choice((1.0, 1.1, 1.2, 1.25))
    for replicas, plain in _NUMBERS:
        numbers = tuple(times * number for number in plain)
        kwargs = {"how": {}, "apply": apply, "numbers": numbers}
        got.append(run(update, workers=1, replicas=replicas, kwargs=kwargs).results[0])
        each = len(numbers) // replicas
        parts.append([sum(numbers[at : at + each]) / len(numbers) for at in range(0, len(numbers), each)])
    if same(got, [_clip(sum(part)) for part in parts], 2e-3):
        return ""
    if same(got, [sum(part) for part in parts], 2e-3):
        raise not_solved(
            "keras.clip", N_("a gradient longer than 1 went through: clip the sum of the replicas' gradients")
        )
    for mistake, hint in _CLIP_WRONG.items():
        if same(got, [mistake(part) for part in parts], 2e-3):
            return _(hint)
    return _("gradients whose norm is under and over 1, on 2 and 3 replicas, became updates of {updates}", updates=got)


_NOT_FINITE = N_("a gradient that is infinite, in either direction, or no number must change no weight")

EXERCISES = [
    Exercise(
        "keras.resume",
        right=lambda names: max(_done(names), default=0),
        wrong={
            "len(names)": "files may be missing, as with save_best_only: their number is not their names'",
            "max(_done(names), default=0) + 1": (
                "initial_epoch counts from 0: after two epochs it is the number of those that are done"
            ),
            "_done(names)[-1] if names else 0": Hints.NO_ORDER,
        },
        # names of checkpoints in no order, a file an epoch or only the best; none at all in the second
        plain=[(["02.keras", "01.keras"],), ([],), (["05.keras", "03.keras"],), (["01.keras"],)],
        drawn=lambda draw: [([f"{epoch:02d}.keras" for epoch in draw.sample(range(1, 99), n)],) for n in (5, 4)],
        hint="how many epochs are done where no file is there, and where the last file is 05.keras?",
    ),
    Trial("keras.clip", hint_for=_clip_hint),
    Exercise(
        "keras.unscale",
        right=lambda weight, gradient, scale, rate: (
            weight - rate * gradient / scale if math.isfinite(gradient) else weight
        ),
        wrong={
            "weight - rate * gradient / scale": _NOT_FINITE,
            "weight - rate * gradient if math.isfinite(gradient) else weight": (
                "this gradient is of the scaled loss: it is too large by that factor"
            ),
            "weight - rate * gradient / scale if gradient < math.inf else weight": _NOT_FINITE,
        },
        # (weight, gradient of the scaled loss, scale, rate); some gradients are beyond float16
        plain=[
            (1.0, 512.0, 1024.0, 0.1),
            (1.0, math.inf, 1024.0, 0.1),
            (2.0, -64.0, 256.0, 0.5),
            (3.0, math.nan, 2.0, 1.0),
            (2.0, -math.inf, 8.0, 0.1),
        ],
        drawn=lambda draw: [
            (float(draw.randint(1, 9)), float(draw.randint(1, 99)), 2.0 ** draw.randint(3, 9), 0.2) for _ in "ab"
        ],
        hint="of which loss is this gradient, and what is a step worth whose gradient is infinite or no number?",
    ),
    Exercise(
        "keras.prefetch",
        right=lambda load, train, batches: load + (batches - 1) * max(load, train) + train,
        wrong={
            "batches * (load + train)": "that is an epoch without prefetch: nothing is loaded while a batch trains",
            "batches * max(load, train)": (
                "nothing trains while the first batch is loaded, and nothing is loaded while the last one trains"
            ),
            "load + batches * train": "where loading takes longer than training, each batch has to be waited for",
        },
        # (seconds to load a batch, seconds to train on it, batches): loading is slower, quicker, and all the same
        plain=[(2.0, 3.0, 10), (3.0, 2.0, 10), (1.0, 1.0, 4), (5.0, 1.0, 1)],
        drawn=lambda draw: [
            (float(draw.randint(1, 9)), float(draw.randint(1, 9)), draw.randint(2, 20)) for _ in range(3)
        ],
        hint="draw two rows of boxes, loading above training: the second batch is loaded while the first trains",
    ),
]
