"""Exercises of the appendices on Estimator: what Estimator leaves to its user, and what its defaults do."""

from __future__ import annotations

import itertools
import random
from types import SimpleNamespace
from typing import Any

from dtk.course.exercise import Exercise, Hints, Trial, hint_for_share, tried
from dtk.language import N_, _
from dtk.studies.shards import Sharding, from_lists


def _orders(make: Any, deals: list[tuple[int, int, int]]) -> list[tuple[Any, Any]]:
    """In one process: what each worker's input function deals out, and what one device's does."""

    def seen(examples: int, batch: int, workers: int, worker: int) -> list[list[int]]:
        context = SimpleNamespace(num_input_pipelines=workers, input_pipeline_id=worker)
        # As repeat() has no end.
        steps = itertools.islice(make(examples, batch, context).as_numpy_iterator(), examples + 1)
        return [[int(each) for each in step] for step in steps]

    return [([seen(*deal, worker) for worker in range(deal[-1])], seen(deal[0], deal[1], 1, 0)) for deal in deals]


def _input_hint(make: Any, draw: random.Random) -> str:
    """What is wrong with an input function: its orders without any seed of dtk's."""
    deals = [(8 * draw.randint(5, 8), 8, 2), (12 * draw.randint(4, 6), 12, 3)]  # (examples, global batch, workers)
    orders = tried("estimator.input", _orders, make, deals, seed=None)
    for (examples, batch, __), (workers, alone) in zip(deals, orders, strict=True):
        order = [number for step in alone for number in step]
        if len(alone) > examples:
            return _("the data has no end: one epoch is asked for, so without `repeat`")
        if sorted(order) != list(range(examples)) or len(alone[0]) != batch:
            words = N_("one device should see each of {examples} examples once, in batches of {batch}")
            return _(words, examples=examples, batch=batch)
        if len({after - before for before, after in itertools.pairwise(order)}) <= 4:
            return _("one device reads the examples in a regular order: nothing is shuffled")
        if hint := _deal_hint(from_lists(workers, alone=alone), batch):
            return hint
    return ""


def _deal_hint(seen: Sharding, batch: int) -> str:
    if seen.each_sees_all:
        return _(Hints.EVERYTHING)
    if seen.repeated or seen.gaps:
        return _("some examples came to two workers, others to none: all workers have to shuffle alike, by one seed")
    together = int((seen.table.step == 1).sum())
    if together != batch:
        words = N_("in a step the workers together see {seen} examples, one device {batch}: each batches its own part")
        return _(words, seen=together, batch=batch)
    if seen.parts_at is not None:
        words = N_("each example came once, but at step {step} not those that one device sees: mind the order")
        return _(words, step=seen.parts_at)
    return ""


def _divisor_hint(loss_of: Any, train: Any, draw: random.Random) -> str:
    """What is wrong with a replica's loss under a v1 optimizer, which divides; the last batch is odd."""
    kwargs = {"batch": draw.choice((90, 92, 96, 100, 104)), "even": False, "steps": 17}  # more than an epoch
    return hint_for_share(train, "loss_of", loss_of, _by_whole_batch, workers=2, **kwargs)


def _by_whole_batch(losses: Any, params: dict[str, Any]) -> Any:
    import tensorflow as tf

    return tf.reduce_sum(losses) / params["batch"]


def _saved(steps: int, every: int) -> list[int]:
    """All steps that Estimator saves: before the first, each multiple, the last."""
    return sorted({*range(0, steps + 1, every), steps})


EXERCISES = [
    Trial("estimator.input", _input_hint, stub=N_("write the function first")),
    Exercise(
        "estimator.evaluated",
        right=lambda images, batch, steps: images if steps is None else min(images, steps * batch),
        wrong={
            "images": "that is the whole test set, which only `steps=None` evaluates",
            "images if steps is None else steps * batch": (
                "a test set that is smaller than the steps would take ends earlier"
            ),
            "steps or 0": "that is the number of batches, not of images",
        },
        # (images, batch, steps of EvalSpec): more images than the steps take, fewer, and all
        plain=[(10_000, 64, 100), (300, 100, 100), (10_000, 64, None)],
        drawn=lambda draw: [(draw.randint(900, 990), 32, 10), (50, 64, 1), (draw.randint(1000, 2000), 128, None)],
    ),
    Exercise(
        "estimator.last",
        right=lambda images, batch, mean: mean * (images % batch or batch) / batch,
        wrong={
            "mean": "the sum over a short batch is divided by the size of a full one",
            "mean * (images % batch) / batch": (
                "where nothing is left over the last batch is a full one; this makes its loss 0"
            ),
            "mean * (images % batch or batch)": "that is the sum of the losses; divide it",
        },
        # (images, batch, mean loss): last batches that are short, half and full
        plain=[(60_000, 64, 2.304), (1_497, 128, 1.0), (1_280, 64, 2.0)],
        drawn=lambda draw: [(100, 8, draw.randint(3, 9) / 2), (70, 30, 3.0)],
    ),
    Trial("estimator.divides", _divisor_hint, stub=N_("write its line first")),
    Exercise(
        "estimator.kept",
        right=lambda steps, every: _saved(steps, every)[-5:],
        wrong={
            _saved: "these are all that were written; Estimator keeps the last five",
            "list(range(0, steps + 1, every))[-5:]": "the last step is always saved, also where it is no multiple",
            "[step for step in _saved(steps, every) if step][-5:]": "there is one before the first step, too: step 0",
        },
        # (steps, steps between two saves): fewer than five files, more, and a last step that is no multiple
        plain=[(60, 20), (200, 20), (50, 20)],
        drawn=lambda draw: [(draw.randint(90, 99), 10), (1_000, 100), (7, 3)],
    ),
    Exercise(
        "estimator.gradients",
        right=lambda weights, images, batch: images // batch * weights * 4,
        wrong={
            "images // batch * weights": Hints.FLOAT32,
            "images * weights * 4": "gradients are added up once for each batch, not for each image",
            "math.ceil(images / batch) * weights * 4": Hints.DROPPED,
        },
        # (weights, images, batch); the last three leave a short batch, in one of them almost a full one
        plain=[(1_000, 1_280, 128), (1_000, 1_280, 512)],
        drawn=lambda draw: [(draw.randint(5_000, 9_000), 60_000, 256), (10, 100, 7), (10, 127, 16)],
    ),
]
