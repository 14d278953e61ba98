"""The starts of a run's cluster: one, and again after a failure where the run may; the only restart loop."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from dtk.errors import DtkError, WorkerFailed, WorkerStalled
from dtk.launch import folders, launch
from dtk.live import show
from dtk.records import RunFolder
from dtk.watch.reader import Reader

__all__ = ["starts"]


def starts(job: launch.Job, folder: RunFolder, began: float, quiet: bool) -> list[dict[str, Any]]:
    """Starts the cluster, and again where it fails and may; returns the TF_CONFIGs of the start that went well."""
    for number in range(1, job.restarts + 1):
        try:
            return _attempt(job, folder, began, number, quiet)
        except (WorkerFailed, WorkerStalled):
            folders.set_aside(folder, f"attempt-{number}")
    return _attempt(job, folder, began, job.restarts + 1, quiet)


def _attempt(job: launch.Job, folder: RunFolder, began: float, number: int, quiet: bool) -> list[dict[str, Any]]:
    at = f" on {job.place.name}" * bool(job.place.name)
    note = at + (f", attempt {number} of {job.restarts + 1}" if job.restarts else "")
    reader, started = Reader(folder), time.monotonic() - began
    size = job.workers, job.replicas, job.mode
    view = show.Silent() if quiet else show.show(*size, reader, note=note, program=job.program)
    outcome = "interrupted"
    failed: str | None = outcome
    try:
        configs = launch.launch(job, reader, began, view.update)
        outcome, failed = f"finished in {time.monotonic() - began:.1f} s", None
        return configs
    except DtkError as error:
        outcome = failed = str(error)
        raise
    finally:
        with contextlib.suppress(OSError):  # a full disk must not hide how the run ended
            folder.save_attempt(number, failed, started, time.monotonic() - began)
        view.close(outcome, finished=failed is None)
