"""Exercises of lesson 11: bytes of a step's states, whole and in shards, what fits, and a pipeline's idle part."""

from dtk.course.exercise import Exercise, Hints

EXERCISES = [
    Exercise(
        "11.states",
        right=lambda weights, moments: weights * (2 + 2 + 4 + 4 * moments),
        wrong={
            "2 * weights": "",
            "weights * (2 + 4 + 4 * moments)": "",
            "weights * (2 + 2 + 4 + 2 * moments)": Hints.FLOAT32,
        },
        # (weights, float32 numbers that the optimizer keeps for each)
        plain=[(1_000, 2), (1_000, 0)],
        drawn=lambda draw: [(draw.randint(1_000, 10**9), moments) for moments in (0, 1, 2, 3)],
        hint="add up the bytes for one weight: weight, gradient, float32 copy, and each number of the optimizer",
    ),
    Exercise(
        "11.zero",
        right=lambda weights, workers: 4 * weights + 12 * weights / workers,
        wrong={
            "16 * weights / workers": Hints.STATE_ALONE,
            "16 * weights": "this is plain data parallelism: nothing is divided",
            "4 * weights + 8 * weights / workers": "the float32 copy of the weights is optimizer state, too",
        },
        plain=[(1_000, 4), (1_000, 1)],
        drawn=lambda draw: [(draw.randint(1_000, 10**9), workers) for workers in (2, 8, 64)],
        hint="add up what every worker keeps whole, and its part of what is divided",
    ),
    Exercise(
        "11.fits",
        right=lambda memory, weights, per_example: max(0, (memory - 16 * weights) // per_example),
        wrong={
            "memory // per_example": "",
            "(memory - 16 * weights) // per_example": (
                "a batch can't be smaller than nothing: there is a case in which the states alone do not fit"
            ),
            "max(0, (memory - 16 * weights) / per_example)": "a part of an example can't be trained on",
        },
        # (bytes of memory, weights, bytes of one example's activations)
        plain=[(26_000, 1_000, 1_000), (26_900, 1_000, 1_000), (25_999, 1_000, 1_000), (12_000, 1_000, 1_000)],
        drawn=lambda draw: [
            (draw.randint(40, 80) * 10**9, draw.randint(1, 7) * 10**9, 1_887_436_801) for _ in range(4)
        ],
        hint="what lies in the memory before the first example comes, and how many bytes of it for each weight?",
    ),
    Exercise(
        "11.bubble",
        right=lambda stages, batches: (stages - 1) / (batches + stages - 1),
        wrong={
            "(stages - 1) / batches": "this compares idle slots with busy ones; asked for is their part of all slots",
            "batches / (batches + stages - 1)": "this is the part in which a stage works",
            "(stages - 1) / stages": "that holds for a single batch; more of them fill the gaps",
        },
        plain=[(4, 4), (4, 1), (1, 5)],
        drawn=lambda draw: [(draw.randint(2, 16), draw.randint(2, 64)) for _ in range(4)],
    ),
]
