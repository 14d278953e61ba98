"""Exercises of lesson 13: who differs, who is awaited, what meets in an all-reduce, how far apart weights stay."""

from __future__ import annotations

import random
from collections import Counter

from dtk.course.exercise import Exercise, Misconception
from dtk.language import N_

__all__ = ["EXERCISES"]

Digests = dict[str, list[str]]


def _tables(draw: random.Random) -> list[tuple[Digests]]:
    """Digests by name, one a worker: equal ones, one that differs, several that do."""

    def made(workers: int, wrong: dict[int, list[int]]) -> Digests:
        """wrong: by number of the name, the workers whose digest is another one, each its own."""
        table = {}
        for name in range(draw.randint(4, 6)):
            right = f"{draw.getrandbits(24):06x}"
            own = {worker: f"{draw.getrandbits(24):06x}" for worker in wrong.get(name, ())}
            table[f"weights[{name}]"] = [own.get(worker, right) for worker in range(workers)]
        return table

    alike = {"kernel": ["5f1", "5f1", "5f1"], "bias": ["c07", "c07", "9aa"]}
    return [
        (alike,),
        (made(3, {0: [0], 2: [1]}),),
        (made(2, {}),),
        (made(4, {1: [0], 2: [3], 3: [2]}),),
        (made(3, {0: [0, 1], 3: [2]}),),
    ]


def _odd(table: Digests) -> dict[str, list[int]]:
    """By name, the workers whose digest is not that of most."""
    found = {}
    for name, digests in table.items():
        (most, _), *_ = Counter(digests).most_common()
        odd = [worker for worker, digest in enumerate(digests) if digest != most]
        if odd:
            found[name] = odd
    return found


_DIFFERING = Exercise(
    "13.differing",
    right=lambda table: [name for name, digests in table.items() if len({*digests}) > 1],
    cases=_tables,
    wrong=[
        Misconception(
            lambda table: [name for name, digests in table.items() if digests[0] != digests[1]],
            N_("there may be more than two workers, and any of them may differ"),
        ),
        Misconception(
            lambda table: [name for name, digests in table.items() if digests[0] != digests[-1]],
            N_("the workers between the first and the last have a digest as well"),
        ),
        Misconception(
            lambda table: [name for name, digests in table.items() if len({*digests}) == 1],
            N_("these are the names that are equal on all workers"),
        ),
        Misconception(
            lambda table: [name for name, digests in table.items() if len({*digests}) == len(digests)],
            N_("it is enough that one worker differs; the others may be equal to each other"),
        ),
        Misconception(_odd, N_("the names alone are asked for, in their order")),
    ],
)


def _begun(draw: random.Random) -> list[tuple[list[int]]]:
    """All-reduces that each worker has begun."""
    most = draw.randint(20, 40)
    return [
        ([5, 4],),
        ([4, 5, 5],),
        ([7, 7, 7],),
        ([most, most - 3, most - 1, most],),
        ([most - 2, most, most - 2, most - 1, most],),
        ([0, 1, 0],),
    ]


_AWAITED = Exercise(
    "13.awaited",
    right=lambda begun: [worker for worker, count in enumerate(begun) if count < max(begun)],
    cases=_begun,
    wrong=[
        Misconception(
            lambda begun: [worker for worker, count in enumerate(begun) if count == min(begun)],
            N_(
                "a worker that is one short is awaited as well as one that is three short; where all are equal, none is"
            ),
        ),
        Misconception(
            lambda begun: [worker for worker, count in enumerate(begun) if count == max(begun)],
            N_("these are the workers that wait; asked is for whom"),
        ),
        Misconception(
            lambda begun: [begun.index(min(begun))] if min(begun) < max(begun) else [],
            N_("several workers may be behind, and the wait ends when the last of them has come"),
        ),
        Misconception(
            lambda begun: [worker for worker, count in enumerate(begun) if count < begun[0]],
            N_("worker 0 may be behind as well: compare with the one that has begun most"),
        ),
        Misconception(
            lambda begun: [max(begun) - count for count in begun],
            N_("this is how many all-reduces each is behind; asked is which workers are"),
        ),
    ],
    hint=N_("an all-reduce is complete when each worker has begun it: compare each count with the greatest"),
)


def _calls(draw: random.Random) -> list[tuple[list[list[int]]]]:
    """What each worker hands to `reduce`, call by call."""

    def drawn(workers: int, counts: list[int]) -> list[list[int]]:
        return [[draw.randint(1, 9) * 10**worker for _ in range(counts[worker])] for worker in range(workers)]

    return [
        ([[1, 10], [10, 1]],),
        ([[1, 10, 100], [1, 10]],),
        (drawn(3, [2, 4, 3]),),
        (drawn(4, [3, 3, 3, 3]),),
        (drawn(2, [1, 5]),),
        (drawn(3, [2, 0, 1]),),
    ]


def _padded(calls: list[list[int]]) -> list[int]:
    return [sum(each[at] for each in calls if at < len(each)) for at in range(max(map(len, calls)))]


_SUMS = Exercise(
    "13.sums",
    right=lambda calls: [sum(each) for each in zip(*calls, strict=False)],
    cases=_calls,
    wrong=[
        Misconception(
            lambda calls: [sum(each) for each in zip(*map(sorted, calls), strict=False)],
            N_("TensorFlow does not look at the numbers: the first call of one meets the first call of the other"),
        ),
        Misconception(
            lambda calls: [sum(each) for each in calls],
            N_("these are sums over one worker's calls; an all-reduce adds up over the workers"),
        ),
        Misconception(_padded, N_("a call that one worker does not make is no sum without it: the others wait")),
        Misconception(
            lambda calls: [sum(each) / len(calls) for each in zip(*calls, strict=False)], N_("that is the mean")
        ),
        Misconception(
            lambda calls: sum(sum(each) for each in zip(*calls, strict=False)),
            N_("each call gives a sum of its own; a list is asked for"),
        ),
    ],
)


def _decays(draw: random.Random) -> list[tuple[float, int, float, float]]:
    """(apart, steps, rate, decay)."""
    drawn = [
        (draw.uniform(0.5, 9), draw.randint(2, 40), draw.uniform(0.01, 0.3), draw.uniform(0.01, 0.2)) for _ in range(4)
    ]
    return [(8.0, 3, 0.5, 0.0), (8.0, 1, 0.5, 0.1), *drawn]


_DISTANCE = Exercise(
    "13.distance",
    right=lambda apart, steps, rate, decay: apart * (1 - rate * decay) ** steps,
    cases=_decays,
    wrong=[
        Misconception(
            lambda apart, steps, rate, decay: apart,
            N_("right without decay; with it, each worker takes a part of its own weights away in each step"),
        ),
        Misconception(
            lambda apart, steps, rate, decay: apart * (1 - decay) ** steps,
            N_("decay acts through the learning rate: in a step, rate * decay of the weights go"),
        ),
        Misconception(
            lambda apart, steps, rate, decay: apart * (1 - rate * decay * steps),
            N_("each step takes its part of what is left by then, not of what there was at the beginning"),
        ),
        Misconception(
            lambda apart, steps, rate, decay: apart * (1 - rate) ** steps,
            N_("the gradients are summed up and equal on both, so the rate alone brings nothing nearer"),
        ),
        Misconception(
            lambda apart, steps, rate, decay: apart * (1 - rate * decay),
            N_("that is after one step"),
        ),
    ],
    hint=N_("write down both workers' weights after one step, and subtract: the gradient is the same sum on both"),
)
EXERCISES = [_DIFFERING, _AWAITED, _SUMS, _DISTANCE]
