"""Keras 3 under tf.distribute, corrected where it needs it: `fit`, `evaluate`, `predict`, optimizers, an empty batch.

Everything here touches Keras's TensorFlow backend (`keras.src.backend.tensorflow`) and its optimizer for float16, in
workers and where `dtk.correct_keras()` is called. A correction is applied when the faulty line is in the source of the
installed Keras; what is touched, since when, and which test says that it can go: docs/explanation/compat.md. Keras 2
(tf_keras, and `keras` beside TensorFlow 2.15) needs none of it.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import linecache
from collections.abc import Callable
from typing import Any

import wrapt

from dtk.compat.fingerprint import first_leaf
from dtk.compat.libraries import changed, installed_keras_2, keras, keras_2_chosen, keras_major, replaces, tf
from dtk.compat.per_replica import first_spec
from dtk.errors import ClusterConfigError

_applied: list[str] = []
REFUSALS = "refusals"  # their name among the corrections
_TRAINER = "backend.tensorflow.trainer"
_LISTED = [("layers.layer:Layer", method) for method in ("add_loss", "_clear_losses", "_get_own_losses")]

_Place = tuple[str, str]  # as `replaces` takes it, below `keras.src`
# By name, in the order in which they are applied: whether a source has the fault, the places, what is put there.
_CORRECTIONS: dict[str, tuple[Callable[[str], bool], tuple[_Place, ...], Callable[..., Any]]] = {}


def _corrects(name: str, is_faulty: Callable[[str], bool], *places: _Place) -> Callable[[Callable[..., Any]], None]:
    """Decorates what takes the place of Keras's functions. is_faulty: gets the source of the first place's module."""

    def keep(correction: Callable[..., Any]) -> None:
        _CORRECTIONS[name] = (is_faulty, places, correction)

    return keep


def correct_keras() -> list[str]:
    """Corrects Keras 3 in this process, so that `fit` works under MultiWorkerMirroredStrategy; for any program.

        dtk.correct_keras()  # in each worker, after the imports and before the first model

    It is for programs that run without `dtk.run`: in the workers that dtk starts, the corrections are there already.
    docs/guide/without_dtk.md has a whole program, docs/explanation/compat.md what is corrected and until when.

    It imports TensorFlow, which runs no operation yet. Keras 2 (tf_keras, with TF_USE_LEGACY_KERAS=1) and a Keras 3
    without these faults are left as they are. A second call changes nothing.

    Returns:
        The names of the corrections that are in force, such as "metrics reduced without axis"; [] where none is needed.

    Raises:
        ClusterConfigError: Keras has another backend.
    """
    importlib.import_module("tensorflow")
    if not keras_2_chosen() and installed_keras_2() is None:
        backend = keras.backend.backend()
        if backend != "tensorflow":
            what = f"dtk.correct_keras(): Keras computes with {backend} here, and tf.distribute needs TensorFlow"
            raise ClusterConfigError(what, remedy="set KERAS_BACKEND=tensorflow before Keras is imported")
    when_imported()
    return list(_applied)


def when_imported() -> None:
    """Has Keras 3 corrected at the moment it is imported, or at once where it has been."""
    wrapt.register_post_import_hook(_correct, "keras")


def _correct(_keras: Any) -> None:
    """Nothing of Keras 2, another backend than TensorFlow, and a Keras 3 that has none of the faults is touched."""
    if keras_major(keras) < 3 or keras.backend.backend() != "tensorflow":
        return
    for name, (is_faulty, places, correction) in _CORRECTIONS.items():
        module = importlib.import_module("keras.src." + places[0][0].partition(":")[0])
        # Not inspect.getsource: it looks at every module there is, for 30 ms and tens of MB.
        source = linecache.getlines(str(module.__file__))
        if name not in _applied and is_faulty("".join(source)):
            for owner, function in places:
                replaces(f"keras.src.{owner}", function)(correction)
            _applied.append(name)
    if _applied and REFUSALS not in _applied:
        for method in _DATA:
            replaces(keras.Model, method)(_refuse_endless)
        _applied.append(REFUSALS)


@_corrects(
    "build from the spec",
    lambda source: "distribute_strategy.reduce(" in source,
    (f"{_TRAINER}:TensorFlowTrainer", "_maybe_symbolic_build"),
)
def _build_from_the_spec(original: Any, self: Any, iterator: Any = None, data_batch: Any = None) -> Any:
    """To build a model, the shape of one local replica's batch is enough; Keras takes a whole batch for it.

    Over several workers it reduces that batch eagerly, which raises. Under any strategy it makes an iterator for it and
    throws that away, which turns a `shuffle` on by one epoch.
    """
    if iterator is not None and self._distribute_strategy is not None:
        spec = iterator._distributed_dataset.element_spec
        iterator, data_batch = None, keras.tree.map_structure(first_spec, spec)
    return original(self, iterator=iterator, data_batch=data_batch)


@_corrects(
    "metrics reduced without axis",
    lambda source: 'strategy.reduce("MEAN", v, axis=0)' in source,
    (_TRAINER, "reduce_per_replica"),
)
def _reduce_whole_values(original: Any, values: Any, strategy: Any, reduction: str) -> Any:
    """A step's metrics are one value per replica, mostly scalars: they have no axis 0 to reduce over."""
    from keras.src.backend.tensorflow import trainer

    if reduction in ("auto", "mean") and trainer._collective_all_reduce_multi_worker(strategy):
        return keras.tree.map_structure(lambda v: strategy.reduce("MEAN", v, axis=None), values)
    return original(values, strategy, reduction)


@_corrects(  # Keras before 3.12 is left as it is: `force=True` alone runs it
    "steps one by one, after their data",
    lambda source: "tf.while_loop(" in source and "_autoconvert_optionals" in source,
    (f"{_TRAINER}:TensorFlowTrainer", "_make_function"),
)
def _step_by_step(original: Any, self: Any, step_function: Callable[..., Any]) -> Callable[..., Any]:
    """Runs `steps_per_execution` steps one after another, each after its data, instead of in a graph's `while_loop`.

    Keras runs a step inside `cond` inside `while`, where the merging of replicas fails, with MirroredStrategy too.
    Callbacks see the same batches as with Keras's own loop. On one device Keras's loop stays, but there, too, a
    step may begin before it has its data: then the end of data whose size is unknown counts as a step of the
    optimizer, once an epoch.
    """
    if not _is_mirrored(self.distribute_strategy):
        # The step as a function of its own in Keras's graph: nothing of it happens unless there is data for it. Not
        # `_after_its_data`, by which TensorFlow 2.21 makes a wrong gradient of an RNN's loop in a model that its
        # first batch builds.
        whole = tf.function(step_function, autograph=False, experimental_attributes={"_noinline": True})
        return original(self, step_function if self.run_eagerly else whole)
    normalizes = any(isinstance(layer, keras.layers.BatchNormalization) for layer in self._flatten_layers())
    step = _after_its_data(step_function, guarded=step_function == self.train_step and normalizes)
    keras_own = original(self, step)

    def function(iterator: Any) -> Any:
        if not isinstance(iterator, tf.distribute.DistributedIterator):
            return keras_own(iterator)  # train_on_batch and test_on_batch
        outputs, steps = None, self.steps_per_execution
        try:
            with changed(self, steps_per_execution=1):  # of a single step Keras makes no loop
                for _ in range(steps):
                    outputs = keras_own(iterator)
        except tf.errors.OutOfRangeError:
            if outputs is None:
                raise  # Keras takes it for the end of the epoch
        except tf.errors.InvalidArgumentError as error:
            if _NO_EXAMPLES in str(error):
                raise ClusterConfigError(_NO_EXAMPLES) from None
            raise
        return outputs

    return function


def _after_its_data(step_function: Callable[..., Any], guarded: bool) -> Callable[..., Any]:
    """The step, of which nothing happens (such as counting it) unless there is data for it.

    guarded: it stops before a replica with 0 examples turns BatchNormalization's weights into NaN, on every worker.
    Other layers need no such check: an empty share contributes a loss and gradients of 0.
    """

    @functools.wraps(step_function)
    def step(data: Any) -> Any:
        before = [leaf for leaf in tf.nest.flatten(data, expand_composites=True) if isinstance(leaf, tf.Tensor)]
        if guarded:
            before.append(tf.debugging.assert_positive(tf.shape(first_leaf(data))[0], message=_NO_EXAMPLES))
        with tf.control_dependencies(before):
            return step_function(data)

    return step


_NO_EXAMPLES = (
    "a batch had fewer examples than there are replicas, so that one replica got 0 examples, and BatchNormalization "
    "has no mean of 0 examples; batch with drop_remainder=True, or choose another batch size"
)


@_corrects(
    "optimizer variables outside of the graph",
    lambda source: "init_scope" not in source,
    ("optimizers.base_optimizer:BaseOptimizer", "apply"),
    ("optimizers.loss_scale_optimizer:LossScaleOptimizer", "apply"),
)
def _build_outside(original: Any, self: Any, grads: Any, trainable_variables: Any = None) -> Any:
    """An optimizer makes its momenta at the first `apply_gradients`, in a loop of one's own in each replica's graph.

    There TensorFlow can't take their initial values out of the graph. After 3.15.1 Keras makes outside what goes
    through `add_variable`; Nadam and Adafactor, and many an optimizer of one's own, have variables besides.
    """
    variables = None if trainable_variables is None else list(trainable_variables)
    if variables and not self.built:
        with tf.init_scope(), keras.name_scope(self.name, caller=self):
            self.build(variables)
        self.built = True
    return original(self, grads, variables)


@_corrects(
    "one decision about a loss scale",
    lambda source: "experimental_local_results(" in source,
    ("optimizers.loss_scale_optimizer:LossScaleOptimizer", "check_finite"),
)
def _decide_together(original: Any, self: Any, grads: Any) -> Any:
    """Where a gradient is infinite, `LossScaleOptimizer` leaves the step out: here by one decision of all replicas.

    It takes the gradients for the sum over all replicas, but they are one replica's own: the sum comes later. So each
    worker decides for itself, and one waits forever in the all-reduce of a step that the other leaves out.
    """
    finite, replica = original(self, grads), tf.distribute.get_replica_context()
    if replica is None or replica.num_replicas_in_sync == 1:
        return finite
    infinite = replica.all_reduce("SUM", tf.cast(tf.logical_not(finite), tf.float32))
    return tf.equal(infinite, 0.0)


@_corrects("sums of an empty batch", lambda source: "d is None or d > 1" in source, ("backend.tensorflow.numpy", "add"))
def _add_empty_batches(original: Any, x1: Any, x2: Any) -> Any:
    """The last batch of an epoch may leave a worker no example, which `keras.ops.add` takes for a bias.

    That is a second operand all but one of whose dimensions are 1, and it leaves out those that are 0 as well: of two
    (0, 16) the second looks like a bias of 16. Layers such as LSTM add so, with `run_eagerly=True`.
    """
    shape = getattr(x2, "shape", None)
    return tf.add(x1, x2) if shape is not None and len(shape) > 1 and 0 in tuple(shape) else original(x1, x2)


@_corrects(
    "loss of an empty batch", lambda source: "tuple(values.shape) == (0,)" in source, ("losses.loss", "reduce_values")
)
def _reduce_empty_batches(
    original: Any, values: Any, weights: Any = None, reduction: Any = "sum_over_batch_size"
) -> Any:
    """In eager mode the loss of an empty batch stays a vector, to which no penalty can be added: here it is 0."""
    empty = tuple(values.shape) == (0,) and reduction not in (None, "none")
    return tf.reduce_sum(values) if empty else original(values, weights, reduction)


@_corrects("penalties of each replica", lambda source: "self._losses.clear()" in source, *_LISTED)
def _list_by_replica(original: Any, self: Any, *args: Any) -> Any:
    """Replicas in one process share a layer's list of what its `add_loss` got, which a model's call clears first.

    If one call waits for the others, as for a synchronized mean, their penalties count in place of its own.
    """
    replica = tf.distribute.get_replica_context()
    if replica is not None and _is_mirrored(replica.strategy):
        number = replica._replica_id_in_sync_group  # the public one is an operation, and others' seeds count these
        vars(self)["_losses"] = vars(self).setdefault("_losses_of", {}).setdefault(number, [])
    return original(self, *args)


# ---- data without an end, and no number of steps: refused, as Keras 2 does, before an epoch begins that never ends

# What data each takes, what it is called, and the argument that says how many steps of it there are.
_DATA = {
    "fit": (("x", "the dataset", "steps_per_epoch"), ("validation_data", "validation_data", "validation_steps")),
    "evaluate": (("x", "the dataset", "steps"),),
    "predict": (("x", "the dataset", "steps"),),
}


def _refuse_endless(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    """In place of `fit`, `evaluate` or `predict` of `keras.Model` (public)."""
    try:
        given = inspect.signature(original).bind(self, *args, **kwargs).arguments
    except TypeError:
        return original(self, *args, **kwargs)  # which says what is wrong with them
    name = original.__name__
    for data, called, steps in _DATA[name]:
        if given.get(steps) is None and _is_endless(given.get(data)):
            raise ClusterConfigError(f"{name}: {called} has no end (.repeat()); pass {steps}")
    return original(self, *args, **kwargs)


def _is_mirrored(strategy: Any) -> bool:
    """Whether it is MirroredStrategy or MultiWorkerMirroredStrategy."""
    return isinstance(strategy, (tf.distribute.MirroredStrategy, tf.distribute.MultiWorkerMirroredStrategy))


def _is_endless(data: Any) -> bool:
    if not isinstance(data, (tf.data.Dataset, tf.distribute.DistributedDataset)):
        return False
    count = data.cardinality  # a method of a dataset, a value of a distributed one
    return int(count() if callable(count) else count) == tf.data.INFINITE_CARDINALITY
