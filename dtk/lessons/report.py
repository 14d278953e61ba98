"""`report`: one HTML file of a lesson that a learner can keep or hand in: predictions, checks, figures."""

from __future__ import annotations

import base64
import html
import time
from pathlib import Path
from typing import TYPE_CHECKING

from dtk.digits import counted
from dtk.errors import DtkError
from dtk.lessons.kept import answers, current_lesson, place
from dtk.view.canvas import drawn, png

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

__all__ = ["report"]

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>
:root {{color-scheme: light dark}}
body {{font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem}}
table {{border-collapse: collapse; width: 100%}}
th, td {{text-align: left; vertical-align: top; padding: .4rem .8rem .4rem 0; border-bottom: 1px solid #8886}}
figure {{margin: 1.5rem 0; overflow-x: auto}}
img {{max-width: 100%; min-width: 30rem; background: #fff}}
</style></head><body>
<h1>{title}</h1><p>{summary}. {when}.</p>
{tables}{figures}</body></html>
"""


def report(lesson: str | None = None, path: str | Path | None = None) -> None:
    """Writes what you predicted, what your runs showed, the checks you passed and the figures you drew into one page.

    Args:
        lesson: such as "02", or "lab3"; None: the one whose question or check came last in this kernel.
        path: where to; None: `lesson-02-report.html`, or `lab-3-report.html`, in the current directory.

    Raises:
        DtkError: there is nothing to report: no question was answered and nothing was checked in this lesson.
    """
    if place() is None:
        print("dtk: no answers are kept here (DTK_LIVE is off), so there is no report")
        return
    lesson = lesson or current_lesson()
    named = f"lab {lesson[3:]}" if lesson.startswith("lab") else f"lesson {lesson}"
    table = answers()
    table = table[[name.partition(".")[0] == lesson for name in table.index]]
    if table.empty:
        raise DtkError(
            f"nothing was answered or checked in {named if lesson else 'any lesson'}",
            remedy="run its cells first, from dtk.ask on",
        )
    predicted = table[(table.predicted != "") | (table.came_out != "")]
    checked = table[table.checked != ""]
    pictures = drawn()
    passed = int((checked.checked == "PASS").sum())
    said = int((predicted.predicted != "").sum())
    summary = (
        f"{counted(said, 'prediction')}, {passed} of {counted(len(checked), 'check')} passed, "
        f"{counted(len(pictures), 'figure')}"
    )
    page = _PAGE.format(
        title=html.escape(f"dtk, {named}: report"),
        summary=summary,
        when=time.strftime("%Y-%m-%d %H:%M"),
        tables=_table(
            "Predictions",
            ("", "question", "you said", "your own run"),
            predicted[["question", "predicted", "came_out"]],
        )
        + _table("Checks", ("", "last try", "tries"), checked[["checked", "tries"]]),
        figures="".join(_figure(figure, words) for figure, words in pictures),
    )
    path = Path(path or f"{named.replace(' ', '-')}-report.html")
    path.write_text(page, encoding="utf-8")
    print(f"report of {named}: {summary}; written to {path}")


def _table(title: str, heads: tuple[str, ...], table: pandas.DataFrame) -> str:
    rows = [[name, *values] for name, *values in table.itertuples()]
    if not rows:
        return ""
    cells = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(value))}</td>" for value in row) + "</tr>\n" for row in rows
    )
    names = "".join(f"<th>{head}</th>" for head in heads)
    return f"<h2>{title}</h2>\n<table><tr>{names}</tr>\n{cells}</table>\n"


def _figure(figure: Figure, words: str) -> str:
    picture = base64.b64encode(png(figure, 120)).decode()
    return f'<figure><img alt="{html.escape(words)}" src="data:image/png;base64,{picture}"></figure>\n'
