"""Throughput as bars: as long as the rate that they say, divided by what each worker did."""

from __future__ import annotations

import json

import numpy as np
import pytest
from fabricate import fabricate, said

from dtk import plot as plots
from dtk.scaling import timing


@pytest.fixture
def pair(tmp_path):
    return fabricate(tmp_path / "cluster", steps=30), fabricate(tmp_path / "alone", workers=1, mode="single", steps=30)


def test_throughput_stacks_workers_and_marks_the_ideal(pair):
    cluster, alone = pair  # 128 examples a step, each 0.02 s: 6,400 examples/s in both
    ax = plots.throughput(alone, cluster)
    widths = [bar.get_width() for bar in ax.patches]
    np.testing.assert_allclose(widths, [6400, 3200, 3200])
    np.testing.assert_allclose(ax.lines[0].get_xdata(), 12800)
    assert "2 workers: 1.00 times one device, ideal would be 2" in said(ax)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["baseline", "2 workers"]
    assert "after the first" in said(ax)


def test_throughput_of_one_step_says_so(tmp_path):
    assert "no step after the first" in said(plots.throughput(fabricate(tmp_path, steps=1)))


def test_a_bar_is_as_long_as_the_rate_at_its_end(tmp_path):
    """Medians of workers do not add up to the median of all: here each worker is slow at every second step."""
    run = fabricate(tmp_path, steps=41)
    for corner in run.folder.each:
        path = corner.path / "records.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for number, row in enumerate(rows):
            late = 0.015 if (number + corner.worker) % 2 else 0.0
            row[5:7] = [1.0 + 0.05 * number + late, 1.0 + 0.05 * number + 0.02 + late]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ax = plots.throughput(run, labels=["two"])
    length = sum(bar.get_width() for bar in ax.patches)
    total = timing.throughput(run.records)
    assert length == pytest.approx(total)
    alone = [timing.throughput(run.records[run.records.worker == worker]) for worker in (0, 1)]
    assert abs(sum(alone) / total - 1) > 0.02, "the sum of the workers' medians is another number"
    assert "two: " in said(ax)
