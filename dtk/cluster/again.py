"""A run's request, written into its directory, so that the same function can be run once more from there."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from dtk.cluster.launch import Job
from dtk.errors import ClusterConfigError
from dtk.records import RunFolder

__all__ = ["job_of"]

SWITCHES = ("batch norm", "clipping", "random", "rounding", "sparse gradient")


def job_of(folder: RunFolder, changes: dict[str, Any]) -> Job:
    """The job of the run in `folder`, with changes; without its faults and restarts.

    Raises ClusterConfigError where the directory does not hold what it takes, or for a switch that there is not.
    """
    unknown = sorted({*changes.get("without", ())} - {*SWITCHES})
    if unknown:
        raise ClusterConfigError(f"without={unknown[0]!r}: it takes {', '.join(map(repr, SWITCHES))}")
    try:
        facts = json.loads((folder.path / "job.json").read_text())
        payload = (folder.path / "function.pkl").read_bytes()
        sources = json.loads((folder.path / "sources.json").read_text())
        beside = (folder.path / "evaluator.pkl").read_bytes() if folder.has_evaluator else None
    except FileNotFoundError as error:
        raise ClusterConfigError(f"{folder.path} has no {error.filename.rpartition('/')[2]}: run it anew") from None
    job = Job(payload=payload, evaluator=beside, sources=sources, **facts)
    changed: dict[str, Any] = {**changes, "without": tuple(changes.get("without", job.without))}
    if job.share == job.workers:
        changed.setdefault("share", changes.get("workers", job.workers))
    return replace(job, **changed)
