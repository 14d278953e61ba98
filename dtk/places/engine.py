"""What places on other machines have in common: their agents stay for further runs, and end with this process."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dtk.launch.place import Site
from dtk.places.carriers import Heard
from dtk.places.remote import Lent, Remote
from dtk.records import RunFolder

if TYPE_CHECKING:
    from dtk.launch.launch import Job

__all__ = ["Engine"]

_open: weakref.WeakSet[Engine] = weakref.WeakSet()


class Engine:
    """A place whose machines an engine lends. name: what it is called in sentences."""

    name = ""

    def __init__(self) -> None:
        self._remote: Remote | None = None

    def lend(self, heard: Sequence[Heard], tick: Callable[[], None]) -> list[Lent]:
        """A machine for each member of a run, with an agent that speaks to `heard`; ClusterConfigError where it can't.

        heard: by member. tick: to be called about ten times a second by one that waits.
        """
        raise NotImplementedError

    def open(self, job: Job, folder: RunFolder, tick: Callable[[], None]) -> Site:
        """Machines for the members of the run in `folder`, ready to start them; those of the run before, if it can."""
        count = len(folder.members)
        if self._remote is None or len(self._remote.lent) != count or not self._remote.usable():
            self.close()
            self._remote = Remote(self.name, lambda heard: self.lend(heard, tick), count)
            _open.add(self)
        try:
            self._remote.prepare(folder, tick, shared=job.restarts > 0 and count > 1)
        except BaseException:
            self.close()
            raise
        return self._remote

    def end(self, folder: RunFolder) -> None:
        """Brings back what the function wrote into the run's directory, and removes it there."""
        if self._remote is not None:
            self._remote.end(folder)

    def close(self) -> None:
        """Ends the agents; the next run asks the engine for machines anew."""
        remote, self._remote = self._remote, None
        if remote is not None:
            remote.close()


@atexit.register
def _close_all() -> None:
    for engine in list(_open):
        engine.close()
