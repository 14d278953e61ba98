"""A worker's corner of the session's directory, copied as if its function had returned now."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from dtk import events
from dtk.inside.again import settle_counts
from dtk.process import ship
from dtk.recording import updates
from dtk.recording.progress import progress

__all__ = ["snapshot"]

_OWN = shutil.ignore_patterns("tmp", "shown.jsonl", "value-*.pkl", "weights-*.part")


def snapshot(life: Any, message: dict[str, Any]) -> dict[str, Any]:
    """On all workers at once: weights that are put together when they are read need all of them."""
    place = life.place
    log = place.folder.path / "events.jsonl"
    before = log.stat().st_size
    settle_counts(life)
    updates.keep_beside(place)
    progress(place).finish()
    updates.write(place)
    place.journal.event(events.Finished(place.now()))
    copy = Path(message["to"]) / place.folder.path.name
    shutil.copytree(place.folder.path, copy, ignore=_OWN)
    (copy / "result.pkl").write_bytes(ship.pack_result(None))
    os.truncate(log, before)  # here the session goes on
    return {"steps": progress(place).steps}
