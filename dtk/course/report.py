"""`report`: one HTML file of a lesson that a learner can keep or hand in: predictions, checks, figures."""

from __future__ import annotations

from pathlib import Path

from dtk.course.kept import answers, current_lesson, place
from dtk.errors import DtkError
from dtk.language import _, ngettext
from dtk.view.canvas import drawn
from dtk.view.page import figure, page, table

__all__ = ["report"]


def report(lesson: str | None = None, path: str | Path | None = None) -> None:
    """Writes what you predicted, what your runs showed, the checks you passed and the figures you drew into one page.

    Args:
        lesson: such as "02", or "lab3"; None: the one whose question or check came last in this kernel.
        path: where to; None: `lesson-02-report.html`, or `lab-3-report.html`, in the current directory.

    Raises:
        DtkError: there is nothing to report of the lesson that was named: no question was answered there and nothing
            was checked. Without a name a line says so.
    """
    if place() is None:
        print(_("dtk: no answers are kept here (DTK_LIVE is off), so there is no report"))
        return
    asked, lesson = lesson, lesson or current_lesson()
    lab, number = lesson.startswith("lab"), lesson.removeprefix("lab")
    named = _("lab {number}", number=number) if lab else _("lesson {number}", number=number)
    said = answers()
    said = said[[name.partition(".")[0] == lesson for name in said.index]]
    if said.empty and not asked:
        print(_("dtk: nothing was answered or checked yet, so there is no report; run the cells from dtk.ask on first"))
        return
    if said.empty:
        what = _("nothing was answered or checked in {lesson}", lesson=named)
        raise DtkError(what, remedy=_("run its cells first, from dtk.ask on"))
    predicted = said[(said.predicted != "") | (said.came_out != "")]
    checked = said[said.checked != ""]
    pictures = drawn()
    passed = int((checked.checked == "PASS").sum())
    predictions = int((predicted.predicted != "").sum())
    summary = _(
        "{predictions}, {checks}, {figures}",
        predictions=ngettext("{n} prediction", "{n} predictions", predictions),
        checks=ngettext("{passed} of {n} check passed", "{passed} of {n} checks passed", len(checked), passed=passed),
        figures=ngettext("{n} figure", "{n} figures", len(pictures)),
    )
    questions = predicted[["question", "predicted", "came_out"]]
    parts = [
        table(_("Predictions"), ("", _("question"), _("you said"), _("your own run")), list(questions.itertuples())),
        table(_("Checks"), ("", _("last try"), _("tries")), list(checked[["checked", "tries"]].itertuples())),
        *(figure(each, words) for each, words in pictures),
    ]
    path = Path(path or f"{'lab' if lab else 'lesson'}-{number}-report.html")
    path.write_text(page(_("dtk, {lesson}: report", lesson=named), summary, parts), encoding="utf-8")
    print(_("report of {lesson}: {summary}; written to {path}", lesson=named, summary=summary, path=path))
