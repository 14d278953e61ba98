"""`dtk.study`: the same function on 1, 2, 4 workers, what one process computes, and what these cores can do at most."""

from __future__ import annotations

import functools
import json
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtk import environment
from dtk.errors import ClusterConfigError, DtkError
from dtk.language import N_, _, ngettext
from dtk.launch import launch, request
from dtk.runs import carry_out
from dtk.scaling.summary import MEASURES, measures, study_summary
from dtk.worker import ship

if TYPE_CHECKING:
    import pandas

__all__ = ["PLACING", "Cell", "Plan", "Study", "check_repeats", "environment_of", "job_of", "make_plan", "study"]

SCALINGS = ("strong", "weak", "both")
IMPLEMENTATIONS = ("AUTO", "RING", "NCCL")
MOST_REPEATS = 1000
# Settings of a worker's process: whether it may keep to one core, and the bytes of a message between workers.
PLACING = ("pinned", "message_bytes")


@dataclass(frozen=True)
class Cell:
    """One run of a study. scaling: the curves that it belongs to, "strong", "weak" or "strong, weak".

    kind: "cluster", "baseline" (one process on one device) or "ceiling" (workers without communication).
    threads: of each worker, 0 for TensorFlow's default. settings: the switch's, as pairs.
    """

    scaling: str
    kind: str
    workers: int
    global_batch: int
    per_replica_batch: int
    switch: str
    threads: int
    repeat: int
    settings: tuple[tuple[str, Any], ...] = field(default=(), compare=False)  # may hold what has no hash

    @property
    def words(self) -> str:
        """What is being run, for a progress bar."""
        if self.kind == "baseline":
            what = _("one process")
        elif self.kind == "ceiling":
            what = ngettext("{n} worker apart", "{n} workers apart", self.workers)
        else:
            what = ngettext("{n} worker", "{n} workers", self.workers)
        words = N_("{what}, batch {batch}, {switch}") if self.switch else N_("{what}, batch {batch}")
        return _(words, what=what, batch=self.global_batch, switch=self.switch)


@dataclass(frozen=True)
class Plan:
    """A study's runs; switches: by name, the plain study's name is ""."""

    workers: tuple[int, ...]
    repeats: int
    switches: dict[str, dict[str, Any]]
    cells: tuple[Cell, ...]


def make_plan(
    workers: Any,
    global_batch: Any,
    per_replica_batch: Any,
    scaling: Any,
    repeats: Any,
    switches: Mapping[str, Mapping[str, Any]],
    threads: Any,
) -> Plan:
    """All runs of a study, or ClusterConfigError with what to ask for instead; see `dtk.study`."""
    counts = _counts(workers)
    check_repeats(repeats)
    curves = _curves(counts, _batches("global_batch", global_batch), _each(per_replica_batch), scaling)
    named = {"": dict[str, Any](), **{name: _settings(name, each) for name, each in switches.items()}}
    cells: dict[Cell, set[str]] = {}
    for name, settings in named.items():
        asked = settings.get("threads", threads)
        for curve, batch in curves:
            for cell in _curve(curve, batch, counts):
                number = _threads(asked, max(counts))
                whole = replace(cell, switch=name, threads=number, settings=tuple(settings.items()))
                cells.setdefault(whole, set()).add(curve)
    merged = [replace(cell, scaling=", ".join(sorted(found))) for cell, found in cells.items()]
    repeated = tuple(replace(cell, repeat=number) for number in range(1, repeats + 1) for cell in merged)
    return Plan(counts, repeats, {name: each for name, each in named.items() if name}, repeated)


def environment_of(settings: Mapping[str, Any], threads: int) -> dict[str, str | None]:
    """Variables for the processes of a run: threads of each (0: TensorFlow's default), and what a switch sets."""
    found: dict[str, str | None] = dict.fromkeys(launch.THREADS, str(threads) if threads else None)
    if "pinned" in settings:
        found["DTK_PIN"] = str(int(settings["pinned"]))
    if "message_bytes" in settings:
        found["DTK_MESSAGE_BYTES"] = str(settings["message_bytes"])
    return found


def check_repeats(repeats: Any) -> None:
    """A whole number of at least 1."""
    if isinstance(repeats, bool) or not isinstance(repeats, int) or not 1 <= repeats <= MOST_REPEATS:
        words = N_("repeats={repeats!r}: it takes a whole number from 1 to {most}")
        raise ClusterConfigError(_(words, repeats=repeats, most=MOST_REPEATS))


def _curve(scaling: str, batch: int, counts: Sequence[int]) -> Iterator[Cell]:
    """The runs of one curve; batch: the global one for strong scaling, each replica's for weak."""
    for workers in counts:
        whole = batch if scaling == "strong" else batch * workers
        each = whole // workers
        yield Cell("", "cluster", workers, whole, each, "", 0, 0)
        if workers > 1:  # one worker without communication is the baseline
            yield Cell("", "ceiling", workers, whole, each, "", 0, 0)
        for size in {batch, each}:
            yield Cell("", "baseline", 1, size, size, "", 0, 0)


def _counts(workers: Any) -> tuple[int, ...]:
    given = _listed(workers)
    if not given:
        raise ClusterConfigError(_("workers=[]: a study of nothing; give numbers of workers, such as [1, 2, 4]"))
    for count in given:
        request.check_count("workers", count, max(16, 4 * environment.cores()))
    return tuple(sorted(set(given)))


def _each(given: Any) -> tuple[int, ...]:
    return _batches("per_replica_batch", given)


def _batches(name: str, given: Any) -> tuple[int, ...]:
    batches = _listed(given) if given is not None else []
    if given is not None and not batches:
        raise ClusterConfigError(_("{name}=[]: a study of nothing; give a number of examples, such as 128", name=name))
    for batch in batches:
        if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
            words = N_("{name}={batch!r}: it takes a whole number of examples, at least 1")
            raise ClusterConfigError(_(words, name=name, batch=batch))
    return tuple(dict.fromkeys(batches))


def _listed(given: Any) -> list[Any]:
    return list(given) if isinstance(given, (list, tuple, range, set)) else [given]


def _curves(
    counts: Sequence[int], whole: tuple[int, ...], each: tuple[int, ...], scaling: Any
) -> list[tuple[str, int]]:
    if not whole and not each:
        words = N_(
            "neither global_batch nor per_replica_batch is given: a study of nothing; give one, such as "
            "global_batch=128"
        )
        raise ClusterConfigError(_(words))
    if scaling is not None and scaling not in SCALINGS:
        words = N_("scaling={given!r}: it takes one of {names}, or None")
        raise ClusterConfigError(_(words, given=scaling, names=", ".join(SCALINGS)))
    least = min(counts)
    strong, weak = list(whole), list(each)
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
    for batch in batches:
        for count in counts:
            if batch % count:
                near = -(-batch // count) * count
                words = N_(
                    "global_batch={batch} can't be divided equally among workers={count}; take {near}, or leave this "
                    "number of workers out"
                )
                raise ClusterConfigError(_(words, batch=batch, count=count, near=near))


def _settings(name: Any, given: Any) -> dict[str, Any]:
    if not isinstance(name, str) or not name or not isinstance(given, Mapping):
        words = N_("switches: {name!r}: {given!r}; it takes names and what each changes, such as {example}")
        raise ClusterConfigError(_(words, name=name, given=given, example="{'1 MB packs': {'bytes_per_pack': 2**20}}"))
    pack = given.get("bytes_per_pack", 0)
    if isinstance(pack, bool) or not isinstance(pack, int) or pack < 0:
        words = N_("switch {name!r}: bytes_per_pack={pack!r}, but it takes bytes, or 0 for one pack")
        raise ClusterConfigError(_(words, name=name, pack=pack))
    message = given.get("message_bytes", 1)
    if isinstance(message, bool) or not isinstance(message, int) or message < 0:
        words = N_("switch {name!r}: message_bytes={bytes!r}, but it takes bytes, or 0 for TensorFlow's default")
        raise ClusterConfigError(_(words, name=name, bytes=message))
    if not isinstance(given.get("pinned", True), bool):
        words = N_("switch {name!r}: pinned={pinned!r}, but it takes True or False")
        raise ClusterConfigError(_(words, name=name, pinned=given["pinned"]))
    kind = given.get("implementation", "AUTO")
    if kind not in IMPLEMENTATIONS:
        words = N_("switch {name!r}: implementation={kind!r}, but it takes one of {names}")
        raise ClusterConfigError(_(words, name=name, kind=kind, names=", ".join(IMPLEMENTATIONS)))
    return dict(given)


def _threads(asked: Any, most: int) -> int:
    if asked is None:
        return max(1, environment.cores() // most)
    if isinstance(asked, bool) or not isinstance(asked, int) or asked < 0:
        words = N_("threads={given!r}: it takes a number of threads for each worker, or 0 for TensorFlow's default")
        raise ClusterConfigError(_(words, given=asked))
    return asked


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
        """Medians, ranges, efficiency and where the rest went, one row per point; see `study_summary`."""
        return study_summary(self.points)

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
