"""The live view of a cell in which steps are recorded: the dashboard of `dtk.run`, from the first of them on.

Elsewhere than in a notebook with ipywidgets there is none: what the workers print is shown as ever.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dtk.language import _
from dtk.live import show
from dtk.watch.reader import Reader, size

if TYPE_CHECKING:
    from dtk.interactive.begin import Started
    from dtk.interactive.talk import Outcome

__all__ = ["View"]

_SOONEST = 1.0  # seconds: a cell that takes less needs none


class View:
    """Of one cell after another: `begin`, `look` as long as it runs, `end`."""

    def __init__(self, started: Started):
        self._started = started
        self._live: tuple[Reader, show.Live] | None = None
        self._here = show.kind() == "widgets"
        self._before: list[int] = []
        self._began = 0.0

    def begin(self) -> None:
        self._before, self._began = self._recorded(), time.monotonic()

    def look(self, outcome: Outcome) -> None:
        due = self._here and self._live is None and time.monotonic() - self._began >= _SOONEST
        if due and self._recorded() != self._before:
            job = self._started.job
            reader = Reader(self._started.folder)  # of the session, so that its curve goes on
            heading = show.heading(job.workers, job.replicas, job.mode)
            title = _("{heading}, cell {cell}", heading=heading, cell=outcome.number)
            self._live = reader, show.show(job.workers, job.replicas, job.mode, reader, title=title)
        if self._live is not None:
            reader, live = self._live
            reader.look()
            live.update(self._states(outcome))

    def end(self, outcome: Outcome) -> None:
        """The workers are through, or can't go on; then a cell that goes on has another view."""
        if self._live is None:
            return
        reader, live = self._live
        reader.catch_up()
        states = self._states(outcome)
        live.update(states)
        finished = all(state == "finished" for state in states)
        live.close("went through" if finished else "stopped", finished=finished)
        self._live = None

    def _recorded(self) -> list[int]:
        """Bytes of each worker's records."""
        return [size(worker.path / "records.jsonl") for worker in self._started.folder.each]

    def _states(self, outcome: Outcome) -> list[str]:
        ends = {worker: "finished" if end["status"] == "ok" else "failed" for worker, end in outcome.ends.items()}
        lost = {peer.number: "failed" for peer in self._started.peers if peer.lost is not None}
        running = {peer.number: "training" for peer in self._started.peers if peer.running is not None}
        states = {**ends, **running, **lost}
        return [states.get(peer.number, "finished") for peer in self._started.peers]
