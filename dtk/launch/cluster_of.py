"""Who a worker is, by what its engine says: a TF_CONFIG from the environment of Slurm's tasks and Kubernetes' pods.

Imports nothing of dtk: `dtk.export` writes this file into programs that do without it.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from typing import Any

__all__ = ["find"]

PORT = 23456  # of worker 0; the others count on from it, as several may be on one machine


def find(env: Mapping[str, str]) -> dict[str, Any] | None:
    """The TF_CONFIG of this process: as it is set, or by SLURM_PROCID or JOB_COMPLETION_INDEX; None for none of these.

    >>> pod = {"JOB_COMPLETION_INDEX": "1", "DTK_JOB": "train", "DTK_SERVICE": "train", "DTK_WORKERS": "2"}
    >>> find(pod)["cluster"]
    {'worker': ['train-0.train:23456', 'train-1.train:23457']}
    >>> find(pod)["task"]
    {'type': 'worker', 'index': 1}
    """
    if "TF_CONFIG" in env:
        return dict(json.loads(env["TF_CONFIG"]))
    if "SLURM_PROCID" in env:
        hosts, index = _of_slurm(env), int(env["SLURM_PROCID"])
    elif "JOB_COMPLETION_INDEX" in env:
        hosts = [f"{env['DTK_JOB']}-{k}.{env['DTK_SERVICE']}" for k in range(int(env["DTK_WORKERS"]))]
        index = int(env["JOB_COMPLETION_INDEX"])
    else:
        return None
    first = int(env.get("DTK_PORT", PORT))
    addresses = [f"{host}:{first + k}" for k, host in enumerate(hosts)]
    return {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}


def _of_slurm(env: Mapping[str, str]) -> list[str]:
    """The address of each task's node, by number of task."""
    nodes = _said("scontrol", "show", "hostnames", env["SLURM_STEP_NODELIST"]).split()
    counts = _counts(env["SLURM_STEP_TASKS_PER_NODE"])
    return [_address(node) for node, tasks in zip(nodes, counts, strict=True) for _ in range(tasks)]


def _counts(text: str) -> list[int]:
    """How many tasks each node has, as Slurm writes it.

    >>> _counts("2(x3),1")
    [2, 2, 2, 1]
    """
    found = []
    for part in text.split(","):
        count, times = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part).groups()  # type: ignore[union-attr]
        found += [int(count)] * int(times or 1)
    return found


def _address(node: str) -> str:
    fields = dict(word.partition("=")[::2] for word in _said("scontrol", "show", "node", "-o", node).split())
    return fields.get("NodeAddr", node)


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
