"""Revived and native Estimator side by side: this lane's TensorFlow, and TensorFlow 2.15.1's own tf.estimator.

The other lane's interpreter is that of `make .venv-tf215/.ready`, or DTK_TF215_PYTHON; without one its half is skipped.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from prepared import PREPARED, needs_mnist

from dtk.compat import estimators as compat

ROOT = Path(__file__).parent.parent
NATIVE = Path(os.environ.get("DTK_TF215_PYTHON") or ROOT / ".venv-tf215" / "bin" / "python")
# the published tutorial on real MNIST, on two TensorFlows
pytestmark = [needs_mnist, pytest.mark.timeout(600), pytest.mark.slow]


def outcome(python, out):
    env = {**os.environ, "TFDS_DATA_DIR": str(PREPARED), "PYTHONPATH": str(ROOT), "DTK_LIVE": "off"}
    program = str(Path(__file__).with_name("lane_program.py"))
    done = subprocess.run([str(python), program, str(out)], env=env, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(out.read_text())


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    return outcome(sys.executable, tmp_path_factory.mktemp("lane") / "here.json")


@pytest.fixture(scope="module")
def native(tmp_path_factory):
    if compat.is_native():
        pytest.skip("this is the lane with TensorFlow's own tf.estimator")
    if not NATIVE.exists():
        pytest.skip("no TensorFlow 2.15 lane here: make .venv-tf215/.ready")
    return outcome(NATIVE, tmp_path_factory.mktemp("lane") / "native.json")


def test_the_published_tutorial_runs_on_two_workers(here):
    said = here["published"]
    assert [result["global_step"] for result in said["results"]] == [469, 469], "60,000 images, 64 on each worker"
    assert len(said["losses"]) == 469
    chief = {name for name in said["files"] if "/" not in name}
    assert {"checkpoint", "graph.pbtxt", "events.out.tfevents", "model.ckpt-0.index", "model.ckpt-469.index"} <= chief
    assert {f"tmp_worker_1/{name}" for name in chief} <= set(said["files"])


def test_the_published_tutorial_learns_nothing(here):
    """Its own flaws: the loss of guessing among 10 classes, and three quarters of it in the last step, of 48 images."""
    losses = here["published"]["losses"]
    assert all(2.25 < loss < 2.35 for loss in losses[:-1])
    assert losses[-1] < 2.25


def test_both_lanes_write_the_same_files(here, native):
    assert native["tensorflow"].startswith("2.15.")
    assert here["published"]["files"] == native["published"]["files"]


def test_revived_and_native_agree_to_1e_5(here, native):
    ours, theirs = here["same_weights"], native["same_weights"]
    assert len(ours["losses"]) == 50
    assert ours["initial"] == pytest.approx(theirs["initial"], rel=1e-6)
    assert ours["losses"] == pytest.approx(theirs["losses"], rel=0, abs=1e-5)
