"""Keras 3's `fit`, `evaluate` and `predict` under MultiWorkerMirroredStrategy, corrected where they need it.

Everything here touches the TensorFlow trainer of Keras (`keras.src.backend.tensorflow.trainer`), and `optimizers`
its optimizers, in workers and where `dtk.correct_keras()` is called. A correction is applied when its probe finds the
faulty code in the installed Keras; what is touched, since when, and which test says that it can go:
docs/explanation/compat.md. Keras 2 (tf_keras, and `keras` beside TensorFlow 2.15) needs none of it.
"""

from __future__ import annotations

import functools
import inspect
import linecache
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from dtk.compat.keras import adding, callbacks, optimizers, refused
from dtk.compat.per_replica import first_spec
from dtk.compat.versions import keras_major, leave_tf_keras_unconverted
from dtk.errors import ClusterConfigError

__all__ = ["apply", "missing", "multi_worker"]

_applied: list[str] = []
_OTHERS = {**optimizers.CORRECTIONS, **adding.CORRECTIONS}  # beside the trainer


def apply() -> list[str]:
    """Corrects the Keras that this process has imported; returns the names of all that is in force.

    Call it after `keras` or `tf_keras` has been imported; calling it again adds what was not there before.
    """
    _applied.extend(name for name in callbacks.apply() if name not in _applied)
    if sys.modules.get("tf_keras") is not None and leave_tf_keras_unconverted():
        _applied.append("tf_keras left unconverted")
    for name in missing():
        _correct(name)
        _applied.append(name)
    return list(_applied)


def missing() -> list[str]:
    """What `apply` would correct in Keras 3 now: its faults, and with them what it is refused.

    Nothing for Keras 2, another backend than TensorFlow, and a Keras 3 that has none of the faults any more.
    """
    keras = sys.modules.get("keras")
    if keras is None or keras_major(keras) < 3 or keras.backend.backend() != "tensorflow":
        return []
    from keras.src.backend.tensorflow import trainer

    faults = [name for name, (needed, _) in _CORRECTIONS.items() if name not in _applied and needed(trainer)]
    faults += [name for name, (needed, _) in _OTHERS.items() if name not in _applied and needed()]
    return [*faults, refused.NAME] if faults and refused.NAME not in _applied else faults


def _correct(name: str) -> None:
    if name in _OTHERS:
        _OTHERS[name][1]()
    elif name == refused.NAME:
        refused.apply(sys.modules["keras"])
    else:
        _CORRECTIONS[name][1](sys.modules["keras.src.backend.tensorflow.trainer"])


def multi_worker(strategy: Any) -> bool:
    """Whether the strategy is a MultiWorkerMirroredStrategy that found a cluster in TF_CONFIG."""
    import tensorflow as tf

    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) and bool(
        strategy.extended._in_multi_worker_mode()
    )


def _mirrored_kinds() -> tuple[type, ...]:
    import tensorflow as tf

    return tf.distribute.MirroredStrategy, tf.distribute.MultiWorkerMirroredStrategy


def _mentions(find: Callable[[ModuleType], Any], text: str) -> Callable[[ModuleType], bool]:
    """A probe: whether the source of what `find` picks from the trainer module still holds `text`."""

    def probe(trainer: ModuleType) -> bool:
        try:
            code = inspect.unwrap(find(trainer)).__code__
        except AttributeError:
            return False  # that version of Keras has no such function, so it can't have its fault
        # Not inspect.getsource: it looks at every module there is, which costs each worker 30 ms and tens of MB.
        lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :]
        return text in "".join(inspect.getblock(lines))

    return probe


def _steps_fit(trainer: ModuleType) -> bool:
    """A probe: whether Keras loops over steps in a graph, and has the method that `_single_step` takes (since 3.12)."""
    loops = _mentions(lambda t: t.TensorFlowTrainer._make_function, "tf.while_loop(")
    return loops(trainer) and hasattr(trainer.TensorFlowTrainer, "_autoconvert_optionals")


def _build_from_the_spec(trainer: ModuleType) -> None:
    """To build a model, the shape of one local replica's batch is enough; Keras takes a whole batch for it.

    Over several workers it reduces that batch eagerly, which raises. Under any strategy it makes an iterator for
    it and throws that away, which takes 0.1 s and turns a `shuffle` on by one epoch, so that the first epoch has
    another order than on one device, where Keras makes none.
    """
    from keras import tree

    original = trainer.TensorFlowTrainer._maybe_symbolic_build

    @functools.wraps(original)
    def build(self: Any, iterator: Any = None, data_batch: Any = None) -> Any:
        strategy = self._distribute_strategy
        if iterator is not None and strategy is not None:
            specs = iterator._distributed_dataset.element_spec
            data_batch = tree.map_structure(first_spec, specs)
            iterator = None
        return original(self, iterator=iterator, data_batch=data_batch)

    trainer.TensorFlowTrainer._maybe_symbolic_build = build


def _reduce_whole_values(trainer: Any) -> None:
    """A step's metrics are one value per replica, mostly scalars: they have no axis 0 to reduce over."""
    from keras import tree

    original = trainer.reduce_per_replica

    @functools.wraps(original)
    def reduce_per_replica(values: Any, strategy: Any, reduction: str) -> Any:
        if reduction in ("auto", "mean") and multi_worker(strategy):
            return tree.map_structure(lambda v: strategy.reduce("MEAN", v, axis=None), values)
        return original(values, strategy, reduction)

    trainer.reduce_per_replica = reduce_per_replica


def _step_by_step(trainer: ModuleType) -> None:
    """Runs `steps_per_execution` steps one after another, each after its data, instead of in a graph's `while_loop`.

    Keras runs a step inside `cond` inside `while`, where the merging of replicas fails, with MirroredStrategy too.
    Callbacks see the same batches as with Keras's own loop. On one device Keras's loop stays, but there, too, a
    step may begin before it has its data: then the end of data whose size is unknown counts as a step of the
    optimizer, once an epoch.
    """
    original = trainer.TensorFlowTrainer._make_function

    @functools.wraps(original)
    def make_function(self: Any, step_function: Callable[..., Any]) -> Callable[..., Any]:
        step = _after_its_data(step_function)
        keras_own = original(self, step)
        if not isinstance(self.distribute_strategy, _mirrored_kinds()):
            return keras_own
        guarded = step_function == self.train_step and _has_batch_statistics(self)
        return _several_steps(self, _single_step(trainer, self, step, guarded), keras_own)

    trainer.TensorFlowTrainer._make_function = make_function


def _after_its_data(step_function: Callable[..., Any]) -> Callable[..., Any]:
    """The step, of which nothing happens (such as counting it) unless there is data for it."""
    import tensorflow as tf

    @functools.wraps(step_function)
    def step(data: Any) -> Any:
        tensors = [leaf for leaf in tf.nest.flatten(data, expand_composites=True) if isinstance(leaf, tf.Tensor)]
        with tf.control_dependencies(tensors):
            try:
                return step_function(data)
            except (TypeError, ValueError) as error:
                said = refused.unknown_batch(error, data)
                if said and isinstance(tf.distribute.get_strategy(), _mirrored_kinds()):
                    raise ClusterConfigError(said) from error
                raise

    return step


def _single_step(trainer: ModuleType, model: Any, step_function: Callable[..., Any], guarded: bool) -> Any:
    """One step on what the iterator gives next, as Keras's own `one_step_on_data` has it."""
    import tensorflow as tf

    strategy = model.distribute_strategy

    @tf.autograph.experimental.do_not_convert
    def on_data(data: Any) -> Any:
        outputs = strategy.run(step_function, args=(data,))
        return trainer.reduce_per_replica(outputs, strategy, reduction="auto")

    if not model.run_eagerly:
        on_data = tf.function(on_data, reduce_retracing=True, jit_compile=model.jit_compile)
    on_data = model._autoconvert_optionals(on_data)

    @tf.autograph.experimental.do_not_convert
    def on_iterator(iterator: Any) -> Any:
        data = iterator.get_next()
        if guarded:
            _assert_examples(strategy, data)
        return on_data(data)

    return on_iterator if model.run_eagerly else tf.function(on_iterator, reduce_retracing=True)


def _several_steps(model: Any, single: Callable[..., Any], keras_own: Callable[..., Any]) -> Callable[..., Any]:
    import tensorflow as tf

    def function(iterator: Any) -> Any:
        if not isinstance(iterator, tf.distribute.DistributedIterator):
            return keras_own(iterator)  # train_on_batch and test_on_batch
        outputs = None
        for _ in range(model.steps_per_execution):
            try:
                outputs = single(iterator)
            except tf.errors.OutOfRangeError:
                if outputs is None:
                    raise  # Keras takes it for the end of the epoch
                break
            except tf.errors.InvalidArgumentError as error:
                if _NO_EXAMPLES in str(error):
                    raise ClusterConfigError(_NO_EXAMPLES) from None
                raise
        return outputs

    return function


_NO_EXAMPLES = (
    "a batch had fewer examples than there are replicas, so that one replica got 0 examples, and BatchNormalization "
    "has no mean of 0 examples; batch with drop_remainder=True, or choose another batch size"
)


def _has_batch_statistics(model: Any) -> bool:
    from keras.layers import BatchNormalization

    return any(isinstance(layer, BatchNormalization) for layer in model._flatten_layers())


def _assert_examples(strategy: Any, data: Any) -> None:
    """Stops before a replica with 0 examples turns BatchNormalization's weights into NaN, on every worker.

    Other layers need no such check: an empty share contributes a loss and gradients of 0.
    """
    import tensorflow as tf
    from keras import tree

    leaves = (leaf for leaf in tree.flatten(data) if not isinstance(leaf, tf.experimental.Optional))
    first = next(leaf for leaf in leaves if leaf is not None)
    for local in strategy.experimental_local_results(first):
        tf.debugging.assert_positive(tf.shape(local)[0], message=_NO_EXAMPLES)


# In the order in which they are applied: a probe that finds the faulty line, and the correction. Its wrapper is made by
# functools.wraps: tests/test_compat.py takes it off again by `__wrapped__`.
_CORRECTIONS: dict[str, tuple[Callable[[ModuleType], bool], Callable[[ModuleType], None]]] = {
    "build from the spec": (
        _mentions(lambda t: t.TensorFlowTrainer._maybe_symbolic_build, "distribute_strategy.reduce("),
        _build_from_the_spec,
    ),
    "metrics reduced without axis": (
        _mentions(lambda t: t.reduce_per_replica, 'strategy.reduce("MEAN", v, axis=0)'),
        _reduce_whole_values,
    ),
    "steps one by one, after their data": (
        _steps_fit,
        _step_by_step,
    ),
}
