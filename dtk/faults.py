"""`dtk.faults`: what goes wrong in a run, on which worker, at which step: `dtk.run(train, faults=[...])`.

    dtk.run(train, workers=2, faults=[dtk.faults.kill(worker=1, step=20)])

A fault comes right before the worker begins that step, so that it has recorded the steps before it and no more: in
`fit` at the Recorder's `on_train_batch_begin`, in a loop at the end of the `dtk.record_step` before (step 1: the first
call), in an Estimator at the hook's `before_run`, with `steps_per_execution=n` before the n steps that hold it. Without
records nothing comes, and none in a later start of the cluster (`restarts=`). Faults that end a worker first wait until
its peers have recorded the step before.

This module says what is asked for; `dtk.worker.injecting` does it, in the worker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dtk import errors
from dtk.language import N_, _
from dtk.records import RunFolder
from dtk.records.events import FaultCame, of_kind

__all__ = ["Fault", "drop_network", "exception", "kill", "nan", "slow", "stall"]


@dataclass(frozen=True, repr=False)
class Fault:
    """One fault, made by a function of this module.

    Attributes:
        kind: the function's name.
        worker: index of the worker that it comes to.
        step: the step that it comes before, from 1; a `slow` begins with step 1.
        seconds: of a `stall` (None: forever), or of each step of a `slow`.
        message: of an `exception`.
    """

    kind: str
    worker: int
    step: int = 1
    seconds: float | None = None
    message: str = ""

    def __post_init__(self) -> None:
        name = f"dtk.faults.{self.kind}: "
        errors.whole_number(f"{name}worker", self.worker, 0)
        errors.whole_number(f"{name}step", self.step)
        if self.kind == "slow":
            errors.seconds(f"{name}seconds_per_step", self.seconds)
        elif self.seconds is not None:
            errors.seconds(f"{name}seconds", self.seconds)

    def __repr__(self) -> str:
        # As it was asked for: this text stands in sentences, events and figures.
        when = "" if self.kind == "slow" else f", step={self.step}"
        name = "seconds_per_step" if self.kind == "slow" else "seconds"
        long = "" if self.seconds is None else f", {name}={self.seconds:g}"
        return f"{self.kind}(worker={self.worker}{when}{long})"


def kill(worker: int, step: int) -> Fault:
    """The worker's process is killed by SIGKILL, as by the kernel when memory runs out: it can't report anything.

    Args:
        worker: its index.
        step: the step that it comes before, from 1.
    """
    return Fault("kill", worker, step)


def stall(worker: int, step: int, seconds: float | None = None) -> Fault:
    """The worker's training stands still; its process lives and answers.

    Args:
        worker, step: as of `kill`.
        seconds: how long; None: forever.
    """
    return Fault("stall", worker, step, seconds)


def slow(worker: int, seconds_per_step: float) -> Fault:
    """A straggler: the worker begins each step late.

    Args:
        worker: as of `kill`.
        seconds_per_step: how late, in s.
    """
    return Fault("slow", worker, seconds=seconds_per_step)


def exception(worker: int, step: int, message: str = "injected by dtk.faults.exception") -> Fault:
    """The worker raises RuntimeError in the middle of its training function.

    Args:
        worker, step: as of `kill`.
        message: of the RuntimeError.
    """
    return Fault("exception", worker, step, message=str(message))


def nan(worker: int, step: int) -> Fault:
    """The last trainable weight in this worker's memory becomes NaN, as by a damaged memory cell.

    Its loss of that step is then NaN, and its gradients; after the all-reduce of that step, all weights of all workers
    are. For `fit` with a Recorder, and loops that pass `model=` to `dtk.record_step`; where the loop over the steps is
    itself inside of a `tf.function`, the next step may already have read its weights, and it comes one later.

    Args:
        worker, step: as of `kill`.
    """
    return Fault("nan", worker, step)


def drop_network(worker: int, step: int) -> Fault:
    """The worker and its peers hear nothing of each other any more, while their connections stay open: a cut cable.

    Sockets that nobody answers take the places of the worker's own, which needs no privilege; of new connections, too.
    What `dtk.ring` sends stays on one machine, and arrives.

    Args:
        worker, step: as of `kill`.
    """
    return Fault("drop_network", worker, step)


def not_triggered(run: RunFolder, faults: Sequence[Fault]) -> Iterator[str]:
    """A sentence for each fault that came in no start of the cluster, with the starts and steps that there were."""
    starts = (*run.earlier, run)
    came = {event.number for start in starts for worker in start.each for event in of_kind(worker.events, FaultCame)}
    for number, fault in enumerate(faults):
        if number not in came:
            steps = max((record.step for start in starts for record in start.worker(fault.worker).records), default=0)
            words = N_(
                "the fault {fault} was not triggered (starts of the cluster: {starts}, steps of worker {w}: {n})"
            )
            what = _(words, fault=fault, starts=len(starts), w=fault.worker, n=steps)
            recorders = _("it takes dtk.Recorder, dtk.record_step or dtk.EstimatorRecorder to bring faults")
            yield errors.in_words(what, "" if steps else recorders)
