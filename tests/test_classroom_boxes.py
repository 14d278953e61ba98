"""Submissions graded for real: each in its box, on a lesson without runs; none harms another."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from handing_in import FIRST, RIGHT, SMALL, hand_in, notebook

from dtk.classroom.boxed import Limits, Rules, can_be_apart
from dtk.classroom.sitting import Terms, sit
from dtk.classroom.submission import submissions
from dtk.classroom.unattended import grade

pytestmark = pytest.mark.trains

PATCHES = "import dtk.lessons.exercise as e\ne.same = lambda *a, **k: True\n"
FORGES = """
import os, stat
for number in range(3, 60):
    try:
        if stat.S_ISSOCK(os.fstat(number).st_mode):
            os.write(number, b'{"judged": "passed", "changed": []}\\n')
    except OSError: pass
"""
HANDED_IN = {
    "right": ({}, "11"),
    "wrong": ({"cell-23": "def share(a, b):\n    return sum(a) / len(a)"}, "01"),
    "syntax": ({"cell-23": "def share(a, b: return"}, "01"),
    "endless": ({"cell-23": "while True: pass"}, "01"),
    "deaf": ({"cell-23": "while True:\n    try:\n        while True: pass\n    except BaseException: pass"}, "01"),
    "exits": ({"cell-23": "import os\nos._exit(3)"}, "01"),
    "kills": (
        {"cell-23": f"import os\nos.kill(os.getppid(), 9)\ntry: os.kill(-1, 9)\nexcept OSError: pass\n{RIGHT}"},
        "11",
    ),
    "forks": ({"cell-23": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"}, "01"),
    "disk": ({"cell-23": "with open('big', 'wb') as file:\n    while True: file.write(bytes(1 << 20))"}, "01"),
    "forges": ({"cell-23": FORGES}, "01"),
    "asks": ({"cell-23": f"input()\n{RIGHT}"}, "01"),
    "patches": ({"cell-23": f"{PATCHES}def share(a, b):\n    return 0"}, "01"),
    "late": ({"cell-23": "def share(a, b):\n    import dtk.lessons.exercise as e\n    e.same = lambda *a: 1\n"}, "01"),
    "reads": ({"cell-23": "open({right!r})\n" + RIGHT + "\nopen('/etc/x', 'w')"}, "01"),
}


# A shell lets what it starts in the background ignore the signal of Ctrl+C, and so these tests, where it started them.
INTERRUPTED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from dtk.cli import main
sys.exit(main())
"""


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory):
    folder = tmp_path_factory.mktemp("class") / "handed in"
    for student, (changes, _points) in HANDED_IN.items():
        changes = {
            cell: source.replace("{right!r}", repr(f"{folder}/right/mine.ipynb")) for cell, source in changes.items()
        }
        hand_in(folder, student, notebook(SMALL, changes))
    return folder


def rules(*hidden, seconds=10.0):
    return Rules(Limits(seconds=seconds), tuple(hidden))


needs_namespaces = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not can_be_apart(Rules(Limits())), reason="no namespaces for this user"
)


@pytest.mark.slow
@needs_namespaces
def test_each_submission_costs_itself_its_question_alone(handed_in, tmp_path):
    conditions = Terms((SMALL,), SMALL, "word", rules(handed_in, tmp_path))
    before = sorted(handed_in.rglob("*"))
    found = {sheet.student: sheet for sheet in grade(submissions(handed_in), conditions, tmp_path, jobs=2)}
    given = {student: "".join(str(mark.points) for mark in sheet.marks) for student, sheet in found.items()}
    assert given == {student: points for student, (_changes, points) in HANDED_IN.items()}
    said_of = {student: sheet.marks[0].said for student, sheet in found.items()}
    assert said_of["endless"] == "stopped after 10 s, in line 1"
    assert said_of["exits"] == "it ended the kernel (exit code 3)"
    assert said_of["forks"] == "stopped: it started more processes than allowed"
    assert said_of["disk"] == "stopped: it filled the disk"
    assert said_of["forges"] == "it broke the connection to the grader"
    assert said_of["reads"].startswith("FileNotFoundError")
    assert "dtk.lessons.exercise was changed" in " ".join(found["patches"].odd)
    assert sorted(handed_in.rglob("*")) == before
    kept = {file: file.stat().st_mtime_ns for file in tmp_path.glob(".graded/*")}
    assert len(kept) == len(HANDED_IN)
    again = list(grade(submissions(handed_in), conditions, tmp_path, jobs=2))
    assert {sheet.student: sheet for sheet in again} == found
    assert {file: file.stat().st_mtime_ns for file in tmp_path.glob(".graded/*")} == kept, "nothing was graded again"


def test_where_there_are_no_namespaces_limits_hold(tmp_path):
    conditions = Terms((SMALL,), SMALL, "", replace(rules(seconds=3.0), apart=False))
    daemon = "import subprocess\nsubprocess.Popen(['sleep', '8639'], start_new_session=True)\nwhile True: pass"
    mark, other = sit(hand_in(tmp_path, "ann", notebook(SMALL, {"cell-23": daemon})), conditions).marks
    assert (mark.how, mark.said, other.how) == ("stopped", "stopped after 3 s, in line 3", "passed")
    assert "sleep 8639" not in subprocess.run(["ps", "-ef"], capture_output=True, text=True, check=True).stdout


def test_interrupted_it_reports_what_was_graded(tmp_path):
    folder, out = tmp_path / "handed in", tmp_path / "report"
    hand_in(folder, "ann", "")
    hand_in(folder, "bob", notebook(SMALL, {"cell-23": "while True:\n    pass"}))
    lessons = tmp_path / "lessons"
    lessons.mkdir()
    (lessons / "00_start_here.ipynb").write_text(json.dumps(FIRST.notebook))
    command = [sys.executable, "-c", INTERRUPTED, "class", "grade", str(folder), "--out", str(out)]
    command += ["--lessons", str(lessons)]
    with subprocess.Popen([*command, "--lesson", "00"], stdout=subprocess.PIPE, text=True) as grading:
        assert "ann" in grading.stdout.readline()
        os.kill(grading.pid, signal.SIGINT)
        assert grading.wait(30) == 130
    table = (out / "questions.csv").read_text().splitlines()
    assert [row["student"] for row in csv.DictReader(table)] == ["ann"] * 4
    assert (out / "teacher.html").exists()
