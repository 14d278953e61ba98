"""Each replica's loss, examples and their fingerprint, read out of Keras's train function with the model unchanged.

Keras reports one loss for all replicas. A tap wraps the model's `train_step` and `compute_loss` for the time of
one `fit` and writes what they see into a small variable of each replica: `synchronization=ON_READ`, so that a
replica writes its own without any communication. Works with Keras 3 and with tf_keras.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from dtk.compat.per_replica import first_spec

__all__ = ["Tap", "active", "attach", "detach", "steps_per_execution", "weights_so_far"]

Fingerprint = Callable[[Any], Any]
WIDTH = 3  # a step's loss share, examples, fingerprint
_METHODS = ("train_step", "compute_loss")
_active: dict[int, Tap] = {}  # by id of the model, which the tap keeps alive
_last: Tap | None = None


class Tap:
    """The losses, numbers of examples and fingerprints of one model's training steps, for each local replica.

    slots: how many steps one call of the train function may make; so many rows are kept for `read`.
    fingerprint: a replica's batch to a number, in the graph. owner: who attached it last; where several recorders
    take part in one `fit`, one of them owns the tap. batch: what a replica's batch was at the last trace.
    """

    owner: Any
    batch: Any = None

    def __init__(self, model: Any, slots: int, fingerprint: Fingerprint):
        import tensorflow as tf

        self.model, self.slots, self._fingerprint = model, slots, fingerprint
        self._seen = 0  # steps that `read` has handed out
        self._trace = threading.local()  # MirroredStrategy traces every replica in a thread of its own
        # One variable holds all, so that a step costs one write and one read: [steps so far, WIDTH numbers a step]
        with model.distribute_strategy.scope():
            self._cells = tf.Variable(
                tf.zeros(1 + WIDTH * slots, tf.float64),
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.NONE,
            )
        self._locals = model.distribute_strategy.experimental_local_results(self._cells)
        self.before = {name: vars(model)[name] for name in _METHODS if name in vars(model)}
        self._methods = self._wrap(model.train_step, model.compute_loss)
        self.plain = model.train_function
        self.set_methods()
        model.make_train_function(force=True)
        self.tapped = model.train_function

    def set_methods(self) -> None:
        for name, method in zip(_METHODS, self._methods, strict=True):
            setattr(self.model, name, method)

    def read(self) -> list[np.ndarray]:
        """For each local replica the steps since the last call: `(steps, WIDTH)`: loss share, examples, fingerprint."""
        import tensorflow as tf

        # Variable.numpy() takes 0.1 ms more a call, for gradients and placement that a plain read has no use for.
        read = tf.raw_ops.ReadVariableOp
        values = [read(resource=cell.handle, dtype=tf.float64).numpy() for cell in self._locals]
        count = int(values[0][0])
        rows = [step % self.slots for step in range(max(self._seen, count - self.slots), count)]
        self._seen = count
        return [value[1:].reshape(self.slots, WIDTH)[rows] for value in values]

    def _wrap(self, train_step: Any, compute_loss: Any) -> tuple[Any, Any]:
        @functools.wraps(train_step)
        def tapped_step(data: Any, *args: Any, **kwargs: Any) -> Any:
            self._trace.data = data
            try:
                return train_step(data, *args, **kwargs)
            finally:
                self._trace.data = None

        @functools.wraps(compute_loss)
        def tapped_loss(*args: Any, **kwargs: Any) -> Any:
            loss = compute_loss(*args, **kwargs)
            data = getattr(self._trace, "data", None)
            if data is not None:  # None: a loss of evaluation, or a further one of the same step
                self._trace.data = None
                self._write(loss, data)
            return loss

        return tapped_step, tapped_loss

    def _write(self, loss: Any, data: Any) -> None:
        import tensorflow as tf

        x = data[0] if isinstance(data, tuple) else data
        examples = tf.shape(next(leaf for leaf in tf.nest.flatten(x) if leaf is not None))[0]
        self.batch = data
        row = [tf.cast(tf.reduce_sum(loss), tf.float64), tf.cast(examples, tf.float64), self._fingerprint(data)]
        cells = self._cells.read_value()
        if self.slots == 1:
            self._cells.assign(tf.stack([cells[0] + 1.0, *row]))
            return
        at = 1 + WIDTH * tf.math.floormod(tf.cast(cells[0], tf.int32), self.slots)
        places = tf.reshape(tf.stack([0, at, at + 1, at + 2]), (1 + WIDTH, 1))
        self._cells.assign(tf.tensor_scatter_nd_update(cells, places, tf.stack([cells[0] + 1.0, *row])))


def active(model: Any) -> Tap | None:
    """The tap that is attached to the model now."""
    return _active.get(id(model))


def attach(model: Any, owner: Any, on_built: Callable[[], None], fingerprint: Fingerprint) -> Tap:
    """Taps the model for a `fit` that has begun; a tap that is still there, as after an exception, is replaced.

    on_built: called before the first step of a model that gets its weights only now, from the shape of its data.
    """
    detach(model)
    slots = steps_per_execution(model)
    if _last is not None and _last.model is model and _last.plain is model.train_function and _last.slots == slots:
        tap = _last  # the train function of the `fit` before: there is no need to trace it again
        tap.set_methods()
        tap.read()
        model.train_function = tap.tapped
    else:
        tap = Tap(model, slots, fingerprint)
    tap.owner = owner
    _active[id(model)] = tap
    if not model.built:
        model.train_function = _building(tap, on_built)
    return tap


def _building(tap: Tap, on_built: Callable[[], None]) -> Callable[[Any], Any]:
    """A train function that builds the model from its first iterator's shapes, as a strategy's `fit` does.

    Otherwise such a model gets its weights inside of the first step, too late to read them as they were before.
    """

    def first(iterator: Any) -> Any:
        tap.model.train_function = tap.tapped
        try:
            _build(tap.model, iterator.element_spec)
        except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
            # Some models can be built by data alone. Training goes on without what only a proof needs.
            print(
                f"dtk.Recorder: no weights before the first step ({type(error).__name__}); build the model before fit"
            )
        else:
            on_built()
        return tap.tapped(iterator)

    return first


def _build(model: Any, spec: Any) -> None:
    import tensorflow as tf

    if hasattr(model, "_symbolic_build"):  # Keras 3
        model._symbolic_build(data_batch=tf.nest.map_structure(first_spec, spec))
        return
    x = spec[0] if isinstance(spec, tuple) else spec
    with model.distribute_strategy.scope():
        model.build(tf.nest.map_structure(lambda each: first_spec(each).shape, x))


def detach(model: Any) -> None:
    """Leaves the model as it was before `attach`; without a tap it does nothing."""
    global _last
    tap = _active.pop(id(model), None)
    if tap is None:
        return
    for name in _METHODS:
        if name in tap.before:
            setattr(model, name, tap.before[name])
        elif name in vars(model):
            delattr(model, name)
    if model.train_function is not None:  # None: the model has been compiled anew
        model.train_function = tap.plain
    _last = tap


def steps_per_execution(model: Any) -> int:
    """Steps in one call of the train function; a plain number in Keras 3, a variable or None in tf_keras."""
    asked = model.steps_per_execution if hasattr(model, "steps_per_execution") else model._steps_per_execution
    return 1 if asked is None else int(getattr(asked, "numpy", lambda: asked)())


def weights_so_far(model: Any) -> list[Any]:
    """The weights that the model has by now; [] before it is built, where Keras 2's `weights` raises."""
    try:
        return list(model.weights)
    except ValueError:
        return []
