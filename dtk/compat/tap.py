"""Each replica's losses, examples and their fingerprint, read out of Keras's train function with the model unchanged.

Keras reports one loss for all replicas. A tap wraps the model's `train_step` for the time of one `fit` and writes what
it sees into small variables of each replica: `synchronization=ON_READ`, so that a replica writes its own without any
communication. A loss is what the step takes a gradient of (`dtk.compat.updates`). Works with Keras 2 and 3.
"""

from __future__ import annotations

import collections
import functools
import threading
from typing import Any

import numpy as np

from dtk.compat import updates
from dtk.compat.fingerprint import row
from dtk.compat.libraries import changed, tf
from dtk.compat.per_replica import first_spec
from dtk.compat.states import untracked

LOSSES = 8  # losses of a step that are kept apart; further ones are added to the last
WIDTH = 2 + LOSSES  # a step's examples, fingerprint, loss shares


class Tap:
    """The losses, numbers of examples and fingerprints of one model's training steps, for each local replica.

    slots: how many steps one call of the train function may make; so many rows are kept for `read`. owner: who attached
    it last, until it is detached; where several recorders take part in one `fit`, one of them owns the tap. batch: what
    a replica's batch was at the last trace. names: of the step's losses, as its code calls them. lost: steps that
    `read` came too late for. blind: whether there are steps that took no gradient, whose loss is unknown.
    """

    owner: Any = None
    batch: Any = None
    blind = False

    def __init__(self, model: Any):
        self.model, self.slots = model, 0
        self.lost = 0
        self.plain = self.tapped = None  # the train function without it, and with it
        self._trace = threading.local()  # MirroredStrategy traces every replica in a thread of its own
        # The losses of the step that goes on: a tf.function that the step calls is traced once for all train functions.
        self.names: list[str] = []
        self._losses = self._local(LOSSES)

    def attach(self, owner: Any) -> None:
        """Taps the model for a `fit` that has begun, also where an exception has ended the one before."""
        self.detach()
        slots = steps_per_execution(self.model)
        self._before = vars(self.model).get("train_step")
        if self.tapped is not None and self.plain is self.model.train_function and self.slots == slots:
            self.model.train_step = self._step  # and the train function of the `fit` before, without tracing it again
        else:
            # One variable holds all, so that it takes one read: [steps so far, WIDTH numbers a step]
            self._cells, self.slots = self._local(1 + WIDTH * slots), slots
            self._seen = 0  # steps that `read` has handed out
            self._locals = self.model.distribute_strategy.experimental_local_results(self._cells)
            self.plain = self.model.train_function
            self.model.train_step = self._step = self._wrap(self.model.train_step)
            self.model.make_train_function(force=True)
            self.tapped = self.model.train_function
        self.owner = owner
        self.model.train_function = self.tapped if self.model.built else self._building

    def detach(self) -> None:
        """Leaves the model as it was before `attach`."""
        if self.owner is None:
            return
        self.unread()
        self.owner = None
        if self._before is not None:
            self.model.train_step = self._before
        elif "train_step" in vars(self.model):
            del self.model.train_step
        if self.model.train_function is not None:  # None: the model has been compiled anew
            self.model.train_function = self.plain

    def unread(self) -> int:
        """Steps that were trained under it and not read, as after an exception: so far, and from now on."""
        self.lost += len(self.read()[0])
        return self.lost

    def _building(self, iterator: Any) -> Any:
        """A train function that builds the model from its first iterator's shapes, as a strategy's `fit` does.

        Otherwise such a model gets its weights inside of the first step, too late to read them as they were before.
        """
        self.model.train_function = self.tapped
        try:
            spec = iterator.element_spec
            if hasattr(self.model, "_symbolic_build"):  # Keras 3
                self.model._symbolic_build(data_batch=tf.nest.map_structure(first_spec, spec))
            else:
                x = spec[0] if isinstance(spec, tuple) else spec
                with self.model.distribute_strategy.scope():
                    self.model.build(tf.nest.map_structure(lambda each: first_spec(each).shape, x))
        except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
            # Some models can be built by data alone. Training goes on without what only a proof needs.
            print(f"dtk.Recorder: no weights before step 1 ({type(error).__name__}); build the model before fit")
        return self.model.train_function(iterator)

    def read(self) -> list[np.ndarray]:
        """For each local replica the steps since the last call: `(steps, WIDTH)`: examples, fingerprint, losses.

        A loss that a step has not is 0; NaN all where none is known.
        """
        # Variable.numpy() takes 0.1 ms more a call, for gradients and placement that a plain read has no use for.
        read = tf.raw_ops.ReadVariableOp
        values = [read(resource=cell.handle, dtype=tf.float64).numpy() for cell in self._locals]
        count = int(values[0][0])
        first = max(self._seen, count - self.slots)
        rows = [step % self.slots for step in range(first, count)]
        self.lost += first - self._seen
        self._seen = count
        return [value[1:].reshape(self.slots, WIDTH)[rows] for value in values]

    def _wrap(self, train_step: Any) -> Any:
        @functools.wraps(train_step)
        def tapped_step(data: Any, *args: Any, **kwargs: Any) -> Any:
            if getattr(self._trace, "counts", None) is not None:
                return train_step(data, *args, **kwargs)  # a train_step that calls itself, or its parent's
            with changed(self._trace, counts=collections.Counter()):
                self._losses.assign(tf.zeros(LOSSES, tf.float64))
                with updates.recorded_step(self._take):
                    returned = train_step(data, *args, **kwargs)
                self._write(data)
            return returned

        return tapped_step

    def _take(self, name: str, value: Any) -> None:
        """A loss of the step that is being traced, also in an inner graph, as of a `cond`."""
        self._trace.counts[name] += 1
        earlier = self._trace.counts[name]
        name = name if earlier == 1 else f"{name} {earlier}"
        if name not in self.names and len(self.names) < LOSSES:
            self.names.append(name)
        place = self.names.index(name) if name in self.names else LOSSES - 1
        self._losses.assign(self._losses.read_value() + tf.one_hot(place, LOSSES, dtype=tf.float64) * value)

    def _write(self, data: Any) -> None:
        self.batch, self.blind = data, not self.names
        shares = tf.fill([LOSSES], tf.constant(float("nan"), tf.float64)) if self.blind else self._losses.read_value()
        cells = self._cells.read_value()
        written = tf.concat([cells[:1] + 1.0, row(data, shares)], 0)
        at = 1 + WIDTH * tf.math.floormod(tf.cast(cells[0], tf.int32), self.slots)
        places = tf.concat([[0], at + tf.range(WIDTH)], 0)[:, None]
        self._cells.assign(tf.tensor_scatter_nd_update(cells, places, written))

    def _local(self, length: int) -> Any:
        """Zeros of which each replica has its own, read and written without the others."""
        on_read, none = tf.VariableSynchronization.ON_READ, tf.VariableAggregation.NONE
        with self.model.distribute_strategy.scope(), untracked():
            zeros = tf.zeros(length, tf.float64)
            return tf.Variable(zeros, trainable=False, synchronization=on_read, aggregation=none)


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


def norms_of(model: Any) -> list[bool]:
    """Of each batch normalization inside of a Keras model, whether it takes the whole batch, of all replicas."""
    flatten = getattr(model, "_flatten_layers", list)  # in Keras 2 and 3
    norms = [layer for layer in flatten() if "BatchNormalization" in type(layer).__name__]
    return [bool(getattr(layer, "synchronized", False)) for layer in norms]
