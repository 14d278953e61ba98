"""Exercises of lesson 07 and its appendix: steps that are computed, the data that is left, who is waited for, roles."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

from dtk.course.exercise import Exercise, Hints, Trial, tf_config, tried
from dtk.language import N_, _


def _waits(draw: random.Random) -> list[tuple[dict[int, int | None]]]:
    """By worker, the one that it waits for, or None: a chain of waiting, and workers beside it."""
    cases: list[tuple[dict[int, int | None]]] = [({0: 1, 1: None},), ({0: 3, 1: None, 2: None, 3: 2, 4: 1},)]
    for workers, chain in ((4, 3), (6, 4), (5, 5), (8, 3), (9, 4)):
        order = [0, *draw.sample(range(1, workers), workers - 1)]
        waits: dict[int, int | None] = dict.fromkeys(range(workers), None)
        waits.update(itertools.pairwise(order[:chain]))
        if workers >= chain + 3:
            waits.update(itertools.pairwise(order[chain:]))  # a chain of its own, which worker 0 has no part in
        cases.append((waits,))
    return cases


def _followed(waits: dict[int, int | None]) -> int:
    worker = 0
    while (there := waits[worker]) is not None:
        worker = there
    return worker


def _hosts(draw: random.Random) -> list[tuple[list[str], int]]:
    """(addresses of all machines, the number of one)."""
    places = ((3, 0), (3, 2), (8, 7), (8, 6), (2, 1), (5, draw.randint(1, 3)), (12, 11), (12, 7))
    return [([f"machine-{at}:2222" for at in range(count)], number) for count, number in places]


def _role(hosts: list[str], number: int, last: int = 0) -> tuple[int, str]:
    """A machine's index and type. last: the evaluator's index."""
    return (number, "worker") if number < len(hosts) - 1 else (last, "evaluator")


# ---- the data that is left, tried on a few numbers in another order each epoch, which the lesson does not show


def _left(rest: Callable[..., Any], epochs: int, steps: int, seed: int) -> list[tuple[Any, Any, int]] | None:
    """Runs in a worker, with 2 epochs done and with 3: an answer's batches, those of all epochs, and the epochs done;
    None where an answer is None.
    """
    import numpy as np
    import tensorflow as tf

    def data() -> Any:
        return tf.data.Dataset.range(3 * steps).shuffle(3 * steps, seed=seed, reshuffle_each_iteration=True).batch(3)

    def listed(batches: Any) -> list[Any]:
        return [np.asarray(batch).tolist() for batch in batches.take(10 * steps)]

    answers = {done: rest(data(), epochs, done, steps) for done in (2, 3)}
    if None in answers.values():
        return None
    whole = listed(data().repeat(epochs))
    return [(listed(answer), whole, done) for done, answer in answers.items()]


def _hint_for_rest(rest: Any, draw: random.Random) -> str:
    epochs, steps = draw.choice(((5, 3), (5, 4), (6, 3), (7, 3)))  # so that no wrong product is the right one
    found = tried("07.rest", _left, rest, epochs, steps, draw.randrange(99))
    return next(filter(None, (_said_of(given, whole, done, steps) for given, whole, done in found)), "")


def _said_of(given: list[Any], whole: list[Any], done: int, steps: int) -> str:
    """What is wrong with the batches that are left; "" for nothing."""
    right = whole[done * steps :]
    if given == right:
        return ""
    if not given:
        return _("nothing is left: `skip` takes more than there is; of what, and how many steps has an epoch?")
    if given == whole:
        return _("these are all epochs: what is done has to be left out")
    if given == whole[: len(right)]:
        return _("as many batches as are left, but in the order of the first epochs, which the weights have seen")
    if given == whole[done:]:
        return _("`skip` counts batches; this many epochs are done")
    return _("these are not the batches that would have come: compare them with data.repeat(epochs)")


_SHARES = N_("the share of a worker is given; what do the shares add up to?")

EXERCISES = [
    Exercise(
        "07.place",
        right=lambda updates, steps: (updates // steps + 1, updates % steps),
        wrong={
            "(updates // steps, updates % steps)": "",
            "(updates // steps + 1, 0)": "this begins the epoch anew, and trains its first batches twice",
            "(updates // steps + 1, updates % steps + 1)": "so one batch is left out that the weights have not seen",
        },
        # (updates that the checkpoint has seen, steps an epoch)
        plain=[(15, 11), (22, 11), (0, 11), (20, 11)],
        drawn=lambda draw: [(draw.randint(1, 400), steps) for steps in (7, 10, 100, 33)],
        hint="after as many updates as an epoch has steps, epoch 2 begins with its first batch",
    ),
    Trial("07.rest", _hint_for_rest),
    Exercise(
        "07.culprit",
        right=_followed,
        wrong={
            "waits[0]": "",
            "min(worker for worker, there in waits.items() if there is None)": (
                "this worker waits for no other, but does any other wait for it?"
            ),
            "next(worker for worker, there in waits.items() if there is None and worker in waits.values())": "",
            "0": "",
        },
        drawn=_waits,
        hint="begin with worker 0, and go to the one that it waits for, as long as there is one",
    ),
    Exercise(
        "07.computed",
        right=lambda steps, every, dies: dies - 1 + steps - (dies - 1) // every * every,
        wrong={
            "steps": Hints.LOST_STEPS,
            "dies - 1 + steps": Hints.FROM_STEP_1,
            "steps - (dies - 1) // every * every": "",
        },
        # (steps in all, steps between two saves, the step before which a worker dies)
        plain=[(40, 10, 26), (40, 10, 5), (40, 10, 21), (40, 10, 20)],
        drawn=lambda draw: [
            (steps, every, draw.randint(2, steps)) for steps, every in ((60, 7), (100, 25), (90, 13), (500, 100))
        ],
        hint="how many steps does the first attempt compute, and after which step does the second one begin?",
    ),
    Exercise(
        "07.config",
        right=lambda hosts, number: tf_config(hosts[:-1], *_role(hosts, number)),
        wrong={
            "tf_config(hosts, *_role(hosts, number))": (
                "the evaluator is outside the cluster: no worker may wait for it as for one of their own"
            ),
            "tf_config(hosts, number)": "all machines train; the last is to evaluate",
            "tf_config(hosts[:-1], *_role(hosts, number, number))": "an index counts machines of one type",
        },
        drawn=_hosts,
        hint="which addresses do the workers have to know, and which task has this machine?",
    ),
    Exercise(
        "07.global_batch",
        right=lambda machines, each: (machines - 1) * each,
        wrong={"machines * each": "", "each": _SHARES, "each / (machines - 1)": _SHARES},
        plain=[(8, 32), (2, 64)],
        drawn=lambda draw: [(draw.randint(3, 40), 2**power) for power in (4, 5, 6, 7)],
        hint="how many of the machines train?",
    ),
]
