"""Exercises of lesson 13: who differs, who is awaited, what meets in an all-reduce, how far apart weights stay."""

from __future__ import annotations

import random

from dtk.course.exercise import Exercise


def _tables(draw: random.Random) -> list[tuple[dict[str, list[str]]]]:
    """Digests by name, one a worker: equal ones, one that differs, several that do."""
    found = []
    for workers, wrong in ((3, {0: [0], 2: [1]}), (2, {}), (4, {1: [0], 2: [3], 3: [2]}), (3, {0: [0, 1], 3: [2]})):
        table = {}
        for name in range(draw.randint(4, 6)):
            digests = [f"{draw.getrandbits(24):06x}"] * workers
            for worker in wrong.get(name, ()):
                digests[worker] = f"{draw.getrandbits(24):06x}"
            table[f"weights[{name}]"] = digests
        found.append((table,))
    return found


def _begun(draw: random.Random) -> list[tuple[list[int]]]:
    most = draw.randint(20, 40)
    return [([most, most - 3, most - 1, most],), ([most - 2, most, most - 2, most - 1, most],), ([0, 1, 0],)]


EXERCISES = [
    Exercise(
        "13.differing",
        right=lambda table: [name for name, digests in table.items() if len({*digests}) > 1],
        wrong={
            "[name for name, digests in table.items() if digests[0] != digests[1]]": (
                "there may be more than two workers, and any of them may differ"
            ),
            "[name for name, digests in table.items() if len({*digests}) == 1]": (
                "these are the names that are equal on all workers"
            ),
            "[name for name, digests in table.items() if len({*digests}) == len(digests)]": (
                "it is enough that one worker differs; the others may be equal to each other"
            ),
        },
        plain=[({"kernel": ["5f1", "5f1", "5f1"], "bias": ["c07", "c07", "9aa"]},)],
        drawn=_tables,
    ),
    Exercise(
        "13.awaited",
        right=lambda begun: [worker for worker, count in enumerate(begun) if count < max(begun)],
        wrong={
            "[worker for worker, count in enumerate(begun) if count == min(begun)]": (
                "a worker that is one short is awaited as well as one that is three short; where all are equal, none is"
            ),
            "[begun.index(min(begun))] if min(begun) < max(begun) else []": (
                "several workers may be behind, and the wait ends when the last of them has come"
            ),
            "[worker for worker, count in enumerate(begun) if count < begun[0]]": "",
        },
        # all-reduces that each worker has begun
        plain=[([5, 4],), ([4, 5, 5],), ([7, 7, 7],)],
        drawn=_begun,
        hint="an all-reduce is complete when each worker has begun it: compare each count with the greatest",
    ),
    Exercise(
        "13.sums",
        right=lambda calls: [sum(each) for each in zip(*calls, strict=False)],
        wrong={
            "[sum(each) for each in zip(*map(sorted, calls), strict=False)]": (
                "TensorFlow does not look at the numbers: the first call of one meets the first call of the other"
            ),
            "[sum(each) / len(calls) for each in zip(*calls, strict=False)]": "that is the mean",
            "sum(sum(each) for each in zip(*calls, strict=False))": "each call gives its own sum; a list is asked for",
        },
        # what each worker hands to `reduce`, call by call
        plain=[([[1, 10], [10, 1]],), ([[1, 10, 100], [1, 10]],)],
        drawn=lambda draw: [
            ([[draw.randint(1, 9) * 10**worker for _ in range(calls)] for worker, calls in enumerate(counts)],)
            for counts in ([2, 4, 3], [3, 3, 3, 3], [1, 5], [2, 0, 1])
        ],
    ),
    Exercise(
        "13.distance",
        right=lambda apart, steps, rate, decay: apart * (1 - rate * decay) ** steps,
        wrong={
            "apart": "right without decay; with it, each worker takes a part of its own weights away in each step",
            "apart * (1 - decay) ** steps": (
                "decay acts through the learning rate: in a step, rate * decay of the weights go"
            ),
            "apart * (1 - rate * decay)": "that is after one step",
        },
        plain=[(8.0, 3, 0.5, 0.0), (8.0, 1, 0.5, 0.1)],
        drawn=lambda draw: [
            (draw.uniform(0.5, 9), draw.randint(2, 40), draw.uniform(0.01, 0.3), draw.uniform(0.01, 0.2))
            for _ in range(4)
        ],
        hint="write down both workers' weights after one step, and subtract: the gradient is the same sum on both",
    ),
]
