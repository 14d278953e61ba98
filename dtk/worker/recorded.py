"""The states of a run's steps, as its workers have written them (`dtk.worker.states`), and what is compared with them.

`RecordedStates` reads them in their order. `compared` says by how much the change that a follower makes of a variable
differs from the recorded one.
"""

from __future__ import annotations

import contextlib
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dtk.compat.libraries import tf
from dtk.records import RunFolder

if TYPE_CHECKING:
    from dtk.compat.states import Variable  # which the kernel, that reads states as well, does not need

State = dict[int, list[Any]]  # by a variable's number, of each copy what it holds


class Damaged(Exception):
    """A file of states is missing, or is not what was written. args: (its step,)."""


@dataclass(frozen=True)
class Unit:
    """began, ended: `dtk.worker.states.Watched.position`. here: the numbers of all variables that there were."""

    began: tuple[int, int]
    ended: tuple[int, int]
    step: int
    here: frozenset[int]
    folder: RunFolder
    numbers: list[dict[int, int]] = field(repr=False)  # of variables: in each worker's process, in the whole run
    digests: dict[str, dict[str, list[int]]] = field(repr=False)
    places: list[list[list[Any]]] = field(repr=False)  # each worker's: when, number of the variable, offset, bytes
    taken: list[float]  # what each replica's gradients were taken of; [] where that is not known
    read: list[list[float]]  # how many examples each replica was given, and their fingerprint


class RecordedStates:
    """A run's recorded units. After a restart, those of the later start, from its first step on.

    variables: what is known of each. numbers: of variables, by identity. units: in their order. end: the state that the
    function has left; last: where training has ended; None where not known: calls on single workers are not counted.
    """

    def __init__(self, folder: RunFolder):
        self.variables: list[dict[str, Any]] = []
        self.numbers: dict[Any, int] = {}
        self.units: list[Unit] = []
        self.end: Unit | None = None
        self.last: tuple[int, int] | None = None
        self._held: State = {}
        self._read = 0  # units that `_held` is the state after
        self._open: tuple[Unit | None, dict[str, State]] = (None, {})  # the unit that was read last
        for part in (*folder.earlier, folder):
            self._add(part)
        if folder.earlier and not self.complete:  # how far an earlier start came is known by its units
            self.last = None

    def _add(self, folder: RunFolder) -> None:
        lines = folder.worker(0).units
        units = [line for line in lines if "unit" in line and not line.get("end")]
        numbers = [self._numbers(folder, worker) for worker in range(folder.workers)]
        others = [{line["unit"]: line for line in corner.units if "unit" in line} for corner in folder.each[1:]]
        before = 0
        if units and self.units:  # a later start: it goes on after the step that it has restored
            keep = [unit for unit in self.units if unit.step < units[0]["step"]]
            before = (keep[-1].ended[0] if keep else 0) - units[0]["began"][0]
            self.units = keep
        self.units += [_unit(line, folder, numbers, before, others) for line in units]
        self.end = next((_unit(line, folder, numbers, before, others) for line in lines if line.get("end")), None)
        said: dict[str, Any] = next((line["last"] for line in lines if "last" in line), {"unseen": True})
        self.last = None if said.get("unseen") else (said["position"][0] + before, said["position"][1])

    def _numbers(self, folder: RunFolder, worker: int) -> dict[int, int]:
        """A worker's numbers of variables, and what they are called here, by all workers and starts alike."""
        numbers = {}
        for facts in folder.worker(worker).lines("variables"):
            identity = as_tuple(facts["identity"])
            if identity not in self.numbers:
                self.numbers[identity] = len(self.variables)
                self.variables.append(facts | {"identity": identity})
            numbers[facts["number"]] = self.numbers[identity]
        return numbers

    @property
    def complete(self) -> bool:
        """Whether each unit begins where the one before has ended, and the last one ends where training has."""
        places = [(0, 0), *(unit.ended for unit in self.units)]
        joined = all(unit.began == place for unit, place in zip(self.units, places, strict=False))
        return bool(self.units) and joined and self.last == places[-1] and self.end is not None

    def beginning(self, position: tuple[int, int]) -> int | None:
        """The place in `units` of the one that begins there."""
        return next((k for k in range(self._read, len(self.units)) if self.units[k].began == position), None)

    def ending(self, first: int, position: tuple[int, int]) -> int | None:
        """The place of the unit that ends there, with all from `first` to it recorded."""
        for k in range(first, len(self.units)):
            if k > first and self.units[k].began != self.units[k - 1].ended:
                return None
            if self.units[k].ended == position:
                return k
        return None

    @contextlib.contextmanager
    def ahead(self) -> Iterator[None]:
        """What is read within, of units to come, is read again after it."""
        held = dict(self._held), self._read, self._open
        yield
        self._held, self._read, self._open = held

    def without_update(self, place: int) -> Iterator[int]:
        """The places of the units that follow one without an update, up to the next update."""
        updates, moved = self.units[place].ended
        for k in range(place + 1, len(self.units) if moved else 0):
            if self.units[k].began != self.units[k - 1].ended or self.units[k].ended[0] != updates:
                return
            yield k

    def changed(self, first: int, last: int) -> set[int]:
        """The numbers of the variables of the last of these units that one of them has made or changed."""
        units = self.units[first : last + 1]
        written = {unit.numbers[0][int(number)] for unit in units for number in unit.digests["after"]}
        return written & self.units[last].here

    def total(self, name: str, first: int, last: int) -> list[Any]:
        """Of each replica, what these units have `taken` or `read` in all; [] where that is not known."""
        each = [getattr(unit, name) for unit in self.units[first : last + 1]]
        return list(np.sum(each, axis=0).tolist()) if all(each) and len({*map(len, each)}) == 1 else []

    def before(self, place: int) -> State:
        """What all variables held before a unit; units are asked for in their order."""
        self._upto(place)
        return dict(self._held | self._change(self.units[place], "before"))

    def after(self, place: int) -> State:
        """What the variables that there were after a unit held then."""
        self._upto(place + 1)
        return {number: self._held[number] for number in self.units[place].here if number in self._held}

    def at_end(self) -> State:
        """What the function has left."""
        assert self.end is not None
        self._upto(len(self.units))
        held = self._held | self._change(self.end, "before") | self._change(self.end, "after")
        return {number: held[number] for number in self.end.here if number in held}

    def _upto(self, place: int) -> None:
        for unit in self.units[self._read : place]:
            self._held |= self._change(unit, "before")
            self._held |= self._change(unit, "after")
        self._read = max(self._read, place)

    def _change(self, unit: Unit, when: str) -> State:
        """What was written of a unit: of a variable by replica each replica's value, in the run's order."""
        if self._open[0] is not unit:
            self._open = (unit, self._all(unit))
        return self._open[1][when]

    def _all(self, unit: Unit) -> dict[str, State]:
        read = [self._values(unit, worker) for worker in range(unit.folder.workers)]
        found, held = read[0], dict(self._held)
        for when, state in found.items():
            for number in {number for each in read for number in each[when]}:
                if self.variables[number]["kept"] == "by replica":  # a worker writes what it has changed
                    old = held.get(number, [])
                    size = -(-len(old) // len(read))
                    parts = [each[when].get(number, old[k * size :][:size]) for k, each in enumerate(read)]
                    state |= {number: [value for part in parts for value in part]} if all(parts) else {}
            held |= state
            for number, digests in ((unit.numbers[0][int(n)], d) for n, d in unit.digests[when].items()):
                if number not in state or zlib.crc32(state[number][0].reshape(-1).view(np.uint8)) != digests[0]:
                    raise Damaged(unit.step)
        return found

    def _values(self, unit: Unit, worker: int) -> dict[str, State]:
        found: dict[str, State] = {"before": {}, "after": {}}
        places = unit.places[worker]
        if not places:
            return found
        path, first = unit.folder.worker(worker).path / "states.bin", places[0][2]  # one after another
        try:
            data = np.fromfile(path, np.uint8, places[-1][2] + places[-1][3] - first, offset=first)
            for when, its, offset, size in places:
                number = unit.numbers[worker][its]
                shape, name = self.variables[number]["shape"], self.variables[number]["dtype"]
                kind = np.dtype(name) if name in np.sctypeDict else tf.as_dtype(name).as_numpy_dtype  # as bfloat16
                value = data[offset - first : offset - first + size].view(kind)
                found[when].setdefault(number, []).append(value.reshape(shape))
        except (OSError, ValueError, LookupError) as error:
            raise Damaged(unit.step) from error
        return found


def _unit(
    line: dict[str, Any], folder: RunFolder, numbers: list[dict[int, int]], before: int, others: list[Any]
) -> Unit:
    lines: list[dict[str, Any]] = [line, *(each.get(line["unit"], {}) for each in others)]
    began, ended = ((each[0] + before, each[1]) for each in (line["began"], line["ended"]))
    here, places = frozenset(numbers[0][number] for number in line["here"]), [its.get("values", []) for its in lines]
    each = ([its.get(name) or () for its in lines] for name in ("taken", "read"))
    known = ([one for its in parts for one in its] if all(parts) else [] for parts in each)
    return Unit(began, ended, line["step"], here, folder, numbers, line["digests"], places, *known)


def weight_of(name: str, names: Iterable[str]) -> str | None:
    """The weight that an optimizer's variable belongs to, among `names`; None for what belongs to none.

    Keras 3 says adam/dense_kernel_momentum, Keras 2 Adam/m/dense/kernel, its older optimizers Adam/dense/kernel/m,
    TensorFlow 1 dense/kernel/Momentum.
    """
    own = name.partition("/")[2]

    def is_its(weight: str) -> bool:
        begins = own.startswith((weight.replace("/", "_") + "_", f"{weight}/")) or name.startswith(f"{weight}/")
        return weight != name and (begins or name.endswith(f"/{weight}"))

    return max(filter(is_its, names), key=len, default=None)


def as_tuple(value: Any) -> Any:
    """Of lists, as JSON has them, tuples."""
    return tuple(map(as_tuple, value)) if isinstance(value, list) else value


# ---- by how much a change differs from the recorded one

ROUNDING = {"float32": 2.0**-23, "float64": 2.0**-52, "bfloat16": 2.0**-7, "float16": 2.0**-10}
FLOOR = 2.0  # units in the last place of a variable's values, which storing them costs
UNMEASURED = 1e-4  # of an update: what rounding may be in a step that can't be repeated
UNDECIDED = 1e-2  # of an update: a variable that rounding changes by more says nothing
UNITS = 16  # of a coarse type's rounding, if that is more: bfloat16 on a processor that has to emulate it
FEW = 0.1  # of all values, in a step that counts as decided, or as made again
AT_ONCE = 100_000  # values that are compared at once: what fits into a processor's memory of its own


class Change(NamedTuple):
    """A variable before and after, here and in the cluster."""

    number: int
    dtype: str
    before: Any
    after: Any
    its_before: Any
    its_after: Any


def compared(changes: Sequence[Change]) -> dict[str, Any]:
    """By its number: norms of the changes' difference and of the cluster's, their ratio, and storing's ("floor")."""
    line: dict[str, Any] = {name: {} for name in ("apart", "size", "ratio", "floor")}
    with np.errstate(all="ignore"):  # NaN and infinite values, which `_judged` looks at
        for change in (change for change in changes if np.size(change.after)):
            for name, value in _judged(change, *_sums(change[2:], _apart)).items():
                line[name][change.number] = value
    return line


def described(changes: Sequence[Change], weights: Mapping[int, Any]) -> dict[str, Any]:
    """How the two changes lie, by the variable's number: "own", the norm of this process's, "along", their product, and
    "toward", how far the cluster's and ours go along a weight.

    weights: what the weight held that an optimizer's variable belongs to; a variable that is not here is its own.
    """
    line: dict[str, Any] = {name: {} for name in ("own", "along", "toward")}
    with np.errstate(all="ignore"):
        for change in (change for change in changes if np.size(change.after)):
            arrays = (*change[2:], weights.get(change.number, change.its_before))
            own, along, *products, weight = _sums(arrays, _lie)
            long = math.sqrt(weight) if math.isfinite(weight) else 0.0
            line["own"][change.number], line["along"][change.number] = math.sqrt(own), along
            line["toward"][change.number] = [each / long if long else 0.0 for each in products]
    return line


class Folds:
    """What this process holds of a variable that each of the cluster's replicas has for itself: their sum, or mean.

    Its `aggregation` says which; where that says neither, as of gradients that are gathered step by step, it is what
    this process has made of it that is nearer. All of them, of states that belong to a batch's examples.
    """

    def __init__(self) -> None:
        self._sums: set[Any] = set()

    def learn(self, variable: Variable, values: list[Any], mine: list[Any]) -> None:
        told = variable.aggregation not in ("none", "only_first_replica") or values[0].shape != mine[0].shape
        if not told and len(values) > len(mine) == 1:
            total, own = np.sum(values, axis=0, dtype=np.float64), mine[0].astype(np.float64)
            if np.linalg.norm(own - total) < np.linalg.norm(own - total / len(values)):
                self._sums.add(variable.identity)

    def __call__(self, variable: Variable, values: list[Any]) -> list[Any]:
        """What the cluster's replicas held, for as many copies as this process has."""
        if len(values) < 2 or (variable.kept == "by replica" and len(variable.copies) == len(values)):
            return values
        if values[0].shape != variable.shape:
            return [np.concatenate(values)]
        summed = variable.aggregation == "sum" or variable.identity in self._sums
        wide = (np.sum if summed else np.mean)([value.astype(np.float64) for value in values], axis=0)
        return [wide.astype(values[0].dtype)] * len(variable.copies)


def end_alike(one: tuple[Any, ...], other: tuple[Any, ...], parts: int = 1) -> bool:
    """Whether names differ in their beginning only, of variables of one type and shape, or so many parts of a shape."""
    (name, *facts), (its, *its_facts) = one[:3], other[:3]
    facts = facts if facts == its_facts else [facts[0], (*(parts * size for size in facts[1][:1]), *facts[1][1:])]
    short, long = sorted((f"_{each.split('/')[-1]}" for each in (name, its)), key=len)
    return bool(facts == its_facts and long.endswith(short))


def differs(ratio: float, level: float) -> bool:
    """Whether a change differs by more than rounding; where rounding may be all of it, any ratio says nothing."""
    return ratio > level and level < 1


def rounding_dominates(ratio: Mapping[int, float], values: Mapping[int, int], coarse: float) -> bool:
    """Whether rounding changes more than a small part of all values by so much that it says nothing of the step.

    ratio: of variables that differ by no more than rounding. values: how many each has, of these and all others.
    """
    return sum(values[number] for number, each in ratio.items() if hides(each, coarse)) > FEW * sum(values.values())


def hides(ratio: float, coarse: float) -> bool:
    """Whether a difference that is no more than rounding is so large that it says nothing of the update."""
    return ratio > max(UNDECIDED, UNITS * coarse)


def _apart(before: Any, after: Any, its_before: Any, its_after: Any) -> Sequence[tuple[Any, Any]]:
    its = its_after - its_before
    apart = after - before - its
    return [(apart, apart), (its, its), (its_after, its_after)]


def _lie(before: Any, after: Any, its_before: Any, its_after: Any, toward: Any) -> Sequence[tuple[Any, Any]]:
    made, its = after - before, its_after - its_before
    return [(made, made), (made, its), (its, toward), (made, toward), (toward, toward)]


def _sums(arrays: Sequence[Any], products: Callable[..., Any]) -> list[float]:
    """Sums of products of arrays, in float64; an array of another size than the second is 0."""
    size = np.size(arrays[1])
    flat = [np.ravel(array) if np.size(array) == size else np.zeros(size) for array in arrays]
    sums: Any = 0.0
    for k in range(0, size, AT_ONCE):
        parts = [array[k : k + AT_ONCE].astype(np.float64) for array in flat]
        sums = sums + np.array([np.sum(one * other) for one, other in products(*parts)])
    return list(sums.tolist())


def _judged(change: Change, apart: float, size: float, last: float) -> dict[str, Any]:
    apart, size = math.sqrt(apart), math.sqrt(size)
    floor = FLOOR * ROUNDING.get(change.dtype, 0.0) * math.sqrt(last)
    if change.dtype not in ROUNDING:  # counters, and the state of random numbers
        apart = 0.0 if np.array_equal(change.after, change.its_after) else math.inf
    ratio = apart / size if size else (0.0 if apart <= floor else math.inf)
    if not math.isfinite(apart):
        alike = change.dtype in ROUNDING and np.array_equal(change.after, change.its_after, equal_nan=True)
        ratio = 0.0 if alike else math.inf
    return {"apart": apart, "size": size, "ratio": ratio, "floor": floor / size if size else 0.0}
