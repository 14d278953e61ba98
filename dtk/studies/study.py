"""`dtk.study`: the same function on 1, 2, 4 workers, what one process computes, and what these cores can do at most."""

from __future__ import annotations

import functools
import json
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtk import environment
from dtk.errors import ClusterConfigError, DtkError
from dtk.language import N_, _, ngettext
from dtk.launch import launch, request
from dtk.runs import carry_out
from dtk.scaling.efficiency import MEASURES, measures, summary
from dtk.studies.plan import PLACING, Cell, Plan, environment_of, make_plan
from dtk.worker import ship

if TYPE_CHECKING:
    import pandas

__all__ = ["Study", "job_of", "study"]

_NO_RECORDS = N_(
    "no step after the first was recorded on every worker: add dtk.Recorder() to fit's callbacks, or dtk.record_step "
    "to a loop, and train some 20 steps or more"
)
# What lies at the path, by whether its function has another name.
_OTHER = {
    True: N_("{file} holds a study of `{function}`; give another path, or delete the file to begin anew"),
    False: N_(
        "{file} holds a study of another `{function}`, whose code or values differ; give another path, or delete the "
        "file to begin anew"
    ),
}
_OTHER_CORES = N_(
    "{file} holds a study of a machine with {cores} cores, and here are {here}; give another path, or delete the file "
    "to begin anew"
)
_OTHER_SWITCH = N_(
    "{file} holds a study of the switch {switch!r} as {was}, and it is now {now}; give another path, or delete the "
    "file to begin anew"
)
_COMMUNICATION = ("bytes_per_pack", "implementation")


@dataclass(eq=False)
class Study:
    """What a scaling study measured: `dtk.study`. `dtk.plot.efficiency` and `dtk.plot.throughput` draw it.

    Attributes:
        rows: what `points` is made of.
        cores: of the machine.
        function: name of the function studied.
        fingerprint: of what it does (`dtk.worker.ship.digest`).
        switches: by name, as they were given.
        path: the JSON file that holds it; None without one.
    """

    rows: list[dict[str, Any]]
    cores: int
    function: str
    fingerprint: str
    switches: dict[str, dict[str, Any]] = field(default_factory=dict)
    path: Path | None = None

    @property
    def points(self) -> pandas.DataFrame:
        """One row a run: scaling ("strong", "weak" or both), kind ("cluster", "baseline" or "ceiling"), workers,
        global_batch and per_replica_batch (examples), switch, threads (of each worker; 0: TensorFlow's default),
        repeat, examples_per_second, the parts of a step (s, `dtk.scaling.parts`), and failed: what went wrong, or "".
        """
        import pandas as pd

        names = [*(name for name in Cell.__dataclass_fields__ if name != "settings"), *MEASURES, "failed"]
        table = pd.DataFrame(self.rows, columns=names)
        return table.astype(dict.fromkeys(MEASURES, "float64")) if len(table) else table

    @property
    def summary(self) -> pandas.DataFrame:
        """Medians, ranges, efficiency and where the rest went, one row per point: `dtk.scaling.efficiency.summary`."""
        return summary(self.points)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes everything into one JSON file, whole or not at all."""
        target = Path(path)
        said = {name: value for name, value in asdict(self).items() if name != "path"}
        plain = [{name: None if value != value else value for name, value in row.items()} for row in self.rows]
        part = target.with_name(target.name + ".part")
        part.write_text(json.dumps({"format": 1, **said, "rows": plain}, indent=1, allow_nan=False) + "\n")
        os.replace(part, target)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Study:
        """Reads what `save` or `dtk.study(..., path=...)` wrote."""
        try:
            said = json.loads(Path(path).read_text())
            if said.pop("format") != 1:
                raise ValueError("another format")
            nothing = dict.fromkeys(MEASURES, float("nan"))
            rows = [{**row, **{n: nothing[n] for n in MEASURES if row[n] is None}} for row in said.pop("rows")]
            return cls(rows, path=Path(path), **said)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            words = N_("{file} is no study that dtk has saved ({why})")
            raise ClusterConfigError(_(words, file=Path(path).name, why=error)) from None

    @cached_property
    def _done(self) -> set[tuple[Any, ...]]:
        return {_key(row) for row in self.rows if not row["failed"]}

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
    batch_argument: str = "global_batch",
    switches: Mapping[str, Mapping[str, Any]] | None = None,
    threads: int | None = None,
    seed: int = 0,
    timeout: float | None = None,
    path: str | os.PathLike[str] | None = None,
    force: bool = False,
) -> Study:
    """A scaling study: `fn` on so many workers, against one process and against workers without communication.

    Args:
        fn: as for `dtk.run`, with a parameter for the global batch; it records its steps (dtk.Recorder,
            dtk.record_step). The longer it trains, the less noise: 50 steps and more.
        workers: numbers of workers.
        global_batch: examples, one number or a list. Strong scaling: this batch on every number of workers.
        per_replica_batch: examples, one number or a list. Weak scaling: this batch on each worker.
        scaling: "strong", "weak" or "both"; None: what was given. Where only one of the two batches is given, the other
            curve starts from the same point, at the smallest number of workers.
        repeats: how often each is run, all in shuffled order, so that a busy minute does not hit one point alone.
        batch_argument: the name of `fn`'s parameter for the global batch.
        switches: by name, what is tried beside the plain study: {"1 MB packs": {"bytes_per_pack": 2**20}}. "threads",
            "bytes_per_pack" and "implementation" (of the strategy), "pinned" (False: workers that outnumber the cores
            keep to none) and "message_bytes" (of a message between workers) are dtk's; all else goes to `fn` by name.
        threads: of each worker, the same at every point, so that a further worker adds as much as those before. None:
            the cores divided by the largest number of workers, at least 1. 0: TensorFlow's default, all cores.
        seed: of the runs, and of their order.
        timeout: seconds that one run may take; None: no limit.
        path: a JSON file, written after each run; the same call later skips what is there and runs what failed again.
        force: also on Colab, where `dtk.run` starts one worker.

    Returns:
        A `Study`. A run that fails is kept and marked in `points.failed`; the rest goes on.

    Raises:
        ClusterConfigError, NotShippable: before anything starts.
    """
    plan = make_plan(workers, global_batch, per_replica_batch, scaling, repeats, switches or {}, threads)
    request.check_times(timeout, None)
    _check_place(max(plan.workers), force)
    for name, settings in plan.switches.items():
        asked = [option for option in _COMMUNICATION if option in settings]
        if asked and not ship.takes_strategy(fn):
            words = N_(
                "switch {name!r}: {option} is the strategy's, and `{function}` makes its own; give it a parameter "
                "`strategy`, which dtk fills"
            )
            raise ClusterConfigError(_(words, name=name, option=asked[0], function=_label(fn)))
    jobs = {cell: job_of(fn, cell, batch_argument, request.checked_seed(seed), timeout) for cell in plan.cells}
    found = _resumed(fn, plan, path)
    left = [cell for cell in plan.cells if _key(asdict(cell)) not in found._done]
    random.Random(seed).shuffle(left)
    _expect(plan)
    with _bar(len(plan.cells), len(plan.cells) - len(left)) as bar, environment.quiet():
        for cell in left:
            bar.set_description(cell.words)
            row = {**_plain(cell), **_measure(jobs[cell], cell)}
            found.rows = [other for other in found.rows if _key(other) != _key(row)] + [row]
            if path is not None:
                found.save(path)
            bar.update()
        bar.set_description(_("study"))
    failed = [row["failed"] for row in found.rows if row["failed"]]
    if failed:
        words = N_("{failed} of {runs} runs failed; the first: {why}")
        environment.say(_(words, failed=len(failed), runs=len(found.rows), why=failed[0]))
    return found


def _check_place(most: int, force: bool) -> None:
    if most > 1 and environment.on_colab() and not force:
        words = N_(
            "on Colab dtk.run starts one worker, so that there is nothing to scale; dtk.study(..., force=True) "
            "measures several on its two cores"
        )
        raise ClusterConfigError(_(words))


def job_of(fn: Any, cell: Cell, batch_argument: str, seed: int | None, timeout: float | None) -> launch.Job:
    """What is run for a cell; every process of a ceiling gets the batch that a replica has."""
    batch = cell.global_batch if cell.kind == "cluster" else cell.per_replica_batch
    settings = dict(cell.settings)
    own = {name: value for name, value in settings.items() if name not in ("threads", *PLACING, *_COMMUNICATION)}
    return launch.Job(
        states=False,
        payload=request.pack(fn, (), {batch_argument: batch, **own}),
        workers=cell.workers,
        replicas=1,
        mode={"cluster": "cluster", "ceiling": "apart", "baseline": "single"}[cell.kind],
        seed=seed,
        keras=request.checked_keras(None, fn),
        strategy=ship.takes_strategy(fn),
        share=cell.workers,
        fork=request.fork("auto"),
        timeout=timeout,
        stall_timeout=60.0,
        env=environment_of(settings, cell.threads),
        communication={name: settings[name] for name in _COMMUNICATION if name in settings},
    )


def _measure(job: launch.Job, cell: Cell) -> dict[str, Any]:
    nothing: dict[str, Any] = dict.fromkeys(MEASURES, float("nan"))
    try:
        request.check_memory(job.workers, job.fork)
        run = carry_out(job, time.monotonic())
    except DtkError as error:
        return {**nothing, "failed": str(error)}
    found: dict[str, Any] = measures(run, cell.kind)
    known = found["examples_per_second"] == found["examples_per_second"]
    return {**found, "failed": "" if known else _(_NO_RECORDS)}


def _resumed(fn: Any, plan: Plan, path: str | os.PathLike[str] | None) -> Study:
    """The study that lies at the path, if it is one of this function on as many cores; otherwise a new one."""
    name, print_, cores = _label(fn), ship.digest(fn), environment.cores()
    asked = {name: dict(settings) for name, settings in plan.switches.items()}
    if path is None or not Path(path).exists():
        if path is not None and not Path(path).absolute().parent.is_dir():
            words = N_("path={path!r}: there is no such directory; make it first")
            raise ClusterConfigError(_(words, path=os.fspath(path)))
        return Study([], cores, name, print_, asked, None if path is None else Path(path))
    there = Study.load(path)
    file = Path(path).name
    if there.fingerprint != print_:
        raise ClusterConfigError(_(_OTHER[there.function != name], file=file, function=there.function))
    if there.cores != cores:
        raise ClusterConfigError(_(_OTHER_CORES, file=file, cores=there.cores, here=cores))
    for switch, settings in asked.items():
        if (was := there.switches.get(switch, settings)) != settings:
            raise ClusterConfigError(_(_OTHER_SWITCH, file=file, switch=switch, was=was, now=settings))
    there.switches |= asked
    return there


def _label(fn: Any) -> str:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return str(getattr(fn, "__name__", type(fn).__name__))


def _plain(cell: Cell) -> dict[str, Any]:
    return {name: value for name, value in asdict(cell).items() if name != "settings"}


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("kind", "workers", "global_batch", "switch", "threads", "repeat"))


def _expect(plan: Plan) -> None:
    most, cores = max(plan.workers), environment.cores()
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
    if plan.repeats == 1:
        environment.say(_("one repeat, no range: what else the machine does may be in any figure"))


def _bar(total: int, done: int) -> Any:
    from tqdm.auto import tqdm

    return tqdm(total=total, initial=done, unit=_("run"), disable=environment.live_mode() == "off")
