"""The tool that runs lessons: what it stores names neither machine nor hour, and a second run changes nothing."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import heads
import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager
from lessons import FOLDER, compared
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

ROOT = Path(__file__).parent.parent
PICTURE = """
import time, base64
display({"image/png": base64.b64encode(str(time.time_ns()).encode()).decode(), "text/plain": "a figure"}, raw=True)
""".strip()


spec = importlib.util.spec_from_file_location("notebooks_tool", ROOT / "tools" / "notebooks.py")
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)


@pytest.fixture
def lesson(tmp_path, monkeypatch):
    """Writes a lesson and returns its path; what the tool sets in the environment is undone afterwards."""
    for name in ("DTK_LIVE", "JUPYTER_PATH"):
        monkeypatch.setenv(name, "before")

    def write(*cells):
        path = tmp_path / "lesson.ipynb"
        notebook = new_notebook(cells=[new_markdown_cell("# A lesson"), *cells])
        nbformat.write(notebook, path)
        return path

    return write


def cells_of(path):
    """The code cells after the set-up cell."""
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"][1:]


@pytest.mark.trains
def test_a_second_run_changes_nothing(lesson, capsys):
    ignored = new_code_cell("import time\ntime.time_ns()", metadata={"tags": ["nbval-ignore-output"]})
    shown = new_code_cell("import os, sys\nprint(os.environ['DTK_LIVE'])\nprint('b')\n40 + 2")
    port = new_code_cell("import time\nprint(f'127.0.0.1:{time.time_ns() % 60_000}')")
    measured = PICTURE.replace("raw=", 'metadata={"image/png": {"alt": str(time.time_ns())}}, raw=')  # as a proof's
    path = lesson(shown, new_code_cell(measured), ignored, port)
    assert tool.main([str(path)]) == 0
    first = path.read_text()
    assert tool.main([str(path)]) == 0
    assert path.read_text() == first
    assert capsys.readouterr().out.split() == [f"{path}:", "written", f"{path}:", "unchanged"]
    assert tool.main(["--fresh", str(path)]) == 0
    assert path.read_text() != first, "asked for, measured outputs are renewed"

    cells = cells_of(path)
    assert [cell.execution_count for cell in cells] == [2, 3, 4, 5]
    assert cells[0].outputs[0].text == "off\nb\n"
    assert cells[0].outputs[1].data == {"text/plain": "42"}
    assert all(set(cell.metadata) <= {"tags"} for cell in cells), "no times"
    stored = nbformat.read(path, as_version=4).metadata
    assert stored == {"kernelspec": tool.KERNEL, "language_info": {"name": "python"}}


@pytest.mark.trains
def test_a_lesson_that_fails_is_not_stored(lesson):
    path = lesson(new_code_cell("1 / 0"))
    before = path.read_text()
    with pytest.raises(CellExecutionError, match="division by zero"):
        tool.main([str(path)])
    assert path.read_text() == before


@pytest.mark.trains
def test_directories_of_this_machine_are_reported(lesson, capsys):
    assert tool.main([str(lesson(new_code_cell("import sys\nprint(sys.executable)")))]) == 1
    assert f"an output names {sys.prefix}; print a relative path" in capsys.readouterr().err


def test_stored_lessons_are_in_the_stored_form():
    paths = sorted((ROOT / "notebooks").glob("*.ipynb"))
    for path in paths:
        notebook = nbformat.read(path, as_version=4)
        fresh = nbformat.writes(tool.normalize(notebook)).rstrip("\n") + "\n"
        assert fresh == path.read_text(encoding="utf-8"), f"{path.name}: run `make notebooks`"
        assert tool.machine_paths(notebook) == []
        assert any(cell.get("outputs") for cell in notebook.cells), f"{path.name} was not run"


@pytest.mark.trains
def test_a_pictures_text_form_is_its_alternative_text(lesson):
    path = lesson(new_code_cell(PICTURE.replace("a figure", "<Figure: Shares add up. Blue is worker 0.>")))
    tool.main([str(path)])
    assert cells_of(path)[0].outputs[0].metadata == {"image/png": {"alt": "Shares add up. Blue is worker 0."}}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("the run took 4.0 s", "the run took SECONDS"),
        ("7 ms/step, 12 s", "SECONDS, SECONDS"),
        ("most at worker 1: 12% of its time in steps", "most at worker N: PERCENT of its time in steps"),
        ("grpc://127.0.0.1:5 and localhost:23456", "grpc://127.0.0.1:PORT and localhost:PORT"),
        (
            "The first step ended after 9.7 s, the run after 12.0 s. Pale (most at worker 1: 3% of its time in steps)",
            "TIMELINE. Pale (most at worker N: PERCENT of its time in steps)",
        ),
        ("The largest difference is 1/200 of the bound", "The largest difference is PART of the bound"),
        ("at line 3 of In [14]; without In [8], In [16]", "at line 3 of In [N]; without In [N]"),
        ("the largest difference is 35 times the bound", None),
        ("check every step vs one device: PASS (40 steps; same examples, same settings, same update)", None),
        ("loss: 2.31, share 1.25 of 3.5", None),
        ("accuracy 93%, 12% of the images; global_batch=128 steps=94, worker 1: 5", None),
        ("第一步在 7.4 秒后结束，整个运行在 8.3 秒后结束。灰色", "TIMELINE。灰色"),  # noqa: RUF001
        ("/tmp/PASS/2.31 at 0x7f0012345678", None),
    ],
)
def test_what_nbval_overlooks_are_ports_and_times(text, left):
    assert compared(text) == (text if left is None else left)


def test_no_verdict_and_no_loss_of_a_lesson_is_overlooked():
    lines = 0
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        outputs = [output for cell in nbformat.read(path, as_version=4).cells for output in cell.get("outputs", ())]
        for output in outputs:
            data = output.get("data", {})
            for text in (output.get("text", ""), output.get("evalue", ""), data.get("text/plain", "")):
                for line in re.findall(r".*(?:PASS|FAIL|loss|accuracy).*", text):
                    assert compared(line) == re.sub(r"In \[\d+\]", "In [N]", line), path.name
                    lines += 1
    assert lines > 60  # of the lessons' outputs


# ---- what lessons begin with


class Shell:
    """Stands in for IPython, and keeps the magics that it was asked for."""

    def __init__(self):
        self.asked = []

    def run_line_magic(self, name, line):
        self.asked.append((name, line))


def run_setup():
    """Runs the set-up cell as IPython would, and returns what it asks IPython for."""
    shell = Shell()
    exec(TransformerManager().transform_cell(heads.setup_source()), {"get_ipython": lambda: shell})
    return shell.asked


def test_the_setup_cell_installs_the_release_where_dtk_is_not(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (asked,) = run_setup()
    assert asked[0] == "pip"
    address = r"https://github\.com/[\w-]+/[\w-]+/releases/download/v[\d.]+/\w+-[\d.]+-py3-none-any\.whl"
    assert re.fullmatch(f"install --quiet {address}", asked[1])


def test_all_lessons_begin_alike():
    for path in FOLDER.glob("*.ipynb"):
        before = path.read_text(encoding="utf-8")
        notebook = nbformat.reads(before, as_version=4)
        heads.write_heads(notebook, path.name)
        assert nbformat.writes(notebook).rstrip("\n") + "\n" == before, f"{path.name}: tools/notebooks.py --heads"
