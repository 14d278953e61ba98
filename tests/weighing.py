"""What a program of the gallery ends with when dtk records nothing: every variable, collected without dtk's help."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
from gallery import all_programs

import dtk

__all__ = ["weighed"]

OFF = {"DTK_MARKS": "0", "DTK_UPDATES": "0"}  # what a worker records beside Recorder and record_step


def weighed(start: Callable[..., dtk.Run], name: str, slip: str | None = None, **more: Any) -> list[list[np.ndarray]]:
    """start: dtk.run or dtk.baseline. By worker: the final values of all variables, in the order of their making."""
    with mock.patch.dict(os.environ, OFF):
        return start(unrecorded, kwargs={"name": name, "slip": slip}, **more).results


def unrecorded(strategy: Any, name: str, slip: str | None) -> list[np.ndarray]:
    """In a worker. TensorFlow hands each variable to a creator scope, whoever makes it: models, optimizers, metrics.

    `dtk.Recorder` and `dtk.record_step` are replaced by what does nothing; programs look them up when they run, so
    they get these.
    """
    import tensorflow as tf

    assert {key: os.environ[key] for key in OFF} == OFF
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
    return [np.asarray(_whole(variable)) for variable in held]


def _whole(variable: Any) -> Any:
    """Of one replica's part, what is read of all of them together: a moving mean of Keras 2 is summed up when read."""
    container = getattr(variable, "_distributed_container", None)
    return (container() if container is not None else None) or variable
