"""Which examples a replica saw, as one number per step: enough to tell whether two runs saw the same ones.

Example i, all its components flattened to x_i, labels and sample weights among them, has the projection p_i, the dot
product of x_i and fixed pseudo-random numbers; a batch's fingerprint is the sum of cos(p_i) over its examples. It does
not depend on their order, and the fingerprints of the parts of a batch add up to that of the whole. The cosine keeps a
sum of examples from passing for another: without it, (1, 4) and (2, 3) would look alike, and so would two examples that
exchanged their labels.
"""

from __future__ import annotations

from typing import Any

from dtk.compat.libraries import tf

FEATURES = 4096  # of larger components as many, evenly spread, so that large images cost no more
SPREAD = 3.0  # the projections of images scaled to [0, 1] then reach over about half a turn of the cosine
BUCKETS = 1 << 20  # strings become numbers by a hash


def first_leaf(batch: Any) -> Any:
    """The batch's first component, by which its examples are counted."""
    return next(leaf for leaf in tf.nest.flatten(batch) if leaf is not None)


def row(batch: Any, losses: Any) -> Any:
    """What is recorded of a replica's step, float64: the number of examples, their fingerprint, and its losses."""
    examples = tf.shape(first_leaf(batch))[0]
    return tf.concat([[tf.cast(examples, tf.float64), fingerprint(batch)], losses], 0)


def fingerprint(batch: Any) -> Any:
    """A replica's batch, components of shape `(examples, ...)`, to a float64 scalar; NaN where none has numbers.

    Numbers, booleans and strings count, also in ragged and sparse tensors. float64 throughout: what differs between two
    runs must be the examples and not the rounding.
    """
    cosines = of_each(batch)
    return tf.constant(float("nan"), tf.float64) if cosines is None else tf.reduce_sum(cosines)


def of_each(batch: Any) -> Any:
    """Each example's part of the fingerprint, `(examples,)`; None where none has numbers."""
    leaves = [leaf for leaf in tf.nest.flatten(batch) if leaf is not None]
    found = [_projections(leaf, 12.9898 + 7.233 * k) for k, leaf in enumerate(leaves)]
    known = [each for each in found if each is not None]
    return tf.cos(tf.add_n([known[0], *(_as_long(each, known[0]) for each in known[1:])])) if known else None


def _as_long(projections: Any, first: Any) -> Any:
    """For as many examples as the first component has: one that is no part of each example must not stop a training."""
    count = tf.shape(first)[0]
    cut = projections[:count]
    return tf.pad(cut, [[0, count - tf.shape(cut)[0]]])


def _projections(leaf: Any, frequency: float) -> Any:
    """`(examples,)`, or None for a component that has no examples, or none that are numbers."""
    if isinstance(leaf, tf.RaggedTensor):
        numbers = _numbers(leaf.flat_values)
        leaf = None if numbers is None else leaf.with_flat_values(numbers).to_sparse()
    if isinstance(leaf, tf.SparseTensor):
        return _sparse(leaf, frequency)
    if not isinstance(leaf, tf.Tensor) or leaf.shape.rank in (None, 0):
        return None
    numbers = _numbers(leaf)
    if numbers is None:
        return None
    width = leaf.shape[1:].num_elements()
    rows = tf.reshape(numbers, (tf.shape(leaf)[0], tf.reduce_prod(tf.shape(leaf)[1:]) if width is None else width))
    kept = 1  # a padded component is as wide as the longest example beside it: no number may depend on its width
    if width:
        rows = rows[:, :: -(-width // FEATURES)]
        kept = rows.shape[1]
    places = tf.range(1.0, tf.cast(tf.shape(rows)[1], tf.float64) + 1.0, dtype=tf.float64)
    return tf.linalg.matvec(rows, tf.sin(frequency * places) * SPREAD / kept**0.5)


def _sparse(leaf: Any, frequency: float) -> Any:
    numbers = _numbers(leaf.values)
    if numbers is None:
        return None
    axes = tf.range(1, tf.shape(leaf.indices, tf.int64)[1])  # the rank need not be known
    place = tf.cast(tf.reduce_sum(leaf.indices[:, 1:] * axes, 1), tf.float64)
    parts = numbers * tf.sin(frequency * (place + 1.0)) * SPREAD
    return tf.math.unsorted_segment_sum(parts, leaf.indices[:, 0], leaf.dense_shape[0])


def _numbers(values: Any) -> Any:
    """The values as float64; None for what can't be one."""
    if values.dtype == tf.string:
        return tf.cast(tf.strings.to_hash_bucket_fast(values, BUCKETS), tf.float64) / BUCKETS
    if values.dtype.is_floating or values.dtype.is_integer or values.dtype.is_bool:
        return tf.cast(values, tf.float64)
    return None


def element_shapes(batch: Any) -> list[list[int | None]]:
    """The shape of one example's part in each component of a batch; None for a length that may differ."""
    shapes = [getattr(leaf, "shape", None) for leaf in tf.nest.flatten(batch)]
    return [list(shape[1:]) for shape in shapes if shape is not None and shape.rank is not None]
