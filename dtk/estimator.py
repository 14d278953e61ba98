"""`dtk.estimator`: tf.estimator, which TensorFlow had up to 2.15, on each TensorFlow that dtk supports.

    classifier = dtk.estimator.Estimator(model_fn, config=dtk.estimator.RunConfig(train_distribute=strategy))
    dtk.estimator.train_and_evaluate(classifier, train_spec, eval_spec)

On TensorFlow 2.15 the names are tf.estimator's own; later they come out of tensorflow-estimator 2.15.0, see
`dtk.compat.estimators`. `model_to_estimator` is here as well (tf.keras.estimator's, in TensorFlow 2.15). Keras
layers in a model_fn are tf_keras's: in the workers of a run that uses dtk.estimator, `tf.keras` is tf_keras.

Nothing is imported before the first name is used.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from dtk.environment import here
from dtk.errors import ClusterConfigError, need
from dtk.language import N_, _

__all__ = ["train_and_evaluate"]

# tf.estimator's names that are no classes.
_FUNCTIONS = {
    *("add_metrics", "classifier_parse_example_spec", "experimental", "export", "inputs", "model_to_estimator"),
    "regressor_parse_example_spec",
}


def train_and_evaluate(estimator: Any, train_spec: Any, eval_spec: Any) -> Any:
    """Trains and evaluates, in every task of a cluster its part, as tf.estimator.train_and_evaluate.

    In one process it returns (metrics, export results); in a cluster None, and what became of it is in `run.results`
    (each worker's final loss and global step, the last evaluation's metrics) and `run.evaluations`.

    Raises ClusterConfigError in a notebook's kernel, and wherever there is no cluster to be a task of.
    """
    # A program that some cluster manager starts, with a TF_CONFIG of its own, is a task like any other.
    if here() is None and ("ipykernel" in sys.modules or "TF_CONFIG" not in os.environ):
        words = N_(
            "train_and_evaluate was called in this process itself; put it into a function, and have dtk start it in "
            "processes of their own: dtk.run(train, workers=2) on a cluster, dtk.baseline(train) on one device"
        )
        raise ClusterConfigError(_(words))
    return _api().train_and_evaluate(estimator, train_spec, eval_spec)


def _api() -> Any:
    """tf.estimator. In a worker, which is free to choose, `tf.keras` is tf_keras from here on."""
    from dtk.compat import estimators

    if here() is not None and not estimators.is_native():
        need("estimator", "dtk.estimator")
        import tensorflow as tf

        os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
        # Whoever used tf.keras before this has decided for the whole process.
        if not tf.keras.layers.Layer.__module__.startswith("tf_keras"):
            words = N_("Estimator needs tf_keras, and this run uses Keras 3; pass keras=2 to dtk.run and dtk.baseline")
            raise ClusterConfigError(_(words))
    return estimators.api()


def __getattr__(name: str) -> Any:
    # Programs that look at modules, pytest among them, ask for names of their own: not worth importing TensorFlow.
    found = getattr(_api(), name, None) if name[0].isupper() or name in _FUNCTIONS else None
    if found is None:
        raise AttributeError(f"module 'dtk.estimator' has no attribute {name!r}, nor had tf.estimator")
    return found
