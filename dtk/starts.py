"""The starts of a run's cluster: one, and again after a failure where the run may; the only restart loop."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from dtk.errors import DtkError, WorkerFailed, WorkerStalled
from dtk.language import _
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
    note = _(" on {place}", place=job.place.name) if job.place.name else ""
    if job.restarts:
        note += _(", attempt {number} of {most}", number=number, most=job.restarts + 1)
    reader, started = Reader(folder), time.monotonic() - began
    size = job.workers, job.replicas, job.mode
    view: show.Live = show.Silent()
    if not quiet:
        view = show.show(*size, reader, note=note, program=job.program)
    elif job.follow.get("steps") and show.kind() != "off":
        view = show.Counting(reader, job.replicas, job.follow["title"], job.follow["steps"])
    outcome = _("interrupted")
    failed: str | None = outcome
    try:
        configs = launch.launch(job, reader, began, view.update)
        outcome, failed = _("finished in {seconds:.1f} s", seconds=time.monotonic() - began), None
        return configs
    except DtkError as error:
        outcome = failed = str(error)
        raise
    finally:
        with contextlib.suppress(OSError):  # a full disk must not hide how the run ended
            folder.save_attempt(number, failed, started, time.monotonic() - began)
        view.close(outcome, finished=failed is None)
