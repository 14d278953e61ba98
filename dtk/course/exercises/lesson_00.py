"""Exercises of lesson 00: shares of a loss, two losses compared by hand, examples of a replica."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np

from dtk.course.exercise import Exercise, Hints, digits


def _by_step(run: Any) -> Any:
    return run.records.groupby("step").loss.sum()


def _records(draw: random.Random) -> list[tuple[Any]]:
    """Tables such as `run.records`, in which no replica has the examples of another one."""
    import pandas as pd

    cases = []
    for replicas, steps in ((2, 3), (2, 5), (3, 4), (4, 2)):
        table = pd.DataFrame(itertools.product(range(replicas), range(1, steps + 1)), columns=["replica", "step"])
        table["examples"] = [10 * (replica + 1) + draw.randint(0, 9) for replica in table.replica]
        cases.append((table.sort_values("step", kind="stable", ignore_index=True),))
    return cases


def _difference(run: Any, baseline: Any) -> Any:
    """The cluster's loss minus one device's, relative to one device's, by step."""
    alone = _by_step(baseline)
    return (_by_step(run) - alone) / alone


SHARE = Exercise(
    "00.share",
    right=lambda losses, global_batch: sum(losses) / global_batch,
    wrong={
        "sum(losses) / len(losses)": Hints.OWN_MEAN,
        "sum(losses)": Hints.GROWS,
        "sum(losses) / 2": "a divisor that is typed in holds for one size of batch only",
    },
    plain=[([2.0, 3.0], 4), ([1.0, 2.0, 3.0], 6)],
    drawn=lambda draw: [(digits(draw, mine), whole) for mine, whole in ((4, 8), (2, 6), (1, 5), (3, 12))],
)
WHOLE = Exercise(
    "00.whole",
    right=lambda means, examples: np.dot(means, examples) / sum(examples),
    wrong={
        "sum(means) / len(means)": (
            "a mean of means counts a replica with 1 example as much as one with 3; give each its weight"
        ),
        "sum(means)": Hints.SUM_OF_MEANS,
        "np.dot(means, examples)": Hints.GROWS,
    },
    plain=[([2.5, 4.5], [2, 2]), ([2.0, 5.0], [3, 1])],
    drawn=lambda draw: [(digits(draw, len(each)), each) for each in ([4, 2], [5, 3, 4], [1, 6, 2, 2])],
)
EXAMPLES = Exercise(
    "00.examples",
    right=lambda records: int(records[records.replica == 1].examples.sum()),
    wrong={
        "int((records.replica == 1).sum())": "",
        "int(records.examples.sum())": "these are the examples of all replicas together",
        "int(records[records.replica == 1].examples.iloc[0])": "these are the examples of one step; add up all steps",
        "int(records[records.replica == 0].examples.sum())": Hints.FROM_0,
        "records.examples.sum() / records.replica.nunique()": (
            "this divides all examples evenly, and the parts of the replicas may differ"
        ),
    },
    drawn=_records,
    hint="look at run.records.head(4): which column names the replica, and which counts examples?",
)
APART = Exercise(
    "00.apart",
    right=lambda run, baseline: float(_difference(run, baseline).abs().max()),
    wrong={
        "float((_by_step(run) - _by_step(baseline)).abs().max())": (
            "this is the absolute difference; divide each step's by one device's loss at that step"
        ),
        "float(_difference(run, baseline).max())": (
            "a step at which the cluster's loss is the smaller one counts as well: take the absolute value first"
        ),
        "float(_difference(run, baseline).abs().iloc[-1])": Hints.LAST_STEP,
    },
    hint='both by step first: run.records.groupby("step").loss.sum(), and the same of the baseline',
    close=1e-4,
)
EXERCISES = [SHARE, APART, WHOLE, EXAMPLES]
