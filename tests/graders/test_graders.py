"""Real nbgrader and real Otter take their editions of a lesson, from release to report. `make test-graders`.

Each lies in a virtual environment of its own, as they ask for other versions of what dtk's other tools use.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
from pathlib import Path

import pytest

from dtk.course.lesson_files import build, read

pytestmark = [pytest.mark.slow, pytest.mark.trains, pytest.mark.timeout(900)]

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "notebooks"
LESSON = read(FOLDER / "00_start_here.ipynb")
SOLVED = {task.cell: task.solution for task in LESSON.tasks}
FIRST, SECOND, *_ = SOLVED
OWN_MEAN = "def share(losses, global_batch):\n    return sum(losses) / len(losses)"
STUDENTS = {
    "right": (SOLVED, 4.0),
    "half": ({name: SOLVED[name] for name in (FIRST, SECOND)}, 2.0),
    "wrong": ({**SOLVED, FIRST: OWN_MEAN}, 3.0),
    "nothing": ({}, 0.0),
    "no_python": ({**SOLVED, SECOND: "apart = = 1"}, 3.0),
}


def grader(name: str, folder: Path, *command: str) -> str:
    """Runs one of nbgrader's or Otter's commands in a folder; skips where it is not installed."""
    binaries = ROOT / f".venv-{name}" / "bin"
    if not (binaries / command[0]).exists():
        pytest.skip(f"{name} is not installed; make test-graders")
    path = os.pathsep.join([str(binaries), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "DTK_LIVE": "off"}
    done = subprocess.run(
        [str(binaries / command[0]), *command[1:]], cwd=folder, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def hand_in(released: Path, answers: dict[str, str], into: Path) -> None:
    """A student's notebook: the one that was handed out, with these cells filled in."""
    notebook = json.loads(released.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        cell["source"] = answers.get(cell.get("id"), cell["source"])
    into.parent.mkdir(parents=True, exist_ok=True)
    into.write_text(json.dumps(notebook), encoding="utf-8")


def shown(notebook: Path) -> str:
    return notebook.read_text(encoding="utf-8")


def test_nbgrader(tmp_path: Path):
    build("nbgrader", [LESSON], FOLDER, tmp_path / "course", hidden="word")
    course, name = tmp_path / "course", LESSON.name
    grader("nbgrader", course, "nbgrader", "generate_assignment", name)
    released = course / "release" / name / f"{name}.ipynb"
    assert "BEGIN" not in shown(released)
    assert "word" not in shown(released).replace("words", "")
    assert all(task.stub.splitlines()[0] in shown(released).replace('\\"', '"') for task in LESSON.tasks)
    for student, (answers, _points) in STUDENTS.items():
        hand_in(released, answers, course / "submitted" / student / name / f"{name}.ipynb")
    grader("nbgrader", course, "nbgrader", "autograde", name)
    grader("nbgrader", course, "nbgrader", "export")
    with (course / "grades.csv").open() as file:
        points = {row["student_id"]: float(row["score"]) for row in csv.DictReader(file)}
    assert points == {student: points for student, (_answers, points) in STUDENTS.items()}
    grader("nbgrader", course, "nbgrader", "generate_feedback", name)
    assert (course / "feedback" / "wrong" / name / f"{name}.html").exists()


def test_otter(tmp_path: Path):
    build("otter", [LESSON], FOLDER, tmp_path / "course", hidden="word")
    name = LESSON.name
    folder = tmp_path / "course" / name
    grader("otter", folder, "otter", "assign", f"{name}.ipynb", "dist", "--no-run-tests")
    released = folder / "dist" / "student" / f"{name}.ipynb"
    assert "BEGIN" not in shown(released)
    assert "word" not in shown(released).replace("words", "")
    (tests,) = (folder / "dist" / "autograder").glob("*.zip")
    for student, (answers, points) in STUDENTS.items():
        place = tmp_path / student / f"{name}.ipynb"
        hand_in(released, answers, place)
        grader("otter", place.parent, "otter", "run", "-a", str(tests), "-o", str(place.parent), place.name)
        found = json.loads((place.parent / "results.json").read_text())
        assert sum(test.get("score", 0.0) for test in found["tests"]) == points, student
