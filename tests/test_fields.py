"""No behavior by wording: a failure has fields, its sentence is made from them, and no code reads the sentence."""

from __future__ import annotations

import ast
import copy
import pickle
import sys
import traceback
from pathlib import Path

import pytest
from fabricate import fabricate

import dtk
from dtk import errors
from dtk.proof.case import Diagnosis, either, found
from dtk.proof.mistakes import MISTAKES
from dtk.records.tables import COLUMNS
from dtk.worker.ring import RingBroken

DTK = Path(errors.__file__).parent
CUTS = {"partition", "rpartition", "split", "splitlines", "startswith", "endswith", "removeprefix", "removesuffix"}
CUTS |= {"search", "match", "fullmatch", "findall", "sub", "index", "find"}
# Where another library's exceptions are recognized by their text, with its versions beside it.
OTHERS = {"compat/causes.py", "compat/keras3.py", "datasets.py", "places/ray.py"}


def sentence(node: ast.AST) -> bool:
    """Whether an expression is the text of an error, a diagnosis or a state: str(error), x.sentence, x.words()."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr == "words"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str" and node.args:
        words = ast.unparse(node.args[0])
        return any(name in words for name in ("error", "fail", "diagnosis", "caught"))
    return isinstance(node, ast.Attribute) and node.attr == "sentence"


def readers(code: str) -> list[int]:
    """Lines that cut a sentence, or look for words in it."""
    lines = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CUTS:
            read = [node.func.value, *node.args]
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
            read = node.comparators
        else:
            continue
        lines += [node.lineno] if any(map(sentence, read)) else []
    return lines


def test_no_code_reads_a_sentence():
    found = {
        name: lines
        for path in sorted(DTK.rglob("*.py"))
        if (name := path.relative_to(DTK).as_posix()) not in OTHERS
        and (lines := readers(path.read_text(encoding="utf-8")))
    }
    assert found == {}


def test_a_message_is_its_parts():
    error = errors.VerificationError("they differ", 3, "loss", remedy="look", numbers={"run": 2.0})
    assert (str(error), error.what, error.remedy) == ("they differ; look", "they differ", "look")
    assert error.numbers == {"run": 2.0}
    assert str(errors.ClusterConfigError("workers=0")) == "workers=0"
    named = error.of_loss("g")
    assert (str(named), named.loss, named.step, named.numbers) == ("g: they differ; look", "g", 3, {"run": 2.0})


@pytest.mark.parametrize(
    "error",
    [
        errors.ClusterConfigError("workers=0", remedy="take 1"),
        errors.DatasetUnavailable("no mnist", remedy="download it"),
        errors.VerificationError("they differ", 3, "loss", remedy="look", numbers={"run": 2.0}),
        errors.WorkerFailed("worker 1 raised", worker=1, exitcode=1, traceback="text", reason="lost"),
        errors.WorkerStalled("nothing", None, "stacks", "uneven", [(0, 1)], numbers={"seconds": 5.0}),
        errors.RunTimeout("too long", numbers={"timeout": 3.0}),
        RingBroken("worker 1 has left the ring", by_a_peer=True),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_travel_with_their_fields(error):
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (type(other), str(other), vars(other)) == (type(error), str(error), vars(error))


def test_a_diagnosis_is_its_parts():
    named = found("learning rate", "they differ", ["a number"], also=("clipping",))
    rate, clips = MISTAKES["learning rate"], "each replica clips its own gradients (clipping)"
    assert named.sentence == f"they differ; {rate.remedy} (the same is seen with: {clips})"
    assert (named.what, named.remedy, named.also) == ("they differ", rate.remedy, ("clipping",))
    assert named.evidence == (f"symptom: {rate.symptom}", "a number")
    suspects = either("they differ", ["order", "other data"])
    assert (suspects.sentence, suspects.also) == (suspects.what, ("order", "other data"))
    assert str(Diagnosis("none", "they agree")) == "they agree"


# ---- what can go wrong: the tree, the messages, and what an error of a run carries with it


CLASSES = [
    n for n, each in vars(errors).items() if isinstance(each, type) and issubclass(each, Exception) and n[0] != "_"
]


@pytest.mark.parametrize("name", CLASSES)
def test_every_error_is_exported(name):
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


def test_where_keras_made_a_node_is_folded_into_one_line():
    frames = [f'  File "/x/lib/python3.11/{name}.py", line 7, in f' for name in ("threading", "site-packages/keras/a")]
    node = "Detected at node dense/mul defined at (most recent call last):"
    own, words = '  File "/tmp/cell.py", line 3, in call', "Matrix size-incompatible: In[0]: [16,3]"
    text = ["Graph execution error:", node, frames[0], "", *frames, "", own, words, "\t [[{{node dense/mul}}]] [Op:f]"]
    assert errors.folded(text) == [text[0], "  ... 3 frames inside python, keras", own, words]


def test_in_a_terminal_the_workers_traceback_stands_above_the_sentence():
    try:
        raise failed()
    except errors.WorkerFailed:
        text = "".join(traceback.format_exception(*sys.exc_info()))
    assert text.index("ZeroDivisionError: division by zero\n") < text.index("WorkerFailed: worker 1 raised")


def test_logs_and_records_are_read_from_the_runs_folder(tmp_path: Path):
    error = failed(fabricate(tmp_path, workers=2, steps=3).folder)
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
