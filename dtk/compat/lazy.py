"""TensorFlow by the name `tf`, for modules that are imported where TensorFlow must not be."""

from __future__ import annotations

from typing import Any

__all__ = ["tf"]


class _TensorFlow:
    """Imports TensorFlow at the first use; its attributes are asked for each time, because `tf.keras` may change.

    The kernel imports modules of workers, and must not load TensorFlow for it; so does the process that workers are
    forked from, before a worker has chosen its Keras.
    """

    def __getattr__(self, name: str) -> Any:
        import tensorflow

        return getattr(tensorflow, name)


tf: Any = _TensorFlow()
