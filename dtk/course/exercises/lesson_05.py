"""Exercises of lesson 05 and its appendix: losses of steps and epochs, accuracy as a share, a penalty once."""

from __future__ import annotations

import random
from functools import partial

import numpy as np

from dtk.course.exercise import Exercise, Hints, Trial, penalty_hint
from dtk.language import N_
from dtk.runs import Run


def _short_step(run: Run) -> tuple[list[float], int, int]:
    """The first step with fewer examples than a full batch: (shares, its examples, a full batch)."""
    steps = run.records.groupby("step").examples.sum()
    full = int(steps.max())
    step = steps.index[steps < full][0]
    return run.records[run.records.step == step].loss.tolist(), int(steps[step]), full


def _guesses(draw: random.Random) -> list[tuple[np.ndarray, np.ndarray, int]]:
    """(guesses, labels, global batch) of one replica, some of them with fewer examples than their fair part."""
    cases = [(np.array([1, 2, 3]), np.array([1, 0, 3]), 5), (np.array([4, 5]), np.array([4, 5]), 5)]
    for mine, whole in ((4, 8), (5, 12), (3, 9)):
        labels = np.array([draw.randint(0, 9) for _ in range(mine)])
        cases.append((np.where(np.arange(mine) % 3 == 1, labels + 1, labels), labels, whole))
    return cases


EXERCISES = [
    Exercise(
        "05.short",
        right=lambda shares, examples, full: sum(shares) * full / examples,
        wrong={
            "sum(shares)": "",
            "shares[0] * full / examples": "this is one replica's part; the loss of the step is the sum of all shares",
            "sum(shares) / examples": "it divides by the full batch and by the step's images; undo the first division",
        },
        hint="by what was each share of this step divided, and how many images are in the step?",
        close=1e-3,
        play=lambda formula, run: formula(*_short_step(run)),
    ),
    Exercise(
        "05.epoch",
        right=lambda shares: sum(map(sum, shares)) / len(shares),
        wrong={
            "mean(sum(shares, []))": (
                "that is what a `Mean` metric over the shares reports: it divides by the number of replicas as well"
            ),
            "sum(map(sum, shares))": "that is the sum over the epoch's steps, not their mean",
            "sum(shares[-1])": Hints.LAST_STEP,
        },
        # shares by step and replica, for one to four replicas
        plain=[([[1.25, 2.25], [1.0, 2.0]],), ([[0.5, 1.0], [0.25, 0.75], [0.5, 0.25]],)],
        drawn=lambda draw: [
            ([[draw.randint(1, 40) / 8 for _ in range(replicas)] for _ in range(steps)],)
            for replicas, steps in ((3, 4), (1, 3), (4, 5))
        ],
    ),
    Exercise(
        "05.accuracy",
        right=lambda guesses, labels, global_batch: float(np.sum(guesses == labels)) / global_batch,
        wrong={
            "float(np.mean(guesses == labels))": Hints.OWN_MEAN,
            "float(np.sum(guesses == labels))": (
                "that is a count: what the replicas return is added up, so that it has to be a share of the accuracy"
            ),
            "float(np.sum(guesses != labels)) / global_batch": "this counts the wrong guesses",
        },
        drawn=_guesses,
    ),
    Trial("05.penalty", partial(penalty_hint, argument="share"), stub=N_("write the function first")),
    Exercise(
        "05.numbers",
        right=lambda run: sum(weight.size for weight in run.weights),
        wrong={
            "len(run.weights)": "",
            "4 * sum(weight.size for weight in run.weights)": "that counts bytes; count numbers",
            "max(weight.size for weight in run.weights)": "that is the largest array alone",
        },
        hint="how many arrays are in run.weights, and how many numbers are in one of them? See `.size`",
    ),
    Exercise(
        "05.counter",
        right=lambda step, steps_an_epoch: (step - 1) // steps_an_epoch + 1,
        wrong={
            "step // steps_an_epoch": "try the first step: it belongs to epoch 1, not 0",
            "step // steps_an_epoch + 1": "try an epoch's last step: it still belongs to its epoch",
            "(step - 1) % steps_an_epoch + 1": "that is the number of the step within its epoch",
        },
        # (step, steps in an epoch), both counted from 1: first, last and middle steps of epochs
        plain=[(1, 12), (12, 12), (13, 12), (24, 12), (30, 12), (10, 10)],
        drawn=lambda draw: [(draw.randint(50, 90), 7), (5, 1)],
    ),
]
