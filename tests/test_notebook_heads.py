"""What lessons begin with: a badge that opens this very lesson, and a set-up cell that acts only where dtk is not."""

from __future__ import annotations

import importlib.util
import re

import heads
import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager
from lessons import FOLDER
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

NAME = "08_made_up.ipynb"


class Shell:
    """Stands in for IPython, and keeps the magics that it was asked for."""

    def __init__(self):
        self.asked = []

    def run_line_magic(self, name, line):
        self.asked.append((name, line))


@pytest.fixture
def made_up():
    cells = [new_markdown_cell("# Made up\n\n**Goal.** None."), new_code_cell("import dtk")]
    return new_notebook(cells=cells)


def run_setup():
    """Runs the set-up cell as IPython would, and returns what it asks IPython for."""
    shell = Shell()
    exec(TransformerManager().transform_cell(heads.setup_source()), {"get_ipython": lambda: shell})
    return shell.asked


def test_badge_and_setup_cell_come_first_and_once(made_up):
    for _ in range(2):
        heads.write_heads(made_up, NAME)
    assert [cell.cell_type for cell in made_up.cells] == ["markdown", "code", "code"]
    assert made_up.cells[0].source == f"# Made up\n\n{heads.badge(NAME)}\n\n**Goal.** None."
    assert made_up.cells[1].source == heads.setup_source()
    assert made_up.cells[2].source == "import dtk"


def test_a_lesson_without_a_title_is_refused():
    with pytest.raises(ValueError, match=f"{NAME}: no Markdown cell begins with a title"):
        heads.write_heads(new_notebook(cells=[new_markdown_cell("## A part")]), NAME)


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
