"""The cells of a session: how each ended on which worker, and the same cells as one function on one device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from dtk import environment
from dtk.compat.steps.marks import TAKE
from dtk.errors import DtkError
from dtk.language import N_, _

__all__ = ["Cell", "History", "Takes", "replay"]

Limit = tuple[int, int] | None  # recorded steps and batches taken, at which a cell ended early


@dataclass
class Cell:
    """code: None for a function. ends: by worker, (ended without an error, recorded steps, batches taken)."""

    number: int
    code: str | None
    workers: tuple[int, ...]
    ends: dict[int, tuple[bool, int, int]] = field(default_factory=dict)

    def went_through(self, worker: int) -> bool:
        return worker in self.ends and self.ends[worker][0]


class History:
    """Of a session, in the kernel. workers: how many the cluster has."""

    def __init__(self, workers: int):
        self.workers = workers
        self.cells: dict[int, Cell] = {}

    def failed(self) -> bool:
        """Whether a cell that all workers were sent has ended with an error or an interrupt on any of them."""
        shared = [cell for cell in self.cells.values() if len(cell.workers) == self.workers]
        return any(not cell.went_through(worker) for cell in shared for worker in cell.ends)

    def of(self, worker: int) -> list[tuple[int, str]]:
        """(number, code) of the cells that a worker went through; one that was interrupted may never end."""
        through = [cell for cell in self.cells.values() if cell.went_through(worker)]
        return [(cell.number, cell.code) for cell in through if cell.code is not None]

    def to_replay(self) -> tuple[list[tuple[int, str, Limit]], list[int]]:
        """(number, code, limit) of what all workers were sent, and the numbers of the cells that are left out."""
        found: list[tuple[int, str, Limit]] = []
        left = []
        for cell in self.cells.values():
            if cell.code is None or len(cell.workers) < self.workers:
                left.append(cell.number)
            else:
                through = all(map(cell.went_through, cell.workers))
                most = max(((steps, takes) for _, steps, takes in cell.ends.values()), default=(0, 0))
                found.append((cell.number, cell.code, None if through else most))
        return found, left


def replay(cells: Sequence[tuple[int, str, Limit]], strategy: Any) -> None:
    """Runs the cells in a shell of their own, in a process of `dtk.baseline`. cells: (number, code, limit).

    limit: None for a cell that went through; else where it ended, with an error or interrupted, and ends here, too.
    """
    from dtk.interactive import barrier, shell
    from dtk.worker import follow

    place = environment.here()
    assert place is not None, "dtk calls it in a worker"
    ours = shell.make(place.folder.path, {"strategy": strategy})
    files, takes = barrier.Files(), Takes(place)
    for number, code, limit in cells:
        with _stopped(place, takes, limit):
            end = shell.run(ours, number, code, files)
        if follow.ended():
            return  # it has seen enough, whatever the cell made of the exception
        if end["status"] == "error" and limit is None:
            words = N_("cell {cell} went through on the cluster, and raises here: {error}")
            raise DtkError(_(words, cell=number, error=f"{end['type']}: {end['message']}"))


class Takes:
    """Counts the batches that were taken from iterators of this process, which it marks in its journal."""

    def __init__(self, place: environment.Here):
        self.count = 0
        self.after: Callable[[], None] | None = None  # called after each
        self._mark = place.journal.mark
        place.journal.mark = self._counted  # type: ignore[assignment, method-assign]

    def _counted(self, kind: str, *rest: Any) -> None:
        self._mark(kind, *rest)
        if kind == TAKE:
            self.count += 1
            if self.after is not None:
                self.after()


@contextmanager
def _stopped(place: environment.Here, takes: Takes, limit: Limit) -> Iterator[None]:
    """Interrupts the cell at the limit."""
    if limit is None:
        yield
        return
    from dtk.worker.progress import progress

    state = progress(place)
    original = state.before_step

    def stop() -> None:
        if state.steps >= limit[0] and takes.count >= limit[1]:
            raise KeyboardInterrupt

    def before_step(*args: Any, **kwargs: Any) -> None:
        stop()
        original(*args, **kwargs)

    state.before_step = before_step  # type: ignore[method-assign]
    takes.after = stop
    try:
        yield
    finally:
        del state.before_step
        takes.after = None
