"""Switches off, in a worker, what each replica rightly does by itself: `Run.again(without=…)`.

Batch norm of Keras 3 and tf_keras, and the functions that most random numbers of TensorFlow 2.15 to 2.21 come from
(gamma, Poisson and binomial ones are left as they are). Only in workers of runs that are made to decide something.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import wrapt

from dtk.compat import states, updates
from dtk.compat.libraries import changed, keras_major, replaces, tf

_initial = threading.local()  # now: whether a variable's initial value is being computed
_rows = 1  # after so many examples numbers repeat, where each replica has a multiple of it


def apply(switches: Sequence[str]) -> None:
    """Switches these off before the worker's function begins: "batch norm", "random", and beside it "by fours".

    By fours every fourth example gets the same numbers, where a replica has a multiple of four; otherwise all do.
    """
    if "batch norm" in switches:
        for library in ("keras", "tf_keras"):
            wrapt.register_post_import_hook(_synchronize, library)
    global _rows
    if "random" in switches:
        _rows = 4 if "by fours" in switches else 1
        wrapt.register_post_import_hook(_draw_nothing, "tensorflow")
        updates.draw_nothing()


def _synchronize(keras: Any) -> None:
    @replaces(keras.layers.BatchNormalization, "build")
    def synchronous(original: Any, self: Any, input_shape: Any) -> None:
        original(self, input_shape)
        self.synchronized = True

    if keras_major(keras) < 3:
        return

    # Keras 3.15 takes moments of what a mask leaves on each replica alone, and others as an inexact difference.
    @replaces(keras.layers.BatchNormalization, "_moments")
    def moments(original: Any, self: Any, inputs: Any, mask: Any) -> Any:
        context = tf.distribute.get_replica_context()
        if context is None:
            return original(self, inputs, mask)
        wide = tf.cast(inputs, tf.float32) if inputs.dtype.size < 4 else inputs
        kept = 1.0 if mask is None else tf.cast(tf.cast(mask, tf.bool)[..., None], wide.dtype)

        def summed(values: Any) -> Any:
            return context.all_reduce("SUM", tf.reduce_sum(kept * values, self._reduction_axes, keepdims=True))

        count = summed(tf.ones_like(wide)) + (0.0 if mask is None else 1e-7)
        mean = summed(wide) / count
        both = mean, summed(tf.square(wide - mean)) / count
        return tuple(tf.saturate_cast(tf.squeeze(each, self._reduction_axes), inputs.dtype) for each in both)


def _draw_nothing(_tensorflow: Any) -> None:
    """In graphs (a step, a map of a dataset) and eager steps each draw is the same for every example, replica and step.

    Outside of steps, as initial weights are, numbers are drawn as ever.
    """
    from tensorflow.python.ops import gen_random_ops, gen_stateless_random_ops, gen_stateless_random_ops_v2

    homes = (gen_random_ops, gen_stateless_random_ops, gen_stateless_random_ops_v2)
    for name, same in _DRAWS.items():
        for home in homes:
            if hasattr(home, name):
                _draw_in_graphs(home, name, same)

    # A variable that is made in a step's graph: on another number of replicas it may be made before.
    @replaces(
        "tensorflow.python.eager.polymorphic_function.polymorphic_function:UnliftedInitializerVariable", "__init__"
    )
    def init(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        with changed(_initial, now=True):
            original(self, *args, **kwargs)


def _draw_in_graphs(home: Any, name: str, same: Callable[..., Any]) -> None:
    from tensorflow.python.eager import record  # whether a GradientTape is open, as in an eager step

    @replaces(home, name)
    def drawn(original: Any, *args: Any, **kwargs: Any) -> Any:
        eagerly = tf.executing_eagerly() and not states.in_unit() and not record.could_possibly_record()
        return (original if eagerly or getattr(_initial, "now", False) else same)(*args, **kwargs)


def _pattern(shape: Any, step: float) -> Any:
    """Numbers from 0 to 1 of this shape, float64, the same along the first axis, where examples are, or by fours."""
    shape = tf.convert_to_tensor(shape)
    whole = tf.cast(shape, tf.int32)
    some = tf.concat([tf.where(whole[:1] % _rows == 0, _rows, 1), whole[1:]], axis=0)
    places = tf.cast(tf.range(tf.reduce_prod(some)), tf.float64)
    values = tf.reshape(tf.math.floormod((places + 1) * step, 1.0), some)
    return tf.broadcast_to(tf.tile(values, whole // some), shape)  # which knows the parts of its shape that are known


def _uniform(shape: Any, *args: Any, dtype: Any = None, **kwargs: Any) -> Any:
    values = _pattern(shape, 0.6180339887)
    return tf.cast(values, dtype or next((a for a in args if isinstance(a, tf.DType)), tf.float32))


def _normal(shape: Any, *args: Any, dtype: Any = None, **kwargs: Any) -> Any:
    values = 1.414 * tf.sin(6.2831853 * _pattern(shape, 0.3819660113))
    return tf.cast(values, dtype or next((a for a in args if isinstance(a, tf.DType)), tf.float32))


def _whole(shape: Any, *args: Any, minval: Any = None, maxval: Any = None, **kwargs: Any) -> Any:
    if minval is None:  # (shape, key, counter, alg, minval, maxval), or without the three in the middle
        minval, maxval = [arg for arg in args if not isinstance(arg, tf.DType)][-2:]
    low, high = tf.convert_to_tensor(minval), tf.convert_to_tensor(maxval)
    span = tf.cast(high - low, tf.float64)
    return low + tf.cast(tf.floor(_pattern(shape, 0.6180339887) * span), low.dtype)


def _shuffled(value: Any, *args: Any, **kwargs: Any) -> Any:
    return tf.convert_to_tensor(value)


def _likeliest(logits: Any, num_samples: Any, *args: Any, output_dtype: Any = None, **kwargs: Any) -> Any:
    kind = output_dtype or next((a for a in args if isinstance(a, tf.DType)), tf.int64)
    return tf.cast(tf.repeat(tf.argmax(logits, axis=-1)[:, None], num_samples, axis=1), kind)


_DRAWS: dict[str, Callable[..., Any]] = {
    "random_uniform": _uniform,
    "random_standard_normal": _normal,
    "truncated_normal": _normal,
    "random_uniform_int": _whole,
    "random_shuffle": _shuffled,
    "multinomial": _likeliest,
    "stateless_multinomial": _likeliest,
    "stateless_random_uniform_v2": _uniform,
    "stateless_random_normal_v2": _normal,
    "stateless_truncated_normal_v2": _normal,
    "stateless_random_uniform_int_v2": _whole,
    "stateless_shuffle": _shuffled,
}
