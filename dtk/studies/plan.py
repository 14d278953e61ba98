"""Which runs a scaling study takes: checked before any process starts, each refusal one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dtk import environment
from dtk.errors import ClusterConfigError
from dtk.language import N_, _, ngettext
from dtk.launch import launch, request

__all__ = ["PLACING", "Cell", "Plan", "check_repeats", "environment_of", "make_plan"]

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
