"""A session's cells as one function, for `dtk.run` and `dtk.baseline`: `Cluster.baseline` calls it on one device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dtk import environment
from dtk.compat.steps.marks import TAKE
from dtk.errors import DtkError
from dtk.interactive.own_files import Files
from dtk.language import N_, _

__all__ = ["Takes", "session"]


def session(cells: Sequence[tuple[int, str, tuple[int, int] | None]], strategy: Any) -> None:
    """Runs the cells in a shell of their own. cells: (number, code, limit).

    limit: None for a cell that went through; else the recorded steps, and the batches taken, at which it ended, with an
    error or interrupted, and ends here, too.
    """
    from dtk.interactive import shell
    from dtk.worker import follow

    place = environment.here()
    assert place is not None, "dtk calls it in a worker"
    ours = shell.make(place.folder.path, {"strategy": strategy})
    files = Files()
    takes = Takes(place)
    for number, code, limit in cells:
        files.add(shell.name_of_cell(number))
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
def _stopped(place: environment.Here, takes: Takes, limit: tuple[int, int] | None) -> Iterator[None]:
    """Inside, it goes no further than so many recorded steps, and so many batches taken."""
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
