"""All variables of this process, in the order of their creation, and the calls between which Python can read them.

A *unit* is an outermost call of a `tf.function`, of `strategy.run`, or of an optimizer that works eagerly, or a run of
an Estimator's session: nothing can be read or set inside of it, everything between two of them. TensorFlow
(2.15 to 2.22) has no public list of variables outside of TensorFlow 1's graphs, so nothing has to go of what is touched
here, in worker processes only; `tests/test_states.py` fails where one of the names is gone.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dtk.compat.libraries import changed, contexts, replaces, tf
from dtk.compat.per_replica import key_of, local_values
from dtk.records.facts import MOVING

_leaves: list[weakref.ref[Any]] = []
_making = threading.local()
_table: list[Variable] = []
_of_handle: dict[int, Variable] = {}
_in_graph: list[InGraph] = []  # of the Estimator that trains, or has trained last
_counted: dict[tuple[Any, ...], int] = {}  # variables made so far that have a name, type and shape in common
_newest = 0  # id of the handle that was made last
_stale = True
_watcher: Any = None
_inside = False
_SUFFIX = re.compile(r"(/replica_\d+)?(:\d+)?$")
_NUMBER = re.compile(r"_\d+(?=/|$)")


@dataclass(eq=False)
class Variable:
    """One variable as the program has it, with a copy for each of this process's replicas.

    identity: what it is matched by in another process: name without automatic numbers, shape, type, and its place
    among those of the same. kept: "mirrored" (the same on all replicas), "by replica" (each replica has its own) or
    "own" (made outside of a strategy's scope). role: "" for what is compared; neither compared nor taken over are
    "metric", a Keras metric's, and "dtk", dtk's own.
    """

    name: str
    identity: tuple[Any, ...]
    dtype: str
    shape: tuple[int, ...]
    kept: str
    aggregation: str
    trainable: bool
    role: str
    copies: list[Any] = field(default_factory=list)  # weak references to one object of each
    ready: bool = False

    def assign(self, values: list[Any]) -> None:
        """Writes a value for each copy, or one for all; without the other workers."""
        for k, ref in enumerate(self.copies):
            copy = ref()
            if copy is not None:
                tf.raw_ops.AssignVariableOp(resource=copy.handle, value=values[k % len(values)])


@dataclass(eq=False)
class InGraph(Variable):
    """A variable of a graph of TensorFlow 1, which is read and set in calls of its session beside the training's.

    tensors: of its copies. session: the raw one, None once it is closed: then it holds what was read last.
    """

    ready: bool = True
    tensors: list[Any] = field(default_factory=list)
    setters: list[tuple[Any, Any]] = field(default_factory=list)  # (operation, placeholder), by copy
    session: Any = None
    held: list[Any] = field(default_factory=list)

    def hold(self, now: list[Any]) -> None:
        """Keeps values; the same array as before where nothing has changed."""
        old = self.held or [None] * len(now)
        self.held = [a if a is not None and a.tobytes() == b.tobytes() else b for a, b in zip(old, now, strict=True)]

    def assign(self, values: list[Any]) -> None:
        for k, (setter, given) in enumerate(self.setters):
            self.session.run(setter, {given: values[k % len(values)]})


def of_graph() -> list[InGraph]:
    """The variables of the present graph, which gets what reads and sets them; before it is finished."""
    found: dict[str, InGraph] = {}
    seen: set[str] = set()
    for variable in tf.compat.v1.global_variables():
        for leaf in local_values(variable):
            if leaf.handle.name in seen:
                continue  # one of a variable that was there before
            seen.add(leaf.handle.name)
            made = _described(leaf, InGraph, "", 0)
            alike = [each for each in found.values() if each.identity[:-1] == made.identity[:-1]]
            made.identity = (*made.identity[:-1], len(alike))
            entry = found.setdefault(made.name, made)
            given = tf.compat.v1.placeholder(leaf.dtype.base_dtype, leaf.shape)
            entry.copies.append(None)  # there is nothing to refer to
            entry.tensors.append(leaf.read_value())
            entry.setters.append((tf.raw_ops.AssignVariableOp(resource=leaf.handle, value=given), given))
    return list(found.values())


def enter_graph(table: list[InGraph], session: Any) -> None:
    """From now on these are the variables; session None: they hold what they held last."""
    global _in_graph
    _in_graph = table
    if session is None:
        read(table)
    for each in table:
        each.session = session


def read(table: Sequence[Variable]) -> list[list[Any]]:
    """The values of each, by copy, without copying them: TensorFlow writes what is being read elsewhere anew.

    By one operation a device, as one a variable takes four times as long; an Estimator's by one call of its session.
    """
    in_graph = [each for each in table if isinstance(each, InGraph)]
    session = in_graph[0].session if in_graph else None  # one Estimator's have the same
    if session is not None:
        for each, now in zip(in_graph, session.run([each.tensors for each in in_graph]), strict=True):
            each.hold([np.asarray(value) for value in now])
    eager = [each for each in table if not isinstance(each, InGraph)]
    return [*(each.held for each in in_graph), *_read_eagerly(eager)]


def _read_eagerly(table: Sequence[Variable]) -> list[list[Any]]:
    from tensorflow.python import pywrap_tfe

    each_has = [[leaf for leaf in (ref() for ref in each.copies) if leaf is not None] for each in table]
    leaves = [leaf for its in each_has for leaf in its]
    devices: dict[str, list[int]] = {}
    for place, leaf in enumerate(leaves):
        devices.setdefault(leaf.handle.device, []).append(place)
    values: list[Any] = [None] * len(leaves)
    session = contexts.context()._handle
    for device, places in devices.items():
        handles = [leaves[place].handle for place in places]
        attributes = ("N", len(handles), "dtypes", [leaves[place].dtype.as_datatype_enum for place in places])
        found = pywrap_tfe.TFE_Py_Execute(session, device, "_ReadVariablesOp", handles, attributes, len(handles))
        for place, tensor in zip(places, found, strict=True):
            values[place] = np.asarray(tensor._numpy())  # numpy() would copy
    parts = iter(values)
    return [list(itertools.islice(parts, len(its))) for its in each_has]


def watcher() -> Any:
    """What watches the units of this process; None for nothing."""
    return _watcher


def watch(watcher: Any) -> None:
    """From now on all variables are kept in mind; TensorFlow and Keras may be imported or not.

    watcher: its `around` gets each outermost call: what is called, the call, its arguments as a tuple and a dictionary.
    """
    global _watcher
    _watcher = watcher
    _watch_variables()

    @replaces("tensorflow.python.eager.polymorphic_function.polymorphic_function:Function", "__call__")
    def call(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        return unit(self, functools.partial(original, self), args, kwargs)

    @replaces("tensorflow.python.distribute.distribute_lib:StrategyBase", "run")
    def run(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        return unit(args[0] if args else self, functools.partial(original, self), args, kwargs)


def _watch_variables() -> None:
    variables = "tensorflow.python.ops.resource_variable_ops"

    @replaces(f"{variables}:BaseResourceVariable", "__init__")
    def init(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        global _stale, _newest
        original(self, *args, **kwargs)
        if isinstance(self, sys.modules[variables]._UnreadVariable):
            return
        self._dtk_role = getattr(_making, "role", None) or ""
        if getattr(self.handle, "_id", 0) > _newest:  # no second object for a variable
            _newest = self.handle._id
            self._dtk_number = _numbered(self, str(self.name).partition(":")[0])
        _leaves.append(weakref.ref(self, _gone))
        _stale = True

    # Keras 3 knows a variable by its path, TensorFlow by the path's end.
    @replaces("keras.src.backend.tensorflow.core:Variable", "_initialize")
    def initialize(original: Any, self: Any, value: Any) -> None:
        original(self, value)
        leaves = getattr(self._value, "values", (self._value,))
        number = _numbered(leaves[0], str(self.path))
        for leaf in leaves:
            leaf._dtk_path, leaf._dtk_number = str(self.path), number
            leaf._dtk_role = getattr(self, "_dtk_role", leaf._dtk_role)

    # It orders collectives by a variable of its own.
    @replaces("tensorflow.python.distribute.cross_device_utils:CollectiveReplicaLauncher", "__init__")
    def launcher(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        with untracked():
            original(self, *args, **kwargs)

    # Keras 2's metrics have an `add_variable`, too, which they don't call.
    for metric, name in (
        ("keras.src.metrics.metric:Metric", "add_variable"),
        ("tf_keras.src.metrics.base_metric:Metric", "add_weight"),
    ):

        @replaces(metric, name)
        def add(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
            with changed(_making, role="metric"):
                made = original(self, *args, **kwargs)
            made._dtk_role = "metric"  # Keras 3 may make TensorFlow's variable later
            return made


def _gone(_ref: Any) -> None:
    global _stale
    _stale = True


def untracked() -> contextlib.AbstractContextManager[None]:
    """Variables that are made inside are dtk's own."""
    return changed(_making, role="dtk")


def variables() -> list[Variable]:
    """All that have a value by now and are still there, in the order of their creation; in an Estimator's, its own."""
    if _in_graph and not tf.executing_eagerly():
        return list(_in_graph)
    if _stale:
        _refresh()
    return [*_in_graph, *_table]


def _refresh() -> None:
    global _stale, _table
    _stale = False
    found: dict[str, Variable] = {}
    seen: dict[int, Variable] = {}  # by the handle's id, which all objects for one variable share
    alive = [(ref, leaf) for ref in _leaves if (leaf := ref()) is not None]
    for ref, leaf in alive:
        handle = leaf.handle
        no_number = leaf.dtype.base_dtype in (tf.string, tf.resource, tf.variant)
        if tf.is_symbolic_tensor(handle) or no_number or leaf._dtk_role == "data" or handle._id in seen:
            continue
        key = key_of(leaf)
        if key not in found:
            number = getattr(leaf, "_dtk_number", 0)
            found[key] = _of_handle.get(handle._id) or _described(leaf, Variable, leaf._dtk_role, number)
            found[key].copies = []
        found[key].copies.append(ref)
        seen[handle._id] = found[key]
    for entry in found.values():
        handles = [ref().handle for ref in entry.copies]  # none is gone: `alive` holds them
        entry.ready = entry.ready or all(bool(tf.raw_ops.VarIsInitializedOp(resource=each)) for each in handles)
    _leaves[:] = [ref for ref, _ in alive]
    _of_handle.clear()
    _of_handle.update(seen)
    _stale = _stale or not all(each.ready for each in found.values())
    _table = list(found.values())


def drawn_from(captured: Sequence[Any]) -> None:
    """Sets aside what a dataset's map draws from, which tf.data's threads write ahead of the steps, each run otherwise.

    captured: what the map's function holds beside its arguments; its integers are no state of a step from now on.
    """
    global _stale
    held = {getattr(each, "_id", None) for each in captured if each.dtype == tf.resource}
    leaves = [leaf for leaf in (ref() for ref in _leaves) if leaf is not None and leaf.dtype.base_dtype.is_integer]
    keys = {key_of(leaf) for leaf in leaves if getattr(leaf.handle, "_id", 0) in held}
    for leaf in leaves:
        if key_of(leaf) in keys:
            leaf._dtk_role, _stale = "data", True


def _numbered(leaf: Any, name: str) -> int:
    """A new variable's place among those of its name, type and shape.

    Counted when it is made: when one that nobody holds is gone is the garbage collector's to say.
    """
    alike = (_NUMBER.sub("", name), leaf.dtype, str(leaf.shape), leaf._dtk_role)
    _counted[alike] = _counted.get(alike, -1) + 1
    return _counted[alike]


def _described(leaf: Any, cls: Any, role: str, number: int) -> Any:
    """What is known of a variable by one of its copies. number: its place among those of the same identity."""
    name = getattr(leaf, "_dtk_path", "") or _SUFFIX.sub("", str(leaf.name))
    dtype, shape = leaf.dtype.base_dtype.name, tuple(leaf.shape.as_list())
    on_read = leaf.synchronization == tf.VariableSynchronization.ON_READ
    strategy = getattr(leaf, "_distribute_strategy", None) or getattr(leaf, "distribute_strategy", None)
    by_replica = on_read or any(word in name for word in MOVING)
    kept = "by replica" if by_replica else ("mirrored" if strategy is not None else "own")
    identity = (_NUMBER.sub("", name), dtype, shape, number)
    return cls(name, identity, dtype, shape, kept, leaf.aggregation.name.lower(), bool(leaf.trainable), role)


# ---- the calls


def in_unit() -> bool:
    """Whether a unit is under way in this process."""
    return _inside


def unit(subject: Any, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Makes a call that is a unit where it is outermost and eager."""
    global _inside
    main = threading.current_thread() is threading.main_thread()
    if _watcher is None or _inside or not main or not tf.executing_eagerly() or tf.inside_function():
        return call(*args, **kwargs)
    _inside = True
    try:
        return _watcher.around(subject, call, args, kwargs)
    finally:
        _inside = False


def perturbed(values: Any, size: float, draw: np.random.Generator, least: float = 0.0) -> Any:
    """The same with each number of floating point changed by a part of `size`, at random up or down.

    least: what a smaller number counts as, when the part is taken of it. A 0 stays: units at rest begin to move there.
    """
    if values.dtype.kind != "f" and values.dtype.name != "bfloat16":
        return values
    signs = draw.integers(0, 2, values.shape).astype(np.float64) * 2 - 1
    wide = values.astype(np.float64)
    return (wide + size * signs * np.maximum(np.abs(wide), least * (wide != 0))).astype(values.dtype)
