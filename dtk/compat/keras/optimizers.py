"""Two faults of Keras 3's optimizers where several replicas train: their variables, and float16's loss scale.

Variables: an optimizer makes its momenta at the first `apply_gradients`, which in a loop of one's own is inside of a
`tf.function` and of each replica. There TensorFlow can't take their initial values out of the graph, and the step
fails (https://github.com/keras-team/keras/issues/23085). Keras fixes it as here, by `tf.init_scope`, after 3.15.1.

Loss scale: where a gradient is infinite, `LossScaleOptimizer` leaves the step out. It takes the gradients for the sum
over all replicas, but they are one replica's own: the sum comes later (`_tf_apply`, since keras-team/keras#18691).
Then the first replica decides for all of a process, and each worker for itself: one waits for ever in the all-reduce
of a step that the other leaves out. Here all decide together.
"""

from __future__ import annotations

import functools
import linecache
from collections.abc import Callable
from types import ModuleType
from typing import Any

__all__ = ["CORRECTIONS"]


def _lacks_init_scope() -> bool:
    from keras.src.backend.tensorflow import optimizer

    return "init_scope" not in _source(optimizer)


def _takes_the_first_replicas_word() -> bool:
    from keras.src.optimizers import loss_scale_optimizer

    return "experimental_local_results(" in _source(loss_scale_optimizer)


def _source(module: ModuleType) -> str:
    return "".join(linecache.getlines(str(module.__file__)))


def _add_variables_outside() -> None:
    from keras.src.backend.tensorflow import optimizer

    kind = optimizer.TFOptimizer
    original = kind.add_variable

    @functools.wraps(original)
    def add_variable(self: Any, *args: Any, **kwargs: Any) -> Any:
        import tensorflow as tf

        with tf.init_scope():
            return original(self, *args, **kwargs)

    kind.add_variable = add_variable


def _decide_together() -> None:
    from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

    original = LossScaleOptimizer.check_finite

    @functools.wraps(original)
    def check_finite(self: Any, grads: Any) -> Any:
        import tensorflow as tf

        finite, replica = original(self, grads), tf.distribute.get_replica_context()
        if replica is None or replica.num_replicas_in_sync == 1:
            return finite
        infinite = replica.all_reduce("SUM", tf.cast(tf.logical_not(finite), tf.float32))
        return tf.equal(infinite, 0.0)

    LossScaleOptimizer.check_finite = check_finite


# By name: whether the Keras 3 that is imported, with TensorFlow as its backend, has the fault; and the correction.
CORRECTIONS: dict[str, tuple[Callable[[], bool], Callable[[], None]]] = {
    "optimizer variables outside of the graph": (_lacks_init_scope, _add_variables_outside),
    "one decision about a loss scale": (_takes_the_first_replicas_word, _decide_together),
}
