"""tf.estimator after TensorFlow 2.15, which was the last to have it, out of `tensorflow-estimator==2.15.0`.

On TensorFlow 2.15 nothing here is needed, and nothing is done. Later (2.20 to 2.22) three of the package's imports
fail, and are supplied here, none of them inside TensorFlow: docs/explanation/estimator.md says why, and which test
tells when a piece is no longer needed.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import importlib.util
import sys
import threading
import weakref
from types import ModuleType
from typing import Any

from dtk import errors
from dtk.compat.fingerprint import row
from dtk.compat.libraries import Lazy, changed, installed_keras_2, keras, replaces, tf
from dtk.errors import ClusterConfigError

_API = "tensorflow_estimator._api.v2.estimator"  # the package's own list of tf.estimator's names in TensorFlow 2
_CORE = "tensorflow_estimator.python.estimator"
_coordinator: Any = Lazy("tensorflow.python.distribute.distribute_coordinator")
_tasks: Any = Lazy("tensorflow.python.distribute.distribute_coordinator_context")
_INDEPENDENT_WORKER = "independent_worker"  # distribute_coordinator.CoordinatorMode


def is_native() -> bool:
    """Whether this TensorFlow still brings tf.estimator itself, as up to 2.15; without importing it."""
    return installed_keras_2() is not None


@functools.cache
def api() -> ModuleType:
    """The module tf.estimator, and among its names `model_to_estimator`. Imports TensorFlow.

    Raises ClusterConfigError where tensorflow-estimator is missing.
    """
    if is_native():
        names, convert = tf.estimator, tf.keras.estimator.model_to_estimator
    else:
        errors.need("estimator", "dtk.estimator")
        # Puts the three missing pieces where the package's submodules look for them; its own `__init__` is not run.
        spec = importlib.util.find_spec("tensorflow_estimator")
        assert spec is not None, "errors.need has found it"
        package = importlib.util.module_from_spec(spec)
        exporting = ModuleType(f"{_CORE}.estimator_export")
        # `@estimator_export("estimator.X")`, without an API to export to.
        vars(exporting)["estimator_export"] = lambda *names, v1=None: lambda symbol: symbol
        sys.modules.setdefault("tensorflow.python.distribute.estimator_training", sys.modules[__name__])
        for module in (package, exporting):
            sys.modules.setdefault(module.__name__, module)
        names, convert = importlib.import_module(_API), _model_to_estimator
    vars(names)["model_to_estimator"] = convert
    return names


def _model_to_estimator(keras_model: Any = None, **kwargs: Any) -> Any:
    """An Estimator of a compiled tf_keras model, as tf.keras.estimator.model_to_estimator in TensorFlow 2.15.

    Raises TypeError for a Keras 3 model, which has no layers that a v1 graph could hold.
    """
    if any(each.__module__.split(".")[0] == "keras" for each in type(keras_model).__mro__):
        raise TypeError(
            "model_to_estimator takes a tf_keras model, and this one is of Keras 3; make it inside the function that "
            "dtk.run starts, with tf.keras, which is tf_keras there"
        )
    make = importlib.import_module(f"{_CORE}.keras_lib").model_to_estimator
    return make(keras_model, **{"checkpoint_format": "checkpoint", **kwargs}, use_v2_estimator=True)


# ---- in place of tensorflow.python.distribute.estimator_training: the functions by the names that Estimator calls,
# written anew for what dtk starts: each task runs the same program; no remote cluster, no parameter servers


def init_run_config(config: Any, tf_config: dict[str, Any]) -> None:
    """RunConfig with a strategy: its tasks come from TF_CONFIG, as without; and who coordinates them."""
    config._distribute_coordinator_mode = None
    jobs = tf_config.get("cluster", {})
    if not jobs or not config._train_distribute:
        config._init_distributed_setting_from_environment_var(tf_config)
        config._maybe_overwrite_session_config_for_distributed_training()
        return
    # RunConfig itself insists on a task of type "chief", which MultiWorkerMirroredStrategy does without. It starts as
    # a single process's; the true state is known where the strategy is configured: see _take_task.
    config._init_distributed_setting_from_environment_var({})
    config._cluster_spec = tf.train.ClusterSpec(jobs)
    config._distribute_coordinator_mode = _INDEPENDENT_WORKER


def should_run_distribute_coordinator(config: Any) -> bool:
    """Whether this process is a task of a cluster that trains under a strategy."""
    return bool(getattr(config, "_distribute_coordinator_mode", None) and config.cluster_spec)


def train_and_evaluate(estimator: Any, train_spec: Any, eval_spec: Any, executor_class: Any) -> None:
    """This task's part: training, or, in the evaluator, evaluation until training has ended."""

    def train(strategy: Any) -> None:
        mine = _take_task(estimator, "train", strategy)
        mine.train(train_spec.input_fn, hooks=list(train_spec.hooks), max_steps=train_spec.max_steps)

    def evaluate(strategy: Any) -> None:
        mine = _take_task(estimator, "eval", strategy)
        executor_class(mine, train_spec, eval_spec)._start_continuous_evaluation()

    # The coordinator is still in TensorFlow: it configures the strategy with the cluster, and tells
    # MonitoredTrainingSession by a context which task this is, so that only the chief writes to model_dir.
    config = estimator.config
    _coordinator.run_distribute_coordinator(
        train,
        config.train_distribute,
        evaluate,
        config.eval_distribute,
        mode=_INDEPENDENT_WORKER,
        session_config=config.session_config,
    )


def _take_task(estimator: Any, part: str, strategy: Any) -> Any:
    """A copy of the estimator that knows its task, and trains or evaluates under the configured strategy."""
    task = _tasks.get_current_worker_context()
    mine = copy.deepcopy(estimator)
    config = mine._config
    setattr(config, f"_{part}_distribute", strategy)
    setattr(mine, f"_{part}_distribution", strategy)
    config._distribute_coordinator_mode = None  # the copy's own train and evaluate just do it
    config._task_type, config._task_id, config._is_chief = task.task_type, task.task_id, task.is_chief
    config._master = config._evaluation_master = task.master_target
    jobs = {} if part == "eval" else task.cluster_spec.as_dict()
    config._cluster_spec = tf.train.ClusterSpec(jobs)
    config._num_worker_replicas = sum(len(jobs.get(job, [])) for job in ("chief", "worker"))
    before = len(jobs.get("chief", [])) if task.task_type == "worker" else 0
    config._global_id_in_cluster = None if part == "eval" else before + task.task_id
    return mine


def estimator_train(estimator: Any, *rest: Any) -> None:
    """Estimator.train, called by itself in a cluster: never was possible with a strategy of several processes."""
    raise ClusterConfigError(
        "Estimator.train and Estimator.evaluate don't run in a cluster; call "
        "dtk.estimator.train_and_evaluate(estimator, train_spec, eval_spec), which gives every task its part"
    )


estimator_evaluate = estimator_train


# ---- where dtk listens in on Estimator, native or revived: `tensorflow_estimator` 2.15, TensorFlow 2.15 to 2.22
#
# It hands hooks only the reduced loss, returns None from `train_and_evaluate` in a cluster, and evaluates on a
# timetable. That will not change: the package has had its last release. Methods are wrapped, in worker processes only
# (docs/explanation/estimator.md); what they compute is left as it is.

# By graph: (replica, [examples, fingerprint, share]) of this process's replicas. Not one of the graph's own
# collections: those are written to checkpoints, with a warning for each that TensorFlow can't write.
_rows: weakref.WeakKeyDictionary[Any, list[tuple[int, Any]]] = weakref.WeakKeyDictionary()
_given = threading.local()  # what loss a Keras optimizer was given; MirroredStrategy has a thread for each replica


def apply(listener: Any, replicas: int) -> None:
    """Wraps Estimator's methods in this process, which has so many replicas. listener: of `dtk.worker.hooks`."""
    cls = f"{_CORE}.estimator:Estimator"

    @replaces(cls, "_train_model")
    def train_model(original: Any, self: Any, input_fn: Any, hooks: Any, saving_listeners: Any) -> Any:
        loss = original(self, input_fn, listener.hooks(list(hooks), self), saving_listeners)
        listener.trained(loss)
        return loss

    @replaces(cls, "_call_model_fn")
    def call_model_fn(original: Any, self: Any, features: Any, labels: Any, mode: Any, config: Any) -> Any:
        _given.loss = None
        with contextlib.nullcontext() if is_native() else changed(keras.layers.Layer, __call__=_refuse_keras_3):
            spec = original(self, features, labels, mode, config)
        if mode == "train":
            _add_row(spec.loss, _given.loss, features)
        return spec

    # So do the heads of TensorFlow 2 in a model_fn. They divide the loss by the replicas on the way
    # (`create_estimator_spec_train_op` in head/base_head.py), and put the undivided one into the spec.
    @replaces(tf.keras.optimizers.legacy.Optimizer, "get_updates")
    def get_updates(original: Any, self: Any, loss: Any, params: Any) -> Any:
        _given.loss = loss
        return original(self, loss, params)

    @replaces(cls, "evaluate")
    def evaluate(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        return listener.evaluation(lambda: original(self, *args, **kwargs))

    @replaces(f"{_CORE}.training:_TrainingExecutor", "_start_continuous_evaluation")
    def evaluate_all(original: Any, self: Any) -> None:
        listener.follow_training(self)

    @replaces("tensorflow.python.training.basic_session_run_hooks:CheckpointSaverHook", "_save")
    def save(original: Any, self: Any, session: Any, step: Any) -> Any:
        stop = original(self, session, step)
        listener.saved(f"{self._save_path}-{int(step)}")
        return stop

    @replaces(f"{_CORE}.run_config:RunConfig", "__init__")
    def init(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        # A parameter `strategy` holds TensorFlow's default strategy in a baseline; RunConfig can't copy that one.
        default = None if tf.distribute.has_strategy() else tf.distribute.get_strategy()
        kwargs |= dict.fromkeys([name for name, value in kwargs.items() if value is not None and value is default])
        original(self, *args, **kwargs)
        if replicas > 1:
            # A v1 session has one CPU, whatever tf.config says, and puts all replicas there: their all-reduce hangs.
            given = self._session_config or sys.modules[f"{_CORE}.run_config"].get_default_session_config()
            given.device_count["CPU"] = replicas
            self._session_config = given


def _add_row(loss: Any, given: Any, features: Any) -> None:
    """Adds this replica's numbers to the graph, for a hook to fetch.

    A v1 optimizer under a strategy takes the mean over the replicas and says so in the graph (`_scale_loss` in
    tensorflow/python/training/optimizer.py); a Keras optimizer takes the sum. The shares follow it, so that they add
    up to the loss that Estimator reports; given: what a Keras optimizer was given instead, if it was.
    """
    graph = tf.compat.v1.get_default_graph()
    context = tf.distribute.get_replica_context()
    share = tf.cast(loss if given is None else given, tf.float64)
    if given is None and getattr(graph, "_is_loss_scaled_by_optimizer", False):
        share = share / context.num_replicas_in_sync
    replica = tf.get_static_value(context.replica_id_in_sync_group)
    _rows.setdefault(graph, []).append((int(replica or 0), row(features, [share])))


def replica_rows() -> list[Any]:
    """Of this process's replicas, in order: a float64 tensor (examples, fingerprint, share). [] outside training."""
    rows = _rows.get(tf.compat.v1.get_default_graph(), [])
    return [each for _, each in sorted(rows, key=lambda each: each[0])]


def evaluate_checkpoint(executor: Any, path: str) -> None:
    """Evaluates one checkpoint as the executor's EvalSpec says, its exporters included."""
    estimator = executor._estimator
    if not hasattr(executor, "_dtk_evaluator"):
        limit = executor._train_spec.max_steps
        executor._dtk_evaluator = type(executor)._Evaluator(estimator, executor._eval_spec, limit)
    with changed(estimator, latest_checkpoint=lambda: path):  # the evaluator asks for the latest, and each is wanted
        executor._dtk_evaluator.evaluate_and_export()


def _refuse_keras_3(layer: Any, *args: Any, **kwargs: Any) -> Any:
    """Such layers would train, but nothing runs the updates in their graph: moving statistics, Dropout's next draw."""
    raise ClusterConfigError(
        f"model_fn uses Keras 3 ({type(layer).__name__}), whose updates an Estimator never runs; take layers from "
        "tf.keras inside model_fn, which is tf_keras in the workers of an Estimator run"
    )
