"""Who waits for whom, and why: arithmetic on states, and the sentences."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dtk.records import RunFolder
from dtk.watch.waiting import State, Waiting, board, explain, given_up, load, save, uneven


def state(worker, what="training", step=0, **facts):
    return State(worker, f"worker {worker}", what, step, **facts)


def waits(worker, step=0, blocked="operation", quiet=12.0, line="line 17 in train", **facts):
    facts = {"what": "training" if step else "building", **facts}
    return state(worker, step=step, blocked=blocked, quiet=quiet, silent=True, line=line, **facts)


def silent(worker, step=0, **facts):
    return state(worker, step=step, silent=True, quiet=12.0, **{"line": "line 5 in train", **facts})


def stalled(*states):
    told = explain(states)
    return told.reason, told.edges, told.sentence


def test_a_worker_that_ended_early():
    states = waits(0, step=12), state(1, "finished", step=12)
    words = "worker 1 ended after step 12, worker 0 waits in step 13: give all workers the same steps"
    assert stalled(*states) == ("uneven", [(0, 1)], words)


def test_a_worker_that_ended_early_without_records():
    words = "worker 1 ended, worker 0 waits at line 17 in train: give all workers the same steps"
    assert stalled(waits(0), state(1, "finished"))[2] == words


def test_an_evaluation_by_the_chief_alone():
    states = waits(0, step=8, blocked="collective", call="evaluate"), state(1, "finished", step=8)
    words = "worker 1 ended after step 8, worker 0 waits in evaluate after step 8; call it on every worker"
    assert stalled(*states)[2] == words


def test_a_stopped_worker():
    states = waits(0, step=7), state(1, "stopped", step=7), waits(2, step=7)
    words = "workers 0 and 2 wait in step 8 for worker 1, but worker 1 is stopped by a signal (SIGSTOP, or a debugger) "
    words += "after step 7; SIGCONT lets a stopped process go on"
    assert stalled(*states) == ("stopped", [(0, 1), (2, 1)], words)


def test_stopped_before_anybody_waits():
    words = "worker 1 is stopped by a signal (SIGSTOP, or a debugger); SIGCONT lets a stopped process go on"
    assert stalled(state(0), state(1, "stopped")) == ("stopped", [], words)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (silent(1, what="running"), "worker 1 is silent at line 5 in train"),
        (state(1, "finished"), "worker 1 ended"),
        (state(1, "imported"), "worker 1 is busy elsewhere"),
        (state(1, "running"), "worker 1 is busy elsewhere"),
    ],
)
def test_a_missing_peer(other, words):
    states = waits(0, blocked="connecting", what="imported"), other
    start = "worker 0 waits in MultiWorkerMirroredStrategy() for worker 1, but "
    remedy = "; make the strategy on every worker, before anything that may end or wait"
    assert stalled(*states) == ("missing", [(0, 1)], start + words + remedy)


def test_a_silent_worker():
    words = "workers 0 and 2 wait in step 5 for worker 1, but worker 1 is silent at line 5 in train after step 4"
    assert stalled(waits(0, 4), silent(1, 4), waits(2, 4)) == ("silent", [(0, 1), (2, 1)], words)


def test_different_collectives_are_a_ring_of_waits():
    reason, edges, words = stalled(waits(0, line="line 12 in train"), waits(1, line="line 13 in train"))
    assert (reason, edges) == ("order", [(0, 1), (1, 0)])
    assert words.startswith("worker 0 waits at line 12 in train, worker 1 waits at line 13 in train; all workers must")


def test_different_steps_are_a_ring_of_waits():
    words = stalled(waits(0, step=3), waits(1, step=5))[2]
    assert words.startswith("worker 0 waits in step 4 (line 17 in train), worker 1 waits in step 6 (line 17 in train);")


def test_all_in_the_same_place():
    reason, edges, words = stalled(waits(0, step=3), waits(1, step=3, blocked="collective"))
    assert (reason, edges) == ("unknown", [])
    assert words.startswith("workers 0 and 1 wait in step 4; they may be in different")


def test_nobody_waits_in_silence():
    assert stalled(silent(0), silent(1)) == ("", [], "")


# ---- uneven work before the stall_timeout

WAITING, ENDED = waits(0, step=3), state(1, "finished", step=3)


@pytest.mark.parametrize(
    ("states", "found"),
    [
        ([WAITING, ENDED], True),
        ([replace(WAITING, quiet=9.0), ENDED], False),
        ([replace(WAITING, quiet=6.0, blocked="collective"), ENDED], True),
        ([replace(WAITING, quiet=4.0, blocked="collective"), ENDED], False),
        ([silent(0), ENDED], False),  # saves, reads, sleeps
        ([state(0, step=3), ENDED], False),  # computes
        ([WAITING, ENDED, state(2, step=3)], False),  # somebody may still come
        ([WAITING, ENDED, silent(2, step=3)], False),
        ([WAITING, ENDED, state(2, "stopped")], False),
        ([WAITING, waits(1, step=3)], False),
        ([ENDED, state(0, "finished")], False),
        ([waits(0, blocked="connecting", quiet=6.0), ENDED], True),
    ],
)
def test_uneven_work_is_certain_or_is_waited_for(states, found):
    assert uneven(states, 60.0) is found


def test_a_short_stall_timeout_is_an_upper_bound():
    assert uneven([replace(WAITING, quiet=2.0), ENDED], 2.0)


# ---- words


@pytest.mark.parametrize(
    ("one", "words", "on_board"),
    [
        (state(0, "starting"), "starting", "starting"),
        (state(0, "imported"), "imported", "imported"),
        (state(0, step=12), "step 13", "training"),
        (waits(0, step=12, quiet=5.2), "step 13, waits inside TensorFlow for 5 s", None),
        (waits(0, step=12, blocked="collective", quiet=5.2), "step 13, in a collective for 5 s", None),
        (waits(0, what="imported", blocked="connecting"), "imported, waits for peers for 12 s", None),
        (waits(0, step=12, call="evaluate"), "evaluate after step 12, waits inside TensorFlow for 12 s", None),
        (silent(0, what="building"), "building, silent for 12 s", None),
        (state(0, "stopped", step=12), "stopped by a signal after step 12", None),
        (state(0, "finished", step=12), "finished after step 12", "finished"),
        (state(0, "consequence", step=12), "failed in consequence after step 12", "consequence"),
    ],
)
def test_words(one, words, on_board):
    assert (str(one.said()), str(one.board())) == (words, on_board or words)


def test_the_board_says_who_is_waited_for():
    states = waits(0, step=3, quiet=5.0), silent(1, step=3), waits(2, step=3, quiet=5.0)
    waiting = "step 4, waits inside TensorFlow for 5 s, waits for worker 1"
    assert [str(line) for line in board(states)] == [waiting, "step 4, silent for 12 s", waiting]


def test_a_stopped_worker_that_its_peers_gave_up():
    words = "worker 1 is stopped by a signal (SIGSTOP, or a debugger) after step 3, so that TensorFlow gave it up and "
    assert given_up([state(1, "stopped", step=3)]) == words + "the other workers failed"


def test_a_graph_is_kept_in_the_runs_directory(tmp_path):
    folder = RunFolder(tmp_path, 2)
    assert load(folder) is None
    told = explain([WAITING, ENDED])
    save(folder, told)
    assert load(folder) == told
    assert isinstance(told, Waiting)


def test_a_failure_is_what_the_others_wait_for():
    told = explain([state(0, "consequence"), state(1, "failed"), state(2, step=4), state(3, "finished")], first=1)
    assert (told.reason, told.edges) == ("failed", [(0, 1), (2, 1)])
