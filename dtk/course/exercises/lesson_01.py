"""Exercises of lesson 01: the ring's second half, which chunk goes when, messages and bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dtk.course.exercise import Exercise, Hints, NotSolved
from dtk.course.rehearsal import Outcome, Team, all_gather, on_parts, reduce_scatter, teams
from dtk.language import _


def _gathered(gather: Callable[..., Any], team: Team) -> Outcome | None:
    """What the workers hold after the ring's first half and this second one, and what they sent."""

    def work(ring: Any, numbers: np.ndarray) -> np.ndarray:
        chunks = ring.split(numbers)
        reduce_scatter(ring, chunks)
        sent = ring.messages_sent
        gather(ring, chunks)
        if ring.messages_sent == sent:
            words = _("{exercise} is not solved yet: no chunk is sent", exercise="01.all_gather")
            raise NotSolved(words, remedy=_("write its two lines first"))
        return np.concatenate(chunks)  # not join: chunks may have a wrong size now

    return on_parts(work, team)


ALL_GATHER = Exercise(
    "01.all_gather",
    right=all_gather,
    wrong={
        partial(all_gather, keep="sum"): Hints.COPIED,
        partial(all_gather, keep="as sent"): (
            "what comes is another chunk than the one you sent; it has a number of its own"
        ),
        partial(all_gather, keep="nothing"): "messages are exchanged, and what comes is not kept",
        partial(all_gather, first=0): (
            "the first chunk that a worker sends has to be the complete one; look at the picture again"
        ),
        partial(all_gather, more=1): "the sum is there, and fewer exchanges are enough",
    },
    drawn=lambda draw: teams(draw, [(3, 7), (4, 10), (2, 5), (5, 12)], 1, 99),
    hint="not every worker has the whole sum; draw your run with dtk.plot.ring",
    play=_gathered,
)
CHUNK = Exercise(
    "01.chunk",
    right=lambda worker, step, workers: (worker - step) % workers,
    wrong={
        "worker - step": Hints.GO_ROUND,
        "(worker + step) % workers": (
            "this goes round the wrong way: in its second step a worker passes on what came in its first"
        ),
        "(worker + 1 - step) % workers": (
            "this is all_gather's line, whose steps count from 0 again; here they go on counting"
        ),
    },
    # (worker, step, workers): steps of both halves
    plain=[(0, 0, 3), (2, 1, 3), (0, 1, 3), (1, 2, 3)],
    drawn=lambda draw: [
        *((draw.randrange(n), draw.randrange(n - 1, 2 * n - 2), n) for n in (2, 4, 5, 8)),
        *((draw.randrange(n), draw.randrange(n - 1), n) for n in (4, 6, 9)),
    ],
)
MESSAGES = Exercise(
    "01.messages",
    right=lambda workers: 2 * workers * (workers - 1),
    wrong={
        "2 * (workers - 1)": "these are the messages of one worker",
        "workers * (workers - 1)": Hints.HALF_RING,
        "2 * workers * workers": "each half has one step less: its own chunk a worker has",
    },
    plain=[(2,), (3,), (4,)],
    drawn=lambda draw: [(draw.randint(5, 200),) for _ in range(3)],
)
BYTES = Exercise(
    "01.bytes",
    right=lambda workers, gradient_bytes: 2 * (workers - 1) * gradient_bytes // workers,
    wrong={
        "(workers - 1) * gradient_bytes": (
            "that is what it costs to send the whole gradient to each of the others; in a ring a message is a chunk"
        ),
        "(workers - 1) * gradient_bytes // workers": Hints.HALF_RING,
        "2 * gradient_bytes": "that is where it tends to with many workers; with few it is less",
    },
    # (workers, bytes of the gradient), which the workers divide evenly
    drawn=lambda draw: [(n, 8 * n * draw.randint(10, 1000)) for n in (2, 4, 3, 5, 8, 100)],
)
EXERCISES = [ALL_GATHER, CHUNK, BYTES, MESSAGES]
