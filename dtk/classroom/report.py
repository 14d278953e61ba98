"""The report of a class: tables for learning platforms, a page for each student, a page for the teacher."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from dtk.classroom.lesson import Lesson
from dtk.classroom.results import Sheet, canvas, grades, moodle, questions, write
from dtk.classroom.similar import pairs
from dtk.language import _, ngettext
from dtk.view.page import page, table

__all__ = ["student_page", "teacher_page", "write_all"]

_MOST_PAIRS = 50


def write_all(sheets: Sequence[Sheet], out: Path, lessons: Sequence[Lesson], apart: bool) -> None:
    """Writes the whole report, in place of an earlier one.

    apart: whether each submission had namespaces of its own.
    """
    write(out / "grades.csv", grades(sheets))
    write(out / "questions.csv", questions(sheets))
    write(out / "moodle.csv", moodle(sheets))
    write(out / "canvas.csv", canvas(sheets))
    write(out / "teacher.html", teacher_page(sheets, lessons, apart))
    (out / "students").mkdir(exist_ok=True)
    for student in sorted({sheet.student for sheet in sheets}):
        mine = [sheet for sheet in sheets if sheet.student == student]
        write(out / "students" / f"{student}.html", student_page(student, mine))


def student_page(student: str, sheets: Sequence[Sheet]) -> str:
    """What passed, which hint, predictions beside measurements. Nothing on it is of a hidden case."""
    parts = []
    for sheet in sheets:
        title = sheet.lesson or sheet.file
        if sheet.problem:
            parts.append(table(title, (_("problem"),), [(sheet.problem,)]))
            continue
        rows = [(mark.question, _result(mark.how), mark.said) for mark in sheet.marks]
        parts.append(table(title, (_("question"), _("result"), _("what to look at")), rows))
        heads = ("", _("question"), _("you said"), _("your own run"))
        parts.append(table(_("{lesson}: predictions", lesson=title), heads, sheet.predictions))
    points, most = sum(sheet.points for sheet in sheets), sum(len(sheet.marks) for sheet in sheets)
    return page(student, _("{points} of {most} points", points=points, most=most), parts)


def _result(how: str) -> str:
    ways = {
        "passed": _("passed"),
        "wrong": _("not right yet"),
        "empty": _("not solved"),
        "raised": _("an error"),
        "failed": _("can't be judged"),
        "stopped": _("stopped"),
        "changed": _("not judged"),
        "missing": _("not found"),
    }
    return ways[how]


def teacher_page(sheets: Sequence[Sheet], lessons: Sequence[Lesson], apart: bool) -> str:
    """Results, questions by difficulty, wrong answers and how often, answers in common, what is odd."""
    graded = [sheet for sheet in sheets if not sheet.problem]
    results = [
        (s.student, s.lesson, f"{s.points} / {len(s.marks)}" if s.marks else "", f"{s.seconds:.0f} s", s.problem)
        for s in sheets
    ]
    odd = [(sheet.student, sheet.lesson, words) for sheet in sheets for words in sheet.odd]
    heads = (_("student"), _("lesson"), _("points"), _("time"), _("problem"))
    parts = [
        table(_("Results"), heads, results),
        table(_("Questions, the hardest first"), (_("question"), _("passed"), _("otherwise")), difficulty(graded)),
        table(
            _("Answers that did not pass"),
            (_("question"), _("students"), _("what they were told"), _("who")),
            wrong_answers(graded),
        ),
        table(_("The same answers"), (_("students"), _("number"), _("questions")), _in_common(graded, lessons)),
        table(_("To be looked at"), (_("student"), _("lesson"), _("what")), odd),
    ]
    summary = ngettext("{n} submission", "{n} submissions", len(sheets))
    if not apart:
        summary += "; " + _("graded without namespaces: limits held, nothing else kept submissions apart")
    return page(_("The class"), summary, parts)


def difficulty(sheets: Iterable[Sheet]) -> list[tuple[str, str, str]]:
    """(question, how many passed, what came of the others), the hardest first."""
    by_question: dict[str, Counter[str]] = defaultdict(Counter)
    for sheet in sheets:
        for mark in sheet.marks:
            by_question[mark.question][mark.how] += 1
    rows = []
    for question, ways in by_question.items():
        total, passed = sum(ways.values()), ways["passed"]
        others = ", ".join(f"{_result(how)} {count}" for how, count in sorted(ways.items()) if how != "passed")
        rows.append((passed / total, question, f"{passed} / {total}", others))
    return [(question, score, others) for _share, question, score, others in sorted(rows)]


def wrong_answers(sheets: Iterable[Sheet]) -> list[tuple[str, int, str, str]]:
    """(question, how many, what they were told, who) of answers that did not pass, the most frequent first."""
    seen: dict[tuple[str, str], list[str]] = defaultdict(list)
    for sheet in sheets:
        for mark in sheet.marks:
            if not mark.points:
                seen[mark.question, mark.said].append(sheet.student)
    rows = [(question, len(who), told, ", ".join(who)) for (question, told), who in seen.items()]
    return sorted(rows, key=lambda row: (-row[1], row[0], row[2]))


def _in_common(sheets: Sequence[Sheet], lessons: Sequence[Lesson]) -> list[tuple[str, int, str]]:
    answers: dict[str, dict[str, str]] = defaultdict(dict)
    for sheet in sheets:
        by_source = {mark.source: mark.question for mark in sheet.marks if mark.source}  # once for each cell
        answers[sheet.student].update({question: source for source, question in by_source.items()})
    known = [source for lesson in lessons for task in lesson.tasks for source in (task.stub, task.solution)]
    found = pairs(answers, known)[:_MOST_PAIRS]
    return [(" + ".join(pair), len(both), ", ".join(both)) for pair, both in found]
