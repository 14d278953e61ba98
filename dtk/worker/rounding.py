"""A step that is made again, from the same state with the same batch, to see how much of its update is rounding."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dtk.compat import states, updates
from dtk.compat.feeds import Feed, is_data, read_beside
from dtk.compat.libraries import tf
from dtk.compat.states import Variable
from dtk.worker.recorded import FEW, ROUNDING, differs, rounding_dominates
from dtk.worker.states import Snapshot, take

REPEATS = 10  # of a step at most, to find whether its difference is rounding
FACTOR = 8.0  # how much larger a difference may be than what a change in the last digits of weights and inputs makes
LEAST = 2e-5  # of an update; below, nothing is looked at
ORDERED, ORDERS = 1e-3, 3  # of an update: the largest that other orders of a batch may explain; how many are tried
LAST_DIGITS = 4.0  # how large a change is, in units in the last place: sums of many products are as coarse


class Made(NamedTuple):
    """A step that this process has made, and the state before and after; call: None for several calls.

    subject: the function that is called. several: calls here, in place of one in the run.
    """

    subject: Any
    call: Callable[..., Any] | None
    args: Any
    kwargs: Any
    before: Snapshot
    after: Snapshot
    several: bool = False

    def repeatable(self, feeds: Sequence[Feed]) -> bool:
        """Whether it can be made again: one call, of data that can be handed out again, that draws by states alone."""
        fed = {id(feed.handed) for feed in feeds if not feed.lost}
        if self.call is None or updates.stateful_draws():
            return False
        given = [value for value in (*self.args, *self.kwargs.values()) if is_data(value)]
        return all(id(value) in fed for value in (*given, *(value for value, _ in read_beside(self.subject))))


class Repeated:
    """A step, to be made again; afterwards `restore` puts everything back.

    matched: the variables that are compared, by number. begun: what the cluster had of them before the step.
    """

    def __init__(self, made: Made, feeds: Sequence[Feed], matched: dict[int, Variable], begun: dict[int, list[Any]]):
        self.made, self.feeds = made, feeds
        self.matched = {number: each for number, each in matched.items() if each.dtype in ROUNDING}
        self._begins = {each: made.before.of(each) for each in made.after.values}
        for number, each in matched.items():
            if not self._begins[each]:  # made in this very step, as an optimizer's: what the cluster had, or 0
                self._begins[each] = begun.get(number) or [np.zeros_like(value) for value in made.after.of(each)]
        self._counts = updates.states()
        self._given = [list(feed.given) for feed in feeds]
        self._plain = {n: change(v, self._begins[v], made.after.of(v)) for n, v in self.matched.items()}
        self._draw = np.random.default_rng(len(made.after.values))
        self._size = LAST_DIGITS * max(updates.precision(), ROUNDING["float32"] / 2)

    def exactly(self) -> dict[int, float]:
        """Makes it again as it was; returns by how much each variable's change differs from the first (a norm)."""
        return self._again(0.0, lambda element: element)

    def perturbed(self) -> dict[int, float]:
        """Makes it again with the last digits of weights and of all given numbers changed."""
        return self._again(self._size, lambda element: _perturbed(element, self._size, self._draw))

    def reordered(self) -> dict[int, float]:
        """Makes it again with the examples of each batch in another order."""
        seed = int(self._draw.integers(2**31))
        return self._again(0.0, lambda element: _reordered(element, seed))

    def part(self, number: int, norm: float) -> float:
        """A norm as a part of the variable's change."""
        size = float(np.linalg.norm(self._plain[number]))
        return norm / size if size else 0.0

    def restore(self) -> None:
        """Puts back what the step has made of the state."""
        updates.restore(self._counts)
        for each, values in self.made.after.values.items():
            if values:
                each.assign(values)

    def _again(self, amount: float, changed: Callable[[Any], Any]) -> dict[int, float]:
        assert self.made.call is not None, "`Made.repeatable` says that it can be made again"
        begins = {}
        for each, values in self._begins.items():
            if each.role == "" and each.trainable and amount and values:
                # What is added to sums, as a bias is, stands for their rounding: of a size of 1, whatever its own is.
                least = 1.0 if values[0].ndim < 2 else 0.0
                values = [states.perturbed(values[0], amount, self._draw, least)] * len(values)
            begins[each] = values
            if values:
                each.assign(values)
        fed = {id(feed.handed) for feed in self.feeds}
        for feed, given in zip(self.feeds, self._given, strict=True):
            feed.replay([changed(element) for element in given])
        args = [value if id(value) in fed else changed(value) for value in self.made.args]
        kwargs = {name: value if id(value) in fed else changed(value) for name, value in self.made.kwargs.items()}
        self.made.call(*args, **kwargs)
        for feed in self.feeds:
            feed.replay(None)
        ends = take(everything=True)
        return {
            number: float(np.linalg.norm(change(each, begins[each], ends.of(each)) - self._plain[number]))
            for number, each in self.matched.items()
        }


class Levels:
    """How much of each variable's change rounding may be, by number.

    belongs: the number of the weight that an optimizer's variable belongs to, by its own; None for what is no such.
    """

    def __init__(self, levels: dict[int, float]):
        self.belongs: dict[int, int | None] = {}
        self._levels = dict(levels)
        self._spreads: dict[int, list[float]] = {}

    def usual(self, number: int) -> float:
        return self._levels.get(number, LEAST)

    def above(self) -> dict[int, float]:
        """Those that are more than usual."""
        return {number: level for number, level in self._levels.items() if level > LEAST}

    def judge(self, line: dict[str, Any], again: Repeated, spread: dict[int, float], values: dict[int, int]) -> None:
        """Makes the step again with last digits changed; in `line`, sets "level" and "wrong" by what comes of it.

        spread: gets the largest difference of each variable. values: how many each has.
        """
        least: dict[int, float] = {}
        for repeat in range(REPEATS):
            for number, apart in again.perturbed().items():
                spread[number] = max(spread[number], apart)
                least[number] = min(least.get(number, apart), apart)
            if repeat and self._judge(line, spread):
                break
        self._learn(line, least)
        # Sums whose terms cancel round by more. An order of the examples that changes much says something else, unless
        # all that the optimizer keeps agrees: Adam divides what is left of such a sum by its own size.
        divided = {number for number in line["wrong"] if self._kept_agrees(number, line)}
        left = [line["ratio"][number] for number in line["wrong"] if number not in divided]
        for _ in range(ORDERS if line["wrong"] and max(left, default=0.0) <= ORDERED else 0):
            for number, apart in again.reordered().items():
                if number in divided or again.part(number, apart) <= ORDERED:
                    spread[number] = max(spread[number], apart)
            self._judge(line, spread)
        self._doubt(line, values)

    def _kept_agrees(self, number: int, line: dict[str, Any]) -> bool:
        """Whether all that an optimizer keeps of a weight has changed as in the cluster."""
        kept = [each for each, weight in self.belongs.items() if weight == number]
        return bool(kept) and all(line["ratio"].get(each, 0.0) <= line["level"].get(each, LEAST) for each in kept)

    def _doubt(self, line: dict[str, Any], values: dict[int, int]) -> None:
        """Where rounding is much of an update, a few values that differ by more than was measured decide nothing.

        Ten repetitions can't hit every kink (a ReLU6 before batch norm) in each of 600 variables. Storing has none.
        """
        wrong, ratio = line["wrong"], line["ratio"]
        rest = {n: ratio[n] for n in values if n not in wrong and ratio[n] > line["floor"].get(n, 0.0)}
        few = sum(values.get(number, math.inf) for number in wrong) <= FEW * sum(values.values())
        if wrong and few and rounding_dominates(rest, values, updates.precision()):
            line["wrong"] = []

    def _judge(self, line: dict[str, Any], spread: dict[int, float]) -> bool:
        """Whether rounding explains all differences; `wrong` has those that it does not."""
        for number, size in line["size"].items():
            apart = FACTOR * spread.get(number, 0.0)
            here = apart / size if size else float(0 < apart >= line["apart"][number])  # terms that cancel there
            line["level"][number] = max(here, self.usual(number), line["floor"].get(number, 0.0))
        self._alike(line["level"])
        line["wrong"] = [number for number, ratio in line["ratio"].items() if differs(ratio, line["level"][number])]
        return not line["wrong"]

    def _alike(self, levels: dict[int, float]) -> None:
        """Where rounding may be all of a weight's change and of one of its optimizer's variables, it may be of all."""
        held = {number: self.belongs.get(number) for number in levels}
        owner = {number: number if weight is None else weight for number, weight in held.items()}
        noise = Counter(owner[number] for number, level in levels.items() if level >= 1)
        levels.update({number: max(1.0, level) for number, level in levels.items() if noise[owner[number]] > 1})

    def _learn(self, line: dict[str, Any], least: dict[int, float]) -> None:
        """The usual rounding of each variable: the median, over repeated steps, of the least that a change made.

        The least, as a kink (a ReLU near 0) that a change has moved over says something of this one step alone.
        """
        for number, size in line["size"].items():
            if size:
                self._spreads.setdefault(number, []).append(FACTOR * least.get(number, 0.0) / size)
                self._levels[number] = max(LEAST, float(np.median(self._spreads[number])))
        self._alike(self._levels)


def one(variable: Variable, values: list[Any]) -> Any:
    """The copies of a variable as one array: all of one by replica, otherwise the first, which stands for all."""
    return np.stack(values) if variable.kept == "by replica" and len(values) > 1 else values[0]


def same_bits(mine: Any, other: Any) -> bool:
    """Whether two arrays hold the same, to the last bit."""
    return mine.shape == other.shape and mine.dtype == other.dtype and bool(mine.tobytes() == other.tobytes())


def change(variable: Variable, before: list[Any], after: list[Any]) -> Any:
    """What a variable has changed by, in float64."""
    first, last = (one(variable, values).astype(np.float64).ravel() for values in (before, after))
    return last - first


def _perturbed(element: Any, amount: float, draw: np.random.Generator) -> Any:
    def changed(leaf: Any) -> Any:
        if not isinstance(leaf, tf.Tensor) or not leaf.dtype.is_floating:
            return leaf
        values = leaf.numpy()  # of which whole numbers may be labels, or mark what is left out
        return tf.constant(np.where(values == np.floor(values), values, states.perturbed(values, amount, draw)))

    return tf.nest.map_structure(changed, element)


def _reordered(element: Any, seed: int) -> Any:
    """The examples of a batch in another order; as it is where not all of it has as many."""
    leaves = [leaf for leaf in tf.nest.flatten(element) if isinstance(leaf, tf.Tensor) and leaf.shape.rank]
    sizes = {int(leaf.shape[0]) for leaf in leaves}
    if len(sizes) != 1:
        return element
    order = np.random.default_rng(seed).permutation(sizes.pop())
    known = {id(leaf) for leaf in leaves}
    return tf.nest.map_structure(lambda leaf: tf.gather(leaf, order) if id(leaf) in known else leaf, element)
