"""A run's request, written into its directory, so that the same function can be run once more, or followed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dtk.errors import ClusterConfigError
from dtk.language import N_, _
from dtk.launch.launch import AGAIN, Job
from dtk.launch.place import chief_config
from dtk.records import RunFolder

STALL = 60.0  # seconds without progress after which a follower ends


def folder_of(path: Path) -> RunFolder:
    """A run's directory as dtk reads it; ClusterConfigError where it is no run's."""
    try:
        return RunFolder.of(path)
    except (OSError, ValueError, LookupError, TypeError):
        words = N_("{folder} is no directory of a run: no job.json is there that can be read")
        raise ClusterConfigError(_(words, folder=path)) from None


def job_of(folder: RunFolder, changes: dict[str, Any], payload: bytes | None = None) -> Job:
    """The job of the run in `folder`, with changes; without its faults and restarts.

    payload: what is called, packed; None: what the directory has.

    Raises ClusterConfigError where the directory does not hold what it takes.
    """
    try:
        facts = folder.job
        payload = (folder.path / "function.pkl").read_bytes() if payload is None else payload
        sources = json.loads((folder.path / "sources.json").read_text())
        beside = (folder.path / "evaluator.pkl").read_bytes() if folder.has_evaluator else None
    except FileNotFoundError as error:
        words = N_("{folder} has no {file}: run it anew")
        raise ClusterConfigError(_(words, folder=folder.path, file=Path(error.filename).name)) from None
    known = {name: facts[name] for name in AGAIN if name in facts}  # of any version of dtk
    job = Job(payload=payload, evaluator=beside, sources=sources, **known)
    changed: dict[str, Any] = {**changes, "without": tuple(changes.get("without", job.without))}
    if job.share == job.workers:
        changed.setdefault("share", changes.get("workers", job.workers))
    return replace(job, **changed)


def whom(replicas: int) -> str:
    """What sentences call a follower with so many replicas."""
    return _("one device") if replicas == 1 else _("{n} replicas in one process", n=replicas)


def follower_of(
    run: RunFolder, source: RunFolder, replicas: int, levels: Mapping[int, float], counts: int, steps: int
) -> Job:
    """What a follower of `run` runs: the function of `source`, in one process with so many replicas.

    What was switched off in the run is switched off in its follower. counts: how many replicas the function is told.
    steps: how many it will make, for who waits.
    """
    job = job_of(source, {"without": job_of(run, {}).without})
    env = dict(job.env)
    if job.program and job.mode == "cluster" and job.workers > 1:
        env.setdefault("TF_CONFIG", chief_config(job.workers))
    return replace(
        job,
        workers=1,
        replicas=replicas,
        mode="mirrored" if replicas > 1 else "single",
        share=1,
        env=env,
        evaluator=None,
        gpus=(),
        stall_timeout=STALL,
        follow={
            "dir": str(run.path),
            "workers": run.workers,
            "levels": {str(number): level for number, level in levels.items()},
            "counts": counts,
            "title": _("each step again, by {whom}", whom=whom(replicas)),
            "steps": steps,
        },
    )
