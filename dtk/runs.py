"""From a function to a `Run`: `dtk.run` on a localhost cluster, `dtk.baseline` on one device."""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtk import environment
from dtk.cluster import launch, ship, tf_config
from dtk.errors import ClusterConfigError, DtkError
from dtk.records import RunFolder
from dtk.view import live
from dtk.view.cluster_picture import ClusterPicture

if TYPE_CHECKING:
    import numpy as np
    import pandas

__all__ = ["Run", "baseline", "run"]


@dataclass(eq=False)
class Run:
    """What came of a run. Also readable after the processes have ended: everything lies in `dir`.

    mode: "cluster" (several workers or one, MultiWorkerMirroredStrategy), "mirrored" (several replicas in one
    process) or "single" (a baseline). replicas: replicas in each worker. results: what each worker's function
    returned, by worker index. seconds: from the call of `dtk.run` to its return.
    """

    folder: RunFolder
    mode: str
    replicas: int
    seed: int | None
    results: list[Any]
    seconds: float
    tf_config: list[dict[str, Any]] = field(default_factory=list)

    @property
    def dir(self) -> Path:
        """The run's own directory (mode 0700)."""
        return self.folder.path

    @property
    def workers(self) -> int:
        return self.folder.workers

    @cached_property
    def records(self) -> pandas.DataFrame:
        """One row a (worker, replica, step); the columns are described at `dtk.records.Record`."""
        return self.folder.records

    @property
    def logs(self) -> list[str]:
        """Everything each worker printed, C++ output included, by worker."""
        return self.folder.logs

    @property
    def weights(self) -> list[np.ndarray]:
        """The chief's weights at the end, in the model's order; [] where nothing recorded them."""
        final = self.folder.worker(0).weights("final")
        return final.arrays if final else []

    @property
    def first_step_seconds(self) -> float:
        """From the call of `dtk.run` to the end of the first step on every replica; NaN without records."""
        first = self.records[self.records.step == 1]
        return float(first.ended.max())

    def __repr__(self) -> str:
        # No directory, no seconds: this text stands in stored outputs of notebooks and must not change.
        steps = int(self.records.step.max()) if len(self.records) else 0
        return f"<Run mode={self.mode} workers={self.workers} replicas={self.replicas * self.workers} steps={steps}>"


def run(
    fn: Callable[..., Any],
    workers: int = 2,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    replicas: int = 1,
    seed: int | None = 0,
    keras: int | None = None,
    evaluator: Any = None,
    timeout: float | None = None,
    stall_timeout: float | None = 60.0,
    start: str = "auto",
) -> Run:
    """Runs `fn` in `workers` processes on this machine, each with its own TF_CONFIG, and waits for them all.

    fn: an ordinary training function, also one from a notebook's cell, with its closures and helpers. It reads
    TF_CONFIG by making its own MultiWorkerMirroredStrategy, or takes a parameter `strategy` that dtk fills.
    args, kwargs: its arguments; they travel by pickle. replicas: with `workers=1`, replicas inside the one
    process (MirroredStrategy on logical CPU devices). seed: Python's, NumPy's, TensorFlow's and Keras's, the
    same in each process; None leaves seeding to `fn`. keras: 2 for tf_keras in the workers, 3 for Keras 3.
    timeout: seconds that the whole run may take. stall_timeout: seconds without progress anywhere (no record,
    no output, no processor time) after which the run ends with every worker's stack; None waits for ever.
    start: "warm" (forked from a process that has TensorFlow imported), "cold" (fresh interpreters) or "auto".

    Raises ClusterConfigError or NotShippable before anything starts; WorkerFailed, WorkerStalled or RunTimeout
    afterwards, each with the logs and records until then. An interrupt stops the workers.
    """
    began = time.monotonic()
    _check_count("workers", workers, max(16, 4 * environment.cores()))
    _check_count("replicas", replicas, 16)
    if replicas > 1 and workers > 1:
        words = f"workers={workers} with replicas={replicas}: on CPU, MultiWorkerMirroredStrategy has one replica a "
        raise ClusterConfigError(words + "worker; ask for several workers, or for several replicas in workers=1")
    if evaluator is not None:
        raise ClusterConfigError("evaluator= is not supported by this version of dtk; evaluate inside the function")
    mode = "mirrored" if replicas > 1 else "cluster"
    _check_times(timeout, stall_timeout)
    job = launch.Job(
        payload=_pack(fn, args, kwargs),
        workers=workers,
        replicas=replicas,
        mode=mode,
        seed=_checked_seed(seed),
        keras=_checked_keras(keras),
        strategy=ship.takes_strategy(fn),
        share=workers,
        fork=_fork(start),
        timeout=timeout,
        stall_timeout=stall_timeout,
    )
    return _carry_out(job, began)


def baseline(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    seed: int | None = 0,
    keras: int | None = None,
    timeout: float | None = None,
    workers: int = 2,
    start: str = "auto",
) -> Run:
    """Runs the same `fn` in one process on one device, without TF_CONFIG: what a cluster is compared with.

    The arguments are those of `dtk.run`; a parameter `strategy` gets TensorFlow's default strategy. workers:
    the size of the cluster it will be compared with, whose share of the cores (cores / workers) it gets, so
    that a comparison of speeds compares workers and not numbers of cores.
    """
    began = time.monotonic()
    _check_count("workers", workers, max(16, 4 * environment.cores()))
    _check_times(timeout, None)
    job = launch.Job(
        payload=_pack(fn, args, kwargs),
        workers=1,
        replicas=1,
        mode="single",
        seed=_checked_seed(seed),
        keras=_checked_keras(keras),
        strategy=ship.takes_strategy(fn),
        share=workers,
        fork=_fork(start),
        timeout=timeout,
        stall_timeout=None,
    )
    return _carry_out(job, began)


def _carry_out(job: launch.Job, began: float) -> Run:
    _notice_tf_config()
    folder = launch.new_folder(job)
    view = live.show(job.workers, job.replicas, job.mode, folder)
    outcome = "interrupted"
    try:
        configs = launch.launch(job, folder, began, view.update)
        seconds = time.monotonic() - began
        outcome = f"finished in {seconds:.1f} s"
    except DtkError as error:
        outcome = str(error)
        raise
    finally:
        view.close(outcome)
    results = [worker.result for worker in folder.each]
    return Run(folder, job.mode, job.replicas, job.seed, results, seconds, ClusterPicture(configs))


def _notice_tf_config() -> None:
    text = os.environ.get("TF_CONFIG")
    if text is not None:
        wrong = tf_config.complaint(text)
        why = f"it could not be used anyway: {wrong}" if wrong else "each worker gets one of its own"
        print(f"dtk: the TF_CONFIG that is set in this process is ignored; {why}")


def _check_count(name: str, value: Any, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ClusterConfigError(f"{name}={value!r}: it takes a whole number of at least 1")
    if value > most:
        words = f"{name}={value}: this machine has {environment.cores()} cores, and dtk starts at most {most} here"
        raise ClusterConfigError(words)


def _check_times(timeout: Any, stall_timeout: Any) -> None:
    for name, value in (("timeout", timeout), ("stall_timeout", stall_timeout)):
        if value is not None and not (isinstance(value, (int, float)) and value > 0):
            raise ClusterConfigError(f"{name}={value!r}: it takes seconds above 0, or None for no limit")


def _checked_seed(seed: Any) -> int | None:
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32):
        raise ClusterConfigError(f"seed={seed!r}: it takes a whole number from 0 to 2**32 - 1, or None")
    return seed


def _checked_keras(keras: Any) -> int | None:
    if keras not in (None, 2, 3):
        raise ClusterConfigError(f"keras={keras!r}: it takes 2 (tf_keras), 3, or None for TensorFlow's own choice")
    return keras


def _fork(start: str) -> bool:
    if start not in ("auto", "warm", "cold"):
        raise ClusterConfigError(f"start={start!r}: it takes 'auto', 'warm' or 'cold'")
    if start == "auto":
        return environment.can_fork() and os.environ.get("DTK_WARM") != "0"
    if start == "warm" and not environment.can_fork():
        raise ClusterConfigError("start='warm': workers are forked on Linux without a GPU only; use 'cold' or 'auto'")
    return start == "warm"


def _pack(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> bytes:
    """Checks that the call can be made, then packs it."""
    if not callable(fn):
        raise ClusterConfigError(f"fn is {fn!r}, not a function; pass the function itself, without ()")
    label = getattr(fn, "__name__", type(fn).__name__)
    if inspect.iscoroutinefunction(fn) or inspect.isgeneratorfunction(fn):
        raise ClusterConfigError(f"`{label}` is a coroutine or generator; write an ordinary function")
    given = tuple(args), dict(kwargs or {})
    filled = ship.fill_strategy(fn, *given, None) if ship.takes_strategy(fn) else given
    try:
        inspect.signature(fn).bind(*filled[0], **filled[1])
    except TypeError as error:
        raise ClusterConfigError(f"`{label}` can't be called so: {error}; give args=(...) or kwargs={{...}}") from None
    return ship.pack(fn, *given)
