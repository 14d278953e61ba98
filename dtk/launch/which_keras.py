"""Which Keras the workers of a run use, and which one is refused before any process starts."""

from __future__ import annotations

from typing import Any

from dtk import extras
from dtk.compat.estimators import revived as estimator
from dtk.compat.keras import keras2
from dtk.compat.versions import installed_keras_2, why_not_keras_3
from dtk.errors import ClusterConfigError
from dtk.language import N_, _
from dtk.launch.program import Program
from dtk.worker import ship

__all__ = ["checked", "uses_estimator"]


def checked(keras: Any, fn: Any, force: bool = False) -> int | None:
    """Which Keras the workers use: tf_keras where `fn` uses dtk.estimator and TensorFlow's own Keras is Keras 3.

    force: with a Keras 3 that is refused, too, or the workers have a Keras of their own.
    """
    if keras not in (None, 2, 3):
        words = N_("keras={keras!r}: it takes 2 (tf_keras), 3, or None for TensorFlow's own choice")
        raise ClusterConfigError(_(words, keras=keras))
    older = installed_keras_2()
    if keras == 3 and older is not None:
        words = N_(
            "keras=3: the keras installed here is {older}, which belongs to TensorFlow 2.15 and before; leave keras= "
            "out, or install TensorFlow 2.16 or later"
        )
        raise ClusterConfigError(_(words, older=older))
    if older is not None:
        return None  # TensorFlow's own choice is Keras 2
    if uses_estimator(fn) and not estimator.is_native():
        if keras == 3:
            words = _("keras=3 with dtk.estimator: a model_fn can't hold Keras 3 layers; leave keras= out")
            raise ClusterConfigError(words)
        extras.need("estimator", "dtk.estimator")
        return 2
    if keras == 2:
        extras.need("keras2", "keras=2")
    elif not force and (keras == 3 or not keras2.chosen()) and (refused := why_not_keras_3()):
        raise ClusterConfigError(refused[0], remedy=refused[1])
    return keras


def uses_estimator(fn: Any) -> bool:
    """Whether the function or program uses dtk.estimator."""
    return fn.uses("estimator") if isinstance(fn, Program) else ship.uses_estimator(fn)
