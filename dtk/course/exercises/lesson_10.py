"""Exercises of lesson 10: updates, the linear rule, a warm-up, time to accuracy."""

from dtk.course.exercise import Exercise, Hints

EXERCISES = [
    Exercise(
        "10.sooner",
        right=lambda one, many: one[0] / one[1] / (many[0] / many[1]),
        wrong={
            "many[1] / one[1]": "more examples a second, but of how many epochs?",
            "one[0] / many[0]": "fewer epochs, but how long does one take?",
            "many[0] / many[1] / (one[0] / one[1])": Hints.UPSIDE_DOWN,
        },
        # Of one worker and of many: (epochs to the loss that is asked for, examples/s)
        plain=[((3, 1000.0), (8, 1000.0)), ((3, 1000.0), (3, 2000.0))],
        drawn=lambda draw: [
            (
                (draw.randint(2, 9), float(draw.randint(500, 5000))),
                (draw.randint(3, 30), float(draw.randint(500, 40000))),
            )
            for _ in range(5)
        ],
        hint="how many seconds does each of them take, for data of any size?",
    ),
    Exercise(
        "10.updates",
        right=lambda examples, batch, epochs: epochs * (examples // batch),
        wrong={
            "examples // batch": "that is one epoch's",
            "epochs * math.ceil(examples / batch)": Hints.DROPPED,
            "epochs * examples // batch": "the rest of an epoch is not kept for the next one: each epoch drops its own",
        },
        plain=[(1000, 100, 3), (1000, 300, 3), (999, 100, 2)],
        drawn=lambda draw: [(draw.randint(1000, 5000), batch, draw.randint(2, 9)) for batch in (32, 128, 256, 700)],
        hint="how many full batches does one epoch have?",
    ),
    Exercise(
        "10.rate",
        right=lambda rate, batch, each, workers: rate * each * workers / batch,
        wrong={
            "rate * workers": (
                "the rule counts examples, not workers: the rate may have been found for another batch than a worker's"
            ),
            "rate * math.sqrt(each * workers / batch)": "that is the square-root rule; the linear one is asked for",
            "rate * batch / (each * workers)": Hints.UPSIDE_DOWN,
        },
        # (rate that is good for a batch, that batch, examples of a worker, workers)
        plain=[(0.1, 32, 32, 4), (0.1, 64, 32, 4), (0.1, 64, 64, 1)],
        drawn=lambda draw: [
            (draw.randint(1, 50) / 100, batch, each, workers)
            for batch, each, workers in ((256, 32, 256), (32, 128, 2), (128, 32, 8), (100, 10, 3))
        ],
        hint="by what was the global batch multiplied?",
    ),
    Exercise(
        "10.warm_up",
        right=lambda step, steps, first, last: first + (last - first) * min(step / steps, 1),
        wrong={
            "first + (last - first) * step / steps": Hints.RATE_RISES,
            "last * min(step / steps, 1)": Hints.RATE_0,
            "first if step < steps else last": "that is a jump; the rate is to rise in equal steps",
        },
        # (step, steps of warm-up, rate of the small batch, rate that it ends with)
        plain=[(0, 10, 0.1, 0.4), (5, 10, 0.1, 0.4), (10, 10, 0.1, 0.4), (25, 10, 0.1, 0.4)],
        drawn=lambda draw: [
            (draw.randint(1, end), steps, 0.05, draw.randint(2, 8) / 10)
            for steps, end in ((7, 6), (20, 60), (33, 32), (40, 120))
        ],
    ),
]
