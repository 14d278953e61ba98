"""Seconds, waiting and examples/s, on steps whose times are written by hand."""

from __future__ import annotations

import numpy as np
import pytest

from dtk.records import frame
from dtk.scaling.timing import step_times, throughput


def two_workers(steps: int = 4, seconds: float = 0.5, late: float = 0.125):
    """Worker 1 begins each step `late` seconds after worker 0; both end it at the same moment."""
    rows = []
    for i in range(steps):
        begin, end = 10 + i * seconds, 10 + (i + 1) * seconds
        rows += [(0, 0, i + 1, 1, 0.5, 64, begin, end), (1, 1, i + 1, 1, 0.5, 64, begin + late, end)]
    return rows


def test_the_early_worker_waits_and_the_last_one_does_not():
    times = step_times(frame(two_workers()))
    assert times[times.worker == 0].waiting.tolist() == [0.125] * 4
    assert times[times.worker == 1].waiting.tolist() == [0.0] * 4


def test_waiting_is_never_longer_than_the_step():
    rows = [(0, 0, 1, 1, 0.5, 64, 0.0, 0.25), (1, 1, 1, 1, 0.5, 64, 1.0, 1.25)]
    assert step_times(frame(rows)).waiting.tolist() == [0.25, 0.0]


def test_throughput_is_that_of_all_workers_together():
    assert throughput(frame(two_workers())) == 256.0


def test_the_first_step_does_not_count():
    rows = two_workers()
    slow = [(w, r, s, e, loss, n, began - 9 * (s == 1), end) for w, r, s, e, loss, n, began, end in rows]
    assert throughput(frame(slow)) == 256.0
    assert step_times(frame(slow)).seconds.max() > 9


def test_what_lies_between_two_steps_counts_but_not_between_two_epochs():
    within = [(0, 0, s, 1, 0.5, 100, 2.0 * s, 2.0 * s + 1) for s in (1, 2, 3)]
    assert throughput(frame(within)) == 50.0
    epochs = [(0, 0, s, s, 0.5, 100, 50.0 * s, 50.0 * s + 1) for s in (1, 2, 3)]
    assert throughput(frame(epochs)) == 100.0


def test_the_slowest_worker_ends_the_clusters_step():
    rows = two_workers()
    rows = [(*row[:7], row[7] + 0.25 * (row[0] == 1 and row[2] > 2)) for row in rows]
    assert throughput(frame(rows)) == 128 / 0.5
    late = [(*row[:7], row[7] + 0.25 * row[0] * row[2]) for row in two_workers()]
    assert throughput(frame(late)) == 128 / 0.75


def test_replicas_of_one_worker_are_put_together():
    rows = [(0, r, s, 1, 0.5, 32, s + 0.125 * r, s + 1 - 0.25 * (1 - r)) for s in (1, 2, 3) for r in (0, 1)]
    times = step_times(frame(rows))
    assert times.examples.tolist() == [64] * 3
    assert times.started.tolist() == [1.0, 2.0, 3.0]
    assert times.ended.tolist() == [2.0, 3.0, 4.0]
    assert throughput(frame(rows)) == 64.0


def test_nothing_recorded_and_one_step_have_no_throughput():
    assert np.isnan(throughput(frame([])))
    assert np.isnan(throughput(frame(two_workers(steps=1))))


def test_a_clock_too_coarse_to_tell_gives_no_infinite_rate():
    rows = [(0, 0, 1, 1, 0.5, 64, 1.0, 2.0), (0, 0, 2, 1, 0.5, 64, 2.0, 2.0), (0, 0, 3, 1, 0.5, 64, 2.0, 3.0)]
    assert throughput(frame(rows)) == pytest.approx(64.0)
