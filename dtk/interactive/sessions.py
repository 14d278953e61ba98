"""A session of cells as a `Run`: what was recorded so far, and the same cells on one device."""

from __future__ import annotations

import time
import zipfile
from dataclasses import replace
from typing import Any

from dtk import environment, runs
from dtk.interactive.begin import Started
from dtk.interactive.history import History
from dtk.interactive.replay import session
from dtk.interactive.talk import Talk
from dtk.language import _, ngettext
from dtk.launch import launch
from dtk.launch.launch import Job
from dtk.launch.place import Localhost
from dtk.runs import Run
from dtk.view.cluster_picture import ClusterPicture
from dtk.worker import ship

__all__ = ["baseline", "so_far"]


def so_far(talk: Talk, history: History) -> Run:
    """All workers are idle. Its directory is its own, and the session goes on."""
    started = talk.started
    folder = launch.new_folder(_job(started, history))
    file = f"so-far-{time.monotonic_ns()}.zip"
    talk.do("snapshot", file=file)
    for worker in folder.each:
        name = f"{worker.path.name}/{file}"
        with zipfile.ZipFile(started.folder.path / name) as archive:
            archive.extractall(worker.path)
        started.links.remove(name)
    seconds = time.monotonic() - started.clock
    folder.save_attempt(1, None, 0.0, seconds)
    job, picture = started.job, ClusterPicture(started.configs)
    return Run(folder, job.mode, job.replicas, job.seed, [None] * job.workers, seconds, picture)


def baseline(started: Started, history: History) -> Run:
    """In one process, with one worker's share of the cores, seeded as the workers were."""
    job = _job(started, history)
    left = history.to_replay()[1]
    if left:
        words = ngettext(
            "the baseline is without cell {cells}: functions, and what ran on single workers alone",
            "the baseline is without cells {cells}: functions, and what ran on single workers alone",
            len(left),
            cells=_(", ").join(map(str, left)),
        )
        environment.say(words)
    alone: dict[str, Any] = {"workers": 1, "replicas": 1, "mode": "single"}
    if not isinstance(job.place, Localhost):
        alone["place"] = Localhost()  # where dtk.baseline trains as well
    return runs.carry_out(replace(job, **alone), time.monotonic())


def _job(started: Started, history: History) -> Job:
    cells = history.to_replay()[0]
    return replace(started.job, payload=ship.pack(session, (cells,), {}), strategy=True)
