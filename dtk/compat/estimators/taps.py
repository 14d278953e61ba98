"""Where dtk listens in on Estimator, native or revived: `tensorflow_estimator` 2.15, TensorFlow 2.15 to 2.22.

Estimator hands hooks only the reduced loss, returns None from `train_and_evaluate` in a cluster, and evaluates on a
timetable (120 s after the start, then every 600 s). All of that is by design and will not change: the package has had
its last release. Seven methods are wrapped, in worker processes only; what they compute is left as it is.
"""

from __future__ import annotations

import contextlib
import functools
import re
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from dtk.compat.estimators import revived as compat
from dtk.compat.per_replica import local_values
from dtk.errors import ClusterConfigError

__all__ = ["Listener", "apply", "evaluate_checkpoint", "replica_rows", "variables"]

# By graph: (replica, [share, examples, fingerprint]) of this process's replicas. Not one of the graph's own
# collections: those are written to checkpoints, with a warning for each that TensorFlow can't write.
_rows: weakref.WeakKeyDictionary[Any, list[tuple[int, Any]]] = weakref.WeakKeyDictionary()


class Listener(Protocol):
    """What is called. describe: a replica's features to two float64 scalars, their number and their fingerprint."""

    def before_training(self, estimator: Any) -> None: ...
    def hooks(self, given: list[Any], estimator: Any) -> list[Any]: ...
    def describe(self, features: Any) -> tuple[Any, Any]: ...
    def saved(self, prefix: str) -> None: ...
    def trained(self, estimator: Any, loss: Any) -> None: ...
    def evaluation(self, evaluate: Callable[[], dict[str, Any]]) -> dict[str, Any]: ...
    def follow_training(self, executor: Any) -> None: ...


def apply(listener: Listener, replicas: int) -> None:
    """Wraps Estimator's methods in this process, which has so many replicas."""
    from tensorflow.python.training import basic_session_run_hooks
    from tensorflow_estimator.python.estimator import estimator, run_config, training

    _tap_training(estimator.Estimator, listener)
    _tap_evaluation(estimator.Estimator, training._TrainingExecutor, listener)
    _tap_saving(basic_session_run_hooks.CheckpointSaverHook, listener)
    _tap_configuration(run_config, replicas)


def _tap_training(cls: Any, listener: Listener) -> None:
    original = {name: getattr(cls, name) for name in ("train", "_train_model", "_call_model_fn")}

    @functools.wraps(original["train"])
    def train(self: Any, *args: Any, **kwargs: Any) -> Any:
        listener.before_training(self)
        return original["train"](self, *args, **kwargs)

    @functools.wraps(original["_train_model"])
    def train_model(self: Any, input_fn: Any, hooks: Any, saving_listeners: Any) -> Any:
        loss = original["_train_model"](self, input_fn, listener.hooks(list(hooks), self), saving_listeners)
        listener.trained(self, loss)
        return loss

    # An ordinary function, and no proxy as wrapt makes them: AutoGraph converts model_fn through it.
    @functools.wraps(original["_call_model_fn"])
    def call_model_fn(self: Any, features: Any, labels: Any, mode: Any, config: Any) -> Any:
        with _without_keras3(), _updated() as trained:
            spec = original["_call_model_fn"](self, features, labels, mode, config)
        if mode == "train":
            _add_row(spec.loss, trained, features, listener)
        return spec

    cls.train, cls._train_model, cls._call_model_fn = train, train_model, call_model_fn


def _tap_evaluation(cls: Any, executor: Any, listener: Listener) -> None:
    original = cls.evaluate

    @functools.wraps(original)
    def evaluate(self: Any, *args: Any, **kwargs: Any) -> Any:
        return listener.evaluation(lambda: original(self, *args, **kwargs))

    cls.evaluate = evaluate
    executor._start_continuous_evaluation = lambda self: listener.follow_training(self)


def _tap_saving(hook: Any, listener: Listener) -> None:
    original = hook._save

    @functools.wraps(original)
    def save(self: Any, session: Any, step: Any) -> Any:
        stop = original(self, session, step)
        listener.saved(f"{self._save_path}-{int(step)}")
        return stop

    hook._save = save


def _tap_configuration(run_config: Any, replicas: int) -> None:
    original = run_config.RunConfig.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        # A parameter `strategy` holds TensorFlow's default strategy in a baseline; RunConfig can't copy that one.
        for part in ("train_distribute", "eval_distribute"):
            if kwargs.get(part) is _default_strategy():
                kwargs[part] = None
        original(self, *args, **kwargs)
        if replicas > 1:
            # A v1 session has one CPU, whatever tf.config says, and puts all replicas there: their all-reduce hangs.
            given = self._session_config or run_config.get_default_session_config()
            given.device_count["CPU"] = replicas
            self._session_config = given

    run_config.RunConfig.__init__ = init


def _default_strategy() -> Any:
    import tensorflow as tf

    return None if tf.distribute.has_strategy() else tf.distribute.get_strategy()


@contextlib.contextmanager
def _updated() -> Iterator[list[Any]]:
    """The losses that a Keras optimizer is given in a model_fn, by `get_updates`, as the heads of TensorFlow 2 do.

    They divide the loss by the replicas on the way (`create_estimator_spec_train_op` in head/base_head.py), and put the
    undivided one into the spec.
    """
    import tensorflow as tf

    found: list[Any] = []
    legacy = getattr(tf.keras.optimizers, "legacy", None)
    cls: Any = getattr(legacy, "Optimizer", None)
    if not hasattr(cls, "get_updates"):
        yield found
        return
    original = cls.get_updates

    @functools.wraps(original)
    def get_updates(self: Any, loss: Any, params: Any) -> Any:
        found.append(loss)
        return original(self, loss, params)

    cls.get_updates = get_updates
    try:
        yield found
    finally:
        cls.get_updates = original


def _add_row(loss: Any, trained: list[Any], features: Any, listener: Listener) -> None:
    """Adds this replica's numbers to the graph, for a hook to fetch.

    A v1 optimizer under a strategy takes the mean over the replicas and says so in the graph (`_scale_loss` in
    tensorflow/python/training/optimizer.py); a Keras optimizer takes the sum. The shares follow it, so that they add
    up to the loss that Estimator reports; trained: what a Keras optimizer was given instead, if it was.
    """
    import tensorflow as tf

    graph = tf.compat.v1.get_default_graph()
    context = tf.distribute.get_replica_context()
    share = tf.cast(trained[-1] if trained else loss, tf.float64)
    if not trained and getattr(graph, "_is_loss_scaled_by_optimizer", False):
        share = share / context.num_replicas_in_sync
    replica = tf.get_static_value(context.replica_id_in_sync_group)
    row = tf.stack([share, *listener.describe(features)])
    _rows.setdefault(graph, []).append((int(replica or 0), row))


def replica_rows() -> list[Any]:
    """Of this process's replicas, in order: a float64 tensor (share, examples, fingerprint). [] outside training."""
    import tensorflow as tf

    rows = _rows.get(tf.compat.v1.get_default_graph(), [])
    return [row for _, row in sorted(rows, key=lambda each: each[0])]


def variables() -> dict[str, list[Any]]:
    """Tensors of the graph's variables but for the global step: name -> its copies, one a local replica; in order."""
    import tensorflow as tf

    step = tf.compat.v1.train.get_global_step()
    copies: dict[str, list[Any]] = {}
    for variable in tf.compat.v1.global_variables():
        name = re.sub(r"/replica_\d+$", "", variable.op.name)
        if step is None or name != step.op.name:
            # As tensors, while the graph may still grow: what is synchronised when it is read, as the moving statistics
            # of batch normalisation are, would add an all-reduce to a finished one.
            copies.setdefault(name, []).extend(each.read_value() for each in local_values(variable))
    return copies


def evaluate_checkpoint(executor: Any, path: str) -> None:
    """Evaluates one checkpoint as the executor's EvalSpec says, its exporters included."""
    estimator = executor._estimator
    if not hasattr(executor, "_dtk_evaluator"):
        limit = executor._train_spec.max_steps
        executor._dtk_evaluator = type(executor)._Evaluator(estimator, executor._eval_spec, limit)
    estimator.latest_checkpoint = lambda: path  # the evaluator asks for the latest, and each one is wanted
    try:
        executor._dtk_evaluator.evaluate_and_export()
    finally:
        del estimator.latest_checkpoint


@contextlib.contextmanager
def _without_keras3() -> Iterator[None]:
    """Refuses Keras 3 layers, with a sentence, in what runs inside.

    Without a word they would train, as far as gradients go. Measured on Keras 3.15: a Dense layer learns as it should,
    but BatchNormalization keeps the moving statistics that it began with, and Dropout leaves out the same units in each
    step, because nothing runs the updates that Keras 3 puts into the graph.
    """
    if compat.is_native():
        yield
        return
    import keras

    layer = keras.layers.Layer
    original = layer.__call__

    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise ClusterConfigError(
            f"model_fn uses Keras 3 ({type(self).__name__}), whose updates an Estimator never runs; take layers from "
            "tf.keras inside model_fn, which is tf_keras in the workers of an Estimator run"
        )

    layer.__call__ = refuse
    try:
        yield
    finally:
        layer.__call__ = original
