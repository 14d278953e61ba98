"""The parts of a distributed value, and of its spec, that belong to this process's replicas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dtk.compat.libraries import Lazy, tf
from dtk.records.events import Scope

_values: Any = Lazy("tensorflow.python.distribute.values")


def local_values(value: Any) -> tuple[Any, ...]:
    """A PerReplica's or a mirrored variable's components in this process, by replica; any other value alone.

    As `strategy.experimental_local_results`, without a strategy: outside of its scope nothing says which it is.
    `values` is not public; `tests/test_record_step.py` compares the two.
    """
    return tuple(value.values) if isinstance(value, tf.distribute.DistributedValues) else (value,)


def is_mirrored(value: Any) -> bool:
    """Whether it is what all replicas are to have alike: `Mirrored`, as an `assign` on a mirrored variable gives.

    The class is not public; `tests/test_clusters_stops.py` fails where it is gone.
    """
    return isinstance(value, _values.Mirrored)


def first_spec(spec: Any) -> Any:
    """The first local replica's spec of a component of the data; None for one that was not given.

    A PerReplicaSpec has one spec for each replica, in `_value_specs`.
    """
    if isinstance(spec, tf.OptionalSpec):
        return None  # stands for a target or a sample weight that was not given
    return getattr(spec, "_value_specs", (spec,))[0]


def _variable(weight: Any) -> Any:
    """TensorFlow's variable, which Keras 3 has inside its own.

    TensorFlow's own is not asked for names that it has not: one that is added up over the workers is read for that.
    """
    return weight if isinstance(weight, tf.Variable) else getattr(weight, "_value", weight)


def key_of(variable: Any) -> str:
    """What tells a variable from every other of the process, whichever of its wrappers or copies is at hand.

    As Keras's optimizers know their variables (`TFOptimizer._var_key` in Keras 3, `_var_key` in Keras 2).
    """
    variable = _variable(variable)
    if not isinstance(variable, tf.distribute.DistributedValues):
        # Where TensorFlow keeps the copies' container; that of variables made inside of a function in the copies.
        places = (getattr(variable, "handle", variable), variable)
        containers = (getattr(place, "_distributed_container", lambda: None)() for place in places)
        variable = next((each for each in containers if each is not None), variable)
    return str(getattr(variable, "_unique_id", None) or id(variable))


def name_of(variable: Any) -> str:
    """What messages and files call a variable, of TensorFlow or of either Keras."""
    return str(variable.name if isinstance(variable, tf.Variable) else getattr(variable, "path", variable.name))


@dataclass(frozen=True)
class Copies:
    """A variable as this process has it: one copy for each of its replicas.

    kept: "mirrored" (all workers are to have the same), "by replica" (each replica has its own part, which a read adds
    up over all workers), "own" (no other worker knows of it).
    """

    name: str
    key: str
    kept: str
    local: tuple[Any, ...]

    def arrays(self) -> list[Any]:
        """Of NumPy, by replica. Reads without the other workers."""
        return [copy.numpy() for copy in self.local]

    def assign(self, values: list[Any]) -> None:
        """Writes them here alone: as many as there are copies, or one for all."""
        with tf.init_scope():
            for k, copy in enumerate(self.local):
                copy.assign(values[k % len(values)])


def copies(weight: Any) -> Copies | None:
    """The copies of TensorFlow's or Keras's variable; None for anything else, and for one without a value so far."""
    if isinstance(weight, (tf.Tensor, type)) or not (hasattr(weight, "assign") and hasattr(weight, "dtype")):
        return None
    variable = _variable(weight)
    local = local_values(variable)
    if not all(isinstance(copy, tf.Variable) and hasattr(copy, "handle") for copy in local):
        return None
    # One that was made in a `tf.function` gets its value after the first trace.
    if not all(bool(tf.raw_ops.VarIsInitializedOp(resource=copy.handle)) for copy in local):
        return None
    strategy = getattr(variable, "distribute_strategy", None)
    by_replica = getattr(variable, "synchronization", None) == tf.VariableSynchronization.ON_READ
    mirrored = strategy is not None and strategy.num_replicas_in_sync > 1
    kept = ("by replica" if by_replica else "mirrored") if mirrored else "own"
    return Copies(name_of(weight), key_of(weight), kept, local)


def strategy_of(weights: list[Any]) -> Any:
    """The strategy in whose scope the weights were made; None where they were made in none."""
    found = (getattr(_variable(weight), "distribute_strategy", None) for weight in weights)
    return next((strategy for strategy in found if strategy is not None), None)


def scope_of(weights: list[Any]) -> Scope:
    """In whose scope the weights were made, by the strategy's public name."""
    strategy = strategy_of(weights)
    if strategy is None:
        return Scope(None, 1)
    several = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)  # whose class has another name
    name = "MultiWorkerMirroredStrategy" if several else type(strategy).__name__
    return Scope(name, int(strategy.num_replicas_in_sync))
