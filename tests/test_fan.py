"""The fan's figure from fabricated runs: boxes, rays and words say what the records hold."""

from __future__ import annotations

import numpy as np
import pytest
from fabricate import fabricate
from matplotlib.colors import to_hex

import dtk
from dtk.view.palette import worker_color

SHARES = np.array([[1.0, 0.5], [1.25, 2.25]])


def words(ax):
    return [text.get_text() for text in ax.texts]


def rays(ax):
    """Colour and style of each ray, and its x from the batch (0) or from a replica (1) on."""
    return [(to_hex(line.get_color()).upper(), line.get_linestyle(), line.get_xdata()[0] > 0.5) for line in ax.lines]


def test_it_shows_the_step_that_was_asked_for(tmp_path):
    ax = dtk.plot.fan(fabricate(tmp_path, steps=2, shares=SHARES, examples=np.array([[2, 2], [2, 1]])), step=2)
    assert "global batch\n3 examples" in words(ax)
    assert "worker 0, replica 0: 2 examples, share 1.2500" in words(ax)
    assert "worker 1, replica 1: 1 example, share 2.2500" in words(ax)
    assert "global loss\n3.5000" in words(ax)
    assert rays(ax) == [(worker_color(k), "-", on) for k in (0, 1) for on in (False, True)]
    assert ax.get_title("left") == "strategy.run opens the fan, strategy.reduce closes it"


def test_replicas_of_one_process_are_not_called_workers(tmp_path):
    ax = dtk.plot.fan(fabricate(tmp_path, workers=1, replicas=2, mode="mirrored", steps=2, shares=SHARES))
    assert "replica 1: 64 examples, share 0.5000" in words(ax)


def test_a_replica_without_examples_adds_nothing_whatever_its_share_says(tmp_path):
    shares, examples = np.array([[1.5, np.nan]]), np.array([[1, 0]])
    ax = dtk.plot.fan(fabricate(tmp_path, steps=1, shares=shares, examples=examples))
    assert "global loss\n1.5000" in words(ax)


def test_a_step_that_not_all_recorded_is_refused(tmp_path):
    run = fabricate(tmp_path, steps=3)
    path = run.folder.worker(1).path / "records.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:1]))
    with pytest.raises(ValueError, match="step=2: the run has records of steps 1 to 1"):
        dtk.plot.fan(run, step=2)
