"""`dtk class grade`: what is run and judged, what students may read, and that nobody is harmed."""

from __future__ import annotations

import csv
from dataclasses import replace

import pytest
from handing_in import FIRST, NOTEBOOKS, hand_in, notebook

import dtk.lessons.exercise
from dtk.classroom import lesson as marks
from dtk.classroom import report, said
from dtk.classroom.boxed import Limits, Rules, Stopped
from dtk.classroom.results import Mark, Sheet, canvas, grades, moodle, questions
from dtk.classroom.similar import fingerprint, pairs
from dtk.classroom.sitting import Terms, sit
from dtk.classroom.submission import lesson_of, steps, submissions
from dtk.classroom.untouched import Untouched
from dtk.errors import DtkError
from dtk.lessons.exercises.lesson_00 import SHARE

# ---- what is run


def plan(**how):
    return steps(notebook(FIRST, **how)["cells"], FIRST)


def test_cells_run_in_order_and_the_checks_are_the_lessons():
    found = plan(changes={"cell-24": "print('mine: PASS')"})
    asked = [step.question for step in found if step.question]
    assert asked == [question.name for question in FIRST.questions]
    assert not any("mine: PASS" in step.source for step in found)
    at = [step.cell for step in found].index("cell-23")
    assert (found[at].task, found[at + 1].question) == ("cell-23", "00.share")
    assert found[-1].question == "00.examples"  # what is behind the last check is not run


def test_a_cell_of_the_lesson_that_was_removed_is_run_as_the_lesson_has_it():
    found = plan(without=("cell-08",))
    assert [step.cell for step in found] == [step.cell for step in plan()]


def test_an_exercise_that_was_removed_is_no_question():
    assert "00.share" not in [step.question for step in plan(without=("cell-23", "cell-24"))]


@pytest.mark.parametrize("without", [(), ("cell-24",)])
def test_without_ids_an_exercise_is_the_cell_before_its_check_or_the_one_with_its_names(without):
    found = steps(notebook(FIRST, without=without, ids=False)["cells"], FIRST)
    at = next(at for at, step in enumerate(found) if step.question == "00.share")
    assert found[at - 1].source == FIRST.tasks[0].solution
    assert [step.source for step in found] == [step.source for step in plan()]


def test_a_changed_cell_is_the_students():
    found = {step.cell: step for step in plan(changes={"cell-08": "run = dtk.run(train, workers=3)"})}
    assert found["cell-08"].edited
    assert "workers=3" in found["cell-08"].source


def test_a_notebook_is_the_lesson_with_which_it_has_most_in_common():
    known = marks.lessons(NOTEBOOKS)
    for lesson in known:
        assert lesson_of(notebook(lesson, ids=False)["cells"], known) == lesson
    strange = [{"cell_type": "code", "source": "1 + 1", "metadata": {}}]
    assert lesson_of(strange, known) is None


def test_submissions_are_directories_or_notebooks(tmp_path):
    hand_in(tmp_path, "ann", "{}")
    (tmp_path / "bob.ipynb").write_text("{}")
    (tmp_path / "cleo").mkdir()
    (tmp_path / ".hidden").mkdir()
    assert [each.student for each in submissions(tmp_path)] == ["ann", "bob", "cleo"]
    with pytest.raises(DtkError, match="no submissions"):
        submissions(tmp_path / "cleo" / "nothing")


def terms(**more):
    known = tuple(marks.lessons(NOTEBOOKS))
    return Terms(known, FIRST, "word", Rules(Limits(), **more))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "mine.ipynb is empty"),
        ("[1, 2", "mine.ipynb is no notebook: JSONDecodeError: Expecting ',' delimiter: line 1 column 6 (char 5)"),
        ('{"cells": 3}', "mine.ipynb is no notebook: TypeError: 'int' object is not iterable"),
        ('{"cells": [{"source": "1"}]}', "mine.ipynb is no notebook"),
        ('{"cells": []}', "mine.ipynb is from none of the lessons"),
        ("[" * 100_000, "mine.ipynb is no notebook"),
        (
            notebook(marks.read(NOTEBOOKS / "01_all_reduce.ipynb")),
            "mine.ipynb is 01_all_reduce; 00_start_here is graded",
        ),
    ],
)
def test_what_is_no_submission_gets_a_sentence_and_no_point(tmp_path, content, words):
    sheet = sit(hand_in(tmp_path, "ann", content), terms())
    assert (sheet.problem, sheet.points, len(sheet.marks)) == (words, 0, 4)


def test_a_link_is_not_followed(tmp_path):
    whole = hand_in(tmp_path, "ann", notebook(FIRST))
    (tmp_path / "bob").mkdir()
    (tmp_path / "bob" / "mine.ipynb").symlink_to(whole.file)
    assert sit(submissions(tmp_path)[1], terms()).problem == "mine.ipynb is a link"


# ---- what is said


def answer(judged, **more):
    return {"judged": judged, "hint": "", "detail": "share([8.0, 9.0], 5)", "error": None, "changed": [], **more}


def test_nothing_of_a_hidden_case_reaches_the_students_page():
    raised = answer("wrong", error={"kind": "ValueError", "text": "[8.0, 9.0]", "line": 0})
    mark = said.mark("00.share", raised, None, {}, {})
    assert mark.said == "in a hidden case it raises ValueError"
    wrong = said.mark("00.whole", answer("wrong", hint="hint: which divisor?"), None, {}, {})
    page = report.student_page("ann", [Sheet("ann", "mine.ipynb", "00_start_here", (mark, wrong))])
    assert "ValueError" in page
    assert "which divisor?" in page
    assert "8.0" not in page


def test_what_was_stopped_says_where_and_who_waits():
    told = {"waits": [["worker 0", "building", "at line 5"], ["worker 1", "collective", "in step 3"]]}
    stop = Stopped("time", told, 3)
    assert said.stopped(stop, 120, judging=False) == (
        "stopped after 120 s, in line 3; worker 0 is busy; worker 1 waits in an all-reduce"
    )
    assert said.stopped(Stopped("ended", code=-9), 120, judging=True) == (
        "it ended the kernel (by SIGKILL), while it was judged"
    )


def sheet(student, *more, **parts):
    return Sheet(student, "mine.ipynb", "00_start_here", (Mark("00.share", "passed"), *more), **parts)


SHEETS = [
    sheet("ann", Mark("00.whole", "wrong", "=HYPERLINK(1)")),
    sheet("bob", Mark("00.whole", "passed"), odd=("<b>odd</b>",)),
]


def rows(text):
    return list(csv.reader(text.splitlines()))


def test_the_tables_have_the_platforms_columns():
    heads, ann, _bob = rows(grades(SHEETS))
    assert heads[:4] == ["assignment", "duedate", "timestamp", "student_id"]
    assert dict(zip(heads, ann, strict=True))["score"] == "1.0"
    heads, possible, ann, _bob = rows(canvas(SHEETS))
    assert heads == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "00_start_here"]
    assert (possible[0].strip(), possible[-1], ann[-1]) == ("Points Possible", "2", "1")
    heads, ann, _bob = rows(moodle(SHEETS))
    assert heads == ["ID number", "00_start_here", "00_start_here (feedback)"]
    assert ann[:2] == ["ann", "1"]


def test_no_answer_becomes_a_spreadsheets_formula():
    assert "'=HYPERLINK(1)" in [value for row in rows(questions(SHEETS)) for value in row]


def test_a_sheet_is_kept_and_read_again():
    whole = replace(SHEETS[0], predictions=(("00.speed", "How fast?", "2", "1.2"),))
    assert Sheet.read(whole.text()) == whole


def test_the_teachers_page_has_the_hardest_first_and_escapes_what_students_wrote():
    assert report.difficulty(SHEETS)[0] == ("00.whole", "1 / 2", "not right yet 1")
    assert report.wrong_answers(SHEETS) == [("00.whole", 1, "=HYPERLINK(1)", "ann")]
    page = report.teacher_page(SHEETS, [FIRST], apart=False)
    assert "&lt;b&gt;odd" in page
    assert "<b>odd" not in page
    assert "without namespaces" in page


# ---- similarity

LONG = """
def share(losses, batch):
    '''Mine.'''
    total = 0.0
    for loss in losses:
        total += loss / batch  # each
    return total
"""


def test_answers_are_compared_without_their_names_comments_and_blanks():
    other = LONG.replace("total", "t").replace("losses", "x").replace("  # each", "").replace("    '''Mine.'''\n", "")
    assert fingerprint(LONG) == fingerprint(other)
    assert fingerprint(LONG) != fingerprint(LONG.replace("+=", "-="))
    given = {"ann": {"q": LONG}, "bob": {"q": other}, "cleo": {"q": "def share(a, b):\n    return 1"}}
    assert pairs(given) == [(("ann", "bob"), ("q",))]
    assert pairs(given, known=[LONG]) == []


def test_what_the_class_has_says_nothing():
    assert pairs({f"student {n}": {"q": LONG} for n in range(12)}) == []
    assert pairs({f"student {n}": {"q": "share = 0"} for n in range(2)}) == []


# ---- cheating


def test_what_judges_is_named_and_put_back_where_it_was_changed(monkeypatch):
    untouched = Untouched()
    assert untouched.put_back() == []
    right, code = SHARE.right, dtk.lessons.exercise.same.__code__
    dtk.lessons.exercise.same.__code__ = (lambda *_, **__: True).__code__
    object.__setattr__(SHARE, "right", lambda *_: 0)
    assert untouched.put_back() == ["dtk.lessons.exercise", "dtk.lessons.exercises.lesson_00"]
    assert (SHARE.right, dtk.lessons.exercise.same.__code__) == (right, code)
    assert untouched.put_back() == []
