"""Every way to import `tensorflow.keras` gives the Keras that was asked for, forked from a warm parent as well."""

from __future__ import annotations

import types

import lanes
import pytest
from starting import mostly_warm

import dtk
from dtk.worker import ship

pytestmark = pytest.mark.trains

# What is written, and an expression for something of Keras by it.
WAYS = {
    "import tensorflow as tf": "tf.keras.layers.Dense",
    "from tensorflow import keras": "keras.layers.Dense",
    "import tensorflow.keras": "tensorflow.keras.layers.Dense",
    "import tensorflow.keras as k": "k.layers.Dense",
    "from tensorflow.keras import layers": "layers.Dense",
    "from tensorflow.keras import Model": "Model",
    "from tensorflow.keras.layers import Dense": "Dense",
    "from tensorflow.keras.layers import *": "Dense",
    "from tensorflow.keras.models import Sequential": "Sequential",
    "import tensorflow.keras.backend as K": "K.is_float_dtype if hasattr(K, 'is_float_dtype') else K.epsilon",
    "from tensorflow.keras.utils import to_categorical": "to_categorical",
    "from tensorflow.keras.callbacks import Callback": "Callback",
    "import tensorflow.compat.v2 as tf2": "tf2.keras.layers.Dense",
}
ALIASES = {
    "tf.losses": "tf.losses.MeanSquaredError",
    "tf.metrics": "tf.metrics.Mean",
    "tf.optimizers": "tf.optimizers.SGD",
    "tf.initializers": "tf.initializers.HeNormal",
}
LEGACY_ONLY = ["from tensorflow.compat.v2.keras import layers", "from tensorflow.compat.v1.keras import layers"]


def package(statement, expression):
    names = {}
    exec(statement, names)
    return eval(expression, names).__module__.partition(".")[0]


def all_ways():
    """By each way the package that it gives, each in the order of the table and then once more backwards."""
    found = {way: package(way, expression) for way, expression in WAYS.items()}
    again = {way: package(way, expression) for way, expression in reversed(WAYS.items())}
    assert found == again
    found |= {way: package("import tensorflow as tf", expression) for way, expression in ALIASES.items()}
    for way in LEGACY_ONLY:
        try:
            found[way] = package(way, "layers.Dense")
        except ModuleNotFoundError:
            found[way] = "none"
    return found


@mostly_warm
@pytest.mark.skipif(not lanes.KERAS_3, reason="TensorFlow 2.15 has one Keras")
@pytest.mark.parametrize(
    ("asked", "expected"), [(2, "tf_keras"), (3, "keras"), pytest.param(None, "keras", marks=pytest.mark.slow)]
)
def test_every_way_gives_the_keras_that_was_asked_for(start, asked, expected):
    ways = dtk.baseline(all_ways, keras=asked, start=start).results[0]
    legacy = {way: ways.pop(way) for way in LEGACY_ONLY}
    assert set(legacy.values()) == {expected if expected == "tf_keras" else "none"}
    assert ways == dict.fromkeys([*WAYS, *ALIASES], expected)


def in_a_cell(statement, expression):
    """A function whose cell imported at its top, in this process, where TensorFlow's Keras is Keras 3."""
    cell = types.ModuleType("__main__")
    exec(f"{statement}\ndef function():\n    return ({expression}).__module__.partition('.')[0]", vars(cell))
    return cell.function


@pytest.mark.skipif(not lanes.KERAS_3, reason="TensorFlow 2.15 has one Keras")
@pytest.mark.parametrize("asked", [2, 3])
def test_what_a_cell_has_imported(asked):
    functions = {way: in_a_cell(way, expression) for way, expression in WAYS.items()}
    packed = ship.pack(lambda: {way: function() for way, function in functions.items()}, (), {})
    assert packed
    found = dtk.baseline(lambda: {way: function() for way, function in functions.items()}, keras=asked).results[0]
    assert found == dict.fromkeys(WAYS, {2: "tf_keras", 3: "keras"}[asked])


@pytest.mark.skipif(not lanes.KERAS_3, reason="TensorFlow 2.15 has one Keras")
@pytest.mark.parametrize(
    ("made", "kind"),
    [
        ("keras.layers.Dense(1)", "Dense"),
        ("keras.optimizers.SGD(0.1)", "SGD"),
        ("keras.regularizers.L2(0.1)", "L2"),
        ("keras.losses.MeanSquaredError()", "MeanSquaredError"),
    ],
)
def test_an_object_of_the_other_keras_is_refused(made, kind):
    cell = types.ModuleType("__main__")
    exec(f"from tensorflow import keras\nit = {made}\ndef function():\n    return type(it).__module__", vars(cell))
    with pytest.raises(dtk.WorkerFailed) as failure:
        dtk.baseline(cell.function, keras=2)
    assert f"captures a {kind}, an object of Keras that was made where tensorflow.keras is Keras 3" in str(
        failure.value
    )
    assert dtk.baseline(cell.function, keras=3).results[0].startswith("keras.")
