"""Exercises of lesson 04: TF_CONFIG, the global batch, what fit averages, and who hands over the strategy."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from statistics import fmean
from typing import Any

from dtk.course.exercise import Exercise, Hints, Trial, digits, not_solved, same, tf_config
from dtk.errors import WorkerFailed
from dtk.language import N_, _
from dtk.runs import baseline, run
from dtk.worker.ship import takes_strategy


def _clusters(draw: random.Random) -> list[tuple[list[str], int]]:
    """(addresses of all workers, the number of one of them)"""
    plain = [(["10.0.0.1:4000", "10.0.0.2:4000"], 1), (["10.0.0.1:4000", "10.0.0.2:4000"], 0)]
    names = [[f"node{draw.randint(1, 99)}.lab:{draw.randint(2000, 9000)}" for _ in range(many)] for many in (3, 4)]
    return [*plain, *((addresses, draw.randrange(1, len(addresses))) for addresses in names)]


# ---- who hands over the strategy: a function that must answer rightly wherever it runs


def _strategy_hint(answer: Any, draw: random.Random) -> str:
    """Runs the function in two workers, in one process with several replicas and on one device."""
    replicas = draw.choice((3, 4))
    try:
        found = [*run(answer, workers=2).results, *run(answer, workers=1, replicas=replicas).results]
        found += baseline(answer).results
    except WorkerFailed:
        code = getattr(answer, "__code__", None)
        if code is not None and "strategy" in code.co_names and not takes_strategy(answer):
            remedy = N_("in a worker there is no such name; what dtk is to hand over, the function must ask for")
            raise not_solved("04.strategy", remedy) from None
        raise
    right = [*[2] * (len(found) - 2), replicas, 1]
    if same(found, right):
        return ""
    if found == [*right[:-2], 1, 1]:
        return _("this counts workers only, and a worker can have several replicas; ask the strategy that dtk has made")
    values = ", ".join(dict.fromkeys(map(repr, found)))
    return _("it says {values}: in two workers, in one process with more replicas, and on one device", values=values)


def _without_chief(answer: Callable[..., Any], workers: list[str], index: int) -> Any:
    """What an answer makes; where the first worker is a job of its own, "chief", the same cluster of workers alone."""
    made = answer(workers, index)
    with contextlib.suppress(KeyError, TypeError, ValueError):
        (chief,), task = made["cluster"]["chief"], made["task"]
        number = {"chief": 0, "worker": 1}[task["type"]] + task["index"]
        if set(made["cluster"]) == {"chief", "worker"} and (number == 0) == (task["type"] == "chief"):
            return tf_config([chief, *made["cluster"]["worker"]], number)
    return made


CONFIG = Exercise(
    "04.config",
    right=lambda workers, index: tf_config(workers, index),
    wrong={
        "tf_config(workers, index + 1)": Hints.FROM_0,
        "tf_config([workers[index]], index)": Hints.ALL_ADDRESSES,
        "tf_config(workers, index, 'chief' if index == 0 else 'worker')": (
            "a task of type chief needs a job `chief` in the cluster; without one, worker 0 is the chief"
        ),
        "json.dumps(tf_config(workers, index))": (
            "return the dictionary; json.dumps comes when it is put into the environment variable"
        ),
    },
    drawn=_clusters,
    play=_without_chief,
    hint="look at the two that are printed above: what is the same in both, what is not?",
)

EXERCISES = [
    CONFIG,
    Exercise(
        "04.batch",
        right=lambda each, workers, replicas: each * workers * replicas,
        wrong={
            "each": "the strategy divides what you pass: each replica gets a part of it",
            "each * workers": "a worker with several replicas divides its part once more",
            "each * replicas": "all workers take from the same batch, not one alone",
        },
        # (examples for each replica, workers, replicas in each)
        plain=[(64, 4, 1), (32, 2, 8), (128, 1, 4)],
        drawn=lambda draw: [(draw.choice([8, 16, 50]), draw.randint(2, 6), draw.randint(2, 4)) for _ in range(3)],
        hint="how many replicas are there in all?",
    ),
    Exercise(
        "04.uneven",
        right=lambda parts: fmean([fmean(part) for part in parts]),
        wrong={
            "mean(sum(parts, []))": "that is one device's mean, in which each example counts the same",
            "sum(mean(part) for part in parts)": Hints.SUM_OF_MEANS,
            "sum(map(sum, parts)) / len(parts)": "",
        },
        # the losses of each replica's examples: the first batch is dealt out evenly, the others are not
        plain=[([[2.0, 4.0], [1.0, 1.0]],), ([[2.0, 4.0, 3.0], [1.0, 1.0]],)],
        drawn=lambda draw: [([digits(draw, size) for size in sizes],) for sizes in ((5, 4), (3, 3, 1))],
        hint="first each replica's mean, then what fit makes of these",
    ),
    Trial("04.strategy", hint_for=_strategy_hint),
]
