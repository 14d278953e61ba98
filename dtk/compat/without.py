"""Switches off, in a worker, what may be why a run and its baseline differ: `Run.again(without=…, rate=…)`.

Touched: Keras 3's and tf_keras's optimizers (clipping; the rate in Keras 3 alone), `BatchNormalization.synchronized`,
the floatx of Keras, `tf.clip_by_*`, and those functions of `tensorflow.python.ops.gen_random_ops`,
`gen_stateless_random_ops` and `gen_stateless_random_ops_v2` that most random numbers of TensorFlow 2.15 to 2.21 come
from (gamma, Poisson and binomial ones are left as they are). Only in workers of runs that are made to decide
something, so nothing of it has to go.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import wrapt

from dtk.compat.versions import keras_major

__all__ = ["apply"]


def apply(suspects: Sequence[str], rate: float) -> None:
    """Switches the suspects off, and multiplies learning rates, before the worker's function begins."""
    for suspect in suspects:
        for library in _SWITCHES[suspect]:
            wrapt.register_post_import_hook(_SWITCHES[suspect][library], library)
    if rate != 1.0:
        wrapt.register_post_import_hook(functools.partial(_scale_rate, rate=rate), "keras")
        wrapt.register_post_import_hook(_refuse_rate, "tf_keras")


def _scale_rate(keras: Any, rate: float) -> None:
    """In the update itself, so that callbacks read and set the rate as the function means it."""
    if keras_major(keras) < 3:
        return _refuse_rate(keras)
    from keras.src.backend.tensorflow.optimizer import TFOptimizer

    original = TFOptimizer._backend_update_step

    @functools.wraps(original)
    def scaled(self: Any, grads: Any, variables: Any, learning_rate: Any) -> Any:
        import tensorflow as tf

        return original(self, grads, variables, tf.convert_to_tensor(learning_rate) * rate)

    TFOptimizer._backend_update_step = scaled


def _refuse_rate(keras: Any) -> None:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("dtk multiplies learning rates with Keras 3's optimizers only")

    keras.optimizers.Optimizer.apply_gradients = refuse
    keras.optimizers.legacy.Optimizer.apply_gradients = refuse


def _keep_gradients(keras: Any) -> None:
    """No optimizer clips: `_clip_gradients` is Keras 3's, and that of tf_keras's optimizers since 2.11."""

    def kept(self: Any, grads: Any) -> Any:
        return grads

    for kind in keras.optimizers.Optimizer.__mro__:
        if "_clip_gradients" in vars(kind):
            kind._clip_gradients = kept


def _keep_clipped(tf: Any) -> None:
    """tf.clip_by_norm and its like return what they are given; tf.clip_by_value does where that is a gradient."""

    def by_norm(t: Any, clip_norm: Any, *args: Any, **kwargs: Any) -> Any:
        return t

    def by_global_norm(t_list: Any, clip_norm: Any, use_norm: Any = None, name: Any = None) -> Any:
        return list(t_list), tf.linalg.global_norm(t_list) if use_norm is None else use_norm

    original = tf.clip_by_value

    def by_value(t: Any, *args: Any, **kwargs: Any) -> Any:
        # Losses clip probabilities before they take a logarithm; what comes from a tape is named after it.
        op = None if tf.executing_eagerly() else getattr(getattr(t, "values", t), "op", None)
        return t if op is not None and "gradient_tape" in op.name else original(t, *args, **kwargs)

    unconverted = tf.autograph.experimental.do_not_convert
    tf.clip_by_norm = unconverted(by_norm)
    tf.clip_by_global_norm = unconverted(by_global_norm)
    tf.clip_by_value = unconverted(by_value)


def _synchronise(keras: Any) -> None:
    original = keras.layers.BatchNormalization.build

    @functools.wraps(original)
    def synchronous(self: Any, input_shape: Any) -> None:
        original(self, input_shape)
        self.synchronized = True

    keras.layers.BatchNormalization.build = synchronous


def _make_dense(keras: Any) -> None:
    """Of Keras 3, whose optimizers take the rows of one number one by one (`IndexedSlices`)."""
    if keras_major(keras) < 3:
        return
    original = keras.optimizers.Optimizer.apply

    @functools.wraps(original)
    def apply(self: Any, grads: Any, *args: Any, **kwargs: Any) -> Any:
        import tensorflow as tf

        dense = [tf.convert_to_tensor(g) if isinstance(g, tf.IndexedSlices) else g for g in grads]
        return original(self, dense, *args, **kwargs)

    keras.optimizers.Optimizer.apply = apply


def _compute_in_float64(keras: Any) -> None:
    keras.backend.set_floatx("float64")


def _draw_nothing(tf: Any) -> None:
    """Inside of graphs (a step, a map of a dataset) each draw is the same for every example, replica and step.

    Eagerly, as initial weights are, numbers are drawn as ever.
    """
    from tensorflow.python.ops import gen_random_ops, gen_stateless_random_ops, gen_stateless_random_ops_v2

    homes = (gen_random_ops, gen_stateless_random_ops, gen_stateless_random_ops_v2)
    for name, same in _DRAWS.items():
        for home in homes:
            original = getattr(home, name, None)
            if original is not None:
                setattr(home, name, _in_graphs(tf, original, same))


def _in_graphs(tf: Any, original: Callable[..., Any], same: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def drawn(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs) if tf.executing_eagerly() else same(tf, *args, **kwargs)

    return drawn


def _pattern(tf: Any, shape: Any, step: float) -> Any:
    """Numbers from 0 to 1 of this shape, float64, the same along the first axis, where examples are."""
    shape = tf.convert_to_tensor(shape)
    rest = tf.cast(tf.concat([tf.ones_like(shape[:1]), shape[1:]], axis=0), tf.int32)
    places = tf.cast(tf.range(tf.reduce_prod(rest)), tf.float64)
    return tf.broadcast_to(tf.reshape(tf.math.floormod((places + 1) * step, 1.0), rest), shape)


def _uniform(tf: Any, shape: Any, *args: Any, dtype: Any = None, **kwargs: Any) -> Any:
    return tf.cast(_pattern(tf, shape, 0.6180339887), dtype or next((a for a in args if _is_type(tf, a)), tf.float32))


def _normal(tf: Any, shape: Any, *args: Any, dtype: Any = None, **kwargs: Any) -> Any:
    values = 1.414 * tf.sin(6.2831853 * _pattern(tf, shape, 0.3819660113))
    return tf.cast(values, dtype or next((a for a in args if _is_type(tf, a)), tf.float32))


def _whole(tf: Any, shape: Any, *args: Any, minval: Any = None, maxval: Any = None, **kwargs: Any) -> Any:
    if minval is None:  # (shape, key, counter, alg, minval, maxval), or without the three in the middle
        minval, maxval = [arg for arg in args if not _is_type(tf, arg)][-2:]
    low, high = tf.convert_to_tensor(minval), tf.convert_to_tensor(maxval)
    span = tf.cast(high - low, tf.float64)
    return low + tf.cast(tf.floor(_pattern(tf, shape, 0.6180339887) * span), low.dtype)


def _shuffled(tf: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
    return tf.convert_to_tensor(value)


def _likeliest(tf: Any, logits: Any, num_samples: Any, *args: Any, output_dtype: Any = None, **kwargs: Any) -> Any:
    kind = output_dtype or next((a for a in args if _is_type(tf, a)), tf.int64)
    return tf.cast(tf.repeat(tf.argmax(logits, axis=-1)[:, None], num_samples, axis=1), kind)


def _is_type(tf: Any, value: Any) -> bool:
    return isinstance(value, tf.DType)


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

# By suspect: what is to be done to which library, once it is imported.
_SWITCHES: dict[str, dict[str, Callable[[Any], None]]] = {
    "clipping": {"keras": _keep_gradients, "tf_keras": _keep_gradients, "tensorflow": _keep_clipped},
    "sparse gradient": {"keras": _make_dense},
    "batch norm": {"keras": _synchronise, "tf_keras": _synchronise},
    "random": {"tensorflow": _draw_nothing},
    "rounding": {"keras": _compute_in_float64, "tf_keras": _compute_in_float64},
}
