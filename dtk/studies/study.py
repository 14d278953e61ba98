"""`dtk.study`: the same function on 1, 2, 4 workers, what one process computes, and what these cores can do at most."""

from __future__ import annotations

import functools
import json
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtk import environment
from dtk.errors import ClusterConfigError, DtkError, whole_number
from dtk.language import N_, _, ngettext
from dtk.launch import launch, request
from dtk.records import weights
from dtk.runs import carry_out
from dtk.scaling.summary import MEASURES, measures, study_summary
from dtk.worker import ship

if TYPE_CHECKING:
    import pandas

__all__ = ["Cell", "Study", "measured_job", "study", "study_cells"]

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
        cores: of the machine.
        function: name of the function studied.
        threads: of each worker; 0: TensorFlow's default.
    """

    rows: list[dict[str, Any]]
    cores: int
    function: str
    threads: int = 0

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

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes everything into one JSON file, whole or not at all."""
        plain = [{name: None if value != value else value for name, value in row.items()} for row in self.rows]
        text = json.dumps({"format": 2, **asdict(self), "rows": plain}, indent=1, allow_nan=False) + "\n"
        weights.replace(Path(path), text.encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Study:
        """Reads what `save` wrote."""
        try:
            said = json.loads(Path(path).read_text())
            if said.pop("format") != 2:
                raise ValueError("another format")
            nan = float("nan")
            rows = [{**row, **{name: nan for name in MEASURES if row[name] is None}} for row in said.pop("rows")]
            return cls(rows, **said)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            words = N_("{file} is no study that dtk has saved ({why})")
            raise ClusterConfigError(_(words, file=Path(path).name, why=error)) from None

    def __repr__(self) -> str:
        failed = sum(bool(row["failed"]) for row in self.rows)
        said = ",".join(map(str, sorted({row["workers"] for row in self.rows})))
        return f"<Study {self.function} workers={said} runs={len(self.rows)} failed={failed}>"


def study(
    fn: Callable[..., Any],
    workers: Sequence[int] = (1, 2, 4),
    global_batch: int | Sequence[int] | None = None,
    per_replica_batch: int | Sequence[int] | None = None,
    scaling: str | None = None,
    repeats: int = 3,
    threads: int | None = None,
    seed: int = 0,
    timeout: float | None = None,
    force: bool = False,
) -> Study:
    """A scaling study: `fn` on so many workers, against one process and against workers without communication.

    Args:
        fn: as for `dtk.run`, with a parameter `global_batch`; it records its steps (dtk.Recorder,
            dtk.record_step). The longer it trains, the less noise: 50 steps and more.
        workers: numbers of workers.
        global_batch: examples, one number or a list. Strong scaling: this batch on every number of workers.
        per_replica_batch: examples, one number or a list. Weak scaling: this batch on each worker.
        scaling: "strong", "weak" or "both"; None: what was given. Where only one of the two batches is given, the other
            curve starts from the same point, at the smallest number of workers.
        repeats: how often each is run, all in shuffled order, so that a busy minute does not hit one point alone.
        threads: of each worker, the same at every point, so that a further worker adds as much as those before. None:
            the cores divided by the largest number of workers, at least 1. 0: TensorFlow's default, all cores.
        seed: of the runs, and of their order.
        timeout: seconds that one run may take; None: no limit.
        force: also on Colab, where `dtk.run` starts one worker.

    Returns:
        A `Study`. A run that fails is kept and marked in `points.failed`; the rest goes on.

    Raises:
        ClusterConfigError, NotShippable: before anything starts.
    """
    cells = study_cells(workers, global_batch, per_replica_batch, scaling, repeats)
    request.check_times(timeout, None)
    most = max(cell.workers for cell in cells)
    if most > 1 and environment.on_colab() and not force:
        words = N_(
            "on Colab dtk.run starts one worker, so that there is nothing to scale; dtk.study(..., force=True) "
            "measures several on its two cores"
        )
        raise ClusterConfigError(_(words))
    cores = environment.cores()
    threads = max(1, cores // most) if threads is None else whole_number("threads", threads, 0)
    jobs = [(cell, _job(fn, cell, threads, request.checked_seed(seed), timeout)) for cell in cells]
    random.Random(seed).shuffle(jobs)
    _expect(most)
    found = Study([], cores, _label(fn), threads)
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


def _job(fn: Any, cell: Cell, threads: int, seed: int | None, timeout: float | None) -> launch.Job:
    """What is run for a cell; every process of a ceiling gets the batch that a replica has."""
    batch = cell.global_batch if cell.kind == "cluster" else cell.per_replica_batch
    job = measured_job(request.pack(fn, (), {"global_batch": batch}), cell.workers, threads)
    mode = {"cluster": "cluster", "ceiling": "apart", "baseline": "single"}[cell.kind]
    keras, strategy = request.checked_keras(None, fn), ship.takes_strategy(fn)
    return replace(job, mode=mode, seed=seed, keras=keras, strategy=strategy, timeout=timeout)


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
        strategy=True,
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


def _expect(most: int) -> None:
    cores = environment.cores()
    if most > cores:
        environment.say(
            ngettext(
                "{most} workers on {n} core: they take turns, so expect the examples/s of about {n} at best, and less "
                "for what they send each other; the study's ceiling shows how many",
                "{most} workers on {n} cores: they take turns, so expect the examples/s of about {n} at best, and less "
                "for what they send each other; the study's ceiling shows how many",
                cores,
                most=most,
            )
        )


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
    counts = tuple(sorted(set(_listed("workers", workers))))
    for count in counts:
        request.check_count("workers", count, max(16, 4 * environment.cores()))
    whole_number("repeats", repeats)
    whole, each = (
        [] if given is None else [whole_number(name, batch) for batch in _listed(name, given)]
        for name, given in (("global_batch", global_batch), ("per_replica_batch", per_replica_batch))
    )
    cells: dict[Cell, set[str]] = {}
    for curve, batch in _curves(counts, whole, each, scaling):
        for cell in _curve(curve, batch, counts):
            cells.setdefault(cell, set()).add(curve)
    merged = [replace(cell, scaling=", ".join(sorted(found))) for cell, found in cells.items()]
    return tuple(replace(cell, repeat=number) for number in range(1, repeats + 1) for cell in merged)


def _listed(name: str, given: Any) -> list[Any]:
    found = list(given) if isinstance(given, (list, tuple, range, set)) else [given]
    if not found:
        raise ClusterConfigError(_("{name}=[]: a study of nothing; give one number or more", name=name))
    return found


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


def _curves(counts: Sequence[int], whole: list[int], each: list[int], scaling: Any) -> list[tuple[str, int]]:
    """(scaling, batch) of each curve that is asked for."""
    if not whole and not each:
        words = N_(
            "neither global_batch nor per_replica_batch is given: a study of nothing; give one, such as "
            "global_batch=128"
        )
        raise ClusterConfigError(_(words))
    if scaling is not None and scaling not in _SCALINGS:
        words = N_("scaling={given!r}: it takes one of {names}, or None")
        raise ClusterConfigError(_(words, given=scaling, names=", ".join(_SCALINGS)))
    strong, weak, least = whole, each, min(counts)
    if scaling in ("strong", "both") and not whole:
        strong = [batch * least for batch in each]
    if scaling in ("weak", "both") and not each:
        _divide(whole, [least])
        weak = [batch // least for batch in whole]
    strong, weak = strong * (scaling != "weak"), weak * (scaling != "strong")
    _divide(strong, counts)
    return [*(("strong", batch) for batch in strong), *(("weak", batch) for batch in weak)]


def _divide(batches: Sequence[int], counts: Sequence[int]) -> None:
    """Every worker gets an equal part: with unequal ones the smaller parts' workers would wait, and be measured so."""
    for batch, count in ((batch, count) for batch in batches for count in counts if batch % count):
        words = N_(
            "global_batch={batch} can't be divided equally among workers={count}; take {near}, or leave this number "
            "of workers out"
        )
        raise ClusterConfigError(_(words, batch=batch, count=count, near=-(-batch // count) * count))
