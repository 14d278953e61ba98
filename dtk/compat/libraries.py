"""TensorFlow and Keras, imported at first use; what takes the place of their functions; which Keras goes with what.

Up to TensorFlow 2.15 `keras` is Keras 2 and `tf.keras` is that same package; from 2.16 on `keras` is Keras 3, and
Keras 2 is the package tf_keras. With TF_USE_LEGACY_KERAS=1 `tf.keras` is tf_keras in both, from 2.15 on.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import operator
import os
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import wrapt

from dtk.language import N_, _

_OLDEST = (3, 12)  # of Keras 3, as in pyproject.toml


class Lazy:
    """Imports a module at the first use; its attributes are asked for each time, because `tf.keras` may change.

    The kernel imports modules of workers, and must not load TensorFlow for it; so does the process that workers are
    forked from, before a worker has chosen its Keras.
    """

    def __init__(self, module: str):
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._module), name)


tf: Any = Lazy("tensorflow")
keras: Any = Lazy("keras")
contexts: Any = Lazy("tensorflow.python.eager.context")  # not public: `contexts.context()` is TensorFlow's only one


def replaces(owner: Any, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates a function that takes the place of `owner.name`, and gets the original as its first argument.

        @replaces("keras:Model", "fit")
        def fit(original, self, *args, **kwargs): ...

    What takes the place is an ordinary function, no proxy as wrapt makes them, with the original's module: AutoGraph
    converts the learner's code through it, and leaves it alone itself. The original is its `__wrapped__`.

    owner: a module or a class, or "MODULE" or "MODULE:PLACE IN IT", which takes effect at the moment that the module is
    imported, or at once where it has been.
    """

    def put(function: Callable[..., Any]) -> Callable[..., Any]:
        if isinstance(owner, str):
            module, _colon, place = owner.partition(":")
            found: Any = operator.attrgetter(place) if place else lambda imported: imported
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


@contextlib.contextmanager
def changed(owner: Any, **attributes: Any) -> Iterator[None]:
    """While the block lasts, an object, a module or a class has these attributes; reentrant.

    Afterwards it has those from before; what it had not is None.
    """
    before = {name: getattr(owner, name, None) for name in attributes}
    for name, value in attributes.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


# ---- which Keras


def keras_2_chosen() -> bool:
    """Whether TF_USE_LEGACY_KERAS asks for tf_keras now, in TensorFlow's words."""
    return os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True")


def keras_major(keras: Any) -> int:
    """2 or 3: the major version of the module `keras` or `tf_keras`."""
    return int(keras.__version__.split(".")[0])


def _installed_keras() -> str:
    """The version of the installed `keras`, "0" where there is none; without importing it."""
    try:
        return version("keras")
    except PackageNotFoundError:
        return "0"


def installed_keras_2() -> str | None:
    """The version of the installed `keras` where it is Keras 2, and None elsewhere."""
    found = _installed_keras()
    return found if found.startswith("2.") else None


def why_not_keras_3() -> tuple[str, str] | None:
    """Why the installed `keras` is refused, and what to do; None where it is not, or is Keras 2.

    By the releases' tags and these issues; under dtk, two workers drifted apart with 3.4.1, and the corrections did not
    fit 3.7.0 and 3.9.2.
    """
    found = _installed_keras()
    if not (3,) <= tuple(int(part) for part in found.split(".")[:2]) < _OLDEST:
        return None
    words = N_(
        "Keras {version} is installed, and below 3.12 results under tf.distribute can't be trusted: 3.0 to 3.4 do not "
        "sum gradients over replicas (keras#19891, #20051), up to 3.6 variables lose their aggregation (#20541), up to "
        "3.7 penalties are scaled wrongly (#20609), 3.7 to 3.10 report NaN (#21061); dtk's corrections don't fit them"
    )
    remedy = _('pip install "keras>=3.12", or pass keras=2, or dtk.run(..., force=True) to try')
    return _(words, version=found), remedy


def the_other_keras_2() -> str | None:
    """Beside TensorFlow 2.15, the one of `keras` and `tf_keras` that is not to be imported in advance; else None.

    Both register their classes under the same names in TensorFlow's `tf_export`, where the last one counts. Then
    `load_model` of the first makes models of the second out of a `.keras` file, with initial instead of saved
    weights, and says nothing (keras 2.15.0 and tf_keras 2.15.1; Keras 3 registers nothing there).
    """
    return None if installed_keras_2() is None else "keras" if keras_2_chosen() else "tf_keras"
