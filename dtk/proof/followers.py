"""Runs a function once more in one process, following the steps of a run: on one device, or with as many replicas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dtk.language import _
from dtk.launch import tf_config
from dtk.launch.again import job_of
from dtk.launch.launch import Job
from dtk.lines import Tail
from dtk.records import RunFolder

__all__ = ["job_for", "lines_of", "whom"]

STALL = 60.0  # seconds without progress after which a follower ends


def whom(replicas: int) -> str:
    """What sentences call a follower with so many replicas."""
    return _("one device") if replicas == 1 else _("{n} replicas in one process", n=replicas)


def job_for(
    run: RunFolder, source: RunFolder, replicas: int, levels: Mapping[int, float], counts: int, steps: int
) -> Job:
    """What a follower of `run` runs: the function of `source`, in one process with so many replicas.

    What was switched off in the run is switched off in its follower. counts: how many replicas the function is told.
    steps: how many it will make, for who waits.
    """
    job = job_of(source, {"without": job_of(run, {}).without})
    env = dict(job.env)
    if job.program and job.mode == "cluster" and job.workers > 1:
        env.setdefault("TF_CONFIG", json.dumps(tf_config.build([1024 + k for k in range(job.workers)])[0]))
    asked = {
        "dir": str(run.path),
        "workers": run.workers,
        "levels": {str(number): level for number, level in levels.items()},
        "counts": counts,
        "title": _("each step again, by {whom}", whom=whom(replicas)),
        "steps": steps,
    }
    return replace(
        job,
        workers=1,
        replicas=replicas,
        mode="mirrored" if replicas > 1 else "single",
        share=run.workers if replicas == 1 else 1,
        env=env,
        evaluator=None,
        evaluator_strategy=False,
        gpus=(),
        stall_timeout=STALL,
        follow=asked,
    )


def lines_of(folder: RunFolder, name: str = "follow", worker: int = 0) -> list[dict[str, Any]]:
    """What a follower wrote, a line a unit; or another of a worker's files of lines: "units", "variables"."""
    return [json.loads(line) for line in Tail(folder.worker(worker).path / f"{name}.jsonl").lines()]
