"""`dtk.study`: the same function on 1, 2, 4 workers, what one process computes, and what these cores can do at most;
and `dtk.benchmark_allreduce`: what an all-reduce takes on this machine, by size and number of workers.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas

from dtk import environment
from dtk.errors import ClusterConfigError, DtkError, one_of, whole_number
from dtk.language import N_, _
from dtk.launch import launch, request
from dtk.runs import carry_out
from dtk.scaling.prediction import fit
from dtk.scaling.summary import MEASURES, busy, measures, study_summary


class StudyRun(NamedTuple):
    """One run of a study. scaling: the curves that it belongs to, "strong", "weak" or "strong, weak".

    kind: "cluster", "baseline" (one process on one device) or "ceiling" (workers without communication).
    """

    scaling: str
    kind: str
    workers: int
    global_batch: int
    per_replica_batch: int
    repeat: int


@dataclass(eq=False)
class Study:
    """What a scaling study measured: `dtk.study`. `dtk.plot.efficiency` and `dtk.plot.throughput` draw it.

    Attributes:
        rows: what `points` is made of.
        function: name of the function studied.
    """

    rows: list[dict[str, Any]]
    function: str

    @property
    def points(self) -> pandas.DataFrame:
        """One row a run: scaling ("strong", "weak" or both), kind ("cluster", "baseline" or "ceiling"), workers,
        global_batch and per_replica_batch (examples), repeat, examples_per_second, the parts of a step (s,
        `dtk.scaling.timing`), and failed: what went wrong, or "".
        """
        table = pandas.DataFrame(self.rows, columns=[*StudyRun._fields, *MEASURES, "failed"])
        return table.astype(dict.fromkeys(MEASURES, "float64"))

    @property
    def summary(self) -> pandas.DataFrame:
        """Medians, ranges, efficiency and where the rest went, one row per point; see `study_summary`."""
        return study_summary(self.points)

    def __repr__(self) -> str:
        failed = sum(bool(row["failed"]) for row in self.rows)
        said = ",".join(map(str, sorted({row["workers"] for row in self.rows})))
        return f"<Study {self.function} workers={said} runs={len(self.rows)} failed={failed}>"

    def _repr_html_(self) -> str | None:
        """In a notebook that someone looks at: a row for each number of workers and batch."""
        if environment.live_mode() != "widgets":
            return None
        names = ["scaling", "workers", "global_batch", "measured", "ceiling", "ideal", "efficiency", "gap", "failed"]
        table = self.summary
        return f"<p>{busy(table)}</p>{table[names].round(2).to_html(index=False, na_rep='')}"


def study(
    fn: Callable[..., Any],
    workers: Sequence[int] = (1, 2, 4),
    global_batch: int | None = None,
    per_replica_batch: int | None = None,
    scaling: str | None = None,
    repeats: int = 3,
    force: bool = False,
) -> Study:
    """A scaling study: `fn` on so many workers, against one process and against workers without communication.

    Each worker has the same number of threads at every point: the cores divided by the largest number of workers.

    Args:
        fn: as for `dtk.run`, with a parameter `global_batch`; it records its steps (dtk.Recorder,
            dtk.record_step). The longer it trains, the less noise: 50 steps and more.
        workers: numbers of workers.
        global_batch: examples. Strong scaling: this batch on every number of workers.
        per_replica_batch: examples. Weak scaling: this batch on each worker.
        scaling: "strong", "weak" or "both"; None: what was given. Where only one of the two batches is given, the other
            curve starts from the same point, at the smallest number of workers.
        repeats: how often each is run, all in shuffled order, so that a busy minute does not hit one point alone.
        force: also on Colab, where `dtk.run` starts one worker.

    Returns:
        A `Study`. A run that fails is kept and marked in `points.failed`; the rest goes on.

    Raises:
        ClusterConfigError, NotShippable: before anything starts.
    """
    from tqdm.auto import tqdm

    runs = study_runs(workers, global_batch, per_replica_batch, scaling, repeats)
    threads = _threads("dtk.study", max(planned.workers for planned in runs), force)
    jobs = [(planned, _job(fn, planned, threads)) for planned in runs]
    random.Random(0).shuffle(jobs)
    found = Study([], str(getattr(getattr(fn, "func", fn), "__name__", type(fn).__name__)))  # a partial has a func
    bar = tqdm(total=len(jobs), unit=_("run"), disable=environment.live_mode() == "off")
    with bar, environment.quiet():
        for planned, job in jobs:
            bar.set_description(f"{planned.kind}, {planned.workers} × {planned.per_replica_batch}")  # noqa: RUF001
            found.rows.append({**planned._asdict(), **_measure(job, planned)})
            bar.update()
    failed = [row["failed"] for row in found.rows if row["failed"]]
    if failed:
        words = N_("{failed} of {runs} runs failed; the first: {why}")
        environment.say(_(words, failed=len(failed), runs=len(found.rows), why=failed[0]))
    return found


def _job(fn: Any, planned: StudyRun, threads: int) -> launch.RunJob:
    """What is run for it; every process of a ceiling gets the batch that a replica has."""
    batch = planned.global_batch if planned.kind == "cluster" else planned.per_replica_batch
    mode = {"cluster": "cluster", "ceiling": "apart", "baseline": "single"}[planned.kind]
    payload, keras = request.pack(fn, (), {"global_batch": batch}), request.checked_keras(None, fn)
    return measured_job(payload, planned.workers, threads, mode=mode, keras=keras)


def _checked_counts(workers: Any) -> list[int]:
    """The numbers of workers, in order, each once."""
    counts = _listed("workers", workers)
    for count in counts:
        request.check_sizes(count)
    return sorted({*counts})


def _listed(name: str, given: Any) -> Sequence[Any]:
    if not isinstance(given, (list, tuple, range)) or not given:
        words = N_("{name}={given!r}: it takes a list of whole numbers, such as {example}")
        raise ClusterConfigError(_(words, name=name, given=given, example=[1, 2]))
    return given


def _threads(function: str, workers: int, force: bool) -> int:
    """The threads of each worker, the same at every number of workers up to this; refuses several on Colab."""
    if workers > 1 and environment.on_colab() and not force:
        words = N_("on Colab dtk.run starts one worker; {function}(..., force=True) measures several on its two cores")
        raise ClusterConfigError(_(words, function=function))
    return max(1, environment.cores() // workers)


def measured_job(payload: Any, workers: int, threads: int, env: Mapping[str, Any] = {}, **more: Any) -> launch.RunJob:
    """A run on a cluster, of which no states are wanted. threads: 0 for TensorFlow's default. more: other fields."""
    env = {**dict.fromkeys(launch.THREADS, str(threads) if threads else None), **env}
    more |= {"fork": request.fork("auto"), "stall_timeout": 60.0, "states": False, "env": env}
    return launch.RunJob(payload, workers, share=workers, **more)


def _measure(job: launch.RunJob, planned: StudyRun) -> dict[str, Any]:
    try:
        request.check_memory(job.workers, job.fork)
        run = carry_out(job, time.monotonic())
    except DtkError as error:
        return {"failed": str(error)}
    found = measures(run, planned.kind)
    words = _(
        "no step after the first was recorded on every worker: add dtk.Recorder() to fit's callbacks, or "
        "dtk.record_step to a loop, and train some 20 steps or more"
    )
    return {**found, "failed": words if math.isnan(found["examples_per_second"]) else ""}


# ---- which runs a study takes, checked before any process starts


def study_runs(workers: Any, global_batch: Any, per_replica_batch: Any, scaling: Any, repeats: Any) -> list[StudyRun]:
    """All runs of a study."""
    counts = _checked_counts(workers)
    whole_number("repeats", repeats)
    for name, batch in (("global_batch", global_batch), ("per_replica_batch", per_replica_batch)):
        if batch is not None:
            whole_number(name, batch)
    curves: dict[tuple[str, int, int, int], dict[str, None]] = {}  # that a run belongs to, each once
    for curve, batch in _curves(counts, global_batch, per_replica_batch, scaling).items():
        for count in counts:
            whole = batch if curve == "strong" else batch * count
            each = whole // count
            runs = [("cluster", count, whole, each), *(("baseline", 1, size, size) for size in (batch, each))]
            if count > 1:  # one worker without communication is the baseline
                runs.append(("ceiling", count, whole, each))
            for run in runs:
                curves.setdefault(run, {})[curve] = None
    return [StudyRun(", ".join(of), *run, number) for number in range(1, repeats + 1) for run, of in curves.items()]


def _curves(counts: Sequence[int], whole: Any, each: Any, scaling: Any) -> dict[str, int]:
    """The batch of each curve that is asked for; of one whose batch is not given, that of the other at its start."""
    if scaling is not None:
        one_of("scaling", scaling, ("strong", "weak", "both"))
    if whole is None and each is None:
        words = N_(
            "neither global_batch nor per_replica_batch is given: a study of nothing; give one, such as "
            "global_batch=128"
        )
        raise ClusterConfigError(_(words))
    curves = {}
    if scaling in ("strong", "both") or (scaling is None and whole is not None):
        curves["strong"] = _divided(whole or each * counts[0], counts)
    if scaling in ("weak", "both") or (scaling is None and each is not None):
        curves["weak"] = each or _divided(whole, counts[:1]) // counts[0]
    return curves


def _divided(batch: int, counts: Sequence[int]) -> int:
    """Refuse unequal parts: the workers of smaller ones would wait, and be measured so."""
    for count in counts:
        if batch % count:
            words = N_(
                "global_batch={batch} can't be divided equally among workers={count}; take {near}, or leave this "
                "number of workers out"
            )
            raise ClusterConfigError(_(words, batch=batch, count=count, near=-(-batch // count) * count))
    return batch


# ---- how long an all-reduce takes

SIZES = (1_000, 10_000, 100_000, 1_000_000, 4_000_000, 16_000_000)


def benchmark_allreduce(
    workers: Sequence[int] = (1, 2),
    sizes: Sequence[int] = SIZES,
    implementation: str = "AUTO",
    repeats: int = 10,
    force: bool = False,
) -> pandas.DataFrame:
    """Times all-reduces of float32 through MultiWorkerMirroredStrategy in real workers; prints latency and bandwidth.

    Args:
        workers: numbers of workers.
        sizes: bytes of the whole array, on each worker; from 4, one float32.
        implementation: "AUTO", "RING" or "NCCL" (GPUs).
        repeats: of each size, sizes in turn, after a warm-up.
        force: also on Colab, where `dtk.run` starts one worker.

    Returns:
        One row for each number of workers and size. Columns: workers, bytes, seconds (the median of the slowest
        worker's), lowest and highest (s; NaN for one repeat), repeats, implementation. One worker sends nothing: its
        rows say what a call costs. Latency and bandwidth in them are what `dtk.model.fit` finds.

    Raises:
        ClusterConfigError: an argument that can't be used, or several workers on Colab without `force`.
    """
    counts = _checked_counts(workers)
    for size in _listed("sizes", sizes):
        whole_number("sizes", size, least=4)
    one_of("implementation", implementation, ("AUTO", "RING", "NCCL"))
    whole_number("repeats", repeats)
    threads = _threads("dtk.benchmark_allreduce", counts[-1], force)
    asked = {"sizes": tuple(sizes), "repeats": repeats, "implementation": implementation}
    rows, payload = [], request.pack(time_reductions, (), asked)
    with environment.quiet():
        for count in counts:
            job = measured_job(payload, count, threads, {"DTK_MARKS": "0"})  # marks would be in what is measured
            request.check_memory(count, job.fork, force)
            for size, *measured in zip(sizes, *carry_out(job, time.monotonic()).results, strict=True):
                # The slowest worker's seconds: none goes on before it.
                each = [max(at_once) for at_once in zip(*measured, strict=True)]
                spread = (min(each), max(each)) if repeats > 1 else (float("nan"), float("nan"))
                rows.append((count, size // 4 * 4, statistics.median(each), *spread, repeats, implementation))
    columns = ["workers", "bytes", "seconds", "lowest", "highest", "repeats", "implementation"]
    table = pandas.DataFrame(rows, columns=columns)
    try:
        environment.say(str(fit(table)))
    except DtkError as error:
        environment.say(str(error))
    return table


# ---- in a worker: the seconds of each all-reduce, through the strategy that trains with it

_WARM_UPS = 3
_CHAINED_BYTES = 1 << 24  # small arrays are reduced several times in a row, so that a call counts for little
_MOST_CHAINED = 20


def time_reductions(sizes: Sequence[int], repeats: int, implementation: str) -> list[list[float]]:
    """For each size (bytes, of float32) the seconds of `repeats` all-reduces, sizes in turn; begun together.

    Each begins when the one before has ended on every worker: an all-reduce ends nowhere before all have begun it.
    """
    from tensorflow import distribute

    named = distribute.experimental.CommunicationImplementation[implementation]
    options = distribute.experimental.CommunicationOptions(implementation=named)
    strategy = distribute.MultiWorkerMirroredStrategy(communication_options=options)
    steps = [_reduction(strategy, size // 4) for size in sizes]
    for call, __ in steps:
        for __ in range(_WARM_UPS):
            call()
    found: list[list[float]] = [[] for __ in sizes]
    for __ in range(repeats):
        for (call, chained), seconds in zip(steps, found, strict=True):
            call()  # the workers' own delay before this one is not the next one's
            began = time.perf_counter()
            call()
            seconds.append((time.perf_counter() - began) / chained)
    return found


def _reduction(strategy: Any, numbers: int) -> tuple[Any, int]:
    """A function that reduces an array, and how often it does so in a row."""
    import tensorflow as tf

    chained = int(min(_MOST_CHAINED, max(1, _CHAINED_BYTES // (4 * numbers))))
    value = tf.Variable(tf.random.uniform([numbers]), trainable=False)

    def replica() -> Any:
        array, share = value + 0.0, 1.0 / strategy.num_replicas_in_sync
        for __ in range(chained):
            # Each needs the one before; by the scaling the numbers stay as large as they were.
            array = tf.distribute.get_replica_context().all_reduce("SUM", array) * share
        return array[0]

    @tf.function
    def reduce() -> Any:
        return strategy.run(replica)

    return lambda: strategy.experimental_local_results(reduce())[0].numpy(), chained
