"""Which Keras `tensorflow.keras` is in a worker whose parent imported TensorFlow before anybody chose one.

`tensorflow/__init__.py` (2.16 to 2.21) reads TF_USE_LEGACY_KERAS while it is imported, and puts the directory of that
Keras into its own `__path__`, where `from tensorflow.keras import layers` looks; so do `compat.v1` and `compat.v2`.
`tf.keras` is a `KerasLazyLoader`, which reads the variable when it is first used: in the worker, as nothing that a
parent imports uses it. So a worker that is forked from a warm parent, and has another TF_USE_LEGACY_KERAS, would have
two Keras under one name. `follow` makes them one; `tests/test_keras2_imports.py` tells when that is not enough.

A function that travels names by their real home what a cell has imported from `tensorflow.keras`: `loads` gives it the
worker's modules instead, and refuses what is no module. The module `keras` itself is Keras 3 in every run.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import os
import pickle
import sys
from types import ModuleType
from typing import Any

from dtk.compat.libraries import installed_keras_2, keras_2_chosen
from dtk.errors import ClusterConfigError

__all__ = ["follow", "loads"]

_PLACES = ("tensorflow._api.", "tensorflow.compat")  # one file under two names is two modules
_HOMES = {2: "tf_keras.api._v2.keras", 3: "keras._tf_keras.keras"}  # what `tf.keras` is


def follow() -> None:
    """Points an imported TensorFlow to the Keras that TF_USE_LEGACY_KERAS names now.

    Nothing is done beside Keras 2 as TensorFlow 2.15 has it, whose `tf.keras` and `keras` are one package.
    """
    if _directory("tf_keras") is None or installed_keras_2() is not None:
        return
    old, new = (f"{_directory(name)}{os.sep}api{os.sep}" for name in _packages())
    for name in [n for n in sys.modules if n == "tensorflow" or n.startswith(_PLACES)]:
        path = list(vars(sys.modules[name]).get("__path__") or [])
        if any(entry.startswith(old) for entry in path):
            moved = [new + entry.removeprefix(old) if entry.startswith(old) else entry for entry in path]
            sys.modules[name].__path__ = moved


def _packages() -> tuple[str, str]:
    """The package that `tensorflow.keras` is not to be, and the one that it is to be."""
    return ("keras", "tf_keras") if keras_2_chosen() else ("tf_keras", "keras")


def _directory(package: str) -> str | None:
    spec = importlib.util.find_spec(package)
    return os.path.dirname(spec.origin) if spec is not None and spec.origin else None


def loads(data: bytes, moved: bool) -> Any:
    """`cloudpickle.loads`. moved: the kernel's `tf.keras` was not the Keras that is chosen here.

    Then a module that the kernel had from `tensorflow.keras` is this process's of the same name; classes, functions and
    objects of the kernel's Keras are refused, as one program must not get two.
    """
    return _Loader(io.BytesIO(data)).load() if moved else pickle.loads(data)


class _Loader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in (("cloudpickle.cloudpickle", "subimport"), ("importlib", "import_module")):
            return _import
        if module.startswith(_packages()[0] + "."):
            here, there = (2, 3) if keras_2_chosen() else (3, 2)
            raise ClusterConfigError(
                f"the function captures {name}, which was imported where tensorflow.keras is Keras {there}, and this "
                f"run uses Keras {here}; import or make it inside the function"
            )
        return super().find_class(module, name)


def _import(name: str) -> ModuleType:
    """A captured module: of `tf.keras`, this process's; any other is what it is called."""
    there, here = _HOMES[3 if keras_2_chosen() else 2], _HOMES[2 if keras_2_chosen() else 3]
    of_keras = name == there or name.startswith(there + ".")
    return importlib.import_module(here + name.removeprefix(there) if of_keras else name)
