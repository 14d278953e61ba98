"""What a follower found, judged step by step; what `dtk.verify` proved by it: saved with the run, shown as a figure."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dtk.language import N_, _, rounded
from dtk.records import write_whole
from dtk.worker.recorded import UNMEASURED, differs, hides, rounding_dominates, weight_of

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

INSIDE = 4  # steps of a call that makes many, whose losses agree before rounding has grown
MOST_OF_LOSS = 0.05  # of a loss: more is no rounding, whatever is measured of the update
STORED = 2.0  # times what storing a variable rounds: a level up to here says nothing of a loss, which is not stored
TIGHT = 2e-5  # of an update: less is rounding in all programs that were measured
MOST_OPEN = 0.05  # of all steps: now and then rounding moves a unit of a ReLU, and with it a step's whole update


@dataclass(frozen=True)
class Part:
    """One variable's change in one step, beside the change that the follower made from the same state.

    apart: norm of the difference of the two changes, as a part of the run's. level: how much of it rounding may be.
    longer: norm of the run's change over the follower's. along: cosine of the two. toward: how far the run's and the
    follower's go along the weight, as parts of the follower's. single: what a variable of one number is in the follower
    and in the run; () for others. number: of the variable, as several may have one name.
    """

    name: str
    values: int
    apart: float
    level: float
    longer: float
    along: float
    toward: tuple[float, float] = (0.0, 0.0)
    single: tuple[float, ...] = ()
    number: int = 0

    def left(self, times: float) -> tuple[float, float]:
        """What is left of the run's change without `times` the follower's: how much, and its cosine with the weight."""
        if not self.longer or not math.isfinite(self.longer):  # one of the two did not change it
            return math.inf, 0.0
        size = math.sqrt(max(0.0, self.longer**2 - 2 * times * self.longer * self.along + times**2))
        along = self.toward[0] - times * self.toward[1]
        return (size / self.longer, abs(along) / size) if size else (0.0, 0.0)


@dataclass(frozen=True)
class Steps:
    """One follower's findings.

    followed: the steps whose unit was followed (a unit is a step, or the steps that one call makes: then its first).
    step: the first at which the two differ, None where none does. between: whether it is not the step that differs but
    what happened since the one before. parts: the variables that differ there. undecided: units of which rounding
    leaves too much open. end: why the follower ended: "done", "enough" (it had seen some steps that differ),
    "unmatched" (one of the two has variables that the other one lacks), "damaged" (a state is not what was written),
    "killed". unmatched: the variables' names; damaged: the step. sharded: whether a function that makes each
    worker's data is known to divide it rightly; None where there is none. recorded: units that could be followed.
    made: updates in all, or calls that train where none is counted; 0: not known; here: the follower's. whole: whether
    what was followed is all that the run has made. coarse: the relative rounding of the coarsest type that the steps
    compute in, 0 for float32. levels: how much of each variable's change rounding is, by number, where that is more
    than usual. lines: unit by unit; variables: name and number of values of each; read: all that was judged.
    """

    followed: tuple[int, ...]
    step: int | None
    between: bool
    parts: tuple[Part, ...]
    undecided: int
    levels: dict[int, float]
    lines: tuple[dict[str, Any], ...] = field(repr=False)
    variables: Sequence[tuple[str, int]] = field(repr=False)
    read: Sequence[dict[str, Any]] = field(repr=False)
    end: str = "killed"
    unmatched: Sequence[str] = ()
    damaged: int | None = None
    sharded: bool | None = None
    recorded: int = 0
    made: int = 0
    whole: bool = False
    here: int = 0
    coarse: float = 0.0

    def several(self, steps: int) -> bool:
        """Whether calls make several of the run's steps, whose updates can't be told apart."""
        return self.whole and len(self.followed) < steps

    def tight(self, steps: int) -> list[bool]:
        """Of each step, whether its loss is from the run's state, or so soon after that rounding has not grown."""
        found, since, loose = [], INSIDE, False
        firsts = {line["step"]: any(ratio > TIGHT for ratio in line["ratio"]) for line in self.lines}
        for step in range(1, steps + 1):
            since, loose = (0, firsts[step]) if step in firsts else (since + 1, loose)
            found.append(since == 0 or (self.whole and (since < INSIDE or not loose)))
        return found

    def rounding(self, steps: int) -> np.ndarray:
        """Of each step, how much rounding may be of its loss: as much as of its update, by the median of all values."""
        found = np.zeros(steps)
        for line in self.lines:
            values, levels = np.array([self.variables[n][1] for n in line["numbers"]]), np.array(line["level"], float)
            levels = np.where(levels > STORED * np.array(line.get("floor", 0.0)), levels, 0.0)
            order = np.argsort(levels)
            half = np.searchsorted(np.cumsum(values[order]), values.sum() / 2)
            found[line["step"] - 1 :] = levels[order][half] if len(order) else 0.0
        return np.minimum(found, MOST_OF_LOSS)

    def by_replica(self, name: str, *shape: int) -> np.ndarray:
        """What the lines have of each replica, `(steps, *shape)`, by their name for it; NaN at steps without."""
        found = np.full((max(self.followed, default=0), *shape), np.nan)
        for line in self.lines:
            if np.shape(line.get(name, ())) == shape:
                found[line["step"] - 1] = line[name]
        return found

    def given(self, others: Steps) -> Steps:
        """The same, where the run's calls were given what `others`, as many replicas in one process, have read."""
        read = {line["unit"]: line.get("read") or () for line in others.lines if line["units"] == 1}
        lines = []
        for line in self.lines:
            each = [read.get(unit + 1, ()) for unit in range(line["unit"] - line["units"], line["unit"])]
            lines.append({**line, "given": np.sum(each, axis=0).tolist() if all(each) else ()})
        return replace(self, lines=tuple(lines))

    @cached_property
    def kept(self) -> dict[str, str]:
        """What optimizers keep, such as moments: the name of each such variable, and of its weight."""
        names = [name for name, _ in self.variables]
        return {name: weight for name in names if (weight := weight_of(name, names)) is not None}

    @property
    def hidden(self) -> list[str]:
        """The variables whose updates rounding hides at most steps, where these compute in a type that is coarse."""
        lines = [dict(zip(line["numbers"], line["ratio"], strict=True)) for line in self.lines if self.coarse]
        hidden = Counter(number for line in lines for number, ratio in line.items() if hides(ratio, self.coarse))
        return [self.variables[number][0] for number, times in sorted(hidden.items()) if 2 * times > len(lines)]

    @property
    def is_open(self) -> bool:
        """Whether rounding is as large as what is compared at more than a few steps."""
        return self.undecided > MOST_OPEN * len(self.followed)

    @property
    def proved(self) -> bool:
        """All that was recorded was followed, nothing differs, and nothing is open."""
        done = self.end == "done" and self.recorded > 0 and sum(line["units"] for line in self.lines) == self.recorded
        return done and self.step is None and not self.is_open


def judged(lines: Sequence[dict[str, Any]]) -> Steps:
    """Judges the lines of a follower (`dtk.worker.follow.Follower`)."""
    variables = lines[0]["variables"] if lines else []
    last: dict[str, Any] = lines[-1] if lines and "end" in lines[-1] else {}
    said = ("end", "unmatched", "damaged", "sharded", "recorded", "made", "whole", "here", "coarse")
    levels = {int(number): level for number, level in last.get("levels", {}).items()}
    lines = [_by_later_steps(line, levels) for line in lines]
    wrong = next((line for line in lines if line.get("wrong")), None)
    updates = tuple(line for line in lines if line.get("kind") == "update")
    return Steps(
        followed=tuple(line["step"] for line in updates),
        step=None if wrong is None else int(wrong["step"]),
        between=wrong is not None and wrong["kind"] == "between",
        parts=() if wrong is None else tuple(_parts(wrong, variables)),
        undecided=sum(_is_open(line, variables, last.get("coarse", 0.0)) for line in updates),
        levels=levels,
        lines=updates,
        variables=variables,
        read=lines,
        **{name: last[name] for name in said if name in last},
    )


def _by_later_steps(line: dict[str, Any], levels: dict[int, float]) -> dict[str, Any]:
    """Of a step that did not repeat itself, as one that makes variables: what rounding may be, and is in the others."""
    if line.get("measured", True):
        return line
    ratio = dict(zip(line["numbers"], line["ratio"], strict=True))
    level = {number: max(UNMEASURED, levels.get(number, 0.0)) for number in line["wrong"]}
    return {**line, "wrong": [number for number in line["wrong"] if differs(ratio[number], level[number])]}


def _parts(line: dict[str, Any], variables: Sequence[tuple[str, int]]) -> Iterator[Part]:
    its = {number: tuple(values) for number, *values in line.get("single", ())}
    for number in line["wrong"]:
        k = line["numbers"].index(number)
        size, own = line["size"][k], line["own"][k]
        toward = line["toward"][k] if "toward" in line else (0.0, 0.0)
        longer = size / own if own else math.inf
        along = line["along"][k] / (size * own) if size * own else 0.0
        both = (toward[0] / own, toward[1] / own) if own else (0.0, 0.0)
        name, values = variables[number]
        yield Part(name, values, line["ratio"][k], line["level"][k], longer, along, both, its.get(number, ()), number)


def _is_open(line: dict[str, Any], variables: Sequence[tuple[str, int]], coarse: float) -> bool:
    """Whether rounding is so large in a step that more than a small part of all values says nothing."""
    values = {number: variables[number][1] for number in line["numbers"]}
    ratio = dict(zip(line["numbers"], line["ratio"], strict=True))
    return bool(line.get("open")) or rounding_dominates(ratio, values, coarse)


def from_the_same_state(one: Steps, other: Steps, optimizers: int) -> list[np.ndarray]:
    """What gradients were taken of in the calls of two followers that began in the same state, each `(2, calls)`.

    The means over a call's updates; of several also the first, which alone is of the same weights. Of two optimizers it
    says too little: then nothing, if one follower makes more updates. Both are one device.
    """
    made = [steps.by_replica("made") for steps in (one, other)]
    calls = min(map(len, made))
    pairs = [np.array([s.by_replica(name, 1)[:calls, 0] for s in (one, other)]) for name in ("mine", "first")]
    pairs = [pair[:, np.isfinite(pair).all(axis=0)] for pair in pairs]
    alike = np.array_equal(made[0][:calls], made[1][:calls], equal_nan=True)
    several = optimizers == 1 and max(np.nan_to_num(each).max(initial=0) for each in made) > 1
    return pairs if several else pairs[:1] if alike else []


def part_in_words(part: Part) -> str:
    """How far a variable's change is from the follower's."""
    if part.single:
        other, mine = (f"{value:.5g}" for value in part.single)
        if mine != other:
            return _("{name} is {mine} here and {other} there", name=part.name, mine=mine, other=other)
    if not np.isfinite([part.apart, part.longer]).all():
        return _("{name} has another value", name=part.name)
    what = N_("{name} by {apart} of its change ({longer:.3g} times as long, cosine {along:.3f}; rounding: {level})")
    apart, level = rounded(part.apart), rounded(part.level)
    return _(what, name=part.name, apart=apart, longer=part.longer, along=part.along, level=level)


# ---- the proof that is made of followers' findings

FILE = "proof.json"
# What a proof may say, and the exit code of `dtk run --verify` for it.
VERDICTS = {"one device": 0, "replicas": 0, "failed": 1, "not decidable": 3, "not followed": 4}


@dataclass(frozen=True)
class Proof:
    """What `dtk.verify` found. Shows itself as a small table and a figure; `VerificationError.proof` is one, too.

    Attributes:
        verdict: "one device" (every step makes the update that one device makes from the same state), "replicas" (as
            many replicas in one process do, and one device does without what each replica does by itself), "failed",
            "not decidable" (rounding is as large as the updates) or "not followed".
        lines: what `verify` printed.
        steps: of the run.
        failed: what differs, in a sentence; "" where nothing does.
        followers: what each follower found, by its number of replicas.
    """

    verdict: str
    lines: tuple[str, ...]
    steps: int
    failed: str = ""
    followers: Mapping[int, Steps] = field(default_factory=dict, repr=False)

    @property
    def table(self) -> pandas.DataFrame:
        """A row for each step of each follower.

        Columns: replicas (the follower's), step, apart (the norm of the difference of the two updates over the norm of
        the run's, all variables), rounding (how much of that rounding may be), variable (the one that differs most),
        its_apart, differs (whether a variable differs by more than rounding).
        """
        import pandas

        rows = [_row(replicas, line, steps) for replicas, steps in self.followers.items() for line in steps.lines]
        names = ("replicas", "step", "apart", "rounding", "variable", "its_apart", "differs")
        return pandas.DataFrame(rows, columns=list(names))

    def figure(self, ax: Axes | None = None) -> Axes:
        """Draws the difference of the updates step by step, and below it how much of that rounding may be."""
        axes: Axes = import_module("dtk.view.proof").proof(self, ax)  # the room of figures knows this one
        return axes

    def save(self, folder: Path) -> None:
        """Writes it into a run's directory, from which `kept` reads it."""
        facts = {"verdict": self.verdict, "lines": self.lines, "steps": self.steps, "failed": self.failed}
        followed = {replicas: steps.read for replicas, steps in self.followers.items()}
        write_whole(folder / FILE, json.dumps({**facts, "followers": followed}).encode())

    def __repr__(self) -> str:
        return f"<Proof {self.verdict}: {self.steps} steps>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return import_module("dtk.view.proof").pictures(self) if self.followers else {}


def kept(folder: Path) -> Proof | None:
    """What `verify` last said of a run, from its directory; None where it was never asked, or an older dtk was."""
    try:
        facts = json.loads((folder / FILE).read_text())
        followers = {int(replicas): judged(read) for replicas, read in facts["followers"].items()}
        return Proof(facts["verdict"], tuple(facts["lines"]), facts["steps"], facts["failed"], followers)
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _row(replicas: int, line: dict[str, Any], steps: Steps) -> tuple[Any, ...]:
    size, apart, level = (np.array(line[name], float) for name in ("size", "apart", "level"))
    finite = np.isfinite(size)
    whole = float(np.linalg.norm(size[finite])) or math.inf
    parts = (float(np.linalg.norm(apart) / whole), float(np.linalg.norm((level * size)[finite]) / whole))
    most = max(range(len(line["ratio"])), key=lambda k: line["ratio"][k], default=None)
    largest = ("", 0.0) if most is None else (steps.variables[line["numbers"][most]][0], line["ratio"][most])
    return (replicas, line["step"], *parts, *largest, bool(line["wrong"]))
