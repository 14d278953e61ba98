"""Workers that fail in every way there is: the culprit is named, and nothing that was written is lost."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import pytest
from error_cases import kept
from starting import mostly_warm
from waiting import meet

import dtk
from dtk.environment import here
from dtk.records import Record

pytestmark = pytest.mark.trains


def write_then(end):
    """Leaves a record and a line on every worker, then ends worker 1 as told."""
    place = dtk.environment.here()
    place.journal.record([Record(place.worker, place.worker, 1, 1, 0.5, 64, place.now(), place.now())])
    print("a last line")
    meet(2)
    if not dtk.is_chief():
        end()
    time.sleep(60)


def raise_it():
    raise ValueError("bad label 7")


def segfault():
    os.kill(os.getpid(), signal.SIGSEGV)


@mostly_warm
@pytest.mark.parametrize(
    ("end", "code", "words"),
    [
        (raise_it, 1, "worker 1 raised ValueError: bad label 7"),
        (lambda: sys.exit(3), 3, "worker 1 called sys.exit(3) before it had finished"),
        (lambda: sys.exit(0), 0, "worker 1 called sys.exit(0) before it had finished"),
        (lambda: os._exit(0), 0, "worker 1 ended itself with exit code 0 (os._exit?)"),
        (segfault, -11, "worker 1 was killed by SIGSEGV; the last Python lines before it are in its log"),
        (
            lambda: os.kill(os.getpid(), signal.SIGKILL),
            -9,
            "worker 1 was killed by SIGKILL; the kernel's log or the memory limit may say why",
        ),
    ],
)
def test_the_culprit_is_named_and_nothing_is_lost(start, end, code, words):
    with pytest.raises(dtk.WorkerFailed) as caught:
        dtk.run(write_then, args=(end,), start=start)
    error = caught.value
    assert (str(error), error.worker, error.exitcode) == (words, 1, code)
    assert all("a last line" in log for log in error.logs)
    assert list(error.records.worker) == [0, 1]
    if end is raise_it:
        assert "raise ValueError" in error.traceback
        assert "dtk/launch" not in error.traceback, "the learner's lines, not dtk's"
    if end is segfault:
        assert "segfault" in error.logs[1], "faulthandler shows the function's name"


def wrong_everywhere():
    meet(2)
    if dtk.is_chief():
        time.sleep(0.1)
    raise KeyError("missing")


@mostly_warm
def test_the_same_mistake_everywhere_is_named_by_the_lowest_worker(start):
    with pytest.raises(dtk.WorkerFailed, match="^worker 0 raised KeyError: 'missing'$") as caught:
        dtk.run(wrong_everywhere, start=start)
    assert "Worker 1 raised KeyError: 'missing'  (the same" in caught.value.detail


class UnavailableError(Exception):
    """Named as TensorFlow's."""


# What a network that was cut gave.
UNHEARD = kept()["tf-2.21"]["texts"]["worker 1 of 2 cut off (function)"][-1]


def lose_worker_1():
    meet(3)
    if here().worker == 1:
        time.sleep(60)
    raise UnavailableError(UNHEARD[1])


def test_a_peer_that_only_the_others_lost_is_named_with_what_to_look_at():
    with pytest.raises(dtk.WorkerFailed) as caught:
        dtk.run(lose_worker_1, workers=3)
    assert str(caught.value) == (
        "TensorFlow heard no heartbeat of worker 1 any more, though no worker ended by itself: look at the network "
        "between worker 1 and worker 0, and whether worker 1 was frozen"
    )
    assert caught.value.worker == 1
    assert "Worker 0 raised UnavailableError" in caught.value.detail
    assert "Worker 2 raised UnavailableError" in caught.value.detail


def lose_all():
    meet(2)
    raise UnavailableError(
        "Collective ops is aborted by: Unexpected heartbeat request from an already-in-error task: "
        "/job:worker/replica:0/task:1 with existing error: UNAVAILABLE: "
        "Task /job:worker/replica:0/task:1 heartbeat timeout."
    )


def test_a_machine_that_slept_is_said_and_no_worker_blamed(monkeypatch):
    with pytest.raises(dtk.WorkerFailed, match="TensorFlow heard no heartbeat of worker 1 any more") as caught:
        dtk.run(lose_all)
    assert caught.value.worker == 1
    monkeypatch.setattr("dtk.watch.signs.Signs.slept", 14.2)
    with pytest.raises(dtk.WorkerFailed) as caught:
        dtk.run(lose_all)
    assert str(caught.value) == (
        "this machine, or all of the run, stood still for 14 s (a laptop that slept?), so that TensorFlow, which heard "
        "no heartbeat for that long, gave its workers up; run it again, or pass restarts=1 to dtk.run"
    )
    assert caught.value.reason == "lost"


class Unpicklable:
    def __init__(self):
        self.lock = threading.Lock()


@mostly_warm
def test_a_result_that_cannot_be_pickled_says_so(start):
    with pytest.raises(dtk.WorkerFailed, match="returned a Unpicklable that can't be pickled"):
        dtk.run(lambda: Unpicklable(), start=start)


def message_with_a_path_and_port():
    raise OSError("connect to 127.0.0.1:41234 from /very/long/path/file.txt failed at 0x7f00deadbeef")


@mostly_warm
def test_the_message_is_stable(start):
    with pytest.raises(dtk.WorkerFailed) as caught:
        dtk.run(message_with_a_path_and_port, workers=1, start=start)
    said = "worker 0 raised OSError: connect to 127.0.0.1:PORT from .../file.txt failed at 0x..."
    assert str(caught.value) == said
    assert "41234" in caught.value.traceback
