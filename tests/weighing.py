"""What a program of the gallery ends with when dtk records nothing: every variable, collected without dtk's help."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from gallery import all_programs

import dtk

OFF = {"DTK_MARKS": "0", "DTK_UPDATES": "0"}  # what a worker records beside Recorder and record_step


def weighed(start: Callable[..., dtk.Run], name: str, slip: str | None = None, **more: Any) -> list[list[np.ndarray]]:
    """start: dtk.run or dtk.baseline. By worker: the final values of all variables, in the order of their making."""
    with mock.patch.dict(os.environ, OFF):
        return start(unrecorded, kwargs={"name": name, "slip": slip}, **more).results


def unrecorded(strategy: Any, name: str, slip: str | None) -> list[np.ndarray]:
    """In a worker. TensorFlow hands each variable to a creator scope, whoever makes it: models, optimizers, metrics.

    `dtk.Recorder` and `dtk.record_step` are replaced by what does nothing; programs look them up when they run.
    """
    import tensorflow as tf

    assert {key: os.environ[key] for key in OFF} == OFF
    held: list[Any] = []  # keeps them alive when the program has dropped its model

    def keep(next_creator: Any, **facts: Any) -> Any:
        held.append(next_creator(**facts))
        return held[-1]

    def nothing(*args: Any, **kwargs: Any) -> None:
        """In the place of dtk.record_step."""

    # Asked for Keras only by a program that wants a callback: which one it is, is for the program to choose.
    dtk.Recorder, dtk.record_step = (lambda: tf.keras.callbacks.Callback()), nothing  # type: ignore[misc, assignment]
    with tf.variable_creator_scope(keep):
        all_programs()[name].train(strategy, slip=slip)
    return [np.asarray(variable) for variable in held if hasattr(variable, "numpy")] + _saved(tf)


def _saved(tf: Any) -> list[np.ndarray]:
    """What an Estimator's graph held when it ended lies in its last checkpoint."""
    places = {path.parent for path in Path(dtk.run_dir()).rglob("checkpoint")}
    last = [tf.train.latest_checkpoint(str(place)) for place in sorted(places)]
    return [tf.train.load_variable(one, name) for one in last if one for name, _ in tf.train.list_variables(one)]
