"""Which examples a replica saw, as one number a step: enough to tell whether two runs saw the same ones.

Example i, flattened to x_i, has the projection p_i, the dot product of x_i and fixed pseudo-random numbers; a batch's
fingerprint is the sum of cos(p_i) over its examples. It does not depend on their order, and the fingerprints of the
parts of a batch add up to that of the whole. The cosine keeps a sum of examples from passing for another: without it,
(1, 4) and (2, 3) would look alike.
"""

from __future__ import annotations

from typing import Any

__all__ = ["element_shapes", "fingerprint", "first_leaf"]

FEATURES = 4096  # of larger examples as many, evenly spread, so that large images cost no more
SPREAD = 3.0  # the projections of images scaled to [0, 1] then reach over about half a turn of the cosine


def first_leaf(batch: Any) -> Any:
    """The batch's first component, by which its examples are counted."""
    import tensorflow as tf

    return next(leaf for leaf in tf.nest.flatten(batch) if leaf is not None)


def fingerprint(batch: Any) -> Any:
    """A replica's batch, first component of shape `(examples, ...)`, to a float64 scalar; NaN for what has no numbers.

    float64 throughout: what differs between two runs shall be the examples and not the rounding.
    """
    import tensorflow as tf

    x = first_leaf(batch)
    numeric = isinstance(x, tf.Tensor) and (x.dtype.is_floating or x.dtype.is_integer or x.dtype.is_bool)
    if not numeric or x.shape.rank is None:  # strings, ragged and sparse tensors
        return tf.constant(float("nan"), tf.float64)
    rows = tf.cast(tf.reshape(x, (tf.shape(x)[0], _features(x))), tf.float64)
    rows = rows[:, :: -(-rows.shape[1] // FEATURES)] if rows.shape[1] else rows
    count = tf.cast(tf.shape(rows)[1], tf.float64)
    numbers = tf.sin(12.9898 * tf.range(1.0, count + 1.0, dtype=tf.float64)) * SPREAD / tf.sqrt(count)
    return tf.reduce_sum(tf.cos(tf.linalg.matvec(rows, numbers)))


def _features(x: Any) -> Any:
    """Values in one example; a scalar example is one value."""
    import tensorflow as tf

    known = x.shape[1:].num_elements()
    return tf.reduce_prod(tf.shape(x)[1:]) if known is None else known


def element_shapes(batch: Any) -> list[list[int | None]]:
    """The shape of one example's part in each component of a batch; None for a length that may differ."""
    import tensorflow as tf

    leaves = [leaf for leaf in tf.nest.flatten(batch) if leaf is not None]
    shapes = [getattr(leaf, "shape", None) for leaf in leaves]
    return [list(shape[1:]) for shape in shapes if shape is not None and shape.rank is not None]
