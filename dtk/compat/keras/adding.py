"""Keras 3's addition of an empty batch, corrected: the last batch of an epoch may leave a worker no example.

`keras.ops.add` takes a second operand for a bias where all but one of its dimensions are 1, and leaves out those that
are 0 as well: of two (0, 16) the second looks like a bias of 16, and TensorFlow refuses it, "Biases must be 1D". Layers
such as LSTM add so. In a graph the batch's size is not known, so that it comes with `run_eagerly=True` alone.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

__all__ = ["CORRECTIONS"]

_FAULT = "d is None or d > 1"


def _needed() -> bool:
    """Whether the Keras 3 that is imported, with TensorFlow as its backend, has the fault."""
    from keras.src.backend.tensorflow import numpy

    return _FAULT in inspect.getsource(inspect.unwrap(numpy.add))


def _apply() -> None:
    """Corrects `add`; only where that is `needed`."""
    from keras.src.backend.tensorflow import numpy

    original = numpy.add

    @functools.wraps(original)
    def add(x1: Any, x2: Any) -> Any:
        shape = getattr(x2, "shape", None)
        if shape is not None and len(shape) > 1 and 0 in tuple(shape):
            import tensorflow as tf

            return tf.add(x1, x2)
        return original(x1, x2)

    numpy.add = add


CORRECTIONS = {"sums of an empty batch": (_needed, _apply)}
