"""What can go wrong: the tree, the messages, and what an error of a run carries with it."""

from __future__ import annotations

import re
import sys
import traceback
from pathlib import Path

import pytest
from fabricate import fabricate

import dtk
from dtk import errors
from dtk.records import COLUMNS

CLASSES = sorted(set(errors.__all__) - {"DtkError", "RunInterrupted"})


@pytest.mark.parametrize("name", CLASSES)
def test_every_error_is_a_dtk_error_and_exported(name):
    assert issubclass(getattr(errors, name), errors.DtkError)
    assert getattr(dtk, name) is getattr(errors, name)


def test_an_interrupt_is_no_error_and_keeps_what_was_recorded(tmp_path):
    folder = fabricate(tmp_path, workers=2, steps=3).folder
    stop = dtk.RunInterrupted("after 2.0 s", folder)
    assert isinstance(stop, KeyboardInterrupt)
    assert not isinstance(stop, Exception)
    assert len(stop.records) == len(folder.records) > 0
    assert stop._render_traceback_() == ["RunInterrupted: after 2.0 s"]


@pytest.mark.parametrize(
    ("name", "builtin"),
    [
        ("ClusterConfigError", ValueError),
        ("NotShippable", TypeError),
        ("VerificationError", AssertionError),
        ("DatasetUnavailable", OSError),
    ],
)
def test_who_knows_only_pythons_errors_catches_them_too(name, builtin):
    with pytest.raises(builtin, match="one sentence"):
        raise getattr(errors, name)("one sentence")


def test_the_tree_at_the_top_of_the_module_is_the_tree():
    drawn = re.findall(r"[├└]── (\w+)", errors.__doc__ or "")
    assert sorted(drawn) == CLASSES


def failed(folder=None, detail="", text="Traceback ...\nZeroDivisionError: division by zero\n"):
    words = "worker 1 raised ZeroDivisionError: division by zero"
    return errors.WorkerFailed(words, worker=1, exitcode=1, traceback=text, folder=folder, detail=detail)


def test_in_a_notebook_the_workers_own_traceback_comes_first_and_the_sentence_last():
    lines = failed(detail="its own lines\n\nafterwards, worker 0: Socket closed\n")._render_traceback_()
    assert lines == [
        "its own lines",
        "",
        "afterwards, worker 0: Socket closed",
        "",
        "WorkerFailed: worker 1 raised ZeroDivisionError: division by zero",
    ]
    assert failed(text="")._render_traceback_() == [lines[-1]]


def test_in_a_notebook_the_frames_of_libraries_and_of_dtk_are_folded():
    own = '  File "/tmp/cell.py", line 3, in train\n    dtk.record_step(loss, batch=batch)\n'
    ours = f'  File "{Path(errors.__file__).parent / "recording" / "loop.py"}", line 46, in record_step\n    raise\n'
    lines = failed(detail=f"What worker 1 said:\n{own}{ours}{ours}ValueError: no")._render_traceback_()
    assert lines[1:-2] == [*own.splitlines(), "  ... 2 frames inside dtk", "ValueError: no"]


def test_in_a_terminal_the_workers_traceback_stands_above_the_sentence():
    try:
        raise failed()
    except errors.WorkerFailed:
        text = "".join(traceback.format_exception(*sys.exc_info()))
    assert text.index("ZeroDivisionError: division by zero\n") < text.index("WorkerFailed: worker 1 raised")


def test_logs_and_records_are_read_from_the_runs_folder(tmp_path: Path):
    folder = fabricate(tmp_path, workers=2, steps=3).folder
    error = failed(folder)
    assert error.logs == ["worker 0 speaking\n", "worker 1 speaking\n"]
    assert list(error.records.columns) == list(COLUMNS)
    assert error.records.groupby("worker").size().to_dict() == {0: 3, 1: 3}


def test_the_half_written_last_line_of_a_killed_worker_costs_that_line_only(tmp_path: Path):
    folder = fabricate(tmp_path, workers=2, steps=3).folder
    with (folder.worker(1).path / "records.jsonl").open("a") as file:
        file.write("[1, 4, 1, 0.2")
    with (folder.worker(1).path / "log.txt").open("ab") as file:
        file.write(b"half a l\xc3")
    error = failed(folder)
    assert len(error.records) == 6
    assert error.logs[1] == "worker 1 speaking\nhalf a l\\xc3"


def test_without_a_folder_there_are_no_logs_and_an_empty_table():
    error = errors.RunTimeout("the run took longer than timeout=3 s")
    assert error.logs == []
    assert list(error.records.columns) == list(COLUMNS)
    assert len(error.records) == 0


def test_a_stall_shows_each_workers_stack():
    error = errors.WorkerStalled("no progress for 60 s", detail="worker 0:\n  File cell, line 3\n")
    assert error._render_traceback_()[:2] == ["worker 0:", "  File cell, line 3"]
    assert "File cell, line 3" in "".join(traceback.format_exception(error))
