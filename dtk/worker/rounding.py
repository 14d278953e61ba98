"""A step that is made again, from the same state with the same batch, to see how much of its update is rounding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dtk.compat import states, updates
from dtk.compat.feeds import Feed, is_data, read_beside
from dtk.compat.libraries import tf
from dtk.compat.states import Variable
from dtk.worker.recorded import ROUNDING
from dtk.worker.states import Snapshot, take

LAST_DIGITS = 4.0  # how large a change is, in units in the last place: sums of many products are as coarse


class Made(NamedTuple):
    """A step that this process has made, and the state before and after; call: None for several calls.

    subject: the function that is called.
    """

    subject: Any
    call: Callable[..., Any] | None
    args: Any
    kwargs: Any
    before: Snapshot
    after: Snapshot

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
        self._begins = {id(each): made.before.of(each) for each in made.after.table}
        for number, each in matched.items():
            if not self._begins[id(each)]:  # made in this very step, as an optimizer's: what the cluster had, or 0
                self._begins[id(each)] = begun.get(number) or [np.zeros_like(value) for value in made.after.of(each)]
        self._counts = updates.states()
        self._given = [list(feed.given) for feed in feeds]
        self._plain = {n: change(v, self._begins[id(v)], made.after.of(v)) for n, v in self.matched.items()}
        self._draw = np.random.default_rng(len(made.after.table))
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
        for each in self.made.after.table:
            if self.made.after.of(each):
                each.assign(self.made.after.of(each))

    def _again(self, amount: float, changed: Callable[[Any], Any]) -> dict[int, float]:
        assert self.made.call is not None, "`Made.repeatable` says that it can be made again"
        begins = {}
        for each in self.made.after.table:
            values = self._begins[id(each)]
            if each.role == "" and each.trainable and amount and values:
                # What is added to sums, as a bias is, stands for their rounding: of a size of 1, whatever its own is.
                least = 1.0 if values[0].ndim < 2 else 0.0
                values = [states.perturbed(values[0], amount, self._draw, least)] * len(values)
            begins[id(each)] = values
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
            number: float(np.linalg.norm(change(each, begins[id(each)], ends.of(each)) - self._plain[number]))
            for number, each in self.matched.items()
        }


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
        return tf.constant(states.perturbed(leaf.numpy(), amount, draw))

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
