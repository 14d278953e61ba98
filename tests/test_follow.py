"""What the live views know of a run: progress from records, lines from logs, in bounded memory."""

from __future__ import annotations

import pytest
from live_folder import BAR, announce, step
from test_pace import paced
from test_restarts_figure import restarted
from verifying import edit_records

import dtk
from dtk.language import three
from dtk.live.run_progress import RunProgress
from dtk.live.text import LogLines
from dtk.records import clean
from dtk.scaling.summary import lines
from dtk.scaling.timing import throughput_of
from dtk.watch.reader import Reader


def following(folder):
    reader = Reader(folder)
    return reader, RunProgress(reader, 1)


def test_progress_adds_shares_and_tells_the_time_left(folder):
    announce(folder, 20, 2)
    reader, progress = following(folder)
    for number in range(1, 11):
        step(folder, number)
    reader.look()
    assert (progress.step, progress.total, progress.loss) == (10, 40, 1.0)
    assert progress.rate == pytest.approx(1280)
    assert progress.eta == pytest.approx(3.0)
    assert progress.words() == "step 10/40, loss 1, 1,280 examples/s, ETA 0:00:03"


@pytest.mark.parametrize("restart", [False, True])
def test_the_rate_is_the_same_wherever_it_is_said(tmp_path, restart):
    run = restarted(tmp_path, (1, 29), (25, 33)) if restart else paced(tmp_path)
    if restart:  # whose last start has another pace
        for worker in (0, 1):
            edit_records(run, worker, lambda rows: [[*row[:5], 2 * row[5], 2 * row[6], *row[7:]] for row in rows])
    reader, progress = following(run.folder)
    reader.look()
    assert progress.rate == pytest.approx(throughput_of(run))
    assert three(progress.rate) in [text.get_text() for text in dtk.plot.throughput(run).texts]
    assert f"{three(progress.rate)} examples/s" in lines(run)[0]


def test_a_step_counts_when_every_replica_has_it(folder):
    reader, progress = following(folder)
    step(folder, 1)
    step(folder, 2, workers=[1])
    reader.look()
    assert (progress.step, progress.reached) == (1, [1, 2])
    step(folder, 2, workers=[0])
    reader.look()
    assert progress.step == 2


def test_a_second_fit_is_added_to_the_first(folder):
    announce(folder, 2, 1)
    step(folder, 1)
    step(folder, 2)
    announce(folder, 3, 2, at=5.0)
    step(folder, 3, began=5.1)
    reader, progress = following(folder)
    reader.look()
    assert progress.total == 2 + 6


def test_an_unknown_epoch_length_is_taken_from_the_first_epoch(folder):
    announce(folder, None, 3)
    reader, progress = following(folder)
    for number in range(1, 6):
        step(folder, number)
    reader.look()
    assert (progress.total, progress.eta) == (None, None)
    step(folder, 6, epoch=2)
    reader.look()
    assert progress.total == 15


def test_clean_carries_out_what_a_terminal_would():
    assert clean(BAR.encode().rstrip(b"\n")) == "2/2 ━━━━ loss: 1"
    assert [clean(b"a\x1b]0;title\x07b\x00c"), clean(b"12%" + b"\x08" * 9 + b"100%")] == ["abc", "100%"]


def test_log_lines_are_whole_and_the_rest_is_partial(tmp_path):
    path = tmp_path / "log.txt"
    log = LogLines(path)
    assert log.read(100) == []
    path.write_bytes(b"one\ntw")
    assert log.read(100) == ["one"]
    path.write_bytes(b"one\ntwo\n\xff\nthr")
    assert (log.read(100), log.rest(), log.rest()) == (["two", "\\xff"], ["thr"], [])
