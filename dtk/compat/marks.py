"""When a worker asked for data and had it, and when its part in each all-reduce began and ended.

Wraps, in worker processes only, `CollectiveReplicaLauncher.all_reduce`, through which every all-reduce of dense
tensors of MultiWorkerMirroredStrategy goes (gradients in packs, metrics one by one; TensorFlow 2.15 to 2.21), and the
iterators' `get_next`. In a graph a mark is two `tf.timestamp`s, through which what goes in and what comes out pass, and
a `numpy_function` that tells, for which nothing waits; so what can overlap still does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from dtk.compat.libraries import Lazy, changed, replaces, tf

TAKE, REDUCE = "take", "reduce"
Report = Callable[[str, float, float, int], None]  # kind, begin and end in seconds of time.time(), bytes

_control_flow: Any = Lazy("tensorflow.python.ops.control_flow_util")
_ITERATORS = (
    "tensorflow.python.distribute.input_lib:DistributedIteratorBase",
    "tensorflow.python.data.ops.iterator_ops:OwnedIterator",
)
_within = threading.local()  # an iterator of a strategy asks iterators of the workers' own


def listen(report: Report) -> None:
    """From now on; TensorFlow may be imported or not."""

    @replaces("tensorflow.python.distribute.cross_device_utils:CollectiveReplicaLauncher", "all_reduce")
    def all_reduce(original: Any, self: Any, input_tensor: Any, *args: Any, **kwargs: Any) -> Any:
        given = tf.convert_to_tensor(input_tensor)
        return _marked(report, REDUCE, lambda tensor: original(self, tensor, *args, **kwargs), given)

    for kind in _ITERATORS:
        for name in ("get_next", "__next__", "get_next_as_optional"):

            @replaces(kind, name)
            def take(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
                if getattr(_within, "take", False):
                    return original(self, *args, **kwargs)
                with changed(_within, take=True):
                    return _marked(report, TAKE, lambda _: original(self, *args, **kwargs))


def _marked(report: Report, kind: str, make: Callable[[Any], Any], given: Any = None) -> Any:
    # In an eager loop the call lasts as long as what it does.
    if tf.executing_eagerly():
        eagerly = time.time()
        made = make(given)
        size = 0 if given is None else int(given.shape.num_elements()) * int(given.dtype.size)
        report(kind, eagerly, time.time(), size)
        return made
    # What goes to XLA has no clock: its error would be about ours, and hide the learner's. No public function tells.
    if _control_flow.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
        return make(given)
    # A root of a graph runs at any time: of a wait for data only the end is known.
    began, given = (tf.constant(float("nan"), tf.float64), None) if given is None else _passing(given)
    ended, made = _passing(make(given))
    size = 0 if given is None else tf.size(given, tf.int64) * given.dtype.size

    def tell(began: Any, ended: Any, size: Any) -> Any:
        report(kind, float(began), float(ended), int(size))
        return size

    done = tf.numpy_function(tell, [began, ended, tf.cast(size, tf.int64)], tf.int64)
    if _independent(done.op):
        return made
    with tf.control_dependencies([done]):  # a graph of TensorFlow 1, which runs what leads to the result
        return tf.nest.map_structure(tf.identity, made)


def _passing(value: Any) -> tuple[Any, Any]:
    """The time when all parts of a value are there, and the value, which passes only then.

    One that hung beside the value would be late: with one thread for operations (`dtk` gives a worker its share of the
    cores) TensorFlow first computes what follows.
    """
    leaves = [getattr(leaf, "_variant_tensor", leaf) for leaf in tf.nest.flatten(value, expand_composites=True)]
    with tf.control_dependencies([leaf for leaf in leaves if isinstance(leaf, tf.Tensor)]):  # variant: of an Optional
        now = tf.timestamp()
    _independent(now.op)
    with tf.control_dependencies([now]):
        same = tf.nest.map_structure(
            lambda part: tf.identity(part) if isinstance(part, tf.Tensor) else part, value, expand_composites=True
        )
    return now, same


def _independent(operation: Any) -> bool:
    """Lets it run in any order with other operations that have effects; False in a graph that orders none."""
    if (manager := operation.graph.experimental_acd_manager) is not None:
        manager.run_independently(operation)
    return manager is not None
