"""A run's request, written into its directory, so that the same function can be run once more, or followed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from dtk.errors import ClusterConfigError
from dtk.language import N_, _
from dtk.launch import tf_config
from dtk.launch.launch import Job
from dtk.records import RunFolder

__all__ = ["folder_of", "follower_of", "job_of", "whom"]

# What the directory holds, and no caller changes.
_OWN = ("payload", "mode", "share", "strategy", "fork", "evaluator", "evaluator_strategy", "sources", "place")
SWITCHES = ("batch norm", "random")
STALL = 60.0  # seconds without progress after which a follower ends


def folder_of(path: Path) -> tuple[RunFolder, dict[str, Any]]:
    """A run's directory as dtk reads it, and what its job.json has; ClusterConfigError where it is no run's."""
    try:
        facts = json.loads((path / "job.json").read_text())
        return RunFolder(path, facts["workers"], (path / "evaluator.pkl").exists()), facts
    except (OSError, ValueError, LookupError, TypeError):
        words = N_("{folder} is no directory of a run: no job.json is there that can be read")
        raise ClusterConfigError(_(words, folder=path)) from None


def job_of(folder: RunFolder, changes: dict[str, Any], payload: bytes | None = None) -> Job:
    """The job of the run in `folder`, with changes; without its faults and restarts.

    payload: what is called, packed; None: what the directory has.

    Raises ClusterConfigError where the directory does not hold what it takes, or for a switch that there is not.
    """
    _check_names(changes)
    try:
        facts = json.loads((folder.path / "job.json").read_text())
        payload = (folder.path / "function.pkl").read_bytes() if payload is None else payload
        sources = json.loads((folder.path / "sources.json").read_text())
        beside = (folder.path / "evaluator.pkl").read_bytes() if folder.has_evaluator else None
    except FileNotFoundError as error:
        words = N_("{folder} has no {file}: run it anew")
        raise ClusterConfigError(_(words, folder=folder.path, file=Path(error.filename).name)) from None
    job = Job(payload=payload, evaluator=beside, sources=sources, **facts)
    _check_numbers(job, changes)
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
        share=1,
        env=env,
        evaluator=None,
        evaluator_strategy=False,
        gpus=(),
        stall_timeout=STALL,
        follow=asked,
    )


def _check_names(changes: dict[str, Any]) -> None:
    known = [field.name for field in fields(Job) if field.name not in _OWN]
    odd = sorted({*changes} - {*known})
    if odd:
        raise ClusterConfigError(_("again({name}=...): it takes {names}", name=odd[0], names=", ".join(known)))
    without = changes.get("without", ())
    if isinstance(without, str):
        raise ClusterConfigError(_("without={without!r}: pass a tuple, ({without!r},)", without=without))
    unknown = sorted(map(str, {*without} - {*SWITCHES}))
    if unknown:
        words = N_("without={name!r}: it takes {names}")
        raise ClusterConfigError(_(words, name=unknown[0], names=", ".join(map(repr, SWITCHES))))


def _check_numbers(job: Job, changes: dict[str, Any]) -> None:
    for name in ("workers", "replicas"):
        value = changes.get(name, 1)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ClusterConfigError(_("again({name}={value!r}): a whole number from 1 up", name=name, value=value))
    workers, replicas = changes.get("workers", job.workers), changes.get("replicas", job.replicas)
    if job.mode == "single" and workers * replicas > 1:
        words = _("again(): a baseline has one replica on one device; ask for more of a run of dtk.run")
        raise ClusterConfigError(words)
    if job.mode == "mirrored" and workers > 1:
        words = N_("again(workers={workers}): the run has its replicas in one worker; pass replicas={workers}")
        raise ClusterConfigError(_(words, workers=workers))
