"""What `dtk.record_step` takes as `model=`: a model, a variable, a Checkpoint, or several of these, as one list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dtk.compat.per_replica import key_of
from dtk.errors import ClusterConfigError
from dtk.language import _

__all__ = ["Trained", "trained"]


class Trained(NamedTuple):
    """One thing that a loop trains. key: the object itself, or what tells the variables of a list from every other.

    weights: gives its variables, in its own order.
    """

    key: Any
    label: str
    weights: Callable[[], list[Any]]


def trained(given: Any, label: str = "") -> list[Trained]:
    """All that is trained, in the order in which it was given; names of a dictionary become labels."""
    import tensorflow as tf

    if given is None:
        return []
    if isinstance(given, Mapping):
        return [each for name, value in given.items() for each in trained(value, str(name))]
    if isinstance(given, (list, tuple)):
        if given and all(_is_variable(value) for value in given):
            listed = list(given)
            return [Trained(tuple(map(key_of, listed)), label or "variables", lambda: listed)]
        return [each for value in given for each in trained(value)]
    if isinstance(given, tf.train.Checkpoint):
        held = {name: value for name, value in vars(given).items() if not name.startswith("_")}
        return [each for name, value in held.items() if _is_trained(value) for each in trained(value, name)]
    if _is_variable(given):
        return [Trained(given, label or str(given.name), lambda: [given])]
    _weights(given)
    return [Trained(given, label or str(getattr(given, "name", type(given).__name__)), lambda: _weights(given))]


def _is_variable(value: Any) -> bool:
    import tensorflow as tf

    return isinstance(value, tf.Variable) or (hasattr(value, "assign") and hasattr(value, "trainable"))


def _is_trained(value: Any) -> bool:
    """Whether a checkpoint's component is a model or a variable to train: no optimizer, counter or iterator."""
    if _is_variable(value):
        return bool(value.trainable)
    held = getattr(value, "trainable_variables", None)
    return bool(held) and not hasattr(value, "apply_gradients")


def _weights(model: Any) -> list[Any]:
    held = getattr(model, "weights", None)
    held = getattr(model, "variables", None) if held is None else held
    if held is None:
        raise ClusterConfigError(
            _(
                "dtk.record_step: model= is a {name}, which has neither weights nor variables; pass the "
                "model itself, or a list or dictionary of models",
                name=type(model).__name__,
            )
        )
    return list(held)
