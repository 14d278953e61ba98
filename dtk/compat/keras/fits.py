"""A callback in each `fit` of a program that was written without dtk: `Model.fit`, of each Keras, takes it in.

Keras has no public place for callbacks of all models (Keras 2.15 to 3.15, tf_keras 2.16 to 2.21), so the method itself
is replaced, in workers of `dtk.run(..., record=True)` only: nothing of it has to go.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import wrapt

__all__ = ["in_each_fit"]


def in_each_fit(kind: type) -> None:
    """Each `fit` gets a callback `kind()`, after its own, unless one of these is a `kind`."""
    for name in ("keras", "tf_keras"):
        wrapt.register_post_import_hook(lambda keras: _wrap(keras.Model, kind), name)


def _wrap(model: Any, kind: type) -> None:
    original = model.fit
    signature = inspect.signature(original)

    @functools.wraps(original)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = signature.bind(self, *args, **kwargs)
        given.arguments["callbacks"] = _with(given.arguments.get("callbacks"), kind)
        return original(*given.args, **given.kwargs)

    model.fit = fit


def _with(callbacks: Any, kind: type) -> Any:
    """What `fit` takes: None, one callback, a list of them, or a CallbackList, which is made to hold one more."""
    held = getattr(callbacks, "callbacks", callbacks)
    held = list(held) if isinstance(held, (list, tuple)) else [] if held is None else [held]
    if any(isinstance(each, kind) for each in held):
        return callbacks
    if hasattr(callbacks, "append") and not isinstance(callbacks, list):
        callbacks.append(kind())
        return callbacks
    return [*held, kind()]
