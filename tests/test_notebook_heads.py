"""What lessons begin with: a badge that opens this very lesson, and a set-up cell that acts only where dtk is not."""

from __future__ import annotations

import importlib.util
import re

import heads
import nbformat
from IPython.core.inputtransformer2 import TransformerManager
from lessons import FOLDER


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
