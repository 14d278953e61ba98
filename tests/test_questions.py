"""The question bank for Moodle: written as its format GIFT asks, and dtk computes its answers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from lessons import ORDER

from dtk.course.exercise import all_exercises, same
from dtk.model import Cluster, Job, Link, ethernet, predict
from dtk.scaling import shares as scaling

BANK = Path(__file__).parent.parent / "docs" / "teaching" / "questions.gift"

# The part of GIFT that the bank keeps to, a line an answer: a forgotten backslash fails here, and is not cut by Moodle.
WORDS = r"(?:\\[~=#{}:\\]|[^\\~=#{}:\n])+"  # these characters mean something else without a backslash
NUMBER = r"-?\d+(?:\.\d+)?"
QUESTION = re.compile(
    rf"(?P<comment>(?://.*\n)*)::(?P<title>{WORDS})::\[markdown\]{WORDS}(?:\n{WORDS})* \{{(?P<kind>#?)\n"
    rf"(?P<answers>(?:\t.+\n)+)\}}"
)
CHOICE = re.compile(rf"\t(?P<mark>[=~])(?P<text>{WORDS})(?P<tolerance>)#(?P<feedback>{WORDS})")
NUMERICAL = re.compile(rf"\t(?P<mark>=(?:%0%)?)(?P<text>{NUMBER}):(?P<tolerance>{NUMBER})#(?P<feedback>{WORDS})")
OTHERS = re.compile(rf"\t~#{WORDS}")  # the feedback for any other number


class Answer(NamedTuple):
    """tolerance: of a number."""

    text: str
    right: bool
    tolerance: float


class Question(NamedTuple):
    """category: the lesson. comment: the line before it, of what computes its answers."""

    category: str
    comment: str
    title: str
    numerical: bool
    answers: list[Answer]


def read(text):
    found, category = [], ""
    for block in re.split(r"\n{2,}", text.strip()):
        if "$CATEGORY: dtk/" in block:
            category = block.partition("$CATEGORY: dtk/")[2]
        elif re.sub(r"^//.*\n?", "", block, flags=re.MULTILINE):
            match = QUESTION.fullmatch(block)
            assert match, f"no question as the bank has them: {block[:80]!r}"
            lines, form = match["answers"].splitlines(), NUMERICAL if match["kind"] else CHOICE
            assert not match["kind"] or OTHERS.fullmatch(lines.pop()), block
            answers = [form.fullmatch(line) for line in lines]
            assert all(answers), f"an answer is its text, # and feedback, a number with a tolerance: {block}"
            assert len({each["text"] for each in answers}) == len(answers) >= (1 if match["kind"] else 3), block
            assert [each["mark"] for each in answers].count("=") == 1, block
            assert all(len(each["feedback"]) > 12 for each in answers), block
            made = [Answer(each["text"], each["mark"] == "=", float(each["tolerance"] or 0)) for each in answers]
            comment = match["comment"].strip().removeprefix("// ")
            found.append(Question(category, comment, match["title"], bool(match["kind"]), made))
    return found


QUESTIONS = read(BANK.read_text(encoding="utf-8"))
BY_NUMBER = {question.title.partition(" ")[0]: question for question in QUESTIONS}
COMPUTED = [question for question in QUESTIONS if re.match(r"\w+\.", question.comment)]


def test_the_bank_has_sixty_questions_and_three_of_each_lesson():
    assert len({question.title for question in QUESTIONS}) == len(QUESTIONS) >= 60
    assert {question.category for question in QUESTIONS} == {*ORDER, "appendix_estimator"}
    for lesson in ORDER:
        mine = [question.title for question in QUESTIONS if question.category == lesson]
        assert len(mine) >= 3, lesson
        assert [title.split(" ")[0] for title in mine] == [f"{lesson[:2]}.{k}" for k in range(1, len(mine) + 1)]
    assert sum(question.numerical for question in QUESTIONS) >= 20


@pytest.mark.parametrize("question", [each for each in QUESTIONS if each.numerical], ids=lambda each: each.title[:4])
def test_no_number_is_right_and_wrong(question):
    """Moodle takes the first answer in whose range a number is."""
    ranges = [(float(each.text), each.tolerance) for each in question.answers]
    for at, (one, about) in enumerate(ranges):
        assert about <= max(0.01, 0.02 * abs(one))
        assert all(abs(one - other) > about + near for other, near in ranges[at + 1 :]), question.title


@pytest.mark.parametrize("question", COMPUTED, ids=lambda question: question.title.partition(" ")[0])
def test_the_exercise_computes_what_is_right(question):
    name, case = re.fullmatch(r"([\w.]+)\((.*)\)", question.comment).groups()
    exercise, values = all_exercises(name.split(".")[0])[name], eval(f"({case},)", {"array": np.array})
    right = exercise.tried(exercise.right, values)
    for answer in question.answers:
        if question.numerical:
            assert (abs(float(answer.text) - right) <= answer.tolerance) == answer.right, (answer.text, right)
        else:
            said = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", answer.text)]
            assert same(said, [*np.ravel(right)], 1e-2) == answer.right, answer.text


LINK = Link("made up", latency=50e-6, bandwidth=1e9)
OTHERWISE = {
    "00.3": scaling.weighted_loss([[2 / 2, 5 / 2]], [[3, 1]])[0],
    "01.2": Cluster(LINK).all_reduce(5, 1000).bytes,
    "01.3": 6 * Cluster(LINK).all_reduce(6, 1000).steps,
    "04.3": scaling.global_loss([[3 / 2, 1 / 2]], [[1, 1]])[0],
    "05.2": scaling.global_loss([[1.25, 2.25], [1.0, 2.0]], [[2, 2], [2, 2]]).mean(),
    "09.3": predict(Job(0.8 / 64, 64 / 4, 1e8), Cluster(LINK), [4]).seconds[0],
    "12.2": Cluster(Link("1 Gb/s", latency=0.0, bandwidth=ethernet(1).bandwidth)).all_reduce(4, 100e6).seconds,
}


@pytest.mark.parametrize("number", OTHERWISE)
def test_dtk_computes_the_same_number(number):
    (answer,) = [each for each in BY_NUMBER[number].answers if each.right]
    assert float(answer.text) == pytest.approx(OTHERWISE[number], abs=answer.tolerance + 1e-12)
