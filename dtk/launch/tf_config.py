"""TF_CONFIG as data: who is in the cluster, and which of them one process is. Ports are given."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from dtk import environment
from dtk.language import _

__all__ = ["build", "evaluator", "notice"]


def build(addresses: Sequence[int | str]) -> list[dict[str, Any]]:
    """One TF_CONFIG a worker: the same `cluster` in each, its own `task`.

    addresses: "host:port" of each, or ports of this machine.

    >>> [config["task"] for config in build([4001, 4002])]
    [{'type': 'worker', 'index': 0}, {'type': 'worker', 'index': 1}]
    >>> build([4001, 4002])[1]["cluster"]
    {'worker': ['127.0.0.1:4001', '127.0.0.1:4002']}

    Worker 0 is the chief: without a task of type "chief" TensorFlow gives worker 0 that part, see
    https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable.
    """
    return [
        {"cluster": {"worker": _whole(addresses)}, "task": {"type": "worker", "index": index}}
        for index in range(len(addresses))
    ]


def _whole(addresses: Sequence[int | str]) -> list[str]:
    return [f"127.0.0.1:{each}" if isinstance(each, int) else each for each in addresses]


def evaluator(addresses: Sequence[int | str], own: int | str) -> dict[str, Any]:
    """The TF_CONFIG of an evaluator beside the workers at `addresses`: they don't know of it, and it is none of them.

    >>> evaluator([4001, 4002], 4003)["task"]
    {'type': 'evaluator', 'index': 0}

    Its own entry in the cluster is for MultiWorkerMirroredStrategy, which looks its task up there and raises
    KeyError otherwise (TensorFlow 2.15 and 2.21); with it the strategy has one replica and waits for no other.
    """
    cluster = {"worker": _whole(addresses), "evaluator": _whole([own])}
    return {"cluster": cluster, "task": {"type": "evaluator", "index": 0}}


def notice() -> None:
    """Says that a TF_CONFIG which is set in this process is ignored."""
    if "TF_CONFIG" in os.environ:
        why = _("each worker gets one of its own")
        environment.say(_("the TF_CONFIG that is set in this process is ignored; {why}", why=why))
