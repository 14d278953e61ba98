"""What places on other machines have in common: their agents stay for further runs, and end with the place."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dtk.errors import ClusterConfigError
from dtk.language import N_, _
from dtk.launch.place import Site
from dtk.places.carriers import Heard, Lent
from dtk.places.remote import Remote
from dtk.records import RunFolder

if TYPE_CHECKING:
    from dtk.launch.launch import Job

__all__ = ["Engine"]


class Engine:
    """A place whose machines an engine lends, until `close`, or until nothing refers to it any more.

    name: what it is called in sentences, marked to be translated there. given_back: what ends the lending, the last
    first; `lend` adds to it.
    """

    name = ""

    def __init__(self) -> None:
        self._remote: Remote | None = None
        self._run: Path | None = None  # the one that is under way
        self.given_back = contextlib.ExitStack()
        weakref.finalize(self, self.given_back.close)  # also at the end of this process

    def lend(self, heard: Sequence[Heard], tick: Callable[[], None]) -> list[Lent]:
        """A machine for each member of a run, with an agent that speaks to `heard`; ClusterConfigError where it can't.

        heard: by member. tick: to be called about ten times a second by one that waits.
        """
        raise NotImplementedError

    def open(self, job: Job, folder: RunFolder, tick: Callable[[], None]) -> Site:
        """Machines for the members of the run in `folder`, ready to start them; those of the run before, if it can."""
        count = len(folder.members)
        if self._run not in (None, folder.path):
            words = N_("another run is under way on this place ({name}); make one for each run")
            raise ClusterConfigError(_(words, name=_(self.name)))
        self._run = folder.path
        try:
            if self._remote is None or len(self._remote.lent) != count or not self._remote.usable():
                self._give_back()
                self._remote = Remote(_(self.name), lambda heard: self.lend(heard, tick), count)
                self.given_back.callback(self._remote.close)
            self._remote.prepare(folder, tick, shared=bool(job.restarts or job.evaluator) and count > 1)
        except BaseException:
            self._give_back()
            raise
        return self._remote

    def end(self, folder: RunFolder) -> None:
        """Brings back what the function wrote into the run's directory, and removes it there."""
        if self._run != folder.path:
            return  # it never began here
        self._run = None
        if self._remote is not None:
            self._remote.end(folder)

    def _give_back(self) -> None:
        """Ends the agents and gives their machines back; the next run asks the engine anew."""
        self._remote = None
        self.given_back.close()

    def close(self) -> None:
        """Ends the agents and gives their machines back; the next run asks the engine anew."""
        self._give_back()
