"""What the live views know of the last seconds: from records and marks, in bounded memory, no more than is known."""

from __future__ import annotations

import numpy as np
import pytest
from live_folder import announce, busy_step, empty, step

from dtk.live import recent as module
from dtk.live.recent import BINS, RecentActivity
from dtk.records import Journal
from dtk.scaling.parts import PARTS
from dtk.watch import reader as reading
from dtk.watch.reader import Reader
from dtk.watch.waiting import Line


@pytest.fixture
def clock(monkeypatch):
    """The run's seconds as this process sees them, to be set."""
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def folder(tmp_path):
    return empty(tmp_path)


def following(folder, together=True):
    reader = Reader(folder)
    return reader, RecentActivity(reader, together)


def look(reader, activity, states=(), last=False):
    reader.look()
    activity.refresh(states, last)


def train(folder, until, length=0.1, since=0.0, **facts):
    """Steps one after the other, with their marks."""
    count = round((until - since) / length)
    before = round(since / length)
    for k in range(count):
        busy_step(folder, before + k + 1, since + k * length, length, **facts)


def by_part(window):
    """By part, each worker's share of the window."""
    return {part: window.parts[:, k].tolist() for k, part in enumerate(PARTS)}


def test_shares_of_the_last_ten_seconds(folder, clock):
    reader, activity = following(folder)
    train(folder, 20.0, late=0.2)
    clock[0] = 20.0
    look(reader, activity, last=True)
    window = activity.window(finished=True)
    assert window.seconds == 10
    assert window.shares[:, :, -1].sum(axis=1) == pytest.approx(1.0, abs=0.01), "until the last step's end, at 19.99 s"
    shares = by_part(window)
    for part, expected in {
        "python": (0.2, 0.2),
        "input": (0.1, 0.1),
        "compute": (0.3, 0.5),
        "waiting": (0.2, 0.0),
        "all_reduce": (0.2, 0.2),
    }.items():
        assert shares[part] == pytest.approx(expected, abs=0.02), part


def test_what_goes_on_is_not_known_yet(folder, clock):
    reader, activity = following(folder)
    train(folder, 12.0)
    clock[0] = 12.0
    look(reader, activity)
    assert activity.window().parts.sum(axis=1) == pytest.approx(1.0, abs=0.02)
    clock[0] = 16.0
    look(reader, activity)
    window = activity.window()
    assert window.shares.sum(axis=1)[:, :24] == pytest.approx(np.ones((2, 24)), abs=0.02)
    assert window.shares.sum(axis=1)[:, 27:].max() == 0


def test_a_worker_that_waits_for_another_is_shown_to_wait(folder, clock):
    reader, activity = following(folder)
    train(folder, 12.0)
    clock[0] = 12.0
    look(reader, activity)
    clock[0] = 16.0
    look(reader, activity, [Line("step 121, in a collective", 4.0, ", waits for worker 1"), Line("silent", 4.0)])
    waiting = activity.window().shares[:, PARTS.index("waiting")]
    assert waiting[0, 27:] == pytest.approx(np.ones(BINS - 27))
    assert waiting[1].max() == 0
    train(folder, 18.0, since=16.0)
    clock[0] = 18.0
    look(reader, activity, ["training", "training"])
    assert activity.window().shares[0, PARTS.index("waiting")].max() == 0, "what was said of now is not kept"


def test_without_marks_only_python_between_steps_is_known(folder, clock):
    reader, activity = following(folder)
    for number in range(1, 100):
        step(folder, number)  # 0.01 s between each and the next
    clock[0] = 10.0
    look(reader, activity, last=True)
    shares = by_part(activity.window(finished=True))
    assert shares.pop("python") == pytest.approx([0.1, 0.1], abs=0.01)
    assert set(map(tuple, shares.values())) == {(0.0, 0.0)}


def test_without_all_reduces_of_a_cluster_computing_is_not_known(folder, clock):
    for k in (0, 1):
        journal = Journal(folder.worker(k))
        for number in range(100):
            journal.mark("take", float("nan"), number * 0.1 + 0.12, 0)
        journal.close()
    for number in range(1, 100):
        step(folder, number)
    clock[0] = 10.0
    known = {}
    for together in (True, False):
        reader, activity = following(folder, together)
        look(reader, activity, last=True)
        known[together] = by_part(activity.window(finished=True))
    assert known[True]["compute"] == [0, 0]
    assert known[True]["input"] == known[False]["input"] == pytest.approx([0.2, 0.2], abs=0.01)
    assert known[False]["compute"] == pytest.approx([0.7, 0.7], abs=0.02)


def test_the_first_step_is_not_known(folder, clock):
    reader, activity = following(folder)
    train(folder, 6.0, length=2.0)
    clock[0] = 6.0
    look(reader, activity, last=True)
    window = activity.window(finished=True)
    assert window.parts.sum(axis=1) == pytest.approx(0.4, abs=0.01), "of 10 s the others, from the first one's end"


def test_a_short_run_has_a_short_window_when_it_is_over(folder, clock):
    reader, activity = following(folder)
    train(folder, 1.0)
    clock[0] = 1.0
    look(reader, activity)
    assert activity.window().seconds == 10
    look(reader, activity, last=True)
    window = activity.window(finished=True)
    assert window.seconds == 2
    assert window.parts.sum(axis=1) == pytest.approx(0.9 / 2, abs=0.01)


def test_a_worker_that_lags_is_waited_for_and_then_given_up(folder, clock):
    reader, activity = following(folder)
    train(folder, 2.0)
    clock[0] = 2.0
    train(folder, 4.0, since=2.0, workers=[0])
    look(reader, activity)
    clock[0] = 4.0
    look(reader, activity)
    known = activity.window().shares.sum(axis=1)
    assert known[0, -5:].max() == 0, "who waited in the steps after 2 s is open"
    clock[0] = 9.0
    look(reader, activity)
    train(folder, 10.0, since=9.0)
    clock[0] = 10.0
    look(reader, activity, last=True)
    known = activity.window(finished=True).shares.sum(axis=1)
    assert known[:, -3:].min() > 0.9, "what comes later is known again"


def test_long_steps_have_a_longer_window_and_short_ones_a_shorter_one_again(folder, clock):
    reader, activity = following(folder)
    train(folder, 48.0, length=4.0)
    clock[0] = 48.0
    look(reader, activity, last=True)
    window = activity.window(finished=True)
    assert window.seconds == 50
    assert window.parts.sum(axis=1) == pytest.approx((48 - 4 - 0.4) / 50, abs=0.03)
    for until in (52.0, 56.0, 60.0):
        train(folder, until, since=until - 4)
        clock[0] = until
        look(reader, activity, last=True)
    assert activity.window(finished=True).seconds == 10


def test_a_validation_between_two_epochs_is_not_known(folder, clock):
    reader, activity = following(folder)
    train(folder, 4.0)
    for k in (0, 1):
        journal = Journal(folder.worker(k))
        for at in range(40, 80):
            journal.mark("reduce", 0.1 * at, 0.1 * at + 0.05, 4)
        journal.close()
    train(folder, 10.0, since=8.0)
    rows = [worker.path / "records.jsonl" for worker in folder.each]
    for path in rows:  # the later steps are of the second epoch
        lines = path.read_text().splitlines()
        lines[40:] = [line.replace(", 1, 0.5", ", 2, 0.5", 1) for line in lines[40:]]
        path.write_text("\n".join(lines) + "\n")
    clock[0] = 10.0
    look(reader, activity, last=True)
    known = activity.window(finished=True).shares.sum(axis=1)[0]
    assert known[17:31].max() == 0, "from 4.25 to 7.75 s"
    assert known[33:39].min() > 0.8


def test_marks_that_were_left_out_leave_their_steps_unknown(folder, clock, monkeypatch):
    monkeypatch.setattr(reading, "_BYTES", 4000)
    reader, activity = following(folder)
    train(folder, 10.0)
    reader.catch_up()
    clock[0] = 10.0
    activity.refresh(last=True)
    known = activity.window(finished=True).shares.sum(axis=1)
    assert known[:, :12].max() == 0
    assert known[:, 32:39].min() > 0.9


def test_memory_is_bounded(folder, clock, monkeypatch):
    monkeypatch.setattr(module, "_MARKS", 50)
    reader, activity = following(folder)
    train(folder, 10.0)
    clock[0] = 10.0
    look(reader, activity, last=True)
    assert activity._marks[0].shape[1] == 50
    known = activity.window(finished=True).shares.sum(axis=1)
    assert known[:, :28].max() == 0, "of earlier steps no mark is left"
    assert known[:, 32:39].min() > 0.9


def test_a_view_may_be_there_before_the_run_begins(folder, clock):
    reader, activity = following(folder)
    look(reader, activity)
    assert activity.now == 0
    clock[0] = 105.0  # the run's second 5
    train(folder, 5.0)
    look(reader, activity)
    assert activity.now == pytest.approx(5.0, abs=0.02)
    clock[0] = 106.0
    assert activity.now == pytest.approx(6.0, abs=0.02)


def test_the_evaluator_and_announcements_are_no_steps(folder, clock):
    announce(folder, 20, 1, at=3.0)
    reader, activity = following(folder)
    clock[0] = 3.0
    look(reader, activity)
    assert not activity.window().known
    assert activity.now == pytest.approx(3.0)
