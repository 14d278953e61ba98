"""A run's folder that a test writes as workers would, for the tests of what follows a run."""

from __future__ import annotations

from dtk.records import Journal, Record, RunFolder
from dtk.records.events import Training

BAR = "\x1b[1m1/2\x1b[0m \x1b[32m━━\x1b[0m loss: 2\r\x1b[1m2/2\x1b[0m \x1b[32m━━━━\x1b[0m loss: 1\r\n"


def empty(path, workers=2, has_evaluator=False):
    """An empty run."""
    run = RunFolder(path, workers, has_evaluator)
    for member in run.members:
        member.path.mkdir()
        (member.path / "log.txt").write_text("")
    return run


def write(folder, worker, words):
    with (folder.worker(worker).path / "log.txt").open("a") as file:
        file.write(words)


def step(folder, number, workers=(0, 1), epoch=1, began=None):
    began = number * 0.1 if began is None else began
    for k in workers:
        journal = Journal(folder.worker(k))
        journal.record([Record(k, k, number, epoch, 0.5, 64, began, began + 0.09)])
        journal.close()


def tell(corner, *events):
    """What one of the run's processes wrote down."""
    journal = Journal(corner)
    for event in events:
        journal.event(event)
    journal.close()


def announce(folder, steps, epochs, at=0.05):
    for worker in folder.each:
        tell(worker, Training(at, steps=steps, epochs=epochs))
