"""What a training step does: what its gradient is taken of, what its graph draws and clips, each optimizer's updates.

The number whose gradient `tf.GradientTape.gradient` takes with respect to variables is what is trained for, whatever
the step returns or shows. TensorFlow 2.15 to 2.21; the method is public, the graph's list of operations as well.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dtk.compat.libraries import Lazy, changed, keras_major, replaces, tf
from dtk.compat.per_replica import key_of, name_of
from dtk.compat.states import unit

_replicas: Any = Lazy("tensorflow.python.distribute.mirrored_run")
Taken = Callable[[str, Any], None]  # the target's name in the code that asked for the gradient, and its value
_within = threading.local()
_gradients: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # graph -> operations then
_CLIP = re.compile(r"(^|/)(clip_by_(?:global_norm|norm|value))(_\d+)?(/|$)")
_CALLS = {"PartitionedCall", "StatefulPartitionedCall"}
_CALLS |= {f"{less}{kind}" for less in ("", "Stateless") for kind in ("If", "While", "Case")}
# Kinds of operations whose result is drawn, also TensorFlow 1's and the samplers; what only prepares a draw is none.
_DRAWS = re.compile(
    r"(Random(?!Get|Dataset|IndexShuffle|GetKey)|Multinomial|TruncatedNormal|Stateful(Uniform|StandardNormal)"
    r"|StatelessShuffle|CandidateSampler)"
)
# What Keras and TensorFlow put behind a layer's name, where an operation draws for it.
_BEHIND = re.compile(r"(/((stateless|random)_\w+|[A-Z]\w*))+$")
_MOST = 5  # of a graph's draws that are named
_FRAMES = 12  # callers that are asked for the target's name


def watch_gradients(replicas: int) -> None:
    """From now on; TensorFlow may be imported or not. replicas: of this process."""

    @replaces("tensorflow:GradientTape", "gradient")
    def gradient(original: Any, self: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        inner = getattr(_within, "gradient", False)  # as tf.recompute_grad takes them
        with changed(_within, gradient=True):
            found = original(self, target, sources, *args, **kwargs)
        if any(isinstance(each, tf.Variable) or hasattr(each, "trainable") for each in tf.nest.flatten(sources)):
            _look_at_graph()
            if getattr(_within, "taken", None) is not None:
                _report(target)
            elif not inner:
                _add_up(target, replicas)
        return found


def _report(target: Any) -> None:
    """Hands the target, without its scale, to the recorded step that asked for the gradient."""
    _, plain = _within.scaled.get(id(target), (None, target))
    values = _numbers(plain)
    if values:
        _within.taken(_called(target), tf.add_n(values))


_targets: Any = None  # a resource: of each replica, the sum of what gradients were taken of, and the first


def _add_up(target: Any, replicas: int) -> None:
    """Adds a target of no recorded `fit` to the sum of its replica."""
    global _targets
    values = _numbers(target)
    if not values or not tf.compat.v1.executing_eagerly_outside_functions():
        return
    if _targets is None:
        _targets = _resource("dtk-targets", [2, replicas], tf.float64)
    with tf.device("CPU:0"):
        value = tf.one_hot(_replica(replicas), replicas, dtype=tf.float64) * tf.add_n(values)
        first = tf.raw_ops.ReadVariableOp(resource=_targets, dtype=tf.float64)[1]
        value = tf.stack([value, tf.where(first == 0, value, tf.zeros_like(value))])
        tf.raw_ops.AssignAddVariableOp(resource=_targets, value=value)


def _resource(name: str, shape: list[int], dtype: Any) -> Any:
    """Zeros that graphs add to, which are no variable and in no checkpoint."""
    with tf.init_scope(), tf.device("CPU:0"):
        made = tf.raw_ops.VarHandleOp(dtype=dtype, shape=shape, shared_name=name)
        tf.raw_ops.AssignVariableOp(resource=made, value=tf.zeros(shape, dtype))
    return made


def targets() -> list[list[float]]:
    """By replica of this process, what gradients were taken of since the last call: the sum, the first; [] for none."""
    if _targets is None:
        return [[], []]
    found = tf.raw_ops.ReadVariableOp(resource=_targets, dtype=tf.float64)
    tf.raw_ops.AssignVariableOp(resource=_targets, value=tf.zeros_like(found))
    return list(found.numpy().tolist())


def watch_scaling(cls: Any, name: str) -> None:
    """cls: an optimizer that scales losses, for float16; what is reported is the loss without its scale."""

    @replaces(cls, name)
    def scale(original: Any, self: Any, loss: Any) -> Any:
        scaled = original(self, loss)
        if getattr(_within, "scaled", None) is not None:
            _within.scaled[id(scaled)] = scaled, loss
        return scaled


_UNITS = {"bfloat16": 2.0**-9, "float16": 2.0**-12}  # the unit in the last place, relative
_half: set[str] = set()  # of these types, those that a graph computes in that took a gradient
_stateful: set[str] = set()  # kinds of draws of such a graph whose state can't be read or set


def precision() -> float:
    """The unit in the last place, relative, of the coarsest type that training steps compute in; 0: of float32."""
    return max((_UNITS[name] for name in _half), default=0.0)


def may_overflow() -> bool:
    """Whether training steps compute in float16, whose largest number is 65,504, or scale the loss as for it."""
    return "float16" in _half or len(_scaled) > 0


def stateful_draws() -> list[str]:
    """Kinds of operations in training steps that draw from a state which nothing can read or set."""
    return sorted(_stateful)


def _look_at_graph() -> None:
    if tf.executing_eagerly():  # no graph shows it: what Keras's layers do that don't say otherwise
        imported = [sys.modules[name] for name in ("keras", "tf_keras") if name in sys.modules]
        _half.update(_UNITS.keys() & {keras.mixed_precision.global_policy().compute_dtype for keras in imported})
        return
    graph = tf.compat.v1.get_default_graph()
    _gradients[graph] = len(graph.get_operations())
    for operation in graph.get_operations():
        if _DRAWS.search(operation.type) and not operation.type.startswith("State"):
            _stateful.add(operation.type)
        _half.update(_UNITS.keys() & {output.dtype.base_dtype.name for output in operation.outputs[:1]})


_eager_draws: list[str] | None = None  # what draws in eager steps; None: not known


def draw_nothing() -> None:
    """From now on what draws gives the same to all (`dtk.compat.without`), in eager steps as well."""
    global _eager_draws
    _eager_draws = []


def drawn_by(function: Any) -> list[str] | None:
    """What the graphs of a `tf.function` that was called draw, with where; None for others, which run eagerly."""
    # `strategy.run` calls a copy in its place.
    copies = [its[function] for its in _replicas._cfer_fn_cache.values() if function in its]
    # Not by `_list_all_concrete_functions`, which traces a function that has a signature, outside of a replica.
    known = [one._function_cache.values() for one in (function, *copies) if hasattr(one, "_function_cache")]
    made = [concrete for its in known for concrete in its]
    return [each for concrete in made for each in drawn(concrete.graph)] if made else _eager_draws


def drawn(graph: Any) -> list[str]:
    """The operations of a graph, and of the functions that it calls, whose result is drawn at random, each once.

    Named by kind and layer: "StatelessRandomUniformV2 at sequential/dropout". What draws initial values, as in an
    Estimator's graph, is left out.
    """
    operations = graph.get_operations()
    every = [(each.name, each.type) for each in operations if "nitializer" not in each.name]
    if any(each.type in _CALLS for each in operations):
        functions = graph.as_graph_def().library.function
        every += [(node.name, node.op) for each in functions for node in each.node_def]
    found = [f"{kind} at {_BEHIND.sub('', name)}" for name, kind in every if _DRAWS.search(kind)]
    return list(dict.fromkeys(found))[:_MOST]


def _numbers(target: Any) -> list[Any]:
    leaves = [leaf for leaf in tf.nest.flatten(target) if leaf is not None]
    return [tf.reduce_sum(tf.cast(leaf, tf.float64)) for leaf in leaves]


def _called(target: Any) -> str:
    """What the code that asked for the gradient calls its target; "loss" where it has no name there."""
    for frame, _ in itertools.islice(traceback.walk_stack(sys._getframe(3)), _FRAMES):
        # AutoGraph's own frames hold the target among arguments; the learner's converted code has its own names.
        if "/autograph/" not in frame.f_code.co_filename:
            names = [name for name, value in frame.f_locals.items() if value is target]
            if names and names[0] not in ("target", "ys"):
                return names[0]
    return "loss"


# ---- every update that an optimizer makes in this process, counted where it is made: in the graph, or eagerly
#
# An optimizer's own `iterations` jump where a checkpoint is restored, and say nothing of who recorded the step. So the
# method that applies gradients is wrapped, in worker processes only, Keras 2.15 to 3.15. The count is one
# `AssignAddVariableOp` an update on a resource that belongs to no checkpoint, made by the worker's first replica.

_CLIPS = ("clipnorm", "global_clipnorm", "clipvalue")
_all: list[UpdateCounter] = []
_known: weakref.WeakKeyDictionary[Any, UpdateCounter] = weakref.WeakKeyDictionary()
_scaled: weakref.WeakSet[Any] = weakref.WeakSet()  # optimizers inside of LossScaleOptimizers
# The recorded steps that are being traced, or run eagerly, now. Of all threads: MirroredStrategy traces every replica
# in a thread of its own, and a LossScaleOptimizer each of its updates in yet another.
_under_way: list[Taken] = []


class UpdateCounter:
    """One optimizer: its name, the names of the variables that it updates, by `key_of`, and its updates so far.

    recorded: of the updates outside of a step of `fit` those that `dtk.record_step` has seen; before: how many there
    were at the last recorded step; first: of the first one that made some; later: the most of one after it.
    """

    def __init__(self, optimizer: Any):
        self.name = str(getattr(optimizer, "name", type(optimizer).__name__))
        self._optimizer = weakref.ref(optimizer)
        self.variables: dict[str, str] = {}
        self.recorded = self.before = self.first = self.later = 0
        # Updates inside of recorded steps of `fit`, and outside.
        self._made = _resource(f"dtk-updates-{len(_all)}", [2], tf.int64)

    def add(self, inside: bool) -> None:
        """An update more; inside: in a step that is being recorded."""
        with tf.device("CPU:0"):
            one = tf.constant([1, 0] if inside else [0, 1], tf.int64)
            tf.raw_ops.AssignAddVariableOp(resource=self._made, value=one)

    def outside(self) -> Any:
        """A scalar: updates outside of recorded steps of `fit`, so far."""
        return tf.raw_ops.ReadVariableOp(resource=self._made, dtype=tf.int64)[1]

    def seen(self, now: int) -> None:
        """A step of a loop is recorded, when there are `now` updates outside of `fit`.

        Those since the last one are this step's. Before the first step nothing was recorded: of what was made till then
        as many are its own as any later step has made.
        """
        since, self.before = now - self.before, now
        if self.first:
            self.later = max(self.later, since)
        self.first = self.first or since
        self.recorded = now - max(0, self.first - (self.later or self.first))

    def state(self) -> list[int]:
        """All that is counted, for `go_on` in a process that takes this one's place."""
        return [*self.so_far(), self.recorded, self.before, self.first, self.later]

    def go_on(self, state: list[int]) -> None:
        """Adds what was counted of an optimizer whose variables this one has taken over."""
        tf.raw_ops.AssignAddVariableOp(resource=self._made, value=tf.constant(state[:2], tf.int64))
        recorded, before, first, later = state[2:]
        self.recorded, self.before, self.first = self.recorded + recorded, self.before + before, self.first or first
        self.later = max(self.later, later)

    def rate(self) -> float | None:
        """Its learning rate as it is now, a schedule's at the present count; None where it has none, or is gone."""
        with tf.init_scope():
            rate: Any = getattr(self._optimizer(), "learning_rate", None)
            try:  # under a strategy it is a variable that float() does not take
                return float(rate.numpy() if hasattr(rate, "numpy") else rate)
            except Exception:  # a schedule is the learner's code, and may raise anything: no training ends for it
                return None

    def so_far(self) -> tuple[int, int]:
        """Updates in recorded steps of `fit`, and elsewhere."""
        inside, outside = tf.raw_ops.ReadVariableOp(resource=self._made, dtype=tf.int64).numpy().tolist()
        return inside, outside


def states() -> list[tuple[int, int]]:
    """How many updates each optimizer has made, to be put back by `restore`."""
    return [each.so_far() for each in _all]


def restore(states: list[tuple[int, int]]) -> None:
    """Takes back updates that were made only to be compared, and forgets their targets."""
    targets()
    for each, numbers in zip(_all, states, strict=False):
        tf.raw_ops.AssignVariableOp(resource=each._made, value=tf.constant(numbers, tf.int64))


def counted() -> list[UpdateCounter]:
    """All optimizers that have made, or been traced to make, an update; in the order of their first."""
    return list(_all)


@contextlib.contextmanager
def recorded_step(taken: Taken) -> Iterator[None]:
    """What is traced, or run eagerly, inside belongs to a step of `fit` that is recorded; reentrant, a thread each.

    taken: gets each target of a gradient with respect to variables.
    """
    _under_way.append(taken)
    try:
        with changed(_within, taken=taken, scaled={}):
            yield
    finally:
        _under_way.remove(taken)


def watch(keras: Any, replicas: int, traced: Callable[..., None]) -> None:
    """Counts the updates of a Keras that has just been imported.

    keras: the module `keras` or `tf_keras`. replicas: of this process. traced: called at an optimizer's first update,
    with its `UpdateCounter` and what its step's graph has.
    """

    def count(optimizer: Any, variables: list[Any], sparse: list[str]) -> None:
        if optimizer in _scaled or not variables or not tf.compat.v1.executing_eagerly_outside_functions():
            return  # counted around it; or in an Estimator's graph, by a hook
        if hasattr(optimizer, "inner_optimizer"):  # it leaves a step out where float16 overflows, as rounding decides
            _scaled.add(optimizer := optimizer.inner_optimizer)
        first = optimizer not in _known
        if first:
            _known[optimizer] = UpdateCounter(optimizer)
            _all.append(_known[optimizer])
        counter = _known[optimizer]
        counter.variables |= {key_of(each): name_of(each) for each in variables}
        if first:
            traced(counter, clips=_clips(optimizer), sparse=sparse, rate=counter.rate(), settings=_settings(optimizer))
        if _replica(replicas) == 0:
            counter.add(inside=bool(_under_way))

    if keras_major(keras) < 3:
        _wrap(keras.optimizers.Optimizer, "apply_gradients", "grads_and_vars", count)
        _wrap(keras.optimizers.legacy.Optimizer, "apply_gradients", "grads_and_vars", count)
        for cls in keras.mixed_precision.LossScaleOptimizer.__subclasses__():  # one for each kind of optimizer
            watch_scaling(cls, "get_scaled_loss")
            _wrap(cls, "apply_gradients", "grads_and_vars", count)
    elif keras.backend.backend() == "tensorflow":
        for cls in (keras.optimizers.Optimizer, keras.optimizers.LossScaleOptimizer):
            _wrap(cls, "apply", "grads", count)
            watch_scaling(cls, "scale_loss")


def _wrap(cls: Any, name: str, word: str, count: Callable[..., None]) -> None:
    """word: what the method calls its first argument."""

    @replaces(cls, name)
    def apply(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        first, *rest = args or (kwargs.pop(word),)
        given = list(first)  # Keras 2 takes an iterator as well, which can be gone through once
        if word == "grads":
            count(self, *_of_keras_3(self, given, *rest, **kwargs))
        else:
            count(self, [variable for _, variable in given], [])  # Keras 2 adds up rows of one number first
        return unit(self, functools.partial(original, self), (given, *rest), kwargs)


def _of_keras_3(optimizer: Any, gradients: list[Any], trainable_variables: Any = None) -> tuple[list[Any], list[str]]:
    """The variables, and the names of those whose gradient comes as rows, which Keras 3 then has of each replica."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    given = optimizer._trainable_variables if trainable_variables is None else trainable_variables
    pairs = list(zip(gradients, given, strict=False))
    rows = [name_of(v) for gradient, v in pairs if isinstance(gradient, tf.IndexedSlices)]
    # What is linear in the gradient adds the rows of one number up as it applies them.
    linear = type(optimizer).__name__ == "SGD" and not getattr(optimizer, "momentum", 0)
    return [v for _, v in pairs], [] if linear else rows


def _settings(optimizer: Any) -> dict[str, Any]:
    """What its `get_config` has that is one value, but its name and its learning rate, which is a variable."""
    try:
        with tf.init_scope():  # it reads the learning rate, which a graph can't
            config = optimizer.get_config()
    except Exception:  # the learner's own class may have none that works: no training ends for it
        return {}
    plain = {key: value for key, value in config.items() if isinstance(value, (bool, int, float, str, type(None)))}
    return {key: value for key, value in plain.items() if key not in ("name", "learning_rate")}


def _replica(replicas: int) -> int:
    """Which of its worker's replicas this is, whose numbers follow each other in the cluster's; 0 if nothing tells."""
    context = tf.distribute.get_replica_context()
    number = tf.get_static_value(context.replica_id_in_sync_group) if context is not None else 0
    return int(number or 0) % replicas


def _clips(optimizer: Any) -> list[str] | None:
    """Clipping of a replica's own gradients, before they are added up; None: not known, where no graph shows it.

    The kinds of tf.clip_by_* since the last gradient, in the graph that is being made: a branch, or a function, that
    only applies gradients is part of the graph around it that took them. Further the optimizer's own in Keras 3, which
    clips first and reduces then; Keras 2 does it the other way round.
    """
    names, found = list[str](), None
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    while graph is not None:
        names += [operation.name for operation in graph.get_operations()[_gradients.get(graph, 0) :]]
        if graph in _gradients:
            found = sorted({match[2] for match in map(_CLIP.search, names) if match})
            break
        graph = getattr(graph, "outer_graph", None)
    if hasattr(optimizer, "stateless_apply"):  # which optimizers of Keras 3 alone have
        own = [f"{name}={getattr(optimizer, name)}" for name in _CLIPS if getattr(optimizer, name, None)]
        return [*(found or []), *own] if own else found
    return found


# ---- an optimizer that is to update the same variables without a step
#
# Once it is built Keras 3 keeps them in `_trainable_variables` (3.5 to 3.15), and Keras 2 their keys and places in
# `_index_dict` (Keras 2.15, tf_keras 2.15 to 2.21). `tests/test_clusters_replaced.py` fails where either is gone.


def optimizer_of(value: Any) -> Any:
    """An optimizer itself, or that of a compiled model; None for anything else."""
    found = getattr(value, "optimizer", value)
    return found if hasattr(found, "apply_gradients") and hasattr(found, "build") else None


def trains(optimizer: Any, known: Mapping[str, Any]) -> list[str]:
    """The paths of its variables; [] where it is not built, or is Keras 2's and has one that is not in `known`."""
    places = getattr(optimizer, "_index_dict", None)
    if places:
        names = {key_of(each): name for name, each in known.items()}
        return [names[key] for key in sorted(places, key=places.get)] if places.keys() <= names.keys() else []
    return [name_of(each) for each in getattr(optimizer, "_trainable_variables", None) or []]
