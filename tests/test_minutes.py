"""The minutes at a lesson's head are those that its words, lines, runs, predictions and exercises take."""

from __future__ import annotations

import minutes
import nbformat
import pytest
from lessons import FOLDER
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

SOLUTION = "<details>\n<summary><b>Solution</b></summary>\n\n```python\n{}```\n\n</details>"


def lesson(*cells):
    return new_notebook(cells=[new_markdown_cell("# Made up\n\n**Time.** 25 minutes."), *cells])


EMPTY = minutes.counted(lesson())


@pytest.mark.parametrize(
    ("cell", "more"),
    [
        (new_markdown_cell("word " * 130), 1),
        (new_markdown_cell("[word](an/address.ipynb) " * 130), 1),
        (new_markdown_cell("```\nnot read\n```"), 0),
        (new_code_cell("a = 1\n\n" * 20), 1),
        (new_code_cell("dtk.run(f)"), 1 / 20 + 15 / 60),
        (new_code_cell("dtk.study(f)"), 1 / 20 + 1),
        (new_code_cell('dtk.ask("99.x", "?")'), 1 / 20 + 1),
        (new_markdown_cell(SOLUTION.format("a = 1\n")), 3 + 1 / 130),
        (new_markdown_cell(SOLUTION.format("a = 1\n" * 6)), 5 + 1 / 130),
        (new_markdown_cell(SOLUTION.format("a = 1\n" * 60)), 8 + 1 / 130),
    ],
)
def test_what_counts(cell, more):
    assert minutes.counted(lesson(cell)) - EMPTY == pytest.approx(more)


def test_a_head_without_minutes_is_an_error():
    assert minutes.stated(lesson()) == 25
    with pytest.raises(ValueError, match="no head says"):
        minutes.stated(new_notebook(cells=[new_markdown_cell("# Made up")]))


def test_the_tool_prints_both(tmp_path, capsys):
    nbformat.write(lesson(), tmp_path / "99_made_up.ipynb")
    assert minutes.main([str(tmp_path / "99_made_up.ipynb")]) == 0
    assert capsys.readouterr().out == "99_made_up: says 25, counted 0\n"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_each_head_is_within_a_quarter_of_what_is_counted(path):
    """The tables' minutes are the heads', see test_lesson_chain.py."""
    notebook = nbformat.read(path, as_version=4)
    assert minutes.stated(notebook) == pytest.approx(minutes.counted(notebook), rel=0.25), "see tools/minutes.py"
