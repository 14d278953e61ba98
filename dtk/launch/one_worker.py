"""What is started where `dtk.run` starts one worker: on Colab, whose machine has two cores and at most one GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dtk import environment
from dtk.errors import ClusterConfigError
from dtk.faults import Fault
from dtk.language import N_, _
from dtk.worker import ship

__all__ = ["Layout", "layout"]

MOST_REPLICAS = 16


@dataclass(frozen=True)
class Layout:
    """What of a request is started. share: processes that the cores are divided among. said: lines for the learner."""

    workers: int
    replicas: int
    share: int
    faults: tuple[Fault, ...]
    said: tuple[str, ...] = ()


def layout(fn: Any, workers: int, replicas: int, faults: tuple[Fault, ...], beside: bool, force: Any) -> Layout:
    """The request itself, or, on Colab, one worker in place of several, with a replica for each of them.

    Several replicas are MirroredStrategy's, so they need a function that takes `strategy`, and no evaluator (`beside`)
    which needs a cluster to stand beside. A function that uses `dtk.ring` keeps its workers: they need no TensorFlow,
    and a ring of one has nothing to exchange. force: start what was asked for, also there.
    """
    if not isinstance(force, bool):
        words = N_("force={force!r}: it takes True, to start several workers also on Colab, or False")
        raise ClusterConfigError(_(words, force=force))
    if workers == 1 or force or not environment.on_colab() or ship.uses_ring(fn):
        return Layout(workers, replicas, workers, faults)
    moved, said = _moved(faults)
    count = min(workers * replicas, MOST_REPLICAS) if ship.takes_strategy(fn) and not beside else 1
    here = N_("1 worker with {count} replicas")
    if count == 1:
        here = N_("1 worker with 1 replica (the function takes no `strategy`)")
        here = N_("1 worker with 1 replica (beside an evaluator)") if beside else here
    line = N_(
        "on Colab, {here} instead of {workers} workers, which need a core each and, with a GPU, a GPU each; "
        "dtk.run(..., force=True) tries them"
    )
    line = _(line, here=_(here, count=count), workers=workers)
    # A single replica gets the core that a baseline has; the rest is a second worker's, or the evaluator's.
    return Layout(1, count, workers if count == 1 else 1, moved, (line, *said))


def _moved(faults: tuple[Fault, ...]) -> tuple[tuple[Fault, ...], list[str]]:
    """The faults with worker 0 in place of workers that are not started, and a sentence for each that was moved."""
    kept, said = dict.fromkeys(fault for fault in faults if fault.worker == 0), []
    for fault in faults:
        if fault.kind == "drop_network":
            words = N_(
                "faults: {fault} needs two workers: a single worker has no network to lose; on Colab, "
                "dtk.run(..., force=True) tries them"
            )
            raise ClusterConfigError(_(words, fault=fault))
        if fault.worker > 0:
            kept[replace(fault, worker=0)] = None
            said.append(_("{fault} needs two workers; here it comes to worker 0", fault=fault))
    return tuple(kept), said
