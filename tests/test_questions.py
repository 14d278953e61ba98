"""The question bank: read strictly; dtk computes its answers."""

from __future__ import annotations

import re
from pathlib import Path

import gift
import numpy as np
import pytest
from lessons import ORDER

from dtk.course.check import all_exercises
from dtk.course.exercise import same
from dtk.model import Cluster, Job, Link, ethernet, predict
from dtk.scaling import shares as scaling

BANK = Path(__file__).parent.parent / "docs" / "teaching" / "questions.gift"
TEXT = BANK.read_text(encoding="utf-8")
QUESTIONS = gift.read(TEXT)
BY_NUMBER = {question.title.partition(" ")[0]: question for question in QUESTIONS}
COMPUTED = [question for question in QUESTIONS if re.match(r"\d\d\.", question.comment)]

CHOICE = "::00.1 A title::[markdown]Which? {\n\t=This#Right.\n\t~That#No.\n\t~Those#No.\n}"
NUMBER = "::00.2 Another::[markdown]How many? {#\n\t=1.5:0.01#Right.\n\t=%0%3:0.01#Twice.\n\t~#Count.\n}"


def bank(*blocks):
    return "\n\n".join(["$CATEGORY: dtk/00_start_here", *blocks]) + "\n"


def test_the_bank_has_sixty_questions_and_three_of_each_lesson():
    assert len(QUESTIONS) >= 60
    assert {question.category for question in QUESTIONS} == set(ORDER)
    for lesson in ORDER:
        mine = [question.title for question in QUESTIONS if question.category == lesson]
        assert len(mine) >= 3, lesson
        assert [title.split(" ")[0] for title in mine] == [f"{lesson[:2]}.{k}" for k in range(1, len(mine) + 1)]
    assert sum(question.numerical for question in QUESTIONS) >= 20
    assert all(len(answer.feedback) > 12 for question in QUESTIONS for answer in question.answers)


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (CHOICE.replace("Which?", "Which = ?"), "no question"),
        (CHOICE.replace("Which?", "Which {one}?"), "no question"),
        (CHOICE.replace("[markdown]", ""), "no question"),
        (CHOICE.replace("::[", ":["), "no question"),
        (CHOICE.replace("No.\n\t~Those", "No: never.\n\t~Those"), "feedback"),
        (CHOICE.replace("#Right.", ""), "feedback"),
        (CHOICE.replace("~Those#No.", "~Those#"), "feedback"),
        (CHOICE.replace("~That", "=That"), "2 of 3 answers are right"),
        (CHOICE.replace("=This", "~This"), "0 of 3 answers are right"),
        (CHOICE.replace("\t~That#No.\n", ""), "1 of 2 answers"),
        (CHOICE.replace("~That", "~This"), "different choices"),
        (NUMBER.replace(":0.01#Right", "#Right"), "tolerance"),
        (NUMBER.replace("1.5:", "1,5:"), "a number with a tolerance"),
        (NUMBER.replace("\t~#Count.\n", ""), "end numbers"),
        (NUMBER.replace("%0%", ""), "2 of 2 answers are right"),
    ],
)
def test_what_is_not_written_as_the_format_asks_is_refused(block, said):
    assert [question.numerical for question in gift.read(bank(CHOICE, NUMBER))] == [False, True]
    with pytest.raises(ValueError, match=said):
        gift.read(bank(block))


def test_escapes_are_undone():
    (question,) = gift.read(
        bank(CHOICE.replace("Which?", r"Is \{a\: 1\} \= b \~ \#c\\d?\nOne line.".replace(r"\n", "\n")))
    )
    assert question.text == r"Is {a: 1} = b ~ #c\d? One line."


@pytest.mark.parametrize("question", [each for each in QUESTIONS if each.numerical], ids=lambda each: each.title[:4])
def test_no_number_is_right_and_wrong(question):
    """Moodle takes the first answer in whose range a number is."""
    ranges = [(float(each.text), each.tolerance) for each in question.answers if each.text]
    for at, (one, about) in enumerate(ranges):
        assert about <= max(0.01, 0.02 * abs(one))
        assert all(abs(one - other) > about + near for other, near in ranges[at + 1 :]), question.title


@pytest.mark.parametrize("question", COMPUTED, ids=lambda question: question.title.partition(" ")[0])
def test_the_exercise_computes_what_is_right(question):
    name, case = re.fullmatch(r"([\w.]+)\((.*)\)", question.comment).groups()
    exercise, values = all_exercises(name.split(".")[0])[name], eval(f"({case},)", {"array": np.array})
    right = exercise.tried(exercise.answer, values)
    for answer in question.answers:
        if question.numerical and answer.text:
            assert (abs(float(answer.text) - right) <= answer.tolerance) == answer.right, (answer.text, right)
        elif not question.numerical:
            said = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", answer.text)]
            assert same(said, [*np.ravel(right)], 1e-2) == answer.right, answer.text


LINK = Link("made up", latency=50e-6, bandwidth=1e9)
OTHERWISE = {
    "00.3": scaling.weighted_loss([[2 / 2, 5 / 2]], [[3, 1]])[0],
    "01.2": Cluster(LINK).all_reduce(5, 1000).bytes,
    "01.3": 6 * Cluster(LINK).all_reduce(6, 1000).steps,
    "04.3": scaling.global_loss([[3 / 2, 1 / 2]])[0],
    "05.2": scaling.global_loss([[1.25, 2.25], [1.0, 2.0]]).mean(),
    "09.3": predict(Job(0.8 / 64, 64, 1e8), Cluster(LINK), [4], "strong").seconds[0],
    "12.2": Cluster(Link("1 Gb/s", latency=0.0, bandwidth=ethernet(1).bandwidth)).all_reduce(4, 100e6).seconds,
}


@pytest.mark.parametrize("number", OTHERWISE)
def test_dtk_computes_the_same_number(number):
    answer = BY_NUMBER[number].right
    assert float(answer.text) == pytest.approx(OTHERWISE[number], abs=answer.tolerance + 1e-12)
