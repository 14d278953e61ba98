"""Each lesson's own solutions, run with other numbers than the lesson's: every check passes."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from lessons import FOLDER
from nbclient import NotebookClient

from dtk.course.build import build, lessons

LESSONS = {each.name: each for each in lessons(FOLDER)}


@pytest.mark.slow
@pytest.mark.trains
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", LESSONS)
def test_the_solution_passes_every_check(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parent))
    build("solution", [LESSONS[name]], FOLDER, tmp_path / "out", variant="another word")
    notebook = nbformat.read(tmp_path / "out" / f"{name}.ipynb", as_version=4)
    where = {"metadata": {"path": str(tmp_path / "out")}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=where).execute()
    said = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", ()))
    asked = [question.name for question in LESSONS[name].questions]
    assert [name for name in asked if f"check {name}: PASS" not in said] == []
