"""Pairs of runs for the tests of `verify`: alike, but for the one number that a test changes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from fabricate import fabricate, losses

from dtk import Run, VerificationError, verify
from dtk.records.events import parse

STEPS = 20
END = [np.full((3, 2), 0.75, np.float32), np.full(2, -0.25, np.float32)]


def maker(folder: Path) -> Callable[..., Run]:
    """make(**facts): a cluster of 2 in a new folder, unless facts say otherwise; make("single"): its baseline."""
    counter = count()

    def make(mode="cluster", workers=None, final=END, **facts):
        workers = workers or (2 if mode == "cluster" else 1)
        facts = {"steps": STEPS, "replicas": 2 if mode == "mirrored" else 1, **facts}
        ends = final if final and isinstance(final[0], list) else [final] * workers
        return fabricate(folder / str(next(counter)), mode=mode, workers=workers, final=ends, **facts)

    return make


def refused(*args, **tolerances) -> VerificationError:
    with pytest.raises(VerificationError) as caught:
        verify(*args, **tolerances)
    return caught.value


def edit_records(run, worker, change):
    """Rewrites a worker's records: change(rows) -> rows, a row being [replica, step, epoch, loss, examples, …]."""
    file = run.folder.worker(worker).path / "records.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(row) + "\n" for row in change(rows)))


def edit_events(run, worker, keep):
    file = run.folder.worker(worker).path / "events.jsonl"
    file.write_text("".join(line + "\n" for line in file.read_text().splitlines() if keep(parse(line))))


def replaced(arrays, index, change):
    """The arrays with `change` added to each number of one of them."""
    return [array + np.float32(change) if i == index else array for i, array in enumerate(arrays)]


def curve_of(workers, step=None, factor=1.0):
    """Equal shares, `(STEPS, workers)`, of the default losses; the global loss at `step` multiplied by factor."""
    curve = losses(STEPS)
    if step is not None:
        curve[step - 1] *= factor
    return np.repeat(curve[:, None] / workers, workers, axis=1)


def short_batch(rng, counts, step=STEPS, size=128):
    """Shares as fit computes them, the baseline's loss, and both's examples; `counts` at `step`, even elsewhere."""
    replicas = len(counts)
    examples = np.full((STEPS, replicas), size // replicas)
    examples[step - 1] = counts
    shares, base = np.empty((STEPS, replicas)), np.empty((STEPS, 1))
    for i in range(STEPS):
        parts = [rng.random(n) + 0.2 for n in examples[i]]
        shares[i] = [part.mean() / replicas if len(part) else 0.0 for part in parts]
        base[i] = np.concatenate(parts).mean()
    return shares, base, examples


def uneven_pair(make, counts, step=STEPS, spoil=1.0, kind="fit"):
    """A cluster and a baseline; spoil multiplies the cluster's loss at `step`."""
    shares, base, examples = short_batch(np.random.default_rng(5), counts, step)
    shares[step - 1] *= spoil
    epochs = np.where(np.arange(STEPS) < step, 1, 2)
    mode, workers = ("cluster", len(counts))
    run = make(
        mode, workers=workers, shares=shares, examples=examples, epochs=epochs, loop={"kind": kind, "shapes": []}
    )
    return run, make("single", shares=base, examples=examples.sum(axis=1, keepdims=True), epochs=epochs)


def restarted(run, step):
    """Makes of a cluster of 2 one whose worker 1 was killed, and whose second attempt began at `step`."""
    run.folder.save_attempt(1, "worker 1 was killed by SIGKILL", 0.0, 2.0)
    earlier = run.folder.path / "attempt-1"
    earlier.mkdir()
    for path in [worker.path for worker in run.folder.each]:
        shutil.copytree(path, earlier / path.name)
    (run.folder.path / "attempt.json").rename(earlier / "attempt.json")
    run.folder.save_attempt(2, None, 2.0, 4.0)
    for worker in range(2):
        edit_records(run, worker, lambda rows: [row for row in rows if row[1] >= step])
    return run
