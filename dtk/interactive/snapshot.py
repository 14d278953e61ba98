"""A worker's corner of the session's directory, as one file, as if its function had returned now."""

from __future__ import annotations

import os
import zipfile
from typing import Any

from dtk.interactive.catch_up import settle_counts
from dtk.records import events
from dtk.worker import ship, states, updates
from dtk.worker.progress import progress

__all__ = ["snapshot"]

_OWN = ("shown.jsonl", "result.pkl")  # of the session, not of a run
_HANDED = ("value-", "sync-", "lent-", "so-far-")


def snapshot(life: Any, message: dict[str, Any]) -> dict[str, Any]:
    """On all workers at once: weights that are put together when they are read need all of them."""
    place, corner = life.place, life.place.folder.path
    grown = ("states.bin", "units.jsonl", "events.jsonl")
    before = {corner / name: (corner / name).stat().st_size for name in grown if (corner / name).exists()}
    states.finish(goes_on=True)
    settle_counts(life)
    updates.keep_beside(place)
    progress(place).finish()
    updates.write(place)
    place.journal.event(events.Finished(place.now()))
    path = corner / message["file"]
    part = path.with_suffix(".part")
    with zipfile.ZipFile(part, "w") as archive:
        for each in sorted(corner.iterdir()):
            own = each.name in _OWN or each.name.startswith(_HANDED) or each.suffix == ".part"
            if each.is_file() and not own:
                archive.write(each, each.name)
        archive.writestr("result.pkl", ship.pack_result(None))
    part.replace(path)
    for log, size in before.items():
        os.truncate(log, size)  # here the session goes on
    return {"steps": progress(place).steps}
