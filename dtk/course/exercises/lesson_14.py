"""Exercises of lesson 14: a share of the mean over words, micro-batches' weights, a sum that is clipped, a variance."""

import numpy as np

from dtk.course.exercise import Exercise, Hints

EXERCISES = [
    Exercise(
        "14.share",
        right=lambda losses, real, counts: np.dot(losses, real) / sum(counts),
        wrong={
            "np.dot(losses, real) / sum(real)": Hints.OWN_MEAN,
            "np.dot(losses, real) / sum(real) / len(counts)": "a mean of means: words count unequally in it",
            "sum(losses) / sum(counts)": "padding has a loss as well: leave it out",
            "np.dot(losses, real) / len(losses) / len(counts)": "padding is no word: divide by the words alone",
        },
        plain=[([4.0, 9.0, 9.0], [1, 0, 0], [1, 3]), ([1.0, 2.0, 3.0, 9.0], [1, 1, 1, 0], [1, 3])],
        drawn=lambda draw: [
            ([draw.uniform(0.5, 5) for _ in range(6)], [1] * n + [0] * (6 - n), [n, draw.randint(6, 9), 2][:replicas])
            for n, replicas in ((4, 2), (3, 3), (5, 3))
        ],
    ),
    Exercise(
        "14.weights",
        right=lambda counts: [count / sum(counts) for count in counts],
        wrong={
            "[1 / len(counts) for count in counts]": "so micro-batches count the same, and words do not",
            "[1 / sum(counts) for count in counts]": "each is divided by its own words already: undo that",
            "[sum(counts) / count for count in counts]": Hints.UPSIDE_DOWN,
        },
        drawn=lambda draw: [([1, 3],), *(([draw.randint(1, 40) for _ in range(parts)],) for parts in (2, 3, 4, 8))],
    ),
    Exercise(
        "14.clip",
        right=lambda shares, limit: np.sum(shares, 0) * min(1, limit / np.linalg.norm(np.sum(shares, 0))),
        wrong={
            "sum(np.multiply(s, min(1, limit / np.linalg.norm(s))) for s in shares)": "clip the sum, not shares",
            "np.sum(shares, 0) * limit / np.linalg.norm(np.sum(shares, 0))": "what is shorter than the limit stays",
            "np.clip(np.sum(shares, 0), -limit, limit)": "the limit is for the length of the whole",
        },
        plain=[([[3.0, 0.0], [0.0, 4.0]], 2.5), ([[0.3, 0.0], [0.0, 0.4]], 2.5)],
        drawn=lambda draw: [([[draw.uniform(1, 4) for _ in "123"] for _ in range(n)], n * 2.0) for n in (2, 3, 4)],
    ),
    Exercise(
        "14.variance",
        right=lambda counts, means, variances: (
            np.average(variances + np.square(means), weights=counts) - np.average(means, weights=counts) ** 2
        ),
        wrong={
            "mean(variances)": "this leaves out how far apart the replicas' means are",
            "np.average(variances, weights=counts)": "the replicas' means differ: that counts, too",
            "np.average(variances, weights=counts) + np.var(means)": "the means have weights, too: their counts",
        },
        plain=[([4, 4], [0.0, 1.0], [0.0, 0.0]), ([1, 3], [4.0, 2.0], [0.0, 2 / 3])],
        drawn=lambda draw: [([3, n + 4], [1.0, draw.uniform(2, 5)], [draw.uniform(1, 4), 0.5]) for n in (2, 3, 4)],
    ),
]
