"""What the labs in the page (docs/_static/labs) need of dtk: colors, links, an example job, recorded runs; data.json.

    python tools/page_data.py           # all but the runs, which stay as they are
    python tools/page_data.py --runs    # trains both, with real workers, and keeps what they recorded

tests/test_page_labs.py compares.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dtk.scaling.job import LINKS
from dtk.scaling.timing import PARTS
from dtk.view.loss_scaling import _LOSSES
from dtk.view.palette import PART_COLORS, worker_color
from dtk.view.what_if import EXAMPLE, LIMIT_COLORS

FILE = Path(__file__).resolve().parent.parent / "docs/_static/labs/data.json"
STEPS = 24


def constant() -> dict[str, Any]:
    """What no run decides."""
    job = asdict(EXAMPLE)
    return {
        "colors": [worker_color(worker) for worker in range(8)],
        "parts": {name: PART_COLORS[name] for name in PARTS},
        "limits": LIMIT_COLORS,
        "links": {name: {**asdict(link), "text": str(link)} for name, link in LINKS.items()},
        "job": {name: job[name] for name in job if name != "ready"},
        "losses": _LOSSES.tolist(),
    }


def train(strategy: Any, global_batch: int = 512) -> None:
    """Large enough that computing and the all-reduce can be seen beside each other."""
    import keras
    import tensorflow as tf

    import dtk

    (images, _), _info = dtk.datasets.load("mnist", source="embedded")
    images = images.map(lambda image, label: (tf.cast(image, tf.float32) / 255.0, label))
    batches = images.cache().shuffle(2000, seed=1).repeat().batch(global_batch)
    with strategy.scope():
        layers = [keras.layers.Flatten(), keras.layers.Dense(512, activation="relu"), keras.layers.Dense(10)]
        model = keras.Sequential([keras.layers.Input((28, 28, 1)), *layers])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=keras.optimizers.SGD(0.05), loss=loss)
    model.fit(batches, steps_per_epoch=STEPS, callbacks=[dtk.Recorder()], verbose=0)


def recorded(run: Any) -> dict[str, Any]:
    """Each step's seconds of each worker by what they went for, and its share of the loss; without the first step."""
    from dtk.scaling.timing import step_parts

    parts = step_parts(run).set_index(["step", "worker"])
    shares = run.records.groupby(["step", "worker"]).loss.sum()
    steps = []
    for step in sorted({step for step, _worker in parts.index}):
        workers = []
        for worker in range(run.workers):
            row = {name: round(float(parts.loc[(step, worker), name]), 5) for name in PARTS}
            workers.append({**row, "share": round(float(shares[step, worker]), 4)})
        steps.append({"step": int(step), "workers": workers})
    return {"steps": steps}


def runs() -> dict[str, Any]:
    """Two workers alike, and one of them with 50 ms more in each step."""
    import dtk

    slow = [dtk.faults.slow(worker=1, seconds_per_step=0.05)]
    return {
        "even": recorded(dtk.run(train, workers=2)),
        "straggler": recorded(dtk.run(train, workers=2, faults=slow)),
    }


def main() -> int:
    options = argparse.ArgumentParser(description=inspect.getdoc(sys.modules[__name__]))
    options.add_argument("--runs", action="store_true")
    kept = runs() if options.parse_args().runs else json.loads(FILE.read_text())["runs"]
    FILE.write_text(json.dumps({**constant(), "runs": kept}, separators=(",", ":"), ensure_ascii=False) + "\n")
    print(f"{FILE.name}: {FILE.stat().st_size / 1e3:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
