"""Trainings without TensorFlow: they count, record, and come by the hook of the faults as a recorder does."""

from __future__ import annotations

import time

import dtk
from dtk.records import Record
from dtk.worker.progress import progress


def steps_of(count, first=1, then=None):
    """Records the steps `first` to `count`; `then(step)` is called after each."""
    place = dtk.environment.here()
    state = progress(place)
    state.begins(first - 1)
    while state.steps < count:
        began = place.now()
        state.before_step()
        state.steps += 1
        row = Record(place.worker, place.worker, state.steps, 1, 0.5 / state.steps, 64, began, place.now())
        place.journal.record([row])
        if then is not None:
            then(state.steps)
    return state.steps


def in_step(count, first=1, then=None):
    """As collectives do: nobody is more than one step ahead of a peer."""
    place = dtk.environment.here()

    def wait(step):
        if then is not None:
            then(step)
        for peer in place.run.each:
            while not any(record.step >= step for record in peer.records):
                time.sleep(0.01)

    return steps_of(count, first, wait)


def saved_step():
    file = dtk.run_dir() / "saved.txt"
    return int(file.read_text()) if file.exists() else 0


def resuming(count, every):
    """Saves its step every so many steps, and goes on from there."""

    def save(step):
        if dtk.is_chief() and step % every == 0:
            (dtk.run_dir() / "saved.txt").write_text(str(step))

    return in_step(count, saved_step() + 1, save)
