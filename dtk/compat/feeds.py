"""The data of a call once more: what it reads, and what stands for that, so that a follower can make the call again.

TensorFlow 2.15 to 2.21. Touched: the classes of iterators, `IteratorBase` and `OwnedIterator`, which have no public
names; `tests/test_states.py` tells when one of them is gone.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["Feed", "can_be_fed", "is_data", "read_beside"]

MOST_CALLED = 50  # functions that are asked for what they read


def is_data(value: Any) -> bool:
    """Whether it hands out data, so that a call that reads it can't be made again with the same."""
    import tensorflow as tf
    from tensorflow.python.data.ops.iterator_ops import IteratorBase

    kinds = (IteratorBase, tf.data.Dataset, tf.distribute.DistributedDataset)
    return isinstance(value, kinds) or (hasattr(value, "get_next") and not isinstance(value, type))


def read_beside(function: Any) -> list[tuple[Any, Callable[[Any], None]]]:
    """The data that a function, or one that it calls, reads beside its arguments, as far as names tell.

    Each with what puts something else in its place: in a closure, among a module's names, or in an object.
    """
    found: list[tuple[Any, Callable[[Any], None]]] = []
    seen: set[int] = set()
    left = [function]
    while left and len(seen) < MOST_CALLED:
        each = left.pop()
        plain = inspect.unwrap(getattr(each, "python_function", each))
        if id(plain) in seen:
            continue
        seen.add(id(plain))
        named: list[tuple[Any, Callable[[Any], None]]] = []
        if inspect.ismethod(plain):
            its = getattr(plain.__self__, "__dict__", {})
            named += [(value, functools.partial(its.__setitem__, name)) for name, value in its.items()]
            plain = plain.__func__
        if not inspect.isfunction(plain) or str(plain.__module__).startswith(("tensorflow.", "keras.", "tf_keras.")):
            continue
        for cell in plain.__closure__ or ():
            with contextlib.suppress(ValueError):  # nothing is in it yet
                named.append((cell.cell_contents, functools.partial(setattr, cell, "cell_contents")))
        its = plain.__globals__
        named += [(its[n], functools.partial(its.__setitem__, n)) for n in plain.__code__.co_names if n in its]
        found += [each for each in named if is_data(each[0])]
        left += [value for value, _ in named if callable(value)]
    return found


def can_be_fed(value: Any) -> bool:
    """Whether a `Feed` can stand for it: a dataset, or its own iterator, not a strategy's."""
    import tensorflow as tf
    from tensorflow.python.data.ops.iterator_ops import OwnedIterator

    return isinstance(value, (OwnedIterator, tf.data.Dataset))


class Feed:
    """What stands for an iterator, or a dataset: it hands out what that gives, and can hand it out again.

    handed: what a function gets in its place. given: what it has read in this call. lost: whether that is too much to
    be kept, or was read several times.
    """

    MOST = 2**28  # bytes that are kept of a call's data

    def __init__(self, source: Any):
        import tensorflow as tf

        self.source = source
        self.given: list[Any] = []
        self.replayed: list[Any] | None = None
        self.lost = False
        self._ahead: list[Any] = []
        self._size = self._passes = 0
        self._whole = whole = isinstance(source, tf.data.Dataset)
        elements = self._pass if whole else self._elements
        dataset = tf.data.Dataset.from_generator(elements, output_signature=source.element_spec)
        if whole and int(source.cardinality()) >= 0:
            dataset = dataset.apply(tf.data.experimental.assert_cardinality(int(source.cardinality())))
        options = tf.data.Options()
        options.autotune.enabled = False
        options.threading.private_threadpool_size = 1
        dataset = dataset.with_options(options)
        self.handed = dataset if whole else iter(dataset)

    def begins(self) -> None:
        """Before a call: of an iterator as many elements as the call before has read are taken ahead."""
        if not self._whole:
            for _ in range(max(1, len(self.given)) - len(self._ahead)):
                self.fetch()
        self.given, self._size, self._passes, self.lost = [], 0, 0, False

    def _elements(self) -> Iterator[Any]:
        while True:
            if self.replayed is not None:
                yield self.replayed.pop(0)
                continue
            if not self._ahead:
                self.fetch()
            if not self._ahead:
                return
            yield self._kept(self._ahead.pop(0))

    def _pass(self) -> Iterator[Any]:
        if self.replayed is not None:
            yield from self.replayed
            return
        self._passes += 1
        self.lost = self.lost or self._passes > 1
        for element in self.source:
            yield self._kept(element)

    def _kept(self, element: Any) -> Any:
        import tensorflow as tf

        leaves = [leaf for leaf in tf.nest.flatten(element) if isinstance(leaf, tf.Tensor)]
        self._size += sum(leaf.shape.num_elements() * (leaf.dtype.size or 8) for leaf in leaves)  # strings: 0
        self.lost = self.lost or self._size > self.MOST
        if not self.lost:
            self.given.append(element)
        return element

    def fetch(self) -> None:
        """Takes the next element before it is asked for, in the thread of the program."""
        try:
            self._ahead.append(next(self.source))
        except StopIteration:
            pass
