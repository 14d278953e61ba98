"""Functions that a study can run without TensorFlow: they write down steps that took known times."""

from __future__ import annotations

from dtk.environment import here
from dtk.records import Record
from dtk.studies import study as studies
from dtk.worker.progress import progress

STEPS = 6
PER_EXAMPLE = 0.001  # s
REDUCE, LATE = 0.004, 0.002  # s; worker 0 begins each all-reduce so much before the last


def steps(global_batch, only=None, slower=1.0):
    """A step computes 1 ms an example, on more than two processes at once twice as long, and then reduces.

    only: (mode, workers) that raises.
    """
    place = here()
    if only == (place.mode, place.workers):
        raise ValueError("no luck")
    together = place.workers if place.mode == "cluster" else 1
    examples = global_batch // together
    compute = examples * PER_EXAMPLE * (2 if place.workers > 2 else 1) * slower
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


def other_steps(global_batch):
    steps(global_batch, slower=2.0)


def counted(monkeypatch, interrupt_at=None):
    """Mode and workers of each run that is really made, in a list that grows; one of them is interrupted instead."""
    made, original = [], studies.carry_out

    def carry_out(job, began):
        if len(made) == interrupt_at:
            raise KeyboardInterrupt
        made.append((job.mode, job.workers))
        return original(job, began)

    monkeypatch.setattr(studies, "carry_out", carry_out)
    return made
