"""What each lane runs, to be compared: `python tests/lane_program.py OUT.json`; see test_estimator_lanes.py."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import estimating
import published_estimator

import dtk

STEPS = 50


def published():
    """The published tutorial on 2 workers: which files it writes, and what came of it."""
    place = Path(published_estimator.MODEL_DIR)
    assert not place.exists(), f"{place} is somebody's; the tutorial would go on from there"
    try:
        run = dtk.run(published_estimator.train, workers=2, timeout=240)
        files = {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}
    finally:
        shutil.rmtree(place, ignore_errors=True)
    named = sorted(re.sub(r"tfevents\..*", "tfevents", name) for name in files)
    return {"files": named, "results": run.results, "losses": list(run.records.groupby("step").loss.sum())}


def same_weights():
    run = dtk.run(estimating.train, kwargs={"steps": STEPS})
    initial = run.folder.worker(0).weights("initial")
    return {
        "losses": list(run.records.groupby("step").loss.sum()),
        "initial": [float(abs(array).sum()) for array in initial.arrays],
    }


if __name__ == "__main__":
    import tensorflow as tf

    found = {"tensorflow": tf.__version__, "published": published(), "same_weights": same_weights()}
    Path(sys.argv[1]).write_text(json.dumps(found))
