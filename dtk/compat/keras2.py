"""Which Keras `tensorflow.keras` is in a worker whose parent imported TensorFlow before anybody chose one.

`tensorflow/__init__.py` (2.16 to 2.21) reads TF_USE_LEGACY_KERAS while it is imported, and puts the directory of that
Keras into its own `__path__`, where `from tensorflow.keras import layers` looks; so do `compat.v1` and `compat.v2`.
`tf.keras` is a `KerasLazyLoader`, which reads the variable when it is first used: in the worker, as nothing that a
parent imports uses it. So a worker that is forked from a warm parent, and has another TF_USE_LEGACY_KERAS, would have
two Keras under one name. `follow` makes them one; `tests/test_keras2_imports.py` tells when that is not enough.

A function that travels names by their real home what a cell has imported from `tensorflow.keras`: `loads` gives it the
worker's Keras instead. What is imported from `keras` itself is Keras 3 in every run, as in plain Python.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import operator
import os
import pickle
import sys
import types
from types import ModuleType
from typing import Any

from dtk.compat.libraries import installed_keras_2, keras_2_chosen
from dtk.errors import ClusterConfigError

_PLACES = ("tensorflow._api.", "tensorflow.compat")  # one file under two names is two modules
_PACKAGES = {2: "tf_keras", 3: "keras"}
_HOMES = {2: "tf_keras.api._v2.keras", 3: "keras._tf_keras.keras"}  # what `tf.keras` is


def follow() -> None:
    """Points an imported TensorFlow to the Keras that TF_USE_LEGACY_KERAS names now.

    Nothing is done beside Keras 2 as TensorFlow 2.15 has it, whose `tf.keras` and `keras` are one package.
    """
    if _directory("tf_keras") is None or installed_keras_2() is not None:
        return
    new, old = (f"{_directory(_PACKAGES[major])}{os.sep}api{os.sep}" for major in _chosen())
    for name in [n for n in sys.modules if n == "tensorflow" or n.startswith(_PLACES)]:
        path = list(vars(sys.modules[name]).get("__path__") or [])
        moved = [new + entry.removeprefix(old) if entry.startswith(old) else entry for entry in path]
        if moved != path:
            sys.modules[name].__path__ = moved


def _chosen() -> tuple[int, int]:
    """The major version of the Keras that `tensorflow.keras` is to be, and that of the other."""
    return (2, 3) if keras_2_chosen() else (3, 2)


def _directory(package: str) -> str | None:
    spec = importlib.util.find_spec(package)
    return os.path.dirname(spec.origin) if spec is not None and spec.origin else None


def loads(data: bytes, moved: bool) -> Any:
    """`cloudpickle.loads`. moved: the kernel's `tf.keras` was not the Keras that is chosen here.

    Then what the kernel had from `tensorflow.keras`, modules as well as classes and functions, is this process's of the
    same name. Where something else holds the module `keras`, or `tf_keras`, by its own name, classes stay what they
    are: they may come from there, and one program must not get two Keras.
    """
    if not moved:
        return pickle.loads(data)
    loader = _Loader(io.BytesIO(data), classes=True)
    with loader.patches:
        value = loader.load()
    if loader.translated and loader.by_its_name:
        return _Loader(io.BytesIO(data), classes=False).load()
    return value


class _Loader(pickle.Unpickler):
    """Takes modules of this process's Keras in place of the other's. classes: also classes and functions."""

    def __init__(self, file: Any, classes: bool):
        super().__init__(file)
        self.classes, self.by_its_name = classes, False
        self.patches = contextlib.ExitStack()
        self.translated: set[Any] = set()  # what stands in for another
        self.own_home, self.other_home = (_HOMES[major] for major in _chosen())
        self.other = _PACKAGES[_chosen()[1]]

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in (("cloudpickle.cloudpickle", "subimport"), ("importlib", "import_module")):
            return self._import
        if self.classes and (module, name) == ("cloudpickle.cloudpickle", "_builtin_type"):
            # As cloudpickle's own, but for methods: Keras 3's objects travel as `_unpickle_model` of their class.
            return lambda kind: _bound if kind == "MethodType" else getattr(types, kind)
        found = super().find_class(module, name)
        return self._own(found) if self.classes and module.startswith(self.other + ".") else found

    def _import(self, name: str) -> ModuleType:
        """A captured module: of `tf.keras`, this process's; any other is what it is called."""
        if f"{name}.".startswith(f"{self.other_home}."):
            return importlib.import_module(self.own_home + name.removeprefix(self.other_home))
        self.by_its_name |= f"{name}.".startswith(f"{self.other}.")
        return importlib.import_module(name)

    def _own(self, found: Any) -> Any:
        """The class or function of the same public name in this process's Keras; the same where there is none.

        While `patches` last, an object of such a class is not taken: what it holds is the other Keras's.
        """
        from unittest import mock  # which takes long to import

        paths = getattr(found, "__dict__", {}).get("_api_export_path" if keras_2_chosen() else "_keras_api_names") or ()
        for path in (paths,) if isinstance(paths, str) else paths:
            try:
                own: Any = operator.attrgetter(path.partition(".")[2])(importlib.import_module(self.own_home))
            except AttributeError:
                continue
            if isinstance(own, type) and own not in self.translated:
                self.patches.enter_context(mock.patch.object(own, "__setstate__", _refuse, create=True))
            self.translated.add(own)
            return own
        return found


def _bound(function: Any, owner: Any) -> Any:
    if function.__name__ == "_unpickle_model":
        _refuse(owner)
    return types.MethodType(function, owner)


def _refuse(value: Any, state: Any = None) -> None:
    label = (value if isinstance(value, type) else type(value)).__name__
    here, there = _chosen()
    raise ClusterConfigError(
        f"the function captures a {label}, an object of Keras that was made where tensorflow.keras is Keras {there}, "
        f"and this run uses Keras {here}; make it inside the function"
    )
