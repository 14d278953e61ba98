"""What lessons' cells are in a talk: what the tool writes and leaves alone, and that nbconvert makes slides of it."""

from __future__ import annotations

import base64
import re
import struct
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import slides as tool
from lessons import FOLDER, ORDER
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

ROOT = FOLDER.parent
SOLUTION = "<details>\n<!-- ### BEGIN SOLUTION -->\n\nOne line.\n\n</details>"


def text(source):
    return new_markdown_cell(source)


def code(lines=1, tags=(), outputs=()):
    return new_code_cell("a = 1\n" * lines, metadata={"tags": list(tags)}, outputs=list(outputs))


def types(*cells):
    notebook = new_notebook(cells=list(cells))
    tool.write(notebook)
    return [tool.kind(cell) for cell in notebook.cells]


def test_a_section_is_a_slide_and_what_does_not_fit_goes_below():
    assert types(text("# Title"), code(), text("## Section\n\nWords."), code(), code()) == [
        "slide",
        "-",
        "slide",
        "-",
        "-",
    ]
    assert types(text("# Title"), code(18), code(18), code(18)) == ["slide", "-", "subslide", "-"]


def test_what_is_the_learners_alone_is_left_out():
    stub, check = code(tags=["exercise"]), code(tags=["check", "raises-exception"])
    setup, report = new_code_cell('find_spec("dtk")'), new_code_cell("dtk.report()")
    said = types(text("# Title"), setup, code(), text("## Exercise 1\n\nWrite."), stub, check, text(SOLUTION), report)
    assert said == ["slide", "skip", "-", "notes", "skip", "skip", "skip", "skip"]


def test_text_behind_a_solution_is_for_the_speaker_and_the_next_cell_begins_the_section():
    assert types(text("# Title"), code(), text(f"{SOLUTION}\n\n## The proof"), code()) == [
        "slide",
        "-",
        "notes",
        "slide",
    ]


def test_what_is_said_of_a_picture_is_for_the_speaker_once():
    said = types(text("# Title"), code(), text("It rises."), code(), text("It falls."), text("## Exercise 1"))
    assert said == ["slide", "-", "notes", "-", "fragment", "skip"]


def test_what_is_taller_than_a_slide_is_not_on_one():
    assert types(text("# Title"), code(50), text("word " * 20_000)) == ["slide", "skip", "notes"]


def test_what_a_cell_says_already_stays():
    cell = code()
    cell.metadata["slideshow"] = {"slide_type": "fragment"}
    assert types(text("# Title"), cell) == ["slide", "fragment"]


def test_heights_count_lines_pictures_tables_and_fences():
    picture = base64.b64encode(bytes(16) + struct.pack(">II", 700, 400)).decode()
    shown = new_output("display_data", data={"image/png": picture, "text/plain": "<Figure: a>"})
    assert tool.height(code(outputs=[shown])) - tool.height(code()) == pytest.approx(400 + tool.PICTURE)
    printed = new_output("stream", text="one\ntwo\n")
    assert tool.height(code(outputs=[printed])) - tool.height(code()) == pytest.approx(2 * tool.LINE + tool.OUTPUT)
    rows = "| a | b |\n|---|---|\n| 1 | 2 |"
    assert tool.height(text(rows)) > 2 * tool.ROW
    assert tool.height(text("```\na\n\nb\n```")) == pytest.approx(3 * tool.LINE + tool.OUTPUT)
    assert tool.height(text("# Title")) > tool.height(text("## Section"))


def test_the_tool_changes_nothing_else(tmp_path):
    path = tmp_path / "05_custom_loop.ipynb"
    before = (FOLDER / path.name).read_text(encoding="utf-8")
    path.write_text(before, encoding="utf-8")
    assert tool.main([str(path)]) == 0
    assert path.read_text(encoding="utf-8") == before
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        del cell.metadata["slideshow"]
    assert tool.main(["--fresh", str(path)]) == 0
    after = nbformat.read(path, as_version=4)
    assert {tool.kind(cell) for cell in after.cells} <= tool.TYPES
    for cell in after.cells:
        del cell.metadata["slideshow"]
    assert after == notebook


def test_labs_and_appendices_are_no_talks():
    assert [path.stem for path in sorted(FOLDER.glob("*.ipynb")) if tool.is_talk(path.name)] == list(ORDER)


@pytest.mark.parametrize("lesson", ORDER)
def test_each_lesson_is_a_talk_with_its_code_and_pictures(lesson):
    cells = nbformat.read(FOLDER / f"{lesson}.ipynb", as_version=4).cells
    shown = [cell for cell in cells if tool.kind(cell) in tool.SHOWN]
    assert tool.kind(cells[0]) == "slide"
    assert len(list(tool.slides(nbformat.from_dict({"cells": cells})))) >= 7
    ours = [cell for cell in cells if cell.cell_type == "code" and not tool.private(cell)]
    assert sum(cell in shown for cell in ours) >= len(ours) - 1, "one cell may be taller than a slide"


@pytest.mark.slow
def test_nbconvert_makes_the_slides(tmp_path):
    command = [sys.executable, "-m", "nbconvert", "--to", "slides", "--output-dir", str(tmp_path)]
    subprocess.run([*command, str(FOLDER / "00_start_here.ipynb")], check=True, capture_output=True, timeout=120)
    page = (tmp_path / "00_start_here.slides.html").read_text(encoding="utf-8")
    cells = nbformat.read(FOLDER / "00_start_here.ipynb", as_version=4).cells
    kinds = [tool.kind(cell) for cell in cells]
    assert len(re.findall(r"<section\b", page)) == 2 * kinds.count("slide") + kinds.count("subslide")
    assert page.count('<aside class="notes">') == kinds.count("notes")
    assert "find_spec" not in page


def test_the_command_has_the_height_that_lint_counts_with():
    page = Path(ROOT, "docs", "teaching", "slides.md").read_text(encoding="utf-8")
    assert f"reveal_width=1600 --SlidesExporter.reveal_height={tool.HEIGHT}" in page
