"""Seconds, waiting, examples/s; who waits for whom, and which steps show it: times by hand, and in the timeline."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from fabricate import fabricate, seconds_of

import dtk
from dtk.records.tables import frame
from dtk.runs import Run
from dtk.scaling.timing import last_to_begin, step_parts, step_times, throughput, typical_steps, within_epochs


def paced(path: Path, *, slow: float = 0.05, pause: float = 0.6, epochs: int = 3, each: int = 11) -> Run:
    """Two workers; the steps of `epochs` epochs, of `each` steps of 0.02 s.

    Worker 0 begins every step `slow` seconds late. Between two epochs worker 1 is `pause` seconds later than worker 0.
    """
    run = fabricate(path, steps=epochs * each)
    for corner in run.folder.each:
        file = corner.path / "records.jsonl"
        at, rows = 1.0, []
        for number, row in enumerate(map(json.loads, file.read_text().splitlines())):
            new = number > 0 and number % each == 0
            ready = at + (0.2 + pause * (corner.worker == 1) if new else 0.0)
            began = ready + (slow if corner.worker == 0 else 0.001)
            others = at + (0.2 + pause if new else 0.0) + 0.001, at + (0.2 if new else 0.0) + slow
            at = max(began, *others) + 0.02
            row[2] = number // each + 1
            row[5:7] = [began, at]
            rows.append(json.dumps(row) + "\n")
        file.write_text("".join(rows))
    return run


def test_the_slow_worker_is_the_one_that_does_not_wait(tmp_path):
    run = paced(tmp_path)  # worker 0 is slow; worker 1 alone is late after each pause between epochs
    raw = step_times(run.records)
    assert raw[raw.worker == 0].waiting.max() > 0.5, "the trap: the longest wait of all is the slow worker's"
    worker, often = last_to_begin(within_epochs(raw))
    assert (worker, often > 0.9) == (0, True)
    top, lower = dtk.plot.timeline(run).figure.axes
    for ax in (top, lower):
        assert seconds_of(ax, "waiting", 1) > 9 * seconds_of(ax, "waiting", 0)
    parts = step_parts(run).groupby("worker")[["waiting", "period"]].sum().loc[1]
    share = f"{parts.waiting / parts.period:.0%}"
    assert top.get_label().startswith(f"Worker 1 waits for worker 0: {share} of its time in steps.")


def test_what_lies_between_epochs_is_not_in_the_steps():
    rows = [(w, w, s, 1 + s // 3, 0.5, 64, s + (0.0, 0.4)[w] * (s == 3), s + 0.9) for s in (1, 2, 3) for w in (0, 1)]
    raw, within = step_times(frame(rows)), within_epochs(step_times(frame(rows)))
    assert raw.waiting.tolist() == pytest.approx([0, 0, 0.4, 0, 0, 0])
    assert within.waiting.tolist() == pytest.approx([0] * 6)
    assert within.started.tolist() == pytest.approx([1, 2, 3.4, 1, 2, 3.4])
    assert within.period.tolist() == pytest.approx([0.9, 1.0, 0.5, 0.9, 1.0, 0.5])
    assert list(within.columns) == list(raw.columns)


def test_steps_that_take_turns_have_no_culprit(tmp_path):
    late = [(w, step, 0.5 * (w == step % 2)) for step in range(1, 21) for w in (0, 1)]
    rows = [(w, w, step, 1, 0.5, 64, step + by, step + 0.99) for w, step, by in late]
    assert last_to_begin(step_times(frame(rows)))[1] == pytest.approx(0.5, abs=0.05)
    assert dtk.plot.timeline(fabricate(tmp_path, steps=20)).get_label().startswith("The first step ended after")


def test_one_worker_waits_for_none():
    assert last_to_begin(step_times(frame([(0, 0, s, 1, 0.5, 64, s, s + 0.5) for s in (1, 2, 3)]))) is None
    assert last_to_begin(step_times(frame([(w, w, 1, 1, 0.5, 64, 1, 1.5) for w in (0, 1)]))) is None


@pytest.mark.parametrize("each", [4, 8, 11, 20])
def test_the_enlarged_steps_are_of_one_epoch(tmp_path, each):
    run = paced(tmp_path, each=each, slow=0.005)
    chosen = typical_steps(step_times(run.records))
    assert len(chosen) == min(6, each)
    assert chosen == list(range(chosen[0], chosen[-1] + 1))
    assert len({(step - 1) // each for step in chosen}) == 1
    low, high = dtk.plot.timeline(run).figure.axes[1].get_xlim()
    assert high - low < 0.03 * len(chosen), "no pause of 0.2 s or more is in the picture"


def test_a_worker_without_a_step_leaves_nothing_to_enlarge(tmp_path):
    run = fabricate(tmp_path, steps=10)
    (run.folder.worker(1).path / "records.jsonl").write_text("")
    assert len(dtk.plot.timeline(run).figure.axes) == 1


# ---- seconds, waiting and examples/s, on steps whose times are written by hand


def two_workers(steps: int = 4, seconds: float = 0.5, late: float = 0.125):
    """Worker 1 begins each step `late` seconds after worker 0; both end it at the same moment."""
    spans = [(i + 1, 10 + i * seconds, 10 + (i + 1) * seconds) for i in range(steps)]
    return [(w, w, step, 1, 0.5, 64, begin + w * late, end) for step, begin, end in spans for w in (0, 1)]


def test_the_early_worker_waits_and_the_last_one_does_not():
    times = step_times(frame(two_workers()))
    assert times[times.worker == 0].waiting.tolist() == [0.125] * 4
    assert times[times.worker == 1].waiting.tolist() == [0.0] * 4
    rows = [(0, 0, 1, 1, 0.5, 64, 0.0, 0.25), (1, 1, 1, 1, 0.5, 64, 1.0, 1.25)]
    assert step_times(frame(rows)).waiting.tolist() == [0.25, 0.0], "never longer than the step"


def test_throughput_is_that_of_all_workers_after_the_first_step():
    rows = two_workers()
    assert throughput(frame(rows)) == 256.0
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
    rows = [(0, 0, 1, 1, 0.5, 64, 1.0, 2.0), (0, 0, 2, 1, 0.5, 64, 2.0, 2.0), (0, 0, 3, 1, 0.5, 64, 2.0, 3.0)]
    assert throughput(frame(rows)) == pytest.approx(64.0), "a clock too coarse to tell"
