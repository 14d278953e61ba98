"""One submission, graded: its cells run in a box, each question is judged behind its own, and costs nobody but itself.

A question's limit holds from the first cell behind the last check to the end of its own check. What does not end is
interrupted, then killed; then a new box runs the earlier cells again, without the one that was stopped, and the next
question goes on from there. Points that were given stay.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dtk.classroom import said
from dtk.classroom.boxed import Box, Rules, Stopped
from dtk.classroom.lesson import Cell, Lesson
from dtk.classroom.results import Mark, Sheet
from dtk.classroom.submission import Step, Submission, lesson_of, steps
from dtk.errors import DtkError
from dtk.language import _
from dtk.lessons.kept import kept

__all__ = ["Terms", "sit"]

_READS_SECRETS = ("dtk.lessons", "dtk.classroom", "_getframe", "get_objects", "get_referrers")
_LARGEST = 10 << 20  # bytes of a file of answers


@dataclass(frozen=True)
class Terms:
    """What all submissions have in common. expected: the lesson that is graded; None: whichever each comes from.

    word: draws the hidden cases; "" leaves those that students see.
    """

    lessons: tuple[Lesson, ...]
    expected: Lesson | None
    word: str
    rules: Rules


def sit(submission: Submission, terms: Terms) -> Sheet:
    """Grades one notebook. What it can't be graded for is a sentence in its sheet."""
    began = time.monotonic()
    wanted = terms.expected
    sheet = Sheet(submission.student, submission.file.name, wanted.name if wanted else "")
    try:
        cells = submission.cells()
        lesson = lesson_of(cells, terms.lessons)
        if lesson is None:
            raise DtkError(_("{file} is from none of the lessons", file=submission.file.name))
        if wanted is not None and lesson.name != wanted.name:
            file, other = submission.file.name, lesson.name
            raise DtkError(_("{file} is {other}; {lesson} is graded", file=file, other=other, lesson=wanted.name))
    except DtkError as error:
        words = error.what
        marks = tuple(Mark(each.name, "missing", words) for each in wanted.questions) if wanted else ()
        return replace(sheet, problem=words, marks=marks)
    found = _Sitting(lesson, submission, terms).all(cells)
    return replace(
        sheet,
        lesson=lesson.name,
        marks=tuple(found.marks[question.name] for question in lesson.questions),
        odd=tuple(found.odd),
        seconds=time.monotonic() - began,
        predictions=tuple(_predictions(submission, lesson)),
    )


@dataclass
class _Sitting:
    """A submission under way. ran: the cells so far, to be run again in a new box. errors: what cells raised, by id."""

    lesson: Lesson
    submission: Submission
    terms: Terms
    marks: dict[str, Mark] = field(default_factory=dict)
    odd: list[str] = field(default_factory=list)
    ran: list[Step] = field(default_factory=list)
    errors: dict[str, dict[str, Any]] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)  # cell -> why, in words
    box: Box | None = None

    def all(self, cells: Sequence[Cell]) -> _Sitting:
        plan = steps(cells, self.lesson)
        self._look_at(plan)
        try:
            for group, question in _groups(plan):
                self._ask(group, question)
        finally:
            if self.box is not None:
                self.box.close()
        for each in self.lesson.questions:
            self.marks.setdefault(each.name, Mark(each.name, "missing", _("there is no cell for it")))
        return self

    def _look_at(self, plan: Sequence[Step]) -> None:
        edited = [step.cell for step in plan if step.edited and not step.task]
        if edited:
            self.odd.append(_("cells of the lesson were changed: {cells}", cells=", ".join(edited)))
        for step in plan:
            names = [name for name in _READS_SECRETS if not step.question and name in step.source]
            if names:
                self.odd.append(_("cell {cell} names {names}", cell=step.cell, names=", ".join(names)))

    def _ask(self, group: Sequence[Step], question: Step) -> None:
        """Runs the cells of a question and judges it."""
        began, spent, stops = time.monotonic(), 0.0, 0
        for step in group:
            if stops > 1:  # the cells behind the one that was stopped got their time, too
                self.stopped[step.cell] = _("not run any more")
                continue
            box = self._in_box()
            at = time.monotonic()
            try:
                answer = box.ask({"cell": step.cell, "source": step.source}, self._seconds - spent)
                self._keep(step, answer)
            except Stopped as stop:
                self._halt(question, step, stop)
                stops, spent = stops + 1, 0.0
            else:
                spent += time.monotonic() - at
        mark = self._judged(question, spent) if not stops else self._lost(question, group)
        sources = [step.source for step in (*self.ran, *group) if step.task == question.task]
        self.marks[question.question] = replace(
            mark, seconds=time.monotonic() - began, source=sources[-1] if sources else ""
        )

    @property
    def _seconds(self) -> float:
        return self.terms.rules.limits.seconds

    def _keep(self, step: Step, answer: dict[str, Any]) -> None:
        self.ran.append(step)
        if answer["error"]:
            self.errors[step.cell] = answer

    def _halt(self, question: Step, step: Step, stop: Stopped) -> None:
        """A cell, or a question's check, was stopped."""
        words = said.stopped(stop, self._seconds, judging=bool(step.question))
        if not (step.task or step.question):
            words = _("{words} (cell {cell})", words=words, cell=step.cell)
        self.stopped[step.cell] = words
        self.odd.append(f"{question.question or step.cell}: {words}")
        if stop.answer is None:
            self.box = None

    def _judged(self, question: Step, spent: float) -> Mark:
        name = question.question
        blocked = next((self.stopped[step] for step in (question.task,) if step in self.stopped), "")
        if blocked:
            return Mark(name, "stopped", blocked)
        try:
            asked = {"check": name, "call": question.source, "seed": self.terms.word}
            answer = self._in_box().ask(asked, self._seconds - spent)
        except Stopped as stop:
            self._halt(question, question, stop)
            return Mark(name, "stopped", self.stopped[question.cell])
        if answer["changed"]:
            self.odd.append(
                _("{question}: {modules} was changed by a cell", question=name, modules=", ".join(answer["changed"]))
            )
        return said.mark(name, answer, self.errors.get(question.task), self.errors, self.stopped)

    def _lost(self, question: Step, group: Sequence[Step]) -> Mark:
        words = next(self.stopped[step.cell] for step in group if step.cell in self.stopped)
        return Mark(question.question, "stopped", words)

    def _in_box(self) -> Box:
        """The box that there is, or a new one in which the cells so far have run, without those that were stopped."""
        while self.box is None:
            self.box = Box(self.lesson.number, self.submission.folder, self.terms.rules)
            for step in self.ran:
                if step.cell in self.stopped:
                    continue
                try:
                    answer = self.box.ask({"cell": step.cell, "source": step.source}, self._seconds)
                    if answer["error"]:
                        self.errors[step.cell] = answer
                except Stopped as stop:
                    self._halt(step, step, stop)
                    if self.box is None:
                        break
        return self.box


def _groups(plan: Sequence[Step]) -> Iterator[tuple[list[Step], Step]]:
    """Each question with the cells between the one before and it."""
    cells: list[Step] = []
    for step in plan:
        if step.question:
            yield cells, step
            cells = []
        else:
            cells.append(step)


def _predictions(submission: Submission, lesson: Lesson) -> Iterator[tuple[str, str, str, str]]:
    """(name, question, predicted, came out) of the lesson, from the file of answers beside the notebook."""
    folder = submission.folder
    file = folder / "answers.jsonl" if folder else Path()
    if not file.is_file() or file.is_symlink() or file.stat().st_size > _LARGEST:
        return
    for name, entries in sorted(kept(file).items()):
        if str(name).partition(".")[0] == lesson.number and {"predicted", "came out"} & set(entries):
            asked = entries.get("predicted", [{}])[0]
            out = entries.get("came out", [{}])[-1]
            question = asked.get("question") or _("no prediction was kept")
            yield str(name), str(question), str(asked.get("words", "")), str(out.get("words", ""))
