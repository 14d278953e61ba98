"""The revival of tf.estimator: when a piece of it is no longer needed, or no longer enough, a test here says so."""

import importlib
import re
import sys
from importlib.metadata import version

import lanes
import pytest

import dtk
from dtk.compat import estimators as compat
from dtk.errors import DtkError

revived = pytest.mark.skipif(lanes.LANE == "tf215", reason="this TensorFlow has tf.estimator itself")

NAMES = [  # of the documentation of tf.estimator, TensorFlow 2.15
    *("DNNClassifier", "Estimator", "LoggingTensorHook", "ModeKeys", "RunConfig", "add_metrics", "experimental"),
    *("export", "model_to_estimator", "train_and_evaluate"),
]


@pytest.mark.trains
@pytest.mark.parametrize("name", NAMES)
def test_the_names_are_there(name):
    assert hasattr(compat.api(), name)
    assert getattr(dtk.estimator, name)


@pytest.mark.trains
@revived
def test_a_name_that_tf_estimator_never_had_imports_nothing(monkeypatch):
    """pytest asks each module for `pytest_plugins`."""
    monkeypatch.setattr(compat, "api", None)
    with pytest.raises(AttributeError, match="module 'dtk.estimator' has no attribute 'pytest_plugins', nor had"):
        dtk.estimator.pytest_plugins  # noqa: B018


@pytest.mark.trains
@pytest.mark.skipif(lanes.LANE != "tf215", reason="this TensorFlow has no tf.estimator")
def test_up_to_2_15_it_is_tf_estimator():
    import tensorflow as tf

    assert dtk.estimator.Estimator is tf.estimator.Estimator
    assert dtk.estimator.RunConfig is tf.estimator.RunConfig


@pytest.mark.trains
@revived
def test_tensorflow_still_has_no_estimator():
    """When this fails, tf.estimator is back: dtk.estimator can hand it on as it does on 2.15."""
    import tensorflow as tf

    assert not hasattr(tf, "estimator")


@pytest.mark.trains
@revived
def test_the_three_pieces_are_still_missing():
    """When this fails, TensorFlow or tensorflow-estimator brings a piece of its own again."""
    from tensorflow.python.util import tf_export

    compat.api()
    assert sys.modules["tensorflow.python.distribute.estimator_training"] is compat
    assert not hasattr(tf_export, "ESTIMATOR_API_NAME")
    with pytest.raises(ImportError):
        importlib.import_module("tensorflow_estimator.python.estimator.tpu.tpu_estimator")


@revived
def test_this_is_the_last_release_of_the_package():
    assert version("tensorflow-estimator") == "2.15.0"


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(compat, "is_native", lambda: False)
    monkeypatch.setitem(sys.modules, "tensorflow_estimator", None)  # None there makes an import raise
    remedy = re.escape('not installed here; pip install "dtk-toolkit[estimator]"')
    with pytest.raises(
        DtkError, match=f"dtk.estimator needs tensorflow_estimator,.* {remedy}"
    ):  # a fast run has no tf_keras
        compat.api.__wrapped__()
