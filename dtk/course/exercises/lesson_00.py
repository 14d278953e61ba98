"""Exercises of lesson 00: shares of a loss, two losses compared by hand, examples of a replica."""

from __future__ import annotations

import random
from typing import Any

from dtk.course.exercise import Exercise, Misconception
from dtk.language import N_

__all__ = ["EXERCISES"]


def _batches(draw: random.Random) -> list[tuple[list[float], int]]:
    """(losses of one replica, global batch): the plainest first; the replicas' parts are not all of one size."""
    plain = [([2.0, 3.0], 4), ([1.0, 2.0, 3.0], 6)]
    return plain + [
        ([float(draw.randint(1, 9)) for _ in range(mine)], whole) for mine, whole in ((4, 8), (2, 6), (1, 5), (3, 12))
    ]


def _means(draw: random.Random) -> list[tuple[list[float], list[int]]]:
    """(each replica's mean loss, its number of examples): the plainest first, then parts of different sizes."""
    plain = [([2.5, 4.5], [2, 2]), ([2.0, 5.0], [3, 1])]
    sizes = ([4, 2], [5, 3, 4], [1, 6, 2, 2])
    return plain + [([float(draw.randint(1, 9)) for _ in each], each) for each in sizes]


def _weighted(means: list[float], examples: list[int]) -> float:
    return sum(mean * count for mean, count in zip(means, examples, strict=True))


def _by_step(run: Any) -> Any:
    return run.records.groupby("step").loss.sum()


def _difference(run: Any, baseline: Any) -> Any:
    """The cluster's loss minus one device's, relative to one device's, by step."""
    alone = _by_step(baseline)
    return (_by_step(run) - alone) / alone


def _share_of_replica_0(run: Any, baseline: Any) -> float:
    alone = _by_step(baseline)
    share = run.records[run.records.replica == 0].set_index("step").loss
    return float(((share - alone).abs() / alone).max())


SHARE = Exercise(
    "00.share",
    right=lambda losses, global_batch: sum(losses) / global_batch,
    cases=_batches,
    wrong=[
        Misconception(
            lambda losses, global_batch: sum(losses) / len(losses),
            N_(
                "divided by this replica's own examples it is a mean, and means add up to too much; by what would one "
                "device divide?"
            ),
        ),
        Misconception(
            lambda losses, global_batch: sum(losses), N_("a sum grows with the batch; one device takes a mean")
        ),
        Misconception(
            lambda losses, global_batch: sum(losses) / len(losses) / global_batch,
            N_("this divides twice: by the replica's own examples and by the global batch"),
        ),
        Misconception(
            lambda losses, global_batch: sum(losses) / 3,
            N_("the number of replicas is no divisor: no example is in it"),
        ),
        Misconception(
            lambda losses, global_batch: sum(losses) / 2,
            N_("a divisor that is typed in holds for one size of batch only"),
        ),
    ],
)
WHOLE = Exercise(
    "00.whole",
    right=lambda means, examples: _weighted(means, examples) / sum(examples),
    cases=_means,
    wrong=[
        Misconception(
            lambda means, examples: sum(means) / len(means),
            N_("a mean of means counts a replica with 1 example as much as one with 3; give each its weight"),
        ),
        Misconception(
            lambda means, examples: sum(means),
            N_("a sum of means grows with the number of replicas; one device takes one mean"),
        ),
        Misconception(_weighted, N_("this is the sum of all losses; one device takes the mean")),
        Misconception(
            lambda means, examples: _weighted(means, examples) / len(means),
            N_("divide by the number of examples, not by the number of replicas"),
        ),
        Misconception(
            lambda means, examples: sum(means) / sum(examples),
            N_("turn each mean into the sum of its replica's losses first"),
        ),
    ],
)
EXAMPLES = Exercise(
    "00.examples",
    right=lambda run: int(run.records[run.records.replica == 1].examples.sum()),
    wrong=[
        Misconception(
            lambda run: int((run.records.replica == 1).sum()),
            N_("this counts rows, so steps; each row's column `examples` says how many there were"),
        ),
        Misconception(
            lambda run: int(run.records.examples.sum()), N_("these are the examples of all replicas together")
        ),
        Misconception(lambda run: len(run.records), N_("this counts the rows of all replicas")),
        Misconception(
            lambda run: int(run.records[run.records.replica == 1].examples.iloc[0]),
            N_("these are the examples of one step; add up all steps"),
        ),
    ],
    hint=N_("look at run.records.head(4): which column names the replica, and which counts examples?"),
)
APART = Exercise(
    "00.apart",
    right=lambda run, baseline: float(_difference(run, baseline).abs().max()),
    wrong=[
        Misconception(
            lambda run, baseline: float((_by_step(run) - _by_step(baseline)).abs().max()),
            N_("this is the absolute difference; divide each step's by one device's loss at that step"),
        ),
        Misconception(
            lambda run, baseline: float(_difference(run, baseline).max()),
            N_("a step at which the cluster's loss is the smaller one counts as well: take the absolute value first"),
        ),
        Misconception(
            _share_of_replica_0, N_("this compares one replica's share; add up the replicas' shares at each step first")
        ),
        Misconception(
            lambda run, baseline: float(_difference(run, baseline).abs().mean()),
            N_("this is the mean over the steps; one bad step must not hide among many good ones"),
        ),
        Misconception(
            lambda run, baseline: float(_difference(run, baseline).abs().iloc[-1]),
            N_("this is the last step alone; look at all of them"),
        ),
    ],
    hint=N_('both by step first: run.records.groupby("step").loss.sum(), and the same of the baseline'),
    close=1e-4,
)
EXERCISES = [SHARE, WHOLE, EXAMPLES, APART]
