"""Where a worker stands, what a name is there, and the table of all workers beside each other: without workers."""

from __future__ import annotations

import bdb
import os
import threading

import pytest

from dtk.interactive import compare_replicas as beside
from dtk.interactive.frames import NoName, frames, resolve
from dtk.interactive.own_files import Files


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
    assert {frame.file for frame in found} == {__file__}


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


class Debugger(bdb.Bdb):
    """As pdb at its prompt, in a frame further up, where a name was given another value."""

    def interaction(self, frame, files):
        self.stack, self.curindex = [(frame.f_back, 3), (frame, 5)], 0
        self.curframe, self.curframe_locals = frame.f_back, {"changed": "at the prompt"}
        return frames(files)


def test_in_a_debugger_they_are_those_that_it_shows(files):
    import sys

    def stops():
        return Debugger().interaction(sys._getframe(), files)

    found = stops()
    assert [(frame.within, frame.line) for frame in found[:1]] == [
        ("test_in_a_debugger_they_are_those_that_it_shows()", 3)
    ]
    assert found[0].names == {"changed": "at the prompt"}


def test_whose_files_are_the_learners(tmp_path):
    files = Files()
    assert str(tmp_path / "train.py") in files
    assert "<cell 1>" not in files
    files.add("<cell 1>")
    assert "<cell 1>" in files
    for file in (os.__file__, pytest.__file__, beside.__file__, "/tmp/__autograph_generated_file1.py", "train.py"):
        assert file not in files


class Holder:
    def __init__(self):
        self.weights = [1, {"kernel": 2}]


@pytest.mark.parametrize(
    ("code", "value"),
    [("x", (1, 7)), ("both", (0, "inner")), ("h.weights[1]['kernel']", (1, 2)), ("h.weights[-2]", (1, 1))],
)
def test_a_name_with_attributes_and_numbers(code, value):
    assert resolve(code, [{"both": "inner"}, {"both": "outer", "x": 7, "h": Holder()}]) == value


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("y", "no y here"),
        ("f()", "f(): more than a name with attributes and numbers, such as loss or model.weights[0]"),
        ("x + 1", "x + 1: more than a name"),
        ("h.weights[k]", "h.weights[k]: more than a name"),
        ("h.nothing", "h.nothing: AttributeError: 'Holder' object has no attribute 'nothing'"),
        ("x =", "x =: no name"),
    ],
)
def test_what_is_more_than_a_name_is_refused(code, words):
    with pytest.raises(NoName) as error:
        resolve(code, [{"x": 7, "h": Holder(), "k": 0, "f": list}])
    assert str(error.value).startswith(words)


# ---- the table

LINES = {0: "held in line 3 (`total = reduce(loss)`)", 1: "line 2 (`breakpoint()`)"}


def row(text, digest=None, label="", replica=None, of="step()"):
    facts = {"shape": [], "digest": digest} if digest else {}
    return {"text": text, "label": label, "replica": replica, "of": of, **facts}


def shown(code, *values, replicas=1):
    answers = {worker: each if each is None or isinstance(each, dict) else {"values": each} for worker, each in values}
    return beside.side_by_side(code, answers, LINES, replicas).splitlines()


STANDS = ["worker 0: held in line 3 (`total = reduce(loss)`)", "worker 1: line 2 (`breakpoint()`)"]


def test_values_stand_beside_each_other():
    assert shown("loss", (1, [row("0.5", "bb")]), (0, [row("0.25", "aa")])) == [
        "          value  shape  digest",
        "worker 0  0.25   ()     aa      in step()",
        "worker 1  0.5    ()     bb      in step()",
        "loss differs",
        *STANDS,
    ]
    assert shown("k", (0, [row("7")]), (1, [row("7")]))[3] == "k is equal on all replicas"


def test_who_has_none_and_who_says_nothing():
    said = shown("loss", (0, None), (1, [row("0.5", "bb")]))
    assert said[1].split("  ")[:2] == ["worker 0", "did not answer"]
    assert said[3] == "loss is on worker 1 only"
    assert shown("los", (0, {"none": "no los here"}), (1, {"none": "no los here"})) == ["no los here", *STANDS]
    assert shown("", (0, {}), (1, {})) == STANDS


def test_each_replica_has_its_line_and_each_part():
    two = [row("1.0", "aa", replica=0), row("2.0", "bb", replica=1)]
    said = shown("own", (0, two), (1, two), replicas=2)
    assert [line.split("  ")[0] for line in said[1:5]] == [f"worker {k // 2}, replica {k}" for k in range(4)]
    assert said[5] == "own differs"
    many = [row("", f"{k}", label=f"[{k}]") for k in range(60)]
    said = shown("grads", (0, many), (1, [*many[:-1], row("", "x", label="[59]")]))
    assert said[1].split() == ["grads[0]", "()", "0", "0"]
    assert said[41:43] == ["... and 20 more", "grads differs in 1 of 60 parts"]
