"""Puts a function of ours in the place of one of TensorFlow's or Keras's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["replaces"]


def replaces(owner: Any, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates a function that takes the place of `owner.name`, and gets the original as its first argument.

        @replaces(keras.Model, "fit")
        def fit(original, self, *args, **kwargs): ...

    What takes the place is an ordinary function, no proxy as wrapt makes them, with the original's module: AutoGraph
    converts the learner's code through it, and leaves it alone itself. The original is its `__wrapped__`.
    """

    def put(function: Callable[..., Any]) -> Callable[..., Any]:
        original = getattr(owner, name)

        @functools.wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            return function(original, *args, **kwargs)

        setattr(owner, name, replacement)
        return replacement

    return put
