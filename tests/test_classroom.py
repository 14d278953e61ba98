"""A class's editions of the lessons: what students don't see, what graders do, and that two builds are equal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dtk import cli
from dtk.course.lesson_files import EDITIONS, Lesson, build, lessons, read
from dtk.errors import DtkError

FOLDER = Path(__file__).parent.parent / "notebooks"
LESSONS = lessons(FOLDER)
named = pytest.mark.parametrize("lesson", LESSONS, ids=[lesson.name for lesson in LESSONS])


SOLUTION = "<!-- ### BEGIN SOLUTION -->\n```python\nx = 1\n```\n<!-- ### END SOLUTION -->"


def built(tmp_path: Path, edition: str, **options: str) -> dict[str, str]:
    files = build(edition, LESSONS, FOLDER, tmp_path / edition, **options)
    return {str(file.relative_to(tmp_path / edition)): file.read_text(encoding="utf-8") for file in files}


def sources(notebook: str) -> dict[str, str]:
    return {cell["id"]: "".join(cell["source"]) for cell in json.loads(notebook)["cells"]}


def lines(code: str) -> set[str]:
    """The lines of a program that say something; what a function is called is told."""
    said = {line.strip() for line in code.splitlines() if len(line.strip()) > 12}
    return {line for line in said if not line.startswith("def ")}


@named
def test_a_students_edition_shows_no_solution(lesson: Lesson, tmp_path: Path):
    build("student", [lesson], FOLDER, tmp_path / "out")
    text = (tmp_path / "out" / f"{lesson.name}.ipynb").read_text(encoding="utf-8")
    cells = sources(text)
    for task in lesson.tasks:
        assert cells[task.cell] == task.stub
        told = lines(task.solution) - lines(task.stub)
        before = {line for name, source in _before(lesson).items() for line in lines(source)}
        assert not [line for line in told - before for source in cells.values() if line in source]
    assert "SOLUTION" not in text
    assert "<details>" not in text or "<details>" in "".join(_before(lesson).values())
    assert all(not cell.get("outputs") for cell in json.loads(text)["cells"])
    assert "colab.research.google.com" not in text  # there the lesson opens with its solutions


def _before(lesson: Lesson) -> dict[str, str]:
    """What a lesson shows anyway, such as code that an exercise corrects."""
    return {cell["id"]: cell["source"] for cell in lesson.cells if "BEGIN SOLUTION" not in cell["source"]}


@pytest.mark.parametrize("edition", EDITIONS)
def test_two_builds_are_equal_to_the_byte(edition: str, tmp_path: Path):
    one = built(tmp_path / "one", edition, variant="7", hidden="word")
    assert one == built(tmp_path / "other", edition, variant="7", hidden="word")
    assert any("lesson" in text or "cells" in text for text in one.values())


def test_a_variant_sets_itself_and_nothing_else(tmp_path: Path):
    plain, other = built(tmp_path / "one", "student"), built(tmp_path / "other", "student", variant="7")
    line = 'os.environ["DTK_VARIANT"] = "7"'
    for name, text in plain.items():
        if name.endswith(".ipynb"):
            mine, its = sources(text), sources(other[name])
            assert its.pop("setup") == mine.pop("setup") + "\n" + line
            assert mine == its
        else:
            assert text == other[name]


def test_hidden_cases_are_in_graders_editions_alone(tmp_path: Path):
    word = "a-word-that-nobody-knows"
    for edition in EDITIONS:
        texts = built(tmp_path, edition, hidden=word)
        graded = [name for name, text in texts.items() if word in text]
        assert bool(graded) == (edition in ("nbgrader", "otter"))
    assert "hidden: true" in texts["02_loss_scaling/02_loss_scaling.ipynb"]


def test_nbgraders_marks_are_whole(tmp_path: Path):
    for name, text in built(tmp_path, "nbgrader", hidden="word").items():
        if name.endswith(".ipynb"):
            cells = json.loads(text)["cells"]
            marks = [cell["metadata"]["nbgrader"] for cell in cells if "nbgrader" in cell["metadata"]]
            assert len({mark["grade_id"] for mark in marks}) == len(marks) > 0
            assert sum(mark["solution"] for mark in marks) == text.count("### BEGIN SOLUTION")
            assert all(mark["points"] == 1 for mark in marks if mark["grade"])


def test_what_lies_in_the_folder_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "mine.txt").write_text("kept")
    command = ["class", "build", "--edition", "student", "--lessons", str(FOLDER), "--lesson", "00", str(tmp_path)]
    assert cli.main(command) == 1
    assert "is not empty; name a new folder" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]
    assert cli.main([*command[:-1], str(tmp_path / "new")]) == 0
    assert (tmp_path / "new" / "00_start_here.ipynb").exists()


@pytest.mark.parametrize(
    ("cells", "odd"),
    [
        ([("exercise", "x = None")], "c0"),
        ([("exercise", "x = None"), ("exercise", "y = None")], "c1"),
        ([("check", 'dtk.check("02.shares", x)')], "c0"),
        ([("exercise", "x = None"), ("check", "dtk.check(x)")], "c1"),
        ([("exercise", "x = None"), ("", SOLUTION)], "c1"),
    ],
)
def test_a_lesson_whose_marks_dont_fit_is_said(cells: list[tuple[str, str]], odd: str, tmp_path: Path):
    file = tmp_path / "lesson.ipynb"
    made = [
        {"cell_type": "code", "id": f"c{k}", "metadata": {"tags": [tag]}, "source": source}
        for k, (tag, source) in enumerate(cells)
    ]
    file.write_text(json.dumps({"cells": made, "metadata": {}}))
    with pytest.raises(DtkError, match=f"cell {odd}: an exercise takes a cell, a check"):
        read(file)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cells": [1]}', "no JSON"])
def test_what_is_no_notebook_is_said(text: str, tmp_path: Path):
    file = tmp_path / "some.ipynb"
    file.write_text(text)
    with pytest.raises(DtkError, match="some.ipynb is no notebook"):
        read(file)


def test_a_lesson_that_is_not_there_is_said(tmp_path: Path):
    with pytest.raises(DtkError, match="begins with '99'; there are 00_start_here"):
        lessons(FOLDER, ["99"])
    with pytest.raises(DtkError, match="there are no lessons in"):
        lessons(tmp_path)
