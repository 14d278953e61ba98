"""Which variables an optimizer updates, and an optimizer that is to update the same without a step.

Once it is built Keras 3 keeps them in `_trainable_variables` (3.5 to 3.15), and Keras 2 their keys and places in
`_index_dict` (Keras 2.15, tf_keras 2.15 to 2.21). `tests/test_clusters_replaced.py` fails where either is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dtk.compat.per_replica import key_of

__all__ = ["build", "optimizer_of", "trains"]


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
    return [str(getattr(each, "path", each.name)) for each in getattr(optimizer, "_trainable_variables", None) or []]


def build(optimizer: Any, variables: list[Any]) -> None:
    """In the scope of a strategy."""
    optimizer.build(variables)
