"""Makes thirty submissions of a lesson, right, wrong and hostile, grades them several times, and compares the tables.

    python benchmarks/submissions.py --lesson 00 --times 3 --jobs 2 --out out/submissions

Interrupted, it goes on where it was. Every table has to be the same and as expected. Nobody may be harmed: a process,
files of this user and the other submissions are looked at before and after. Nothing may be left behind.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import inspect
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
from submissions_made import made, write

from dtk.classroom.lesson import lessons


def main() -> int:
    options = argparse.ArgumentParser(description=inspect.getdoc(sys.modules[__name__]))
    options.add_argument("--lesson", default="00")
    options.add_argument("--lessons", type=Path, default=Path("notebooks"))
    options.add_argument("--times", type=int, default=3)
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument("--seconds", type=float, default=60.0)
    options.add_argument("--only", nargs="*", default=(), help="of the students, by name")
    options.add_argument("--out", type=Path, default=Path("out/submissions"))
    given = options.parse_args()
    (lesson,) = lessons(given.lessons, [given.lesson])[:1]
    other = next(each for each in lessons(given.lessons) if each.name != lesson.name)
    folder = given.out.resolve() / "handed in"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    expected = write(made(lesson, other, folder), lesson, folder)
    for student in list(expected):
        if given.only and student not in given.only:
            (shutil.rmtree if (folder / student).is_dir() else Path.unlink)(folder / student)
            del expected[student]
    tables, bad = [], 0
    for number in range(1, given.times + 1):
        before = harmed(folder, given.lessons)
        began = time.monotonic()
        table = graded(given, folder, given.out.resolve() / f"report {number}")
        seconds = time.monotonic() - began
        print(f"round {number}: {len(expected)} submissions in {seconds:.0f} s, {seconds / len(expected):.1f} s each")
        for what in before():
            bad += 1
            print(f"  HARM: {what}")
        tables.append(table)
    for (student, question), row in sorted(tables[0].items()):
        mine = [table.get((student, question)) for table in tables]
        wanted = expected[student].get(question)
        marks = [each and each[0] for each in mine]
        wrong = marks != [wanted] * len(tables)
        bad += wrong
        if wrong or any(each != row for each in mine):
            print(f"{'WRONG' if wrong else 'other words'}: {student} {question}: expected {wanted}, {mine}")
    print(f"{sum(len(table) for table in tables)} marks, {bad} not as they should be")
    return 1 if bad else 0


def graded(given: argparse.Namespace, folder: Path, out: Path) -> dict[tuple[str, str], tuple[str, str]]:
    """(student, question) -> (points, what was said)."""
    options = ["--out", str(out), "--jobs", str(given.jobs), "--lesson", given.lesson, "--lessons", str(given.lessons)]
    hidden = ["--hidden", "submissions", "--seconds", str(given.seconds)]
    subprocess.run([sys.executable, "-m", "dtk", "class", "grade", str(folder), *options, *hidden], check=True)
    with (out / "questions.csv").open(newline="") as file:
        return {(row["student"], row["question"]): (row["points"], row["said"]) for row in csv.DictReader(file)}


def harmed(folder: Path, notebooks: Path):
    """Call it before; call what it returns afterwards: what was harmed, and what was left behind."""
    bystander = subprocess.Popen(["sleep", "3600"])
    mine = Path.home() / ".dtk-bystander"
    mine.write_text("mine")
    files, temporary, processes = _digest(folder, notebooks), _temporary(), _processes()

    def after() -> Iterator[str]:
        time.sleep(1.0)
        if bystander.poll() is not None:
            yield "a process of the grader's user was killed"
        bystander.kill()
        bystander.wait()
        if not mine.exists() or mine.read_text() != "mine":
            yield "a file in HOME is gone"
        mine.unlink(missing_ok=True)
        if _digest(folder, notebooks) != files:
            yield "the submissions or the lessons are not what they were"
        for path in sorted(_temporary() - temporary):
            yield f"{path} was left behind"
        for words in sorted(_processes() - processes):
            yield f"a process was left behind: {words}"

    return after


def _digest(*folders: Path) -> str:
    found = [(str(file), file.read_bytes()) for each in folders for file in sorted(each.rglob("*")) if file.is_file()]
    return hashlib.sha256(repr(found).encode()).hexdigest()


def _temporary() -> set[str]:
    return {str(path) for path in Path("/tmp").glob("dtk-class-*")}


def _processes() -> set[str]:
    """Those that a box or a cell of ours started, by what they say of themselves."""
    found = set()
    for each in psutil.process_iter(["pid", "cmdline"]):
        words = " ".join(each.info["cmdline"] or ())
        if "dtk.classroom.box" in words or "dtk.classroom.kernel" in words or "sleep 86399" in words:
            found.add(f"{each.info['pid']} {words[:80]}")
    return found


if __name__ == "__main__":
    sys.exit(main())
