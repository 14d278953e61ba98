"""Each lesson's own solutions, handed in and graded with cases that no lesson shows: every point."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from dtk.classroom.build import build
from dtk.classroom.lesson import lessons

FOLDER = Path(__file__).parent.parent / "notebooks"
LESSONS = {each.name: each for each in lessons(FOLDER)}


@pytest.mark.slow
@pytest.mark.trains
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", LESSONS)
def test_the_solution_gets_every_point(name, tmp_path):
    build("solution", [LESSONS[name]], FOLDER, tmp_path / "in" / "teacher")
    given = [
        str(tmp_path / "in"),
        "--out",
        str(tmp_path / "report"),
        "--lessons",
        str(FOLDER),
        "--hidden",
        "another word",
    ]
    subprocess.run([sys.executable, "-m", "dtk", "class", "grade", *given, "--seconds", "300"], check=True)
    with (tmp_path / "report" / "questions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(LESSONS[name].questions)
    assert [row for row in rows if row["points"] != "1"] == []
