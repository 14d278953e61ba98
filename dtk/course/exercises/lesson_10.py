"""Exercises of lesson 10: updates, the linear rule, a warm-up, time to accuracy."""

from __future__ import annotations

import math
import random

from dtk.course.exercise import Exercise, Misconception
from dtk.language import N_

__all__ = ["EXERCISES"]


def _epochs(draw: random.Random) -> list[tuple[int, int, int]]:
    """(examples, global batch, epochs); the batch seldom divides the examples."""
    return [(1000, 100, 3), (1000, 300, 3), (999, 100, 2)] + [
        (draw.randint(1000, 5000), batch, draw.randint(2, 9)) for batch in (32, 128, 256, 700)
    ]


_UPDATES = Exercise(
    "10.updates",
    right=lambda examples, batch, epochs: epochs * (examples // batch),
    cases=_epochs,
    wrong=[
        Misconception(lambda examples, batch, epochs: examples // batch, N_("that is one epoch's")),
        Misconception(
            lambda examples, batch, epochs: epochs * math.ceil(examples / batch),
            N_("with drop_remainder the short last batch makes no update"),
        ),
        Misconception(
            lambda examples, batch, epochs: epochs * examples // batch,
            N_("the rest of an epoch is not kept for the next one: each epoch drops its own"),
        ),
        Misconception(
            lambda examples, batch, epochs: epochs * examples / batch,
            N_("there are no parts of updates: count whole ones"),
        ),
        Misconception(lambda examples, batch, epochs: epochs * examples, N_("an update takes a batch, not an example")),
    ],
    hint=N_("how many full batches does one epoch have?"),
)


def _rates(draw: random.Random) -> list[tuple[float, int, int, int]]:
    """(rate that is good for a batch, that batch, examples of a worker, workers)."""
    return [(0.1, 32, 32, 4), (0.1, 64, 32, 4), (0.1, 64, 64, 1)] + [
        (draw.randint(1, 50) / 100, batch, each, workers)
        for batch, each, workers in ((256, 32, 256), (32, 128, 2), (128, 32, 8), (100, 10, 3))
    ]


_RATE = Exercise(
    "10.rate",
    right=lambda rate, batch, each, workers: rate * each * workers / batch,
    cases=_rates,
    wrong=[
        Misconception(
            lambda rate, batch, each, workers: rate * workers,
            N_("the rule counts examples, not workers: the rate may have been found for another batch than a worker's"),
        ),
        Misconception(
            lambda rate, batch, each, workers: rate, N_("so the rate stays, and the larger batch takes no longer steps")
        ),
        Misconception(
            lambda rate, batch, each, workers: rate * math.sqrt(each * workers / batch),
            N_("that is the square-root rule; the linear one is asked for"),
        ),
        Misconception(
            lambda rate, batch, each, workers: rate * batch / (each * workers),
            N_("upside down: a larger batch gets a larger rate"),
        ),
        Misconception(
            lambda rate, batch, each, workers: rate * each / batch,
            N_("the global batch is that of all workers together"),
        ),
    ],
    hint=N_("by what was the global batch multiplied?"),
)


def _ramps(draw: random.Random) -> list[tuple[int, int, float, float]]:
    """(step, steps of warm-up, rate of the small batch, rate that it ends with)."""
    return [(0, 10, 0.1, 0.4), (5, 10, 0.1, 0.4), (10, 10, 0.1, 0.4), (25, 10, 0.1, 0.4)] + [
        (draw.randint(1, end), steps, 0.05, draw.randint(2, 8) / 10)
        for steps, end in ((7, 6), (20, 60), (33, 32), (40, 120))
    ]


_WARM_UP = Exercise(
    "10.warm_up",
    right=lambda step, steps, first, last: first + (last - first) * min(step / steps, 1),
    cases=_ramps,
    wrong=[
        Misconception(
            lambda step, steps, first, last: first + (last - first) * step / steps,
            N_("after the warm-up the rate goes on rising; it is to stay"),
        ),
        Misconception(
            lambda step, steps, first, last: last * min(step / steps, 1),
            N_("this begins with a rate of 0; it is to begin with the small batch's"),
        ),
        Misconception(
            lambda step, steps, first, last: first if step < steps else last,
            N_("that is a jump; the rate is to rise in equal steps"),
        ),
        Misconception(
            lambda step, steps, first, last: last + (first - last) * min(step / steps, 1),
            N_("this goes from the large rate to the small one"),
        ),
        Misconception(
            lambda step, steps, first, last: first + last * min(step / steps, 1),
            N_("at its end the rate is too large by where it began"),
        ),
        Misconception(
            lambda step, steps, first, last: 0.1 + (last - 0.1) * min(step / steps, 1),
            N_("a rate that is typed in is right for one training only"),
        ),
    ],
    hint=N_("which rate does step 0 have, and which rate the last step of the warm-up?"),
)


def _trainings(draw: random.Random) -> list[tuple[tuple[int, float], tuple[int, float]]]:
    """Of one worker and of many: (epochs to the loss that is asked for, examples/s)."""
    return [((3, 1000.0), (8, 1000.0)), ((3, 1000.0), (3, 2000.0))] + [
        (
            (draw.randint(2, 9), float(draw.randint(500, 5000))),
            (draw.randint(3, 30), float(draw.randint(500, 40000))),
        )
        for _ in range(5)
    ]


_SOONER = Exercise(
    "10.sooner",
    right=lambda one, many: (one[0] / one[1]) / (many[0] / many[1]),
    cases=_trainings,
    wrong=[
        Misconception(lambda one, many: many[1] / one[1], N_("more examples a second, but of how many epochs?")),
        Misconception(lambda one, many: one[0] / many[0], N_("fewer epochs, but how long does one take?")),
        Misconception(
            lambda one, many: (many[0] / many[1]) / (one[0] / one[1]),
            N_("upside down: this says how many times as long many workers take"),
        ),
        Misconception(
            lambda one, many: (many[0] * many[1]) / (one[0] * one[1]),
            N_("more epochs take longer, more examples a second take less"),
        ),
        Misconception(
            lambda one, many: one[0] * one[1] / (many[0] * many[1]),
            N_("seconds are examples divided by examples/s; this multiplies"),
        ),
    ],
    hint=N_("how many seconds does each of them take, for data of any size?"),
)


EXERCISES = [_UPDATES, _RATE, _WARM_UP, _SOONER]
