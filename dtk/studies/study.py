"""`dtk.study`: the same function on 1, 2, 4 workers, what one process computes, and what these cores can do at most."""

from __future__ import annotations

import functools
import json
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
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

__all__ = ["Cell", "Study", "check_implementation", "job_of", "measured_job", "study", "study_cells", "whole_number"]

_SCALINGS = ("strong", "weak", "both")
_IMPLEMENTATIONS = ("AUTO", "RING", "NCCL")
_COMMUNICATION = ("bytes_per_pack", "implementation")  # a switch's settings of the strategy
_PROCESS = {"pinned": "DTK_PIN", "message_bytes": "DTK_MESSAGE_BYTES"}  # and of the workers' processes


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

    @property
    def row(self) -> dict[str, Any]:
        """What a study's table says of it."""
        return {name: value for name, value in asdict(self).items() if name != "settings"}


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
    tried = {name: dict(_checked_switch(fn, name, each)) for name, each in (switches or {}).items()}
    cells = study_cells(workers, global_batch, per_replica_batch, scaling, repeats, tried, threads)
    request.check_times(timeout, None)
    most = max(cell.workers for cell in cells)
    if most > 1 and environment.on_colab() and not force:
        words = N_(
            "on Colab dtk.run starts one worker, so that there is nothing to scale; dtk.study(..., force=True) "
            "measures several on its two cores"
        )
        raise ClusterConfigError(_(words))
    jobs = {cell: job_of(fn, cell, batch_argument, request.checked_seed(seed), timeout) for cell in cells}
    found = _resumed(fn, tried, path)
    done = {_key(row) for row in found.rows if not row["failed"]}
    left = [cell for cell in cells if _key(cell.row) not in done]
    random.Random(seed).shuffle(left)
    _expect(most, repeats)
    with _bar(len(cells), len(cells) - len(left)) as bar, environment.quiet():
        for cell in left:
            bar.set_description(cell.words)
            row = {**cell.row, **_measure(jobs[cell], cell)}
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


def job_of(fn: Any, cell: Cell, batch_argument: str, seed: int | None, timeout: float | None) -> launch.Job:
    """What is run for a cell; every process of a ceiling gets the batch that a replica has."""
    batch = cell.global_batch if cell.kind == "cluster" else cell.per_replica_batch
    settings = dict(cell.settings)
    own = {name: each for name, each in settings.items() if name not in ("threads", *_PROCESS, *_COMMUNICATION)}
    job = measured_job(request.pack(fn, (), {batch_argument: batch, **own}), cell.workers, cell.threads, settings)
    mode = {"cluster": "cluster", "ceiling": "apart", "baseline": "single"}[cell.kind]
    keras, strategy = request.checked_keras(None, fn), ship.takes_strategy(fn)
    return replace(job, mode=mode, seed=seed, keras=keras, strategy=strategy, timeout=timeout)


def measured_job(payload: Any, workers: int, threads: int, settings: Mapping[str, Any]) -> launch.Job:
    """A run on a cluster, of which only times are wanted. threads: 0 for TensorFlow's default; settings: a switch's."""
    env: dict[str, str | None] = dict.fromkeys(launch.THREADS, str(threads) if threads else None)
    env |= {variable: str(int(settings[name])) for name, variable in _PROCESS.items() if name in settings}
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
        env=env,
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
    if found["examples_per_second"] == found["examples_per_second"]:
        return {**found, "failed": ""}
    words = N_(
        "no step after the first was recorded on every worker: add dtk.Recorder() to fit's callbacks, or "
        "dtk.record_step to a loop, and train some 20 steps or more"
    )
    return {**found, "failed": _(words)}


def _resumed(fn: Any, switches: dict[str, dict[str, Any]], path: str | os.PathLike[str] | None) -> Study:
    """The study that lies at the path, if it is one of this function on as many cores; otherwise a new one."""
    name, fingerprint, cores = _label(fn), ship.digest(fn), environment.cores()
    if path is None or not Path(path).exists():
        if path is not None and not Path(path).absolute().parent.is_dir():
            words = N_("path={path!r}: there is no such directory; make it first")
            raise ClusterConfigError(_(words, path=os.fspath(path)))
        return Study([], cores, name, fingerprint, switches, None if path is None else Path(path))
    there = Study.load(path)
    changed = [switch for switch, settings in switches.items() if there.switches.get(switch, settings) != settings]
    if changed or (there.fingerprint, there.cores) != (fingerprint, cores):
        words = N_(
            "{file} holds another study: of `{function}` on {cores} cores, or of it with other code, values or "
            "switches; give another path, or delete the file to begin anew"
        )
        raise ClusterConfigError(_(words, file=Path(path).name, function=there.function, cores=there.cores))
    there.switches |= switches
    return there


def _label(fn: Any) -> str:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return str(getattr(fn, "__name__", type(fn).__name__))


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("kind", "workers", "global_batch", "switch", "threads", "repeat"))


def _expect(most: int, repeats: int) -> None:
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
    if repeats == 1:
        environment.say(_("one repeat, no range: what else the machine does may be in any figure"))


def _bar(total: int, done: int) -> Any:
    from tqdm.auto import tqdm

    return tqdm(total=total, initial=done, unit=_("run"), disable=environment.live_mode() == "off")


# ---- which runs a study takes, checked before any process starts


def study_cells(
    workers: Any,
    global_batch: Any,
    per_replica_batch: Any,
    scaling: Any,
    repeats: Any,
    switches: Mapping[str, Mapping[str, Any]],
    threads: Any,
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
    for name, settings in {"": dict[str, Any](), **switches}.items():
        asked = settings.get("threads", threads)
        number = max(1, environment.cores() // max(counts)) if asked is None else whole_number("threads", asked, 0)
        for curve, batch in _curves(counts, whole, each, scaling):
            for cell in _curve(curve, batch, counts):
                made = replace(cell, switch=name, threads=number, settings=tuple(settings.items()))
                cells.setdefault(made, set()).add(curve)
    merged = [replace(cell, scaling=", ".join(sorted(found))) for cell, found in cells.items()]
    return tuple(replace(cell, repeat=number) for number in range(1, repeats + 1) for cell in merged)


def whole_number(name: str, value: Any, least: int = 1) -> int:
    """The value of an argument, or ClusterConfigError where it is no whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        words = N_("{name}={value!r}: it takes a whole number of at least {least}")
        raise ClusterConfigError(_(words, name=name, value=value, least=least))
    return value


def check_implementation(given: Any) -> None:
    """Raises ClusterConfigError for an all-reduce that TensorFlow does not have."""
    if given not in _IMPLEMENTATIONS:
        words = N_("implementation={given!r}: it takes one of {names}")
        raise ClusterConfigError(_(words, given=given, names=", ".join(_IMPLEMENTATIONS)))


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
        yield Cell("", "cluster", workers, whole, each, "", 0, 0)
        if workers > 1:  # one worker without communication is the baseline
            yield Cell("", "ceiling", workers, whole, each, "", 0, 0)
        for size in {batch, each}:
            yield Cell("", "baseline", 1, size, size, "", 0, 0)


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


def _checked_switch(fn: Any, name: Any, given: Any) -> Mapping[str, Any]:
    if not isinstance(name, str) or not name or not isinstance(given, Mapping):
        words = N_("switches: {name!r}: {given!r}; it takes names and what each changes, such as {example}")
        raise ClusterConfigError(_(words, name=name, given=given, example="{'1 MB packs': {'bytes_per_pack': 2**20}}"))
    for option in ("bytes_per_pack", "message_bytes"):
        whole_number(option, given.get(option, 0), 0)
    if not isinstance(given.get("pinned", True), bool):
        raise ClusterConfigError(_("pinned={pinned!r}: it takes True or False", pinned=given["pinned"]))
    check_implementation(given.get("implementation", "AUTO"))
    asked = [option for option in _COMMUNICATION if option in given]
    if asked and not ship.takes_strategy(fn):
        words = N_(
            "switch {name!r}: {option} is the strategy's, and `{function}` makes its own; give it a parameter "
            "`strategy`, which dtk fills"
        )
        raise ClusterConfigError(_(words, name=name, option=asked[0], function=_label(fn)))
    return given
