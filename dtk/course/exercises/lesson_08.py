"""Exercises of lesson 08: efficiency, who makes the others wait, what a larger batch saves, an input pipeline."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from dtk.course.exercise import Exercise, Hints, Trial, tried
from dtk.language import N_, _

_EFFICIENCY = Exercise(
    "08.efficiency",
    right=lambda one, many, workers: many / (workers * one),
    wrong={
        "many / one": "that is the speed-up; how much of it does each worker bring?",
        "workers * one / many": Hints.UPSIDE_DOWN,
        "many / workers": "a rate per worker; compare it with one process",
    },
    # (examples/s of one process, of all workers together, workers)
    plain=[(1000.0, 1700.0, 2), (5000.0, 4000.0, 2)],
    drawn=lambda draw: [
        (float(draw.randint(500, 9000)), float(draw.randint(500, 40000)), workers) for workers in (3, 4, 8, 64)
    ],
    hint="how many examples/s would all workers together reach if each did as much as one process alone?",
)


def _tables(draw: random.Random) -> list[tuple[dict[int, dict[str, float]]]]:
    """Each worker's parts of a step, in ms; all steps take about as long, as each ends with the last."""
    cases = [({0: _parts(0, 10, 50), 1: _parts(50, 10, 0.5)},), ({0: _parts(1, 40, 0.2), 1: _parts(1, 12, 28.4)},)]
    for workers, slow, kind in ((3, 2, "python"), (4, 1, "compute"), (4, 0, "input"), (5, 3, "python")):
        table = {}
        for worker in range(workers):
            late = draw.randint(20, 60) if worker == slow else draw.randint(0, 4)
            python, compute, data = (late * (kind == each) for each in ("python", "compute", "input"))
            table[worker] = _parts(1 + python, draw.randint(15, 25) + compute, 0, 2 + data)
        longest = max(sum(parts.values()) for parts in table.values())
        for parts in table.values():
            parts["waiting"] += longest - sum(parts.values()) + draw.uniform(0, 0.3)
        cases.append((table,))
    return cases


def _parts(python: float, compute: float, waiting: float, data: float = 2.0) -> dict[str, float]:
    return {"python": python, "input": data, "compute": compute, "all_reduce": 9.0, "waiting": waiting}


_OTHER_REASON = N_("a worker may be late for another reason than this one")
_CULPRIT = Exercise(
    "08.culprit",
    right=lambda parts: min(parts, key=lambda worker: parts[worker]["waiting"]),
    wrong={
        "max(parts, key=lambda worker: parts[worker]['waiting'])": (
            "this worker waits the longest, so it is not the one waited for"
        ),
        "max(parts, key=lambda worker: parts[worker]['compute'])": _OTHER_REASON,
        "max(parts, key=lambda worker: parts[worker]['python'])": _OTHER_REASON,
        "max(parts, key=lambda worker: sum(parts[worker].values()))": (
            "every worker's step ends with the last one's; look at a part"
        ),
    },
    drawn=_tables,
    hint="which part of a step is short on the worker that all others wait for?",
)

_COMMUNICATION = Exercise(
    "08.share",
    right=lambda example, examples, reduce: reduce / (example * examples + reduce),
    wrong={
        "reduce / (example * examples)": "that compares sending with computing; the share is of the whole step",
        "reduce / (example + reduce)": "",
        "example * examples + reduce": "that is the whole step in ms; which part of it is the all-reduce?",
    },
    # (ms of computing an example, examples of a worker, ms of the all-reduce)
    plain=[(0.1, 100, 10.0), (0.1, 300, 10.0)],
    drawn=lambda draw: [(draw.randint(1, 40) / 100, 2**power, float(draw.randint(1, 30))) for power in (4, 6, 8, 10)],
    hint="a step is computing, once for each example, and one all-reduce",
)


# ---- an input pipeline, tried on a few numbers in batches of four, which the lesson does not show

_BATCH, _BATCHES = 4, 6


def _watched(pipeline: Callable[..., Any], images: int) -> tuple[list[Any], int] | None:
    """Runs in a worker: the batches that come out, and how many images were decoded; None for None."""
    import numpy as np
    import tensorflow as tf

    count = 0

    def decode(number: Any) -> Any:
        nonlocal count
        count += 1
        return np.float32(number + 0.5)

    def decoded(image: Any, label: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(decode, [image], tf.float32), ()), label

    data = pipeline(tf.data.Dataset.range(images).map(lambda number: (number, number)), decoded, _BATCH)
    if data is None:
        return None
    batches = [[np.asarray(part).tolist() for part in batch] for batch in data.take(_BATCHES)]
    return batches, count


def _hint_for_pipeline(pipeline: Any, draw: random.Random) -> str:
    """What is wrong with what a pipeline made; "" for nothing."""
    many = draw.choice((5, 6, 7))
    batches, decoded = tried("08.pipeline", _watched, pipeline, many)
    if not all(len(batch) == 2 and isinstance(batch[1], list) for batch in batches):
        return _("these are no batches of images and labels: is `batch` missing?")
    labels = [label for batch in batches for label in batch[1]]
    images = [image for batch in batches for image in batch[0]]
    if images != [label + 0.5 for label in labels]:
        return _("the images are not those that `decoded` makes of what is read: is it called once for each?")
    if len(batches) < _BATCHES:
        return _("the data ends after one epoch; training goes on for several")
    if any(len(batch[1]) != _BATCH for batch in batches):
        return _("some batches are too small: the order of batch and repeat decides what happens at an epoch's end")
    if labels != [number % many for number in range(_BATCH * _BATCHES)]:
        return _("these are other batches than before, or in another order; only the decoding is to change")
    if decoded > many:
        return _("each epoch decodes every image again; what is decoded has to be kept, before the data repeats")
    return ""


EXERCISES = [_COMMUNICATION, _CULPRIT, _EFFICIENCY, Trial("08.pipeline", _hint_for_pipeline)]
