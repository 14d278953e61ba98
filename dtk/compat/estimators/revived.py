"""tf.estimator on TensorFlow 2.16 to 2.22, which have it no more, out of `tensorflow-estimator==2.15.0`.

That package is the last release, without requirements of its own. On TensorFlow 2.15 and before nothing here is needed,
and nothing is done. From 2.16 on three of its imports fail, and are supplied here, none of them inside TensorFlow:

- its top-level `__init__` imports TPU modules that are gone: a package of the same name without that `__init__` stands
  in, so that the submodules can be imported by themselves;
- `estimator_export` registers names in an API that `tensorflow.python.util.tf_export` no longer knows
  (TensorFlow's commit "Remove tf.estimator", 2.16): here a decorator that leaves its symbol as it is;
- `tensorflow.python.distribute.estimator_training`, which joined RunConfig and TF_CONFIG: see `tasks`.

tests/test_estimator_revived.py tells when a piece is no longer needed, or when TensorFlow has a new version.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.metadata import version
from types import ModuleType
from typing import Any

from dtk import extras
from dtk.compat.estimators import tasks
from dtk.errors import DtkError

__all__ = ["api", "is_native", "may_have", "tensorflow_version"]

TESTED = ((2, 15), (2, 22))  # the first native, the last revived: 2.22.0rc0; every minor version between was tried
_CORE = "tensorflow_estimator.python.estimator"

# tf.estimator's public names, by the submodule that defines them.
_NAMES = {
    "canned.baseline": ("BaselineClassifierV2", "BaselineEstimatorV2", "BaselineRegressorV2"),
    "canned.dnn": ("DNNClassifierV2", "DNNEstimatorV2", "DNNRegressorV2"),
    "canned.linear": ("LinearClassifierV2", "LinearEstimatorV2", "LinearRegressorV2"),
    "estimator": ("VocabInfo", "WarmStartSettings"),
    "exporter": ("BestExporter", "Exporter", "FinalExporter", "LatestExporter"),
    "extenders": ("add_metrics",),
    "head.binary_class_head": ("BinaryClassHead",),
    "head.multi_class_head": ("MultiClassHead",),
    "head.regression_head": ("RegressionHead",),
    "hooks.basic_session_run_hooks": (
        *("CheckpointSaverHook", "CheckpointSaverListener", "FeedFnHook", "FinalOpsHook", "GlobalStepWaiterHook"),
        *("LoggingTensorHook", "NanLossDuringTrainingError", "NanTensorHook", "ProfilerHook", "SecondOrStepTimer"),
        *("StepCounterHook", "StopAtStepHook", "SummarySaverHook"),
    ),
    "hooks.session_run_hook": ("SessionRunArgs", "SessionRunContext", "SessionRunHook", "SessionRunValues"),
    "mode_keys": ("ModeKeys",),
    "model_fn": ("EstimatorSpec",),
    "run_config": ("RunConfig",),
    "training": ("EvalSpec", "TrainSpec", "train_and_evaluate"),
}
_EXPORT = {
    "export.export": (
        *("ServingInputReceiver", "TensorServingInputReceiver", "build_parsing_serving_input_receiver_fn"),
        "build_raw_serving_input_receiver_fn",
    ),
    "export.export_output": (
        *("ClassificationOutput", "EvalOutput", "ExportOutput", "PredictOutput", "RegressionOutput"),
    ),
}
_EXPERIMENTAL = {
    "early_stopping": (
        *("make_early_stopping_hook", "stop_if_higher_hook", "stop_if_lower_hook", "stop_if_no_decrease_hook"),
        "stop_if_no_increase_hook",
    ),
    "hooks.hooks": ("InMemoryEvaluatorHook", "make_stop_at_checkpoint_step_hook"),
    "model_fn": ("call_logit_fn",),
}

_api: ModuleType | None = None


def tensorflow_version() -> tuple[int, int]:
    """(2, 21) for TensorFlow 2.21.0; without importing it. Raises DtkError where TensorFlow is not installed."""
    for name in ("tensorflow", "tensorflow-cpu"):
        if importlib.util.find_spec("tensorflow") is None:
            break
        try:
            major, minor = version(name).split(".")[:2]
            return int(major), int(minor)
        except ImportError:
            continue  # the package goes by another name here
    raise DtkError("TensorFlow is not installed here; pip install tensorflow")


def is_native() -> bool:
    """Whether this TensorFlow still brings tf.estimator itself."""
    return tensorflow_version() < (2, 16)


def api() -> ModuleType:
    """A module with tf.estimator's public names, and `model_to_estimator`. Imports TensorFlow.

    Raises DtkError on a version of TensorFlow that was not tried, and where tensorflow-estimator is missing.
    """
    global _api
    if _api is None:
        _api = _native() if is_native() else _revived()
    return _api


def may_have(name: str) -> bool:
    """Whether `api()` may have this name, without importing TensorFlow; True where only TensorFlow knows."""
    own = {"Estimator", "experimental", "export", "model_to_estimator"}
    return is_native() or name in own.union(*({each.removesuffix("V2") for each in found} for found in _NAMES.values()))


def _native() -> ModuleType:
    import tensorflow as tf

    module = ModuleType("dtk.estimator", "tf.estimator")
    module.__dict__.update({name: getattr(tf.estimator, name) for name in dir(tf.estimator) if name[0] != "_"})
    vars(module)["model_to_estimator"] = tf.keras.estimator.model_to_estimator
    return module


def _revived() -> ModuleType:
    found = tensorflow_version()
    if not TESTED[0] <= found <= TESTED[1]:
        known = " to ".join(f"{major}.{minor}" for major, minor in TESTED)
        here = f"{found[0]}.{found[1]}"
        raise DtkError(
            f"dtk.estimator was tried with TensorFlow {known}, and this is {here}: tf.estimator has ended, and what "
            f"stands in for it may not fit; install one of those versions, or use Keras (lesson 06 shows how)"
        )
    extras.need("estimator", "dtk.estimator")
    _stand_in(version("tensorflow-estimator"))
    module = _collect("dtk.estimator", _NAMES)
    # TensorFlow 2 gives this one the name Estimator; the other is tf.compat.v1's.
    vars(module)["Estimator"] = importlib.import_module(f"{_CORE}.estimator").EstimatorV2
    vars(module)["export"] = _collect("dtk.estimator.export", _EXPORT)
    vars(module)["experimental"] = _collect("dtk.estimator.experimental", _EXPERIMENTAL)
    vars(module)["model_to_estimator"] = _model_to_estimator
    return module


def _collect(name: str, places: dict[str, tuple[str, ...]]) -> ModuleType:
    module = ModuleType(name)
    for place, names in places.items():
        home = importlib.import_module(f"{_CORE}.{place}")
        # TensorFlow 2's tf.estimator has these under their names without V2; those without are TensorFlow 1's.
        vars(module).update({each.removesuffix("V2"): getattr(home, each) for each in names})
    return module


def _model_to_estimator(
    keras_model: Any = None,
    keras_model_path: str | None = None,
    custom_objects: Any = None,
    model_dir: str | None = None,
    config: Any = None,
    checkpoint_format: str = "checkpoint",
    metric_names_map: Any = None,
    export_outputs: Any = None,
) -> Any:
    """An Estimator of a compiled tf_keras model, as tf.keras.estimator.model_to_estimator in TensorFlow 2.15.

    Raises TypeError for a Keras 3 model, which has no layers that a v1 graph could hold.
    """
    if (keras_model is not None and type(keras_model).__module__.split(".")[0] == "keras") or _is_keras3(keras_model):
        raise TypeError(
            "model_to_estimator takes a tf_keras model, and this one is of Keras 3; make it inside the function that "
            "dtk.run starts, with tf.keras, which is tf_keras there"
        )
    keras_lib = importlib.import_module(f"{_CORE}.keras_lib")
    return keras_lib.model_to_estimator(
        keras_model=keras_model,
        keras_model_path=keras_model_path,
        custom_objects=custom_objects,
        model_dir=model_dir,
        config=config,
        checkpoint_format=checkpoint_format,
        use_v2_estimator=True,
        metric_names_map=metric_names_map,
        export_outputs=export_outputs,
    )


def _is_keras3(model: Any) -> bool:
    return any(each.__module__.startswith("keras.src") for each in type(model).__mro__)


def _stand_in(release: str) -> None:
    """Puts the three missing pieces where the package's submodules look for them."""
    if not release.startswith("2.15."):
        raise DtkError(f"dtk.estimator needs tensorflow-estimator 2.15.0, and {release} is installed")
    spec = importlib.util.find_spec("tensorflow_estimator")
    assert spec is not None, "extras.need has found it"
    package = ModuleType("tensorflow_estimator")
    package.__path__ = list(spec.submodule_search_locations or [])
    package.__spec__ = spec
    exporting = ModuleType(f"{_CORE}.estimator_export")
    vars(exporting)["estimator_export"] = _Export
    sys.modules.setdefault("tensorflow.python.distribute.estimator_training", tasks)
    for module in (package, exporting):
        sys.modules.setdefault(module.__name__, module)


class _Export:
    """`@estimator_export("estimator.X")`, without an API to export to."""

    def __init__(self, *names: str, v1: Any = None):
        pass

    def __call__(self, symbol: Any) -> Any:
        return symbol

    def export_constant(self, module_name: str, name: str) -> None:
        pass
