"""`dtk.correct_keras()` in plain programs: what it says and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys

import lanes
import pytest
from by_hand import SECONDS, blocks, environment, started_by_hand
from test_compat import ALL

CALL = "dtk.correct_keras()\n"


def printed(code, **changes):
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(**changes), capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


NAMES = ALL if lanes.KERAS_3 else []
PROGRAM = blocks("python")[0]


@pytest.mark.slow  # imports TensorFlow anew
def test_it_says_what_is_in_force_and_a_second_call_changes_nothing():
    code = """
import json
import dtk
first = dtk.correct_keras()
import keras
fit = keras.Model.fit
made = keras.Sequential([keras.layers.Dense(1)])
print(json.dumps([first, dtk.correct_keras(), keras.Model.fit is fit]))
"""
    assert printed(code) == [NAMES, NAMES, True]


@pytest.mark.slow  # imports TensorFlow anew
def test_tf_keras_is_left_as_it_is():
    code = """
import json, os, sys
os.environ["TF_USE_LEGACY_KERAS"] = "1"
import tensorflow as tf
import dtk
before = tf.keras.Model.fit
result = dtk.correct_keras()
print(json.dumps([result, tf.keras.Model.fit is before, tf.keras.Model.__module__.split(".")[0]]))
"""
    result, same, package = printed(code)
    assert (result, same, package) == ([], True, "tf_keras")


@pytest.mark.slow  # imports TensorFlow anew
def test_of_a_keras_without_the_faults_nothing_is_touched():
    """Sources that hold none of the faulty lines stand in for a Keras that has been corrected."""
    code = """
import json, linecache
import keras
import dtk
from dtk.compat import keras3
real = linecache.getlines

def corrected(name, *more):
    text = "".join(real(name, *more))
    for faulty in ("strategy.reduce(", "tf.while_loop(", "experimental_local_results(", "d > 1]"):
        text = text.replace(faulty, "corrected(")
    return [*text.splitlines(keepends=True), "init_scope"]

linecache.getlines = corrected
fit = keras.Model.fit
print(json.dumps([dtk.correct_keras(), keras.Model.fit is fit]))
"""
    assert printed(code) == [[], True]


@pytest.mark.slow  # imports TensorFlow anew
def test_without_the_call_both_fail_with_the_known_error(tmp_path):
    program = PROGRAM
    assert program.count(CALL) == 1
    logs = started_by_hand(tmp_path, program.replace(CALL, ""))
    assert all("Attempt to convert a value (PerReplica" in log for log in logs), logs
    assert not (tmp_path / "out" / "weights.npz").exists()
