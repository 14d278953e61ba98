"""`dtk.benchmark_allreduce`: what an all-reduce takes on this machine, by size and number of workers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dtk import environment
from dtk.errors import ClusterConfigError, DtkError, one_of, whole_number
from dtk.language import N_, _
from dtk.launch import launch, request
from dtk.runs import carry_out
from dtk.scaling.prediction import fit
from dtk.studies.study import measured_job, refuse_on_colab

if TYPE_CHECKING:
    import pandas

__all__ = ["SIZES", "benchmark_allreduce", "time_reductions"]

IMPLEMENTATIONS = ("AUTO", "RING", "NCCL")
SIZES = (1_000, 10_000, 100_000, 1_000_000, 4_000_000, 16_000_000)
MOST_BYTES = 1 << 30


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
        sizes: bytes of the whole array, on each worker; from 4 to 2^30.
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
    import pandas as pd

    _check(workers, sizes, implementation, repeats)
    counts = sorted(set(workers))
    refuse_on_colab("dtk.benchmark_allreduce", counts[-1], force)
    threads = max(1, environment.cores() // counts[-1])  # at every number of workers, as in `dtk.study`
    rows = []
    with environment.quiet():
        for count in counts:
            job = _job(count, tuple(sizes), implementation, repeats, threads)
            request.check_memory(count, job.fork, force)
            for size, *measured in zip(sizes, *carry_out(job, time.monotonic()).results, strict=True):
                # The slowest worker's seconds: none goes on before it.
                each = [max(at_once) for at_once in zip(*measured, strict=True)]
                spread = (min(each), max(each)) if repeats > 1 else (float("nan"), float("nan"))
                rows.append((count, 4 * max(1, size // 4), statistics.median(each), *spread, repeats, implementation))
    columns = ["workers", "bytes", "seconds", "lowest", "highest", "repeats", "implementation"]
    table = pd.DataFrame(rows, columns=columns)
    try:
        environment.say(str(fit(table)))
    except DtkError as error:
        environment.say(_("no fit: {why}", why=error))
    return table


def _check(workers: Any, sizes: Any, implementation: Any, repeats: Any) -> None:
    for name, given in (("workers", workers), ("sizes", sizes)):
        if not isinstance(given, (list, tuple, range)) or not given:
            words = N_("{name}={given!r}: it takes a list of whole numbers, such as {example}")
            raise ClusterConfigError(_(words, name=name, given=given, example=[1, 2]))
    for count in workers:
        request.check_count("workers", count, max(16, 4 * environment.cores()))
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, int) or not 4 <= size <= MOST_BYTES:
            words = N_("sizes: {size!r}, but it takes bytes from 4 (one float32) to {most:,}")
            raise ClusterConfigError(_(words, size=size, most=MOST_BYTES))
    one_of("implementation", implementation, IMPLEMENTATIONS)
    whole_number("repeats", repeats)


def _job(count: int, sizes: tuple[int, ...], implementation: str, repeats: int, threads: int) -> launch.Job:
    payload = request.pack(time_reductions, (), {"sizes": sizes, "repeats": repeats})
    settings = {} if implementation == "AUTO" else {"implementation": implementation}
    job = measured_job(payload, count, threads, **settings)
    return replace(job, env={**job.env, "DTK_MARKS": "0"})  # marks of each all-reduce would be in what is measured


# ---- in a worker: the seconds of each all-reduce, through the strategy that trains with it

_WARM_UPS = 3
_CHAINED_BYTES = 1 << 24  # small arrays are reduced several times in a row, so that a call counts for little
_MOST_CHAINED = 20


def time_reductions(sizes: Sequence[int], repeats: int, strategy: Any) -> list[list[float]]:
    """For each size (bytes, of float32) the seconds of `repeats` all-reduces, sizes in turn; begun together.

    Each begins when the one before has ended on every worker: an all-reduce ends nowhere before all have begun it.
    """
    steps = [_step(strategy, max(1, size // 4)) for size in sizes]
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


def _step(strategy: Any, numbers: int) -> tuple[Any, int]:
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
