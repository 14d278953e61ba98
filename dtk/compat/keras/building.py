"""Which variables an optimizer updates, and an optimizer that is to update the same without a step.

Keras 3 keeps them in `_trainable_variables` once it is built (3.5 to 3.15), Keras 2's optimizers keep them nowhere
(tf_keras 2.15 to 2.21). `tests/test_clusters_replaced.py` fails where the first is gone.
"""

from __future__ import annotations

from typing import Any

__all__ = ["build", "optimizer_of", "trains"]


def optimizer_of(value: Any) -> Any:
    """An optimizer itself, or that of a compiled model; None for anything else."""
    found = getattr(value, "optimizer", value)
    return found if hasattr(found, "apply_gradients") and hasattr(found, "build") else None


def trains(optimizer: Any) -> list[str]:
    """The paths of its variables; [] where it is not built, or is Keras 2's."""
    return [str(getattr(each, "path", each.name)) for each in getattr(optimizer, "_trainable_variables", None) or []]


def build(optimizer: Any, variables: list[Any]) -> None:
    """In the scope of a strategy."""
    optimizer.build(variables)
