"""Lesson 03's table of old names: each name does on TensorFlow 2.21 with Keras 3 what the last column says of it."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys

import pytest
from lessons import cells_of

# Of what a name does, as tried, what the table may say.
SAID = {
    "no such name": {"gone", "raises an error"},
    "raises": {"raises an error"},
    "warns": {"warns"},
    "works": {"works", "works, though documented for TensorFlow 1 only"},
    "finds nothing": {"finds none of these"},
}


def rows():
    """The table's first column, in plain text, and its last."""
    (text,) = [cell.source for cell in cells_of("03_mirrored_strategy") if "## Old names, new names" in cell.source]
    return {
        then.replace("`", ""): said
        for then, said in re.findall(r"^\| (`.+?) \| .+ \| (.+) \|$", text, flags=re.MULTILINE)
    }


def what_they_do(folder):
    """By the table's words: what an old name does when it is used as then."""
    import logging

    import keras
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    data = tf.data.Dataset.range(4).batch(2)
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.save_weights(f"{folder}/1.weights.h5")
    experimental = tf.distribute.experimental
    tries = {
        "strategy.experimental_run_v2(fn, args)": lambda: strategy.experimental_run_v2(tf.constant, (1,)),
        "strategy.unwrap(value)": lambda: strategy.unwrap(tf.constant(1)),
        "strategy.make_dataset_iterator(data)": lambda: strategy.make_dataset_iterator(data),
        "strategy.experimental_distribute_datasets_from_function(fn)": lambda: (
            strategy.experimental_distribute_datasets_from_function(lambda context: data)
        ),
        "strategy.experimental_make_numpy_dataset(x)": lambda: strategy.experimental_make_numpy_dataset([1.0]),
        "strategy.reduce(op, value)": lambda: strategy.reduce("SUM", tf.constant(1.0)),
        "tf.distribute.experimental.MultiWorkerMirroredStrategy": lambda: experimental.MultiWorkerMirroredStrategy(),
        "experimental.CollectiveCommunication": lambda: experimental.CollectiveCommunication.RING,
        "callbacks.experimental.BackupAndRestore": lambda: keras.callbacks.experimental.BackupAndRestore(folder),
        "mixed_precision.experimental.set_policy": lambda: keras.mixed_precision.experimental.set_policy("float32"),
        "optimizer.lr": lambda: keras.optimizers.SGD().lr,
        "metric.reset_states()": lambda: keras.metrics.Mean().reset_states(),
        'save_weights("ckpt_1")': lambda: model.save_weights(f"{folder}/ckpt_1"),
        "tf.train.latest_checkpoint(folder)": lambda: tf.train.latest_checkpoint(folder) or "finds nothing",
        "model.save(folder) as a SavedModel": lambda: model.save(f"{folder}/saved"),
    }
    warned = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = warned.append
    tf.get_logger().addHandler(handler)
    done = {}
    for name, use in tries.items():
        warned.clear()
        try:
            found = use()
        except AttributeError:
            done[name] = "no such name"
        except Exception:
            done[name] = "raises"
        else:
            done[name] = found if isinstance(found, str) else "warns" if warned else "works"
    return done


@pytest.mark.trains
def test_each_old_name_does_what_the_table_says(tmp_path):
    ends = "\nimport json\nimport sys\nprint(json.dumps(what_they_do(sys.argv[1])))"
    program = [sys.executable, "-c", inspect.getsource(what_they_do) + ends, str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    table = rows()
    assert list(found) == list(table)
    assert {name: said for name, said in table.items() if said not in SAID[found[name]]} == {}, found
