"""`dtk.study`: the same function on 1, 2, 4 workers, what one process computes, and what these cores can do at most."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from dtk import environment
from dtk.errors import ClusterConfigError, DtkError, whole_number
from dtk.language import N_, _
from dtk.launch import launch, request
from dtk.runs import carry_out
from dtk.scaling.summary import MEASURES, measures, study_summary

if TYPE_CHECKING:
    import pandas

__all__ = ["Cell", "Study", "measured_job", "refuse_on_colab", "study", "study_cells"]

_SCALINGS = ("strong", "weak", "both")


@dataclass(frozen=True)
class Cell:
    """One run of a study. scaling: the curves that it belongs to, "strong", "weak" or "strong, weak".

    kind: "cluster", "baseline" (one process on one device) or "ceiling" (workers without communication).
    """

    scaling: str
    kind: str
    workers: int
    global_batch: int
    per_replica_batch: int
    repeat: int = 0


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
        `dtk.scaling.parts`), and failed: what went wrong, or "".
        """
        import pandas as pd

        table = pd.DataFrame(self.rows, columns=[*Cell.__dataclass_fields__, *MEASURES, "failed"])
        return table.astype(dict.fromkeys(MEASURES, "float64")) if len(table) else table

    @property
    def summary(self) -> pandas.DataFrame:
        """Medians, ranges, efficiency and where the rest went, one row per point; see `study_summary`."""
        return study_summary(self.points)

    def __repr__(self) -> str:
        failed = sum(bool(row["failed"]) for row in self.rows)
        said = ",".join(map(str, sorted({row["workers"] for row in self.rows})))
        return f"<Study {self.function} workers={said} runs={len(self.rows)} failed={failed}>"


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

    Each worker has the same number of threads at every point, so that a further worker adds as much as those before:
    the cores divided by the largest number of workers, at least 1.

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
    cells = study_cells(workers, global_batch, per_replica_batch, scaling, repeats)
    most = max(cell.workers for cell in cells)
    refuse_on_colab("dtk.study", most, force)
    jobs = [(cell, _job(fn, cell, max(1, environment.cores() // most))) for cell in cells]
    random.Random(0).shuffle(jobs)
    found = Study([], _label(fn))
    with _bar(len(jobs)) as bar, environment.quiet():
        for cell, job in jobs:
            bar.set_description(f"{cell.kind}, {cell.workers} × {cell.per_replica_batch}")  # noqa: RUF001
            found.rows.append({**asdict(cell), **_measure(job, cell)})
            bar.update()
    failed = [row["failed"] for row in found.rows if row["failed"]]
    if failed:
        words = N_("{failed} of {runs} runs failed; the first: {why}")
        environment.say(_(words, failed=len(failed), runs=len(found.rows), why=failed[0]))
    return found


def _job(fn: Any, cell: Cell, threads: int) -> launch.Job:
    """What is run for a cell; every process of a ceiling gets the batch that a replica has."""
    batch = cell.global_batch if cell.kind == "cluster" else cell.per_replica_batch
    job = measured_job(request.pack(fn, (), {"global_batch": batch}), cell.workers, threads)
    mode = {"cluster": "cluster", "ceiling": "apart", "baseline": "single"}[cell.kind]
    return replace(job, mode=mode, keras=request.checked_keras(None, fn))


def refuse_on_colab(function: str, workers: int, force: bool) -> None:
    if workers > 1 and environment.on_colab() and not force:
        words = N_("on Colab dtk.run starts one worker; {function}(..., force=True) measures several on its two cores")
        raise ClusterConfigError(_(words, function=function))


def measured_job(payload: Any, workers: int, threads: int, **communication: Any) -> launch.Job:
    """A run on a cluster, of which only times are wanted.

    threads: 0 for TensorFlow's default. communication: bytes_per_pack and implementation, of the strategy.
    """
    return launch.Job(
        states=False,
        payload=payload,
        workers=workers,
        replicas=1,
        mode="cluster",
        seed=0,
        keras=None,
        share=workers,
        fork=request.fork("auto"),
        timeout=None,
        stall_timeout=60.0,
        env=dict.fromkeys(launch.THREADS, str(threads) if threads else None),
        communication=communication,
    )


def _measure(job: launch.Job, cell: Cell) -> dict[str, Any]:
    nothing: dict[str, Any] = dict.fromkeys(MEASURES, float("nan"))
    try:
        request.check_memory(job.workers, job.fork)
        run = carry_out(job, time.monotonic())
    except DtkError as error:
        return {**nothing, "failed": str(error)}
    found: dict[str, Any] = measures(run, cell.kind)
    if found["examples_per_second"] == found["examples_per_second"]:
        return {**found, "failed": ""}
    words = N_(
        "no step after the first was recorded on every worker: add dtk.Recorder() to fit's callbacks, or "
        "dtk.record_step to a loop, and train some 20 steps or more"
    )
    return {**found, "failed": _(words)}


def _label(fn: Any) -> str:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return str(getattr(fn, "__name__", type(fn).__name__))


def _bar(total: int) -> Any:
    from tqdm.auto import tqdm

    return tqdm(total=total, unit=_("run"), disable=environment.live_mode() == "off")


# ---- which runs a study takes, checked before any process starts


def study_cells(
    workers: Any,
    global_batch: Any,
    per_replica_batch: Any,
    scaling: Any,
    repeats: Any,
) -> tuple[Cell, ...]:
    """All runs of a study; see `dtk.study`.

    Raises:
        ClusterConfigError: with what to ask for instead.
    """
    counts = sorted({*workers} if isinstance(workers, (list, tuple, range, set)) else {workers})
    if not counts:
        raise ClusterConfigError(_("{name}=[]: a study of nothing; give one number or more", name="workers"))
    for count in counts:
        request.check_count("workers", count, max(16, 4 * environment.cores()))
    whole_number("repeats", repeats)
    for name, batch in (("global_batch", global_batch), ("per_replica_batch", per_replica_batch)):
        if batch is not None:
            whole_number(name, batch)
    cells: dict[Cell, set[str]] = {}
    for curve, batch in _curves(counts, global_batch, per_replica_batch, scaling).items():
        for cell in _curve(curve, batch, counts):
            cells.setdefault(cell, set()).add(curve)
    merged = [replace(cell, scaling=", ".join(sorted(found))) for cell, found in cells.items()]
    return tuple(replace(cell, repeat=number) for number in range(1, repeats + 1) for cell in merged)


def _curve(scaling: str, batch: int, counts: Sequence[int]) -> Iterator[Cell]:
    """The runs of one curve; batch: the global one for strong scaling, each replica's for weak."""
    for workers in counts:
        whole = batch if scaling == "strong" else batch * workers
        each = whole // workers
        yield Cell("", "cluster", workers, whole, each)
        if workers > 1:  # one worker without communication is the baseline
            yield Cell("", "ceiling", workers, whole, each)
        for size in {batch, each}:
            yield Cell("", "baseline", 1, size, size)


def _curves(counts: Sequence[int], whole: Any, each: Any, scaling: Any) -> dict[str, int]:
    """The batch of each curve that is asked for; of one whose batch is not given, that of the other at its start."""
    if scaling is not None and scaling not in _SCALINGS:
        words = N_("scaling={given!r}: it takes one of {names}, or None")
        raise ClusterConfigError(_(words, given=scaling, names=", ".join(_SCALINGS)))
    if whole is None and each is None:
        words = N_(
            "neither global_batch nor per_replica_batch is given: a study of nothing; give one, such as "
            "global_batch=128"
        )
        raise ClusterConfigError(_(words))
    curves = {}
    for name, batch in (("strong", whole), ("weak", each)):
        if scaling in (name, "both") or (scaling is None and batch is not None):
            curves[name] = batch
    if "strong" in curves:
        curves["strong"] = _divided(whole or each * counts[0], counts)
    if "weak" in curves:
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
