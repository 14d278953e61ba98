"""What the live views know of a run: progress from records, lines from logs, in bounded memory."""

from __future__ import annotations

import numpy as np
import pytest
from fabricate import fabricate, losses
from live_folder import BAR, announce, empty, step

from dtk.live.follow import Follower
from dtk.live.text import LogLines, clean
from dtk.records import Record
from dtk.watch.reader import Reader


@pytest.fixture
def folder(tmp_path):
    return empty(tmp_path)


def following(folder, replicas):
    reader, follower = Reader(folder), Follower(folder, replicas)
    reader.following = follower
    return reader, follower


def test_follower_adds_shares_and_tells_the_time_left(folder):
    announce(folder, 20, 2)
    reader, follower = following(folder, 2)
    for number in range(1, 11):
        step(folder, number)
    reader.look()
    assert (follower.step, follower.total, follower.loss) == (10, 40, 1.0)
    assert follower.rate == pytest.approx(1280)
    assert follower.eta == pytest.approx(3.0)
    assert follower.words() == "step 10/40, loss 1, 1,280 examples/s, ETA 0:00:03"


def test_a_step_counts_when_every_replica_has_it(folder):
    reader, follower = following(folder, 2)
    step(folder, 1)
    step(folder, 2, workers=[1])
    reader.look()
    assert (follower.step, [corner.step for corner in follower.members]) == (1, [1, 2])
    step(folder, 2, workers=[0])
    reader.look()
    assert follower.step == 2


def test_a_second_fit_is_added_to_the_first(folder):
    announce(folder, 2, 1)
    step(folder, 1)
    step(folder, 2)
    announce(folder, 3, 2, at=5.0)
    step(folder, 3, began=5.1)
    reader, follower = following(folder, 2)
    reader.look()
    assert follower.total == 2 + 6


def test_an_unknown_epoch_length_is_taken_from_the_first_epoch(folder):
    announce(folder, None, 3)
    reader, follower = following(folder, 2)
    for number in range(1, 6):
        step(folder, number)
    reader.look()
    assert (follower.total, follower.eta) == (None, None)
    step(folder, 6, epoch=2)
    reader.look()
    assert follower.total == 15


def test_open_steps_are_bounded(folder):
    _, follower = following(folder, 2)
    for number in range(1, 5001):
        follower._take(Record(0, 0, number, 1, 0.5, 64, 0.0, 0.1))
    assert len(follower._open) <= 4096


def test_clean_carries_out_what_a_terminal_would():
    assert clean(BAR.rstrip("\n").rstrip("\r")) == "2/2 ━━━━ loss: 1"
    assert clean("a\x1b]0;title\x07b\x00c") == "abc"
    assert clean("12%" + "\x08" * 9 + "100%") == "100%"


def test_log_lines_are_whole_and_the_rest_is_partial(tmp_path):
    path = tmp_path / "log.txt"
    log = LogLines(path)
    assert log.read(100) == []
    path.write_bytes(b"one\ntw")
    assert (log.read(100), log.partial) == (["one"], "tw")
    path.write_bytes(b"one\ntwo\n\xff\n")
    assert (log.read(100), log.partial) == (["two", "\\xff"], "")


def test_a_flood_is_skipped_in_bounded_pieces(tmp_path):
    path = tmp_path / "log.txt"
    with path.open("wb") as file:
        file.truncate(100_000_000)  # sparse: 100 MB that take no room
        file.seek(0, 2)
        file.write(b"\nthe end\n")
    log = LogLines(path)
    lines = log.read(1000, newest=True)
    assert lines[-1] == "the end"
    assert log.skipped == 100_000_009 - 1000
    assert sum(map(len, lines)) <= 1000


def test_a_line_without_end_stays_bounded(tmp_path):
    path = tmp_path / "log.txt"
    path.write_bytes(b"x" * 1_000_000)
    log = LogLines(path)
    while log.read(1 << 16) or not log.caught_up:
        pass
    assert len(log._pending) <= 1 << 14


# ---- the shares of the loss


def shares_of(run):
    reader, follower = following(run.folder, run.workers * run.replicas)
    reader.look()
    return follower


def test_shares_are_by_worker(tmp_path):
    curve = losses(30)
    shares = np.stack([0.1 * curve, 0.2 * curve, 0.3 * curve, 0.4 * curve], axis=1)
    follower = shares_of(fabricate(tmp_path / "run", workers=2, replicas=2, shares=shares))
    for share, part in zip(follower.losses, (0.3, 0.7), strict=True):
        assert list(share) == pytest.approx(part * curve)


def test_shares_of_one_worker_are_by_replica(tmp_path):
    follower = shares_of(fabricate(tmp_path / "run", workers=1, replicas=2, mode="mirrored"))
    assert len(follower.losses) == 2
    assert len(shares_of(fabricate(tmp_path / "alone", workers=1, mode="single")).losses) == 1


def test_shares_of_very_many_workers_are_left_out(tmp_path):
    follower = shares_of(fabricate(tmp_path / "run", workers=20, steps=3))
    assert [list(curve) for curve in follower.losses] == [pytest.approx(losses(3))]
