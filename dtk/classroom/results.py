"""What came of a submission: a `Sheet` with a `Mark` for each question, as JSON and as the tables of platforms."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dtk.language import _

__all__ = ["Mark", "Sheet", "canvas", "grades", "moodle", "questions", "write"]


@dataclass(frozen=True)
class Mark:
    """One question. how: "passed", "wrong", "empty", "raised", "failed", "stopped", "changed" or "missing".

    said: a sentence for the student, without anything of a hidden case; "" where it passed. detail: for the teacher.
    seconds: from the cell behind the last check to the end of this one. source: what the student wrote.
    """

    question: str
    how: str
    said: str = ""
    hint: str = ""
    detail: str = ""
    seconds: float = 0.0
    source: str = ""

    @property
    def points(self) -> int:
        return int(self.how == "passed")


@dataclass(frozen=True)
class Sheet:
    """One submission.

    lesson: its notebook's name, "" where nobody can tell; then `problem` says why. odd: what a teacher should look at.
    predictions: (name, question, predicted, came out) each.
    """

    student: str
    file: str
    lesson: str
    marks: tuple[Mark, ...] = ()
    problem: str = ""
    odd: tuple[str, ...] = ()
    seconds: float = 0.0
    predictions: tuple[tuple[str, str, str, str], ...] = field(default=())

    @property
    def points(self) -> int:
        return sum(mark.points for mark in self.marks)

    def text(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)

    @staticmethod
    def read(text: str) -> Sheet:
        found = json.loads(text)
        marks = tuple(Mark(**mark) for mark in found.pop("marks"))
        told = tuple((a, b, c, d) for a, b, c, d in found.pop("predictions"))
        return Sheet(**{**found, "odd": tuple(found["odd"])}, marks=marks, predictions=told)


# Of nbgrader's `CsvExportPlugin`.
_NBGRADER = (
    *("assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email"),
    *("raw_score", "late_submission_penalty", "score", "max_score"),
)


def grades(sheets: Iterable[Sheet]) -> str:
    """As `nbgrader export` writes it."""
    rows = [
        {
            "assignment": sheet.lesson,
            "student_id": sheet.student,
            "raw_score": float(sheet.points),
            "late_submission_penalty": 0.0,
            "score": float(sheet.points),
            "max_score": float(len(sheet.marks)),
        }
        for sheet in sheets
    ]
    return _table(_NBGRADER, [[row.get(name, "") for name in _NBGRADER] for row in rows])


def questions(sheets: Iterable[Sheet]) -> str:
    """A row for each student and question, for the teacher alone."""
    heads = ("student", "question", "points", "how", "said", "hint", "detail", "seconds")
    rows = [
        [sheet.student, m.question, m.points, m.how, m.said, m.hint, m.detail, f"{m.seconds:.1f}"]
        for sheet in sheets
        for m in sheet.marks
    ]
    return _table(heads, rows)


def moodle(sheets: Sequence[Sheet]) -> str:
    """For Moodle's *Import, CSV file*: a row a student, by ID number; a grade and a feedback for each lesson."""
    lessons = sorted({sheet.lesson for sheet in sheets if sheet.lesson})
    heads = ["ID number", *(head for each in lessons for head in (each, f"{each} (feedback)"))]
    rows = []
    for student, mine in _by_student(sheets):
        row: list[Any] = [student]
        for lesson in lessons:
            row += [mine[lesson].points, _feedback(mine[lesson])] if lesson in mine else ["", ""]
        rows.append(row)
    return _table(heads, rows)


def canvas(sheets: Sequence[Sheet]) -> str:
    """For Canvas's gradebook: its five columns of a student, then a lesson each, with the points possible above."""
    lessons = sorted({sheet.lesson for sheet in sheets if sheet.lesson})
    possible = [max(len(sheet.marks) for sheet in sheets if sheet.lesson == each) for each in lessons]
    heads = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *lessons]
    rows: list[list[Any]] = [["    Points Possible", "", "", "", "", *possible]]
    for student, mine in _by_student(sheets):
        rows.append([student, "", "", student, "", *(mine[each].points if each in mine else "" for each in lessons)])
    return _table(heads, rows)


def _by_student(sheets: Sequence[Sheet]) -> list[tuple[str, dict[str, Sheet]]]:
    students = sorted({sheet.student for sheet in sheets})
    return [(each, {s.lesson: s for s in sheets if s.student == each and s.lesson}) for each in students]


def _feedback(sheet: Sheet) -> str:
    passed = _("all passed") if sheet.points == len(sheet.marks) else ""
    return passed or "; ".join(f"{m.question}: {m.said}" for m in sheet.marks if not m.points) or sheet.problem


def _table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows([[_plain(value) for value in row] for row in rows])
    return text.getvalue()


def _plain(value: Any) -> Any:
    """A text that a spreadsheet would take for a formula gets an apostrophe in front."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def write(path: Path, text: str) -> None:
    """At once or not at all: a reader never finds half of it."""
    half = path.with_name(f".{path.name}.part")
    half.write_text(text, encoding="utf-8", errors="replace")
    half.replace(path)
