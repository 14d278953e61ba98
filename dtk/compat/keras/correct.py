"""`dtk.correct_keras`: the corrections of Keras for any program; workers of dtk get them by the same hooks."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import sys

import wrapt

from dtk.compat.keras import keras3
from dtk.compat.versions import installed_keras_2, keras_2_chosen
from dtk.errors import ClusterConfigError

__all__ = ["correct_keras", "when_imported"]


def correct_keras() -> list[str]:
    """Corrects Keras 3 in this process, so that `fit` works under MultiWorkerMirroredStrategy; for any program.

        dtk.correct_keras()  # in each worker, after the imports and before the first model

    It is for programs that run without `dtk.run`: in the workers that dtk starts, the corrections are there already.
    docs/guide/without_dtk.md has a whole program, docs/explanation/compat.md what is corrected and until when.

    It imports TensorFlow, which runs no operation yet. Keras 2 (tf_keras, with TF_USE_LEGACY_KERAS=1) and a Keras 3
    without these faults are left as they are. A second call changes nothing.

    Returns:
        The names of the corrections that are in force, such as "metrics reduced without axis"; [] where none is needed.

    Raises:
        ClusterConfigError: TensorFlow or Keras is not installed, Keras has another backend, or a model was made before.
    """
    for package in ("tensorflow", "keras"):
        if importlib.util.find_spec(package) is None:
            raise _refusal(f"{package} is not installed in this environment", f"install it: pip install {package}")
    importlib.import_module("tensorflow")
    if not keras_2_chosen():
        importlib.import_module("keras")
        _check()
    when_imported()
    return keras3.apply()


def when_imported() -> None:
    """Has each Keras corrected at the moment it is imported, or at once where it has been."""
    for name in ("keras", "tf_keras"):
        wrapt.register_post_import_hook(lambda keras: keras3.apply(), name)


def _check() -> None:
    """Raises where the corrections would have no effect, or one on a part of the program only."""
    keras = sys.modules["keras"]
    if installed_keras_2() is not None:
        return
    backend = keras.backend.backend()
    if backend != "tensorflow":
        remedy = "set KERAS_BACKEND=tensorflow before Keras is imported"
        raise _refusal(f"Keras computes with {backend} here, and tf.distribute needs TensorFlow", remedy)
    made = _a_model() if keras3.missing() else None
    if made:
        remedy = "call it before the first model, best right after the imports"
        raise _refusal(
            f"a model was made before ({made}), and what Keras has prepared for it stays uncorrected", remedy
        )


def _a_model() -> str | None:
    """A model that is there, in words; None where there is none."""
    kind = sys.modules["keras"].Model
    found = next((each for each in gc.get_objects() if issubclass(type(each), kind)), None)
    return None if found is None else f"{type(found).__name__} {getattr(found, 'name', '')!r}"


def _refusal(what: str, remedy: str) -> ClusterConfigError:
    return ClusterConfigError(f"dtk.correct_keras(): {what}", remedy=remedy)
