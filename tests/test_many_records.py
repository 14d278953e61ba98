"""Runs of very many steps: read as they were written, and drawn so that nothing that stands out is lost."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from fabricate import fabricate

from dtk import plot as plots
from dtk.records.tables import COLUMNS, frame, rows


def test_rows_are_read_to_the_last_bit():
    chance = random.Random(0)
    odd = [float("nan"), float("inf"), -float("inf"), 5e-324, 1.7976931348623157e308, -0.0, 0.1 + 0.2]
    written = [
        [
            k % 3,
            k + 1,
            1,
            odd[k] if k < len(odd) else chance.random() * 10 ** chance.randint(-30, 30),
            64,
            k / 3,
            k / 3,
            1.0,
        ]
        for k in range(500)
    ]
    lines = "".join(json.dumps(row) + "\n" for row in written).encode()
    read = rows(2, lines)
    slowly = frame([(2, *json.loads(line)) for line in lines.splitlines()])
    assert list(read.columns) == list(COLUMNS)
    assert (read.dtypes == slowly.dtypes).all()
    for name in COLUMNS:
        assert read[name].to_numpy().tobytes() == slowly[name].to_numpy().tobytes() or name == "loss", name
    assert [repr(value) for value in read.loss] == [repr(value) for value in slowly.loss]


def test_a_spike_in_a_long_run_is_drawn(tmp_path):
    steps = 6000
    shares = np.full((steps, 2), 0.5)
    shares[4321, 1] = 40.0
    shares[1234, 0] = np.nan
    run = fabricate(tmp_path, steps=steps, shares=shares)
    alone = fabricate(tmp_path / "one", workers=1, mode="single", steps=steps, shares=np.ones((steps, 1)))
    ax = plots.loss_scaling(run, alone)
    tops = [patch.get_data() for patch in ax.patches if hasattr(patch, "get_data")]
    assert len(tops) == 3
    assert np.nanmax(tops[1].values) == (39 * 1.0 + 40.5) / 40, "a mean over 40 steps"
    assert np.nanmax(tops[2].values) == 40.5, "their largest sum"
    assert abs(tops[2].edges[int(np.nanargmax(tops[2].values))] - 4322) < 40
    assert len(tops[0].values) == 150
    assert "no finite loss" in [text.get_text() for text in ax.figure.legends[0].get_texts()]
    points = plots.difference(run, alone).lines[0].get_ydata()
    assert (len(points), np.nanmax(points)) == (2000, pytest.approx(39.5)), "the largest of three steps each"
