"""Where a worker is in the learner's own code: without workers."""

from __future__ import annotations

import os
import threading

import pytest

from dtk.interactive import barrier
from dtk.interactive.barrier import Files, frames


@pytest.fixture
def files():
    files = Files()
    files.add(__file__)
    return files


def test_frames_are_the_learners_innermost_first(files):
    def inner(loss):
        return frames(files)

    found = inner(0.25)
    assert [frame.within for frame in found[:2]] == ["inner()", "test_frames_are_the_learners_innermost_first()"]
    assert found[0].names["loss"] == 0.25


def test_a_replicas_own_thread_comes_first(files):
    ready, done = threading.Event(), threading.Event()

    def replica(share):
        ready.set()
        done.wait(5)

    thread = threading.Thread(target=replica, args=(7,))
    thread.replica_id = 1  # as TensorFlow's
    thread.start()
    try:
        assert ready.wait(5)
        found = frames(files)
    finally:
        done.set()
        thread.join(5)
    assert (found[0].replica, found[0].names["share"]) == (1, 7)
    assert found[1].replica is None


def test_whose_files_are_the_learners(tmp_path):
    files = Files()
    assert str(tmp_path / "train.py") in files
    assert "<cell 1>" not in files
    files.add("<cell 1>")
    assert "<cell 1>" in files
    for file in (os.__file__, pytest.__file__, barrier.__file__, "/tmp/__autograph_generated_file1.py", "train.py"):
        assert file not in files
