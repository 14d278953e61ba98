"""Functions that a study can run without TensorFlow: they write down steps that took known times."""

from __future__ import annotations

from dtk.environment import here
from dtk.records import Record
from dtk.worker.progress import progress

STEPS = 6
PER_EXAMPLE = 0.001  # s
REDUCE, LATE = 0.004, 0.002  # s; worker 0 begins each all-reduce so much before the last


def steps(global_batch, only=None):
    """A step computes 1 ms an example, on more than two processes at once twice as long, and then reduces.

    only: (mode, workers) that raises.
    """
    place = here()
    if only == (place.mode, place.workers):
        raise ValueError("no luck")
    together = place.workers if place.mode == "cluster" else 1
    examples = global_batch // together
    compute = examples * PER_EXAMPLE * (2 if place.workers > 2 else 1)
    period = compute + (REDUCE + LATE) * (together > 1)
    state = progress(place)
    for i in range(STEPS):
        state.before_step()
        began, end = 1 + i * period, 1 + (i + 1) * period
        early = LATE * (place.worker == 0)
        if together > 1:
            place.journal.mark("reduce", end - REDUCE - early, end, 4000)
        place.journal.record([Record(place.worker, place.worker, i + 1, 1, 0.5, examples, began, end)])
        state.steps += 1


def silent(global_batch):
    """Records nothing."""
