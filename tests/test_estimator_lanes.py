"""Revived and native Estimator side by side: this lane's TensorFlow, and TensorFlow 2.15.1's own tf.estimator.

The other lane's interpreter is that of `uv run noxfile.py -s tf215`, or DTK_TF215_PYTHON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import lanes
import pytest

ROOT = Path(__file__).parent.parent
NATIVE = Path(os.environ.get("DTK_TF215_PYTHON") or ROOT / ".nox" / "tf215" / "bin" / "python")
PROGRAM = """
import json, sys
import dtk, estimating
import tensorflow as tf
from dtk.worker.recorded import RecordedStates

run = dtk.run(estimating.train, kwargs={"steps": 50})
initial = sorted(float(abs(copies[0]).sum()) for copies in RecordedStates(run.folder).before(0).values())
files = sorted({path.name.split("tfevents")[0] for path in (run.dir / "model").rglob("*") if path.is_file()})
losses = list(run.records.groupby("step").loss.sum())
found = {"tensorflow": tf.__version__, "losses": losses, "initial": initial, "files": files}
open(sys.argv[1], "w").write(json.dumps(found))
"""


def outcome(python, out):
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}", "DTK_LIVE": "off"}
    command = [str(python), "-c", PROGRAM, str(out)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(out.read_text())


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(lanes.LANE == "tf215", reason="this is the lane with TensorFlow's own tf.estimator")
@pytest.mark.skipif(not NATIVE.exists(), reason="no TensorFlow 2.15 here: uv run noxfile.py -s tf215 --install-only")
def test_revived_and_native_agree(tmp_path):
    ours, theirs = outcome(sys.executable, tmp_path / "here.json"), outcome(NATIVE, tmp_path / "native.json")
    assert theirs["tensorflow"].startswith("2.15.")
    assert len(ours["losses"]) == 50
    assert ours["initial"] == pytest.approx(theirs["initial"], rel=1e-6)
    assert ours["losses"] == pytest.approx(theirs["losses"], rel=0, abs=1e-5)
    assert ours["files"] == theirs["files"]
