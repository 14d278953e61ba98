"""What each member of a run did when, as the timeline draws it: a lane for each worker and for the evaluator."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dtk.records import evaluations
from dtk.records.events import Failed, FaultCame, Finished, Running, Starting, of_kind
from dtk.scaling import timing
from dtk.scaling.pace import within_epochs
from dtk.view.palette import EVALUATOR_COLOR, member_name, worker_color

if TYPE_CHECKING:
    import pandas

    from dtk.records import RunFolder
    from dtk.records.tables import Recorded

__all__ = ["Lane", "end", "starts"]


class Lane(NamedTuple):
    """One member's times in seconds since the call of `dtk.run`.

    running: its function was called. ended: it finished or failed; NaN while it runs. steps: rows of
    `pace.within_epochs`, in order. evaluations: an evaluator's, as in `Run.evaluations`; None for a worker. since: the
    start of the cluster that this lane belongs to. faults: when each came, and its kind.
    """

    name: str
    worker: int
    running: float
    ended: float
    failed: bool
    steps: pandas.DataFrame
    evaluations: pandas.DataFrame | None = None
    since: float = 0.0
    faults: tuple[tuple[float, str], ...] = ()

    @property
    def color(self) -> str:
        return worker_color(self.worker) if self.evaluations is None else EVALUATOR_COLOR


def starts(run: Recorded) -> list[list[Lane]]:
    """The lanes of each start of the cluster; one without restarts."""
    if run.folder is None:
        return [[]]
    earlier = run.folder.earlier
    if not earlier:
        return [_lanes(run.folder, run.records, 0.0)]
    before = [_lanes(folder, folder.own_records, 0.0 if k == 0 else None) for k, folder in enumerate(earlier)]
    return [*before, _lanes(run.folder, run.folder.own_records, None)]


def _lanes(folder: RunFolder, records: pandas.DataFrame, since: float | None) -> list[Lane]:
    """since: seconds, None for when the member's process started."""
    times = within_epochs(timing.step_times(records))
    lanes = []
    for member in folder.members:
        worker, events = member.worker, member.events
        at = {event.state: event.at for event in reversed(events)}  # the first of each
        ended = at.get(Finished.state, at.get(Failed.state, float("nan")))
        steps = times[times.worker == worker]
        mine = evaluations(events) if worker == folder.workers else None
        begun = at.get(Running.state, at.get(Starting.state, 0.0))
        first = at.get(Starting.state, begun) if since is None else since
        faults = tuple((event.at, event.kind) for event in of_kind(events, FaultCame))
        lanes.append(
            Lane(
                member_name(worker, folder.workers),
                worker,
                begun,
                ended,
                Failed.state in at,
                steps,
                mine,
                first,
                faults,
            )
        )
    return lanes


def end(lane: Lane) -> float:
    """The last that is known of a member."""
    table = lane.steps if lane.evaluations is None else lane.evaluations
    last = float(table.ended.iloc[-1]) if len(table) else lane.running
    return max(last, lane.ended) if np.isfinite(lane.ended) else last
