"""What a program of the gallery ends with when dtk records nothing: every variable, collected without dtk's help."""

from __future__ import annotations

from typing import Any

import numpy as np
from gallery import all_programs

import dtk

__all__ = ["unrecorded"]


def unrecorded(strategy: Any, name: str, slip: str | None = None) -> list[np.ndarray]:
    """Runs in a worker. Returns the final values of all variables, in the order in which they were made.

    TensorFlow hands each variable to a creator scope, whoever makes it: models, optimizers, metrics. `dtk.Recorder` and
    `dtk.record_step` are replaced by what does nothing; programs look them up when they run, so they get these.
    """
    import tensorflow as tf

    held: list[Any] = []  # keeps them alive when the program has dropped its model

    def keep(next_creator: Any, **facts: Any) -> Any:
        held.append(next_creator(**facts))
        return held[-1]

    class Nothing(tf.keras.callbacks.Callback):  # type: ignore[misc]
        """In the place of dtk.Recorder."""

    def nothing(*args: Any, **kwargs: Any) -> None:
        """In the place of dtk.record_step."""

    dtk.Recorder, dtk.record_step = Nothing, nothing  # type: ignore[misc, assignment]
    with tf.variable_creator_scope(keep):
        all_programs()[name].train(strategy, slip=slip)
    return [np.asarray(variable) for variable in held]
