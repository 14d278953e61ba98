"""The question bank, read strictly: `read` takes the text of docs/teaching/questions.gift.

It reads the part of Moodle's GIFT that the bank keeps to, a line an answer: multiple choice with one right answer, and
numbers with a tolerance; a title, `[markdown]`, feedback for each answer, and for any other number. So a forgotten
backslash is an error here, and not a question that Moodle cuts off.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Answer", "Question", "read"]

TEXT = r"(?:\\[~=#{}:\\]|[^\\~=#{}:\n])+"  # these characters mean something else without a backslash
NUMBER = r"-?\d+(?:\.\d+)?"
QUESTION = re.compile(
    rf"::(?P<title>{TEXT})::\[markdown\](?P<text>{TEXT}(?:\n{TEXT})*) \{{(?P<number>#?)\n(?P<answers>(?:\t.+\n)+)\}}"
)
CHOICE = re.compile(rf"\t(?P<mark>[=~])(?P<text>{TEXT})#(?P<feedback>{TEXT})")
NUMERICAL = re.compile(rf"\t(?P<mark>=(?:%0%)?)(?P<text>{NUMBER}):(?P<tolerance>{NUMBER})#(?P<feedback>{TEXT})")
OTHERS = re.compile(rf"\t~#(?P<feedback>{TEXT})")


@dataclass(frozen=True)
class Answer:
    """text: Markdown, or a number; "" for any other number. tolerance: of a number; None for a choice."""

    text: str
    right: bool
    feedback: str
    tolerance: float | None = None


@dataclass(frozen=True)
class Question:
    """category: the lesson. comment: the line before it, of what computes its answers, or ""."""

    category: str
    comment: str
    title: str
    text: str
    answers: tuple[Answer, ...]

    @property
    def numerical(self) -> bool:
        return self.answers[-1].text == ""

    @property
    def right(self) -> Answer:
        return next(answer for answer in self.answers if answer.right)


def read(text: str) -> list[Question]:
    """The questions of a bank; ValueError, which names the line, where it is not as the format and this module say."""
    found, category, line = [], "", 1
    for block in re.split(r"(\n{2,})", text.rstrip("\n")):
        comment = "\n".join(re.findall(r"^// (.+)$", block, flags=re.MULTILINE))
        rest = re.sub(r"^//.*\n?", "", block, flags=re.MULTILINE)
        if rest.startswith("$CATEGORY: dtk/"):
            category = rest.removeprefix("$CATEGORY: dtk/")
        elif rest.strip():
            match = QUESTION.fullmatch(rest)
            if match is None or not category:
                raise ValueError(f"line {line}: no question as tools/gift.py reads them: {rest[:60]!r}")
            try:
                answers = tuple(_answers(match["answers"].splitlines(), bool(match["number"])))
            except ValueError as error:
                raise ValueError(f"line {line}: {match['title']}: {error}") from None
            found.append(Question(category, comment, _plain(match["title"]), _plain(match["text"]), answers))
        line += block.count("\n")
    if len({question.title for question in found}) < len(found):
        raise ValueError("two questions have one title")
    return found


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text.replace("\n", " "))


def _answers(lines: Sequence[str], numerical: bool) -> Iterator[Answer]:
    """The answers of a question; ValueError where not exactly one is right, or something is missing."""
    others = OTHERS.fullmatch(lines[-1]) if numerical else None
    form, rest = (NUMERICAL, lines[:-1]) if numerical else (CHOICE, lines)
    answers = [match for match in map(form.fullmatch, rest) if match]
    if len(answers) < len(rest) or (numerical and others is None):
        raise ValueError(
            "an answer is its text, # and feedback, a number with a tolerance; ~# and feedback end numbers"
        )
    right = sum(match["mark"] == "=" for match in answers)
    if right != 1 or len(answers) < (1 if numerical else 3) or len({match["text"] for match in answers}) < len(answers):
        raise ValueError(
            f"{right} of {len(answers)} answers are right; it takes one, of three different choices at least"
        )
    for match in answers:
        tolerance = float(match["tolerance"]) if numerical else None
        yield Answer(_plain(match["text"]), match["mark"] == "=", _plain(match["feedback"]), tolerance)
    if others is not None:
        yield Answer("", False, _plain(others["feedback"]))
