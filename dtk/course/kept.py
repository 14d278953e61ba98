"""The file of a learner's answers: what was predicted, what came out, which checks passed.

`dtk.answers` shows it, `dtk.report` makes a page of it.

One line of JSON an entry, appended in one write: two kernels can share the file, and none of it is lost when one is
killed. The newest entry of a kind counts. Questions and answers are kept in English, whatever language is spoken.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtk.environment import live_mode
from dtk.errors import DtkError
from dtk.language import N_, _

if TYPE_CHECKING:
    import pandas

_COLUMNS = ["question", "predicted", "came_out", "checked", "tries"]
_lesson = ""  # the lesson whose question or check came last in this kernel


def place() -> Path | None:
    """Where answers are kept: `DTK_ANSWERS`, else a file of this user's; None where nothing is kept.

    Nothing is kept where `DTK_LIVE` is off or in CI, unless `DTK_ANSWERS` names a file: what a lesson stores must not
    depend on who ran it before.
    """
    asked = os.environ.get("DTK_ANSWERS")
    if asked:
        return Path(asked).expanduser()
    if live_mode() == "off":
        return None
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "dtk" / "answers.jsonl"


def keep(kind: str, name: str, **facts: Any) -> None:
    """Appends an entry. kind: "predicted", "came out", "checked" or "forgotten". name: such as "02.share"."""
    global _lesson
    _lesson = name.partition(".")[0]
    path = place()
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps({"at": round(time.time(), 3), "kind": kind, "name": name, **facts}) + "\n"
    with path.open("ab", buffering=0) as file:
        file.write(line.encode())


def kept() -> dict[str, dict[str, list[dict[str, Any]]]]:
    """All entries, by name and then by kind, in their order. A line that can't be read is left out."""
    path = place()
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    if path is None or not path.exists():
        return found
    for line in path.read_bytes().splitlines():
        try:
            entry = json.loads(line)
            name, kind = entry["name"], entry["kind"]
        except (ValueError, KeyError, TypeError):
            continue  # cut off by a full disk, or edited by hand
        if kind == "forgotten":
            found.pop(name, None)
        else:
            found.setdefault(name, {}).setdefault(kind, []).append(entry)
    return found


def shown(entry: Mapping[str, Any]) -> str:
    """The words of a prediction or of what came out, in the language that is spoken now."""
    words, unit = entry["words"], entry.get("unit", "")
    return f"{words.removesuffix(unit)}{_(unit)}" if unit else _(words)


def answers(forget: str | None = None) -> pandas.DataFrame:
    """What you predicted, what your own runs measured, and which checks you passed.

    Args:
        forget: a question, such as "00.speed", or a lesson, such as "00": removes its answers first, so that you can
            predict again.

    Returns:
        A table with a row a question or exercise, by name. question: "" of an exercise. predicted and came_out: in
        words. checked: "PASS" where the last try was right, the hint where it was not, "" where nothing
        was tried. tries: how many, up to the first that was right.
    """
    import pandas

    for name in list(kept()):
        if forget is not None and (name == forget or name.startswith(f"{forget}.")):
            keep("forgotten", name)
    found = kept()
    return pandas.DataFrame([_row(found[name]) for name in sorted(found)], sorted(found), _COLUMNS).rename_axis("name")


def _row(entries: dict[str, list[dict[str, Any]]]) -> list[Any]:
    last = [entries.get(kind, [{}])[-1] for kind in ("predicted", "came out")]
    asked = next((_(entry["question"]) for entry in last if entry.get("question")), "")
    said = [asked, *(shown(entry) if entry else "" for entry in last)]
    tried = [entry["hint"] for entry in entries.get("checked", ())]
    if not tried:
        return [*said, "", 0]
    return [*said, tried[-1] or "PASS", tried.index("") + 1 if "" in tried else len(tried)]


def report(lesson: str | None = None, path: str | Path | None = None) -> None:
    """Writes what you predicted, what your runs showed, the checks you passed and the figures you drew into one page.

    Args:
        lesson: such as "02", or "lab3"; None: the one whose question or check came last in this kernel.
        path: where to; None: `lesson-02-report.html`, or `lab-3-report.html`, in the current directory.

    Raises:
        DtkError: there is nothing to report of the lesson that was named: no question was answered there and nothing
            was checked. Without a name a line says so.
    """
    # Late: a worker that tries an exercise's function imports this module, and draws nothing.
    from dtk.view.canvas import drawn, image, page, table

    if place() is None:
        print(_("dtk: no answers are kept here (DTK_LIVE is off), so there is no report"))
        return
    asked, lesson = lesson, lesson or _lesson
    lab, number = lesson.startswith("lab"), lesson.removeprefix("lab")
    named = _("lab {number}", number=number) if lab else _("lesson {number}", number=number)
    said = answers()
    said = said[[name.partition(".")[0] == lesson for name in said.index]]
    if said.empty:
        nothing = _("nothing was answered or checked yet, so there is no report; run the cells from dtk.ask on")
        if asked:
            raise DtkError(_("{name}: {words}", name=named, words=nothing))
        print(_("dtk: ") + nothing)
        return
    predicted = said[(said.predicted != "") | (said.came_out != "")]
    every = import_module("dtk.course.exercise").all_exercises(lesson)  # which keeps by this module what was checked
    checks = dict.fromkeys(every, (_("not tried"), 0))
    checks |= {name: (row.checked, row.tries) for name, row in said[said.checked != ""].iterrows()}
    checked = []
    for name, (words, tries) in checks.items():
        mark = "\N{CHECK MARK}" if words == "PASS" else "\N{BALLOT X}" if tries else ""
        checked.append((f"{mark} {name}", words, tries))
    pictures = drawn()
    made, passed = int((predicted.predicted != "").sum()), int((said.checked == "PASS").sum())
    what = N_("predictions: {predictions}, checks passed: {passed} of {checks}, figures: {figures}")
    summary = _(what, predictions=made, passed=passed, checks=len(checked), figures=len(pictures))
    questions = predicted[["question", "predicted", "came_out"]].replace({"predicted": {"": _("no prediction")}})
    parts = [
        table(_("Predictions"), ("", _("question"), _("you said"), _("your own run")), list(questions.itertuples())),
        table(_("Checks"), ("", _("last try"), _("tries")), checked),
        *map(image, pictures),
    ]
    path = Path(path or f"{'lab' if lab else 'lesson'}-{number}-report.html")
    path.write_text(page(f"dtk: {named}", summary, parts), encoding="utf-8")
    print(_("report of {lesson}: {summary}; written to {path}", lesson=named, summary=summary, path=path))
    if live_mode() == "widgets":
        from IPython.display import FileLink, display

        display(FileLink(path))
