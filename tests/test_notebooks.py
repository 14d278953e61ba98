"""The tool that runs lessons: what it stores names neither machine nor hour, and a second run changes nothing."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

ROOT = Path(__file__).parent.parent
PICTURE = """
from IPython.display import display
import time, base64
display({"image/png": base64.b64encode(str(time.time_ns()).encode()).decode(), "text/plain": "a figure"}, raw=True)
""".strip()


def load_tool():
    spec = importlib.util.spec_from_file_location("notebooks_tool", ROOT / "tools" / "notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tool = load_tool()


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
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def test_a_second_run_changes_nothing(lesson, capsys):
    ignored = new_code_cell("import time\ntime.time_ns()", metadata={"tags": ["nbval-ignore-output"]})
    shown = new_code_cell("import os, sys\nprint(os.environ['DTK_LIVE'])\nprint('b')\n40 + 2")
    port = new_code_cell("import time\nprint(f'127.0.0.1:{time.time_ns() % 60_000}')")
    path = lesson(shown, new_code_cell(PICTURE), ignored, port)
    assert tool.main([str(path)]) == 0
    first = path.read_text()
    assert tool.main([str(path)]) == 0
    assert path.read_text() == first
    assert capsys.readouterr().out.split() == [f"{path}:", "written", f"{path}:", "unchanged"]
    assert tool.main(["--fresh", str(path)]) == 0
    assert path.read_text() != first, "asked for, measured outputs are renewed"

    cells = cells_of(path)
    assert [cell.execution_count for cell in cells] == [1, 2, 3, 4]
    assert cells[0].outputs[0].text == "off\nb\n"
    assert cells[0].outputs[1].data == {"text/plain": "42"}
    assert all(set(cell.metadata) <= {"tags"} for cell in cells), "no times"
    stored = nbformat.read(path, as_version=4).metadata
    assert stored == {"kernelspec": tool.KERNEL, "language_info": {"name": "python"}}


def test_what_changed_in_a_lesson_is_stored(lesson):
    path = lesson(new_code_cell("print(1)"), new_code_cell(PICTURE))
    tool.main([str(path)])
    before = cells_of(path)
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[1].source = "print(2)"
    notebook.cells[2].source = PICTURE.replace("a figure", "another figure")
    nbformat.write(notebook, path)
    tool.main([str(path)])
    after = cells_of(path)
    assert after[0].outputs[0].text == "2\n"
    assert after[1].outputs[0].data["text/plain"] == "another figure"
    assert after[1].outputs[0].data["image/png"] != before[1].outputs[0].data["image/png"]


def test_the_kernel_is_this_environments(lesson):
    path = lesson(new_code_cell(f"import sys\nsys.prefix == {sys.prefix!r}"))
    tool.main([str(path)])
    assert cells_of(path)[0].outputs[0].data["text/plain"] == "True"


def test_a_lesson_that_fails_is_not_stored(lesson):
    path = lesson(new_code_cell("1 / 0"))
    before = path.read_text()
    with pytest.raises(CellExecutionError, match="division by zero"):
        tool.main([str(path)])
    assert path.read_text() == before


def test_an_error_on_purpose_is_part_of_a_lesson(lesson):
    path = lesson(new_code_cell("1 / 0", metadata={"tags": ["raises-exception"]}), new_code_cell("print('on')"))
    assert tool.main([str(path)]) == 0
    assert cells_of(path)[0].outputs[0].ename == "ZeroDivisionError"
    assert cells_of(path)[1].outputs[0].text == "on\n"


def test_directories_of_this_machine_are_reported(lesson, capsys):
    path = lesson(new_code_cell("import sys\nprint(sys.executable)"))
    assert tool.main([str(path)]) == 1
    assert f"an output names {sys.prefix}; print a relative path" in capsys.readouterr().err


def test_stored_lessons_are_in_the_stored_form():
    paths = sorted((ROOT / "notebooks").glob("*.ipynb"))
    for path in paths:
        notebook = nbformat.read(path, as_version=4)
        fresh = nbformat.writes(tool.normalise(notebook)).rstrip("\n") + "\n"
        assert fresh == path.read_text(encoding="utf-8"), f"{path.name}: run `make notebooks`"
        assert tool.machine_paths(notebook) == []
        assert any(cell.get("outputs") for cell in notebook.cells), f"{path.name} was not run"


@pytest.mark.parametrize(
    ("stored", "line", "passes"),
    [
        ("grpc://127.0.0.1:5 and localhost:23456", "grpc://127.0.0.1:40123 and localhost:1", True),
        ("wrote /tmp/other/figure.png", "wrote /tmp/dtk-7/runs/x/figure.png", True),
        ("<Thing at 0x7f0012345678>", "<Thing at 0x7f00deadbeef>", True),
        ("7 ms/step, 12 s", "12 ms/step, 3.25 s", True),
        ("check replicas agree: PASS (94 steps)", "check replicas agree: PASS (93 steps)", False),
        ("global_batch=128", "global_batch=64", False),
    ],
)
def test_nbval_overlooks_places_and_times_and_nothing_else(tmp_path, stored, line, passes):
    for name in ("conftest.py", "nbval_sanitize.cfg"):
        shutil.copy(ROOT / "notebooks" / name, tmp_path)
    output = new_output("stream", name="stdout", text=stored + "\n")
    notebook = new_notebook(cells=[new_code_cell(f"print({line!r})", outputs=[output], execution_count=1)])
    nbformat.write(notebook, tmp_path / "lesson.ipynb")
    command = [sys.executable, "-m", "pytest", "--nbval", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == (0 if passes else 1), done.stdout
    assert ("1 passed" if passes else "1 failed") in done.stdout
