"""Exercises of lesson 09: Amdahl's law, a step of n workers, bandwidth from two timings, how many workers it takes."""

from __future__ import annotations

import math
import random

from dtk.course.exercise import Exercise, Hints


def _timings(draw: random.Random) -> list[tuple[float, float, float, float]]:
    """(bytes, s, more bytes, s) of all-reduces of two workers."""
    cases = []
    for latency, bandwidth in ((1e-3, 1e9), (5e-5, 1e9), *((draw.randint(1, 90) * 1e-5, 2.5e8) for _ in range(4))):
        small = draw.randint(1, 9) * 1e5
        large = draw.randint(2, 9) * 4e6
        cases.append((small, 2 * latency + small / bandwidth, large, 2 * latency + large / bandwidth))
    return cases


def _enough(serial: int, divided: int, times: float) -> int:
    left = (serial + divided) / times - serial  # ms in which the workers have to be through
    return math.ceil(divided / left) if left > 0 else 0


EXERCISES = [
    Exercise(
        "09.amdahl",
        right=lambda serial, workers: 1 / (serial + (1 - serial) / workers),
        wrong={
            "serial + (1 - serial) / workers": (
                "that is how long a step takes, compared with one worker's; how many times as fast is it?"
            ),
            "1 / serial": "that is the limit for any number of workers; it takes these workers",
            "1 / (serial / workers + 1 - serial)": (
                "the workers divide the computing; the serial part is what they do not divide"
            ),
        },
        # (serial share of one worker's step, workers)
        plain=[(0.2, 2), (0.2, 1), (0.5, 8)],
        drawn=lambda draw: [(draw.randint(1, 60) / 100, workers) for workers in (2, 4, 16, 100, 1000)],
        hint="write down how long a step takes, in parts of one worker's step, then divide 1 by it",
    ),
    Exercise(
        "09.bandwidth",
        right=lambda small, short, large, long: (large - small) / (long - short),
        wrong={
            "large / long": "",
            "(long - short) / (large - small)": Hints.UPSIDE_DOWN,
            "2 * (large - small) / (long - short)": "two workers send each byte once: 2 (n - 1) / n is 1",
        },
        drawn=_timings,
        hint="both all-reduces have the same latency; what is left when you subtract?",
    ),
    Exercise(
        "09.step",
        right=lambda workers, compute, size, latency, bandwidth: (
            compute / workers + 2 * (workers - 1) * latency + 2 * size * (workers - 1) / workers / bandwidth
        ),
        wrong={
            "compute / workers": Hints.REDUCES,
            "compute / workers + 2 * (workers - 1) * latency + size / bandwidth": Hints.RING_BYTES,
            "compute / workers + (workers - 1) * latency + size * (workers - 1) / workers / bandwidth": Hints.HALF_RING,
        },
        # (workers, s of computing, bytes, s of latency, bytes/s)
        plain=[(2, 1.0, 1e8, 50e-6, 1e9), (1, 1.0, 1e8, 50e-6, 1e9), (8, 1.0, 1e8, 50e-6, 1e9)],
        drawn=lambda draw: [
            (workers, draw.randint(1, 9) / 4, draw.randint(1, 400) * 1e6, draw.randint(5, 900) * 1e-6, 1.25e9)
            for workers in (3, 16, 100, 512)
        ],
    ),
    Exercise(
        "09.workers",
        right=_enough,
        wrong={
            "math.ceil(times)": "so many would do if nothing were serial",
            "math.ceil(divided / ((serial + divided) / times - serial))": (
                "for some wishes no number of workers is enough; the answer is 0 there"
            ),
            "_enough(serial, divided, times) + 1": "one worker fewer is enough as well",
        },
        # (ms that are not divided, ms that workers divide, how many times as fast it is to be)
        plain=[(20, 80, 2.3), (20, 80, 4.7), (20, 80, 5.5)],
        drawn=lambda draw: [
            (draw.randint(2, 9), 101, 3.3),
            (draw.randint(2, 9), 211, 7.7),
            (draw.randint(60, 90), 101, 2.9),
            (draw.randint(1, 3), 307, 20.5),
        ],
        hint="how long may a step take, and how much of that is left for what the workers divide?",
    ),
]
