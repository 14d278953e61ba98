"""TensorFlow by the name `tf`, for modules that are imported where it must not be; what takes its functions' place."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any

import wrapt

__all__ = ["replaces", "tf"]


class _TensorFlow:
    """Imports TensorFlow at the first use; its attributes are asked for each time, because `tf.keras` may change.

    The kernel imports modules of workers, and must not load TensorFlow for it; so does the process that workers are
    forked from, before a worker has chosen its Keras.
    """

    def __getattr__(self, name: str) -> Any:
        import tensorflow

        return getattr(tensorflow, name)


tf: Any = _TensorFlow()


def replaces(owner: Any, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates a function that takes the place of `owner.name`, and gets the original as its first argument.

        @replaces("keras:Model", "fit")
        def fit(original, self, *args, **kwargs): ...

    What takes the place is an ordinary function, no proxy as wrapt makes them, with the original's module: AutoGraph
    converts the learner's code through it, and leaves it alone itself. The original is its `__wrapped__`.

    owner: a module or a class, or "MODULE:PLACE IN IT", which takes effect at the moment that the module is imported,
    or at once where it has been.
    """

    def put(function: Callable[..., Any]) -> Callable[..., Any]:
        if isinstance(owner, str):
            module, _, place = owner.partition(":")
            found = operator.attrgetter(place)
            wrapt.register_post_import_hook(lambda imported: replaces(found(imported), name)(function), module)
            return function
        original = getattr(owner, name)

        @functools.wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            return function(original, *args, **kwargs)

        static = isinstance(inspect.getattr_static(owner, name), staticmethod)
        setattr(owner, name, staticmethod(replacement) if static else replacement)
        return replacement

    return put
