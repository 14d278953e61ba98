"""From a function to a `Run`: `dtk.run` on a localhost cluster, `dtk.baseline` on one device."""

from __future__ import annotations

import contextlib
import html
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtk import environment, live
from dtk.errors import DtkError, RunInterrupted, WorkerFailed, WorkerStalled, need, whole_number
from dtk.language import N_, _
from dtk.launch import folders, launch, program, request
from dtk.launch.place import Place, say_ignored
from dtk.launch.warm import Localhost
from dtk.records import Attempt, RunFolder
from dtk.records.tables import RunLike
from dtk.view.cluster_picture import ClusterPicture
from dtk.watch.reader import Reader

if TYPE_CHECKING:
    import numpy as np


@dataclass(eq=False)
class Run(RunLike):
    """What came of a run. Readable after the processes have ended: everything is in `dir`.

    Attributes:
        folder: the run's directory, as dtk reads it (`dtk.records.RunFolder`).
        mode: "cluster" (MultiWorkerMirroredStrategy, one worker or several), "mirrored" (several replicas in one
            process, MirroredStrategy) or "single" (a baseline).
        replicas: replicas in each worker.
        seed: what every process was seeded with; None where the function seeds.
        results: what each worker's function returned, by worker index; tensors as arrays, what `fit` returns as a
            namespace with its history, epoch and params. Where it trained an Estimator and returned None:
            {"loss": the last, "global_step": ..., "metrics": of the last evaluation, or None}.
        seconds: from the call of `dtk.run` to its return.
        tf_config: each worker's TF_CONFIG, by worker index; a picture in a notebook; [] where mode is no "cluster".
        evaluator: what the evaluator's function returned; None without one.
    """

    folder: RunFolder
    mode: str
    replicas: int
    seed: int | None
    results: list[Any]
    seconds: float
    tf_config: list[dict[str, Any]] = field(default_factory=list)
    evaluator: Any = None
    _followers: dict[Any, tuple[Run, list[dict[str, Any]]]] = field(default_factory=dict, init=False, repr=False)

    @property
    def dir(self) -> Path:
        """The run's own directory (mode 0700)."""
        return self.folder.path

    @property
    def workers(self) -> int:
        return self.folder.workers

    @cached_property
    def attempts(self) -> list[Attempt]:
        """Each start of the cluster: number, what failed, steps, seconds, and all that it recorded and printed.

        In `records`, an attempt's steps replace those that the one before had made after its checkpoint.
        """
        return self.folder.attempts

    @property
    def weights(self) -> list[np.ndarray]:
        """The chief's weights at the end, in the model's order; [] where nothing recorded them."""
        return getattr(self.folder.worker(0).weights, "arrays", [])

    def again(self, **changes: Any) -> Run:
        """Runs the same function with the same arguments once more, from what is in `dir`: quietly, and without faults.

        Args:
            changes: arguments of `dtk.run` such as seed and workers; `without`, a tuple of what the workers switch
                off: "batch norm" (made synchronous), "random" (the same draws for every example).

        Raises:
            ClusterConfigError: a change that is not possible, or `dir` is not complete.
        """
        return carry_out(launch.job_of(self.folder, changes), time.monotonic(), quiet=True)

    def _without(self, switches: tuple[str, ...]) -> Run:
        """Run it once more, as `again` does, with these switched off; return the same where it is asked for again."""
        if switches not in self._followers:
            self._followers[switches] = self.again(without=switches), []
        return self._followers[switches][0]

    def followed(
        self, source: Run, replicas: int = 1, levels: dict[int, float] | None = None, **how: int
    ) -> tuple[Run, list[dict[str, Any]]]:
        """Runs the function of `source` in one process, each step from the state that this run recorded.

        replicas: 1 for one device, or as many as this run has. levels: how much of each variable's change rounding is,
        from a follower before. how: see `launch.follower_of`. Returns that run, and what it found, a line a step
        (`dtk.proof.proof`); the same where it is asked for in the same way later.
        """
        asked = (source.dir, replicas, *sorted(how.items()))
        if asked not in self._followers:
            steps = int(self.records.step.max()) if len(self.records) else 0
            job = launch.follower_of(self.folder, source.folder, replicas, levels or {}, how, steps)
            follower = carry_out(job, time.monotonic(), quiet=True)
            self._followers[asked] = follower, follower.folder.worker(0).lines("follow")
        return self._followers[asked]

    def report(self, path: str | Path, baseline: Run | None = None) -> Path:
        """Writes one HTML file, and returns its path: summary, figures, logs' ends; with a baseline what verify says.

        `dtk report DIR` does so for the directory of any run, of one that failed, too.
        """
        from dtk import run_report  # with all figures, which a run does without

        return run_report.write(self, path, baseline)

    def trace(self, path: str | Path) -> Path:
        """Writes a trace that https://ui.perfetto.dev and chrome://tracing open, and returns its path.

        Each worker is a process with its start, its steps (their loss and examples), in each what `dtk.step_parts`
        says that it did, evaluations and faults. The clock is one for all: microseconds since the call of `dtk.run`.
        """
        from dtk.view import timeline  # with all figures, which a run does without

        return timeline.trace(self, Path(path))

    def to_tensorboard(self, path: str | Path) -> Path:
        """Writes each replica's share of the loss and examples/s by step for TensorBoard, and returns the path.

        It takes `tensorboard`, and imports TensorFlow in this process.
        """
        need("tensorboard", "run.to_tensorboard")
        import tensorflow as tf

        from dtk.scaling.timing import step_times

        times = step_times(self.records)[["worker", "step", "period"]]
        for replica, rows in self.records.merge(times).groupby("replica"):
            with tf.summary.create_file_writer(os.path.join(path, f"replica-{replica}")).as_default():
                for row in rows.itertuples():
                    tf.summary.scalar("loss", row.loss, row.step)
                    tf.summary.scalar("examples per second", row.examples / row.period, row.step)
        return Path(path)

    @property
    def first_step_seconds(self) -> float:
        """From the call of `dtk.run` to the end of the first step on every replica; NaN without records."""
        return float(self.records[self.records.step == 1].ended.max())

    def __repr__(self) -> str:
        # No directory, no seconds: this text stands in stored outputs of notebooks and must not change.
        steps = int(self.records.step.max()) if len(self.records) else 0
        return f"<Run mode={self.mode} workers={self.workers} replicas={self.replicas * self.workers} steps={steps}>"

    def _repr_html_(self) -> str | None:
        """In a notebook that someone looks at: how it ended, what was trained, a row for each worker, where it is."""
        if environment.live_mode() != "widgets":
            return None
        from dtk.scaling import summary

        return f"{summary.as_html(self)}<p><code>{html.escape(str(self.dir))}</code></p>"


def run(
    fn: Callable[..., Any] | str | os.PathLike[str],
    workers: int = 2,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    replicas: int = 1,
    seed: int | None = 0,
    keras: int | None = None,
    evaluator: bool | Callable[..., Any] | None = None,
    timeout: float | None = None,
    stall_timeout: float | None = 60.0,
    on: str | Place | None = None,
    **options: Any,
) -> Run:
    """Runs `fn` in several processes on this machine, each with its own TF_CONFIG, and waits for them all.

    Args:
        fn: a training function, also one from a notebook's cell, with its closures and helpers. It makes its own
            MultiWorkerMirroredStrategy, which reads TF_CONFIG, or has a parameter `strategy`, which dtk fills. Or a
            program: the path of a script, or the name of a module, which each worker runs as Python would.
        workers: number of worker processes.
        args, kwargs: arguments of `fn`, by position and by name; they travel by cloudpickle.
        replicas: in each worker, on as many logical devices, as on machines with several GPUs; with `workers=1` they
            are MirroredStrategy's.
        seed: of Python, NumPy, TensorFlow and Keras, the same in each process; None leaves seeding to `fn`.
        keras: 2 for tf_keras in the workers, 3 for Keras 3; None for what is set.
        evaluator: a further process, with a TF_CONFIG of its own, for the chief's checkpoints. True: it calls `fn`, for
            Estimator's train_and_evaluate. A function: it calls that. The run lasts until it, too, returns
            (`dtk.training_ended`).
        timeout: seconds that the whole run may take; None: no limit.
        stall_timeout: seconds without progress anywhere (no record, no output, no processor time, nothing read or
            written) after which the run ends, with every worker's stack; three of its longest steps, where that is
            more. Said as soon as the run's own steps tell that a silence is long. None: never.
        on: where the workers are, if not on this machine: "ray", "slurm", or what a class of
            `dtk.places` makes.
        options: by name, what is rarely asked for: faults, restarts, start, force, argv, record and
            gpus_per_worker. `dtk.Options` says what each is.

    Returns:
        A `Run`, with results, records, logs and weights.

    Raises:
        ClusterConfigError: the request can't be carried out; nothing was started.
        NotShippable: `fn` or an argument can't travel to another process; nothing was started.
        WorkerFailed, WorkerStalled, RunTimeout, RunInterrupted: each has the logs and records until then.
    """
    began = time.monotonic()
    request.check_sizes(workers, replicas, here=on is None)
    request.check_times(timeout, stall_timeout)
    more = request.options("run", options)
    force = more.force or on is not None
    fn = program.what_to_call(fn, more.argv, args, kwargs)
    again = whole_number("restarts", more.restarts, 0)
    wanted = request.checked_faults(more.faults, workers, fn)
    layout = request.layout(fn, workers, replicas, wanted, bool(evaluator), force)
    mode = "mirrored" if layout.workers == 1 < layout.replicas else "cluster"
    place: Place = Localhost()
    if on is not None:
        from dtk import places  # with what speaks to Ray and Slurm, which a run here does without

        place = places.named(on)
    job = launch.RunJob(
        payload=request.pack(fn, args, kwargs),
        gpus=request.checked_gpus(more.gpus_per_worker, layout.workers, layout.replicas, here=on is None),
        **request.of_each_job(fn, seed, keras, more.start, timeout, more.record, force=force),
        workers=layout.workers,
        replicas=layout.replicas,
        mode=mode,
        share=layout.share,
        stall_timeout=stall_timeout,
        evaluator=request.pack_evaluator(evaluator, (fn, args, kwargs), mode),
        restarts=again,
        faults=layout.faults,
        place=place,
    )
    request.check_memory(layout.workers + bool(evaluator), job.fork, force)
    for line in layout.said:
        environment.say(line)
    return carry_out(job, began)


def baseline(
    fn: Callable[..., Any] | str | os.PathLike[str],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    seed: int | None = 0,
    keras: int | None = None,
    timeout: float | None = None,
    workers: int = 2,
    **options: Any,
) -> Run:
    """Runs `fn` in one process on one device, without TF_CONFIG: what a cluster is compared with.

    A program has the chief's TF_CONFIG there, from which many take the global batch; its MultiWorkerMirroredStrategy is
    this process's alone. One that names tf.estimator has none.

    Args:
        fn: as for `dtk.run`; a parameter `strategy` gets TensorFlow's default strategy.
        args, kwargs, seed, keras, timeout: as for `dtk.run`.
        workers: size of the cluster to compare with. The process gets one worker's share of the cores.
        options: by name, of `dtk.Options`: start, argv and record.

    Returns:
        A `Run` with mode "single".

    Raises:
        ClusterConfigError, NotShippable, WorkerFailed, RunTimeout, RunInterrupted: as `dtk.run`.
    """
    began = time.monotonic()
    request.check_sizes(workers)
    request.check_times(timeout, None)
    more = request.options("baseline", options, only=("start", "argv", "record"))
    fn = program.what_to_call(fn, more.argv, args, kwargs)
    job = launch.RunJob(
        payload=request.pack(fn, args, kwargs),
        **request.of_each_job(fn, seed, keras, more.start, timeout, more.record, baseline_of=workers),
        workers=1,
        mode="single",
        share=workers,
    )
    return carry_out(job, began)


def opened(path: str | Path) -> Run:
    """The run of a directory, however it ended, without results; ClusterConfigError where it is no run's."""
    folder = launch.folder_of(Path(path).expanduser().absolute())
    job = folder.job
    seconds = folder.attempts[-1].ended if folder.attempts else math.nan
    return Run(folder, job["mode"], job["replicas"], job["seed"], [None] * job["workers"], seconds)


def carry_out(job: launch.RunJob, began: float, quiet: bool = False) -> Run:
    """Runs a job that was checked and packed, quietly or not; began: `time.monotonic()` at the call of `dtk.run`."""
    if not quiet:
        say_ignored()
    folder = launch.new_folder(job)
    try:
        configs = _starts(job, folder, began, quiet)
    except KeyboardInterrupt:
        words = N_("after {seconds:.1f} s; the workers are stopped, their logs and records are in {folder}")
        raise RunInterrupted(_(words, seconds=time.monotonic() - began, folder=folder.path), folder) from None
    finally:
        job.place.end(folder)
        if job.faults:
            from dtk.faults import not_triggered  # which a run without faults does without

            for line in not_triggered(folder, job.faults):
                environment.say(line)
    seconds, results = time.monotonic() - began, [folders.result(worker, folder) for worker in folder.each]
    evaluated = folder.evaluator.result if folder.has_evaluator else None
    picture = ClusterPicture(configs[: job.workers], *configs[job.workers :])
    return Run(folder, job.mode, job.replicas, job.seed, results, seconds, picture, evaluated)


def _starts(job: launch.RunJob, folder: RunFolder, began: float, quiet: bool) -> list[dict[str, Any]]:
    """Starts the cluster, and again where it fails and may; returns the TF_CONFIGs of the start that went well."""
    for number in range(1, job.restarts + 1):
        try:
            return _attempt(job, folder, began, number, quiet)
        except (WorkerFailed, WorkerStalled):
            folders.set_aside(folder, f"attempt-{number}")
    return _attempt(job, folder, began, job.restarts + 1, quiet)


def _attempt(job: launch.RunJob, folder: RunFolder, began: float, number: int, quiet: bool) -> list[dict[str, Any]]:
    note = _(" on {place}", place=job.place.name) if job.place.name else ""
    if job.restarts:
        note += _(", attempt {number} of {most}", number=number, most=job.restarts + 1)
    reader, started = Reader(folder), time.monotonic() - began
    view = live.Live()
    if not quiet:
        view = live.show(job.workers, job.replicas, job.mode, reader, note=note, program=job.program)
    elif job.follow.get("steps") and environment.live_mode() != "off":
        view = live.Counting(reader, job.follow["title"], job.follow["steps"])
    failed: str | None = _("interrupted")
    try:
        configs = launch.launch(job, reader, began, view.update)
        failed = None
        return configs
    except DtkError as error:
        failed = str(error)
        raise
    finally:
        seconds = time.monotonic() - began
        with contextlib.suppress(OSError):  # a full disk must not hide how the run ended
            folder.save_attempt(number, failed, started, seconds)
        view.close(failed or _("finished in {seconds:.1f} s", seconds=seconds), finished=failed is None)
