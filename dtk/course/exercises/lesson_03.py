"""Exercises of lesson 03: a schedule, the latest checkpoint, a saved moving mean, the memory of several replicas."""

from __future__ import annotations

import random
from statistics import fmean

from dtk.course.exercise import Exercise, Hints, digits


def _files(draw: random.Random) -> list[tuple[list[str]]]:
    """Names of checkpoints in no order; in the third and the last, numbers were padded with zeros for a while."""
    cases: list[list[int | str]] = [
        [9, 10, 1],
        [10, 31, 9],
        ["0009", 12],
        [*draw.sample(range(2, 150), 6)],
        [*draw.sample(range(20, 99), 3), "0003"],
    ]
    return [([f"ckpt-{number}.weights.h5" for number in numbers],) for numbers in cases]


def _number(name: str) -> int:
    return int(name.split("-")[1].split(".")[0])


EXERCISES = [
    Exercise(
        "03.warm_up",
        right=lambda epoch, warm, rate: rate * min(1, (epoch + 1) / warm),
        wrong={
            "rate * min(1, epoch / warm)": Hints.RATE_0,
            "rate * (epoch + 1) / warm": Hints.RATE_RISES,
            "rate * min(1, (epoch + 1) / (warm + 1))": (
                "the full rate comes one epoch late: the last epoch of the warm-up has it already"
            ),
        },
        # (epoch, epochs of the warm-up, rate at its end): the first epoch, the last of the warm-up, and later ones
        plain=[(0, 4, 0.1), (3, 4, 0.1), (4, 4, 0.1), (9, 4, 0.1)],
        drawn=lambda draw: [(draw.randint(0, 12), draw.randint(2, 8), draw.choice([0.2, 0.5, 1.0])) for _ in range(4)],
    ),
    Exercise(
        "03.latest",
        right=lambda names: max(names, key=_number),
        wrong={
            "sorted(names)[-1]": "",
            "names[-1]": Hints.NO_ORDER,
            "max(map(_number, names))": "the number is right; the name is asked for",
        },
        drawn=_files,
        hint='as text, "9" comes after "10": cut the number out of "ckpt-12.weights.h5", and compare numbers',
    ),
    Exercise(
        "03.saved_mean",
        right=lambda parts: fmean(parts[0]),
        wrong={
            "mean(sum(parts, []))": "that is the mean of the whole batch, which one device has, and synchronized=True",
            "mean([mean(part) for part in parts])": "nothing combines the replicas' means in Keras 3; tf_keras does",
            "mean(parts[-1])": "",
        },
        # for each replica the numbers that it saw; not always equally many
        plain=[([[2.0, 3.0], [4.0, 5.0]],), ([[1.0, 2.0, 6.0], [4.0, 7.0]],), ([[3.0, 5.0], [8.0, 1.0], [9.0]],)],
        drawn=lambda draw: [([digits(draw, size) for size in sizes],) for sizes in ((2, 4), (3, 3, 2))],
        hint="each replica has its own moving mean; which of them is written to the file? Look at what was printed",
    ),
    Exercise(
        "03.bytes",
        right=lambda weights, replicas: 4 * 3 * weights * replicas,
        wrong={
            "4 * weights * replicas": "Adam keeps two more numbers for each weight: its moments",
            "4 * 3 * weights": "that is one replica; each of them has a copy of everything",
            "3 * weights * replicas": Hints.FLOAT32,
        },
        plain=[(100, 2), (100, 1)],
        drawn=lambda draw: [(draw.randint(50, 5000), draw.randint(3, 8)) for _ in range(3)],
        hint="bytes of a number, times numbers for each weight, times copies",
    ),
]
