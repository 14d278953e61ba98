"""Takes the submissions of `submissions.py` through real nbgrader or real Otter, whose kernels run in dtk's boxes.

    python benchmarks/submissions_through.py nbgrader --bin .venv-nbgrader/bin --times 2
    python benchmarks/submissions_through.py otter --bin .venv-otter/bin --times 2

`make test-graders` makes both environments. Every table has to be the same; nobody may be harmed, and nobody may get
a point that is not due, but for those who replace dtk's checks: these run in the student's kernel there. A submission
whose kernel ends loses all its points.
"""

from __future__ import annotations

import argparse
import csv
import inspect
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from submissions import harmed
from submissions_made import Made, made

from dtk.classroom.build import build
from dtk.classroom.lesson import Lesson, lessons

LIMITS = ["--seconds", "60", "--total", "900"]


def main() -> int:
    options = argparse.ArgumentParser(description=inspect.getdoc(sys.modules[__name__]))
    options.add_argument("grader", choices=("nbgrader", "otter"))
    options.add_argument("--bin", type=Path, required=True, help="where the grader's commands are")
    options.add_argument("--lessons", type=Path, default=Path("notebooks"))
    options.add_argument("--times", type=int, default=2)
    options.add_argument("--only", nargs="*", default=(), help="of the students, by name")
    options.add_argument("--out", type=Path, default=Path("out/submissions_through"))
    given = options.parse_args()
    (lesson,) = lessons(given.lessons, ["00"])[:1]
    other = next(each for each in lessons(given.lessons) if each.name != lesson.name)
    os.environ["PATH"] = os.pathsep.join([str(given.bin.resolve()), os.environ["PATH"]])
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parent.parent)
    tables, bad = [], 0
    for number in range(1, given.times + 1):
        course = given.out.resolve() / f"{given.grader} {number}"
        shutil.rmtree(course, ignore_errors=True)
        build(given.grader, [lesson], given.lessons, course, hidden="submissions")
        released = (_released_by_nbgrader if given.grader == "nbgrader" else _released_by_otter)(course, lesson)
        all_of_them = made(lesson, other, course / "submitted")
        all_of_them = [each for each in all_of_them if not given.only or each.student in given.only]
        for each in all_of_them:
            _hand_in(each, released, lesson, course)
        before = harmed(course / "submitted", given.lessons)
        began = time.monotonic()
        tables.append((_nbgrader if given.grader == "nbgrader" else _otter)(course, lesson, all_of_them))
        each = (time.monotonic() - began) / len(all_of_them)
        print(f"round {number}: {len(all_of_them)} submissions, {each:.1f} s each", flush=True)
        for what in before():
            bad += 1
            print(f"  HARM: {what}")
    every = len(lesson.questions)
    for each in all_of_them:
        got = [table.get(each.student) for table in tables]
        due = every - len(each.lost)
        changed = len(set(got)) > 1
        too_many = any(points is not None and points > due for points in got) and not each.student.startswith("patches")
        bad += changed or too_many
        note = (
            "CHANGES"
            if changed
            else "TOO MANY"
            if too_many
            else ""
            if got[0] == due
            else "loses more than its question"
        )
        print(f"{each.student:20} due {due}, got {got} {note}")
    print(f"{len(all_of_them)} submissions, {bad} not as they should be")
    return 1 if bad else 0


def _hand_in(each: Made, released: Path, lesson: Lesson, course: Path) -> None:
    """Puts a submission where the graders look for it; nbgrader has a folder for the lesson besides."""
    place = course / "submitted" / each.student / lesson.name
    place.mkdir(parents=True)
    file = place / f"{lesson.name}.ipynb"
    if each.whole is not None:
        file.write_bytes(each.whole)
        return
    notebook = json.loads(released.read_text(encoding="utf-8"))
    answers = {task.cell: task.solution for task in lesson.tasks} | each.cells
    for cell in notebook["cells"]:
        cell["source"] = answers.get(cell.get("id"), cell["source"])
    file.write_text(json.dumps(notebook), encoding="utf-8")


def _run(folder: Path, *command: str, check: bool = True) -> None:
    with (folder / "log").open("a") as log:
        subprocess.run(command, cwd=folder, stdout=log, stderr=log, check=check)


def _released_by_nbgrader(course: Path, lesson: Lesson) -> Path:
    _run(course, "nbgrader", "generate_assignment", lesson.name)
    return course / "release" / lesson.name / f"{lesson.name}.ipynb"


def _nbgrader(course: Path, lesson: Lesson, handed_in: list[Made]) -> dict[str, float | None]:
    _run(course, sys.executable, "-m", "dtk", "class", "kernel", "boxed", "--hide", ".", *LIMITS)
    os.environ["JUPYTER_PATH"] = str(course / "boxed")
    ipc = ["--KernelManager.transport=ipc", "--Execute.timeout=120"]
    _run(course, "nbgrader", "autograde", lesson.name, *ipc, check=False)
    _run(course, "nbgrader", "export")
    with (course / "grades.csv").open(newline="") as file:
        return {row["student_id"]: float(row["score"]) for row in csv.DictReader(file)}


def _released_by_otter(course: Path, lesson: Lesson) -> Path:
    folder = course / lesson.name
    _run(folder, "otter", "assign", f"{lesson.name}.ipynb", "dist", "--no-run-tests")
    (tests,) = (folder / "dist" / "autograder").glob("*.zip")
    shutil.copyfile(tests, course / "tests.zip")
    return folder / "dist" / "student" / f"{lesson.name}.ipynb"


def _otter(course: Path, lesson: Lesson, handed_in: list[Made]) -> dict[str, float | None]:
    boxed = [sys.executable, "-m", "dtk", "class", "boxed", *LIMITS, "--hide", str(course), "--bring", "results.json"]
    found: dict[str, float | None] = {}
    for each in handed_in:
        place = course / "otter" / each.student
        place.mkdir(parents=True)
        for file in (course / "submitted" / each.student / lesson.name / f"{lesson.name}.ipynb", course / "tests.zip"):
            shutil.copy(file, place)
        _run(place, *boxed, "--", "otter", "run", "-a", "tests.zip", "-o", ".", f"{lesson.name}.ipynb", check=False)
        results = place / "results.json"
        if results.exists():
            found[each.student] = sum(test.get("score", 0.0) for test in json.loads(results.read_text())["tests"])
        print(f"{each.student}: {found.get(each.student)}", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
