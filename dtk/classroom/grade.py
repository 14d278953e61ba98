"""`dtk class grade`: every submission of a directory, graded unattended, and the report of them.

The rest of the room is imported where it is needed: the command line is made for other commands, too.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dtk.errors import DtkError
from dtk.language import _, ngettext

if TYPE_CHECKING:
    from dtk.classroom.results import Sheet

__all__ = ["add_arguments", "add_limits", "main", "size"]

_UNITS = {"K": 10, "M": 20, "G": 30}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `dtk class grade`."""
    parser.add_argument("submissions", type=Path, help="a directory with STUDENT/NAME.ipynb, or STUDENT.ipynb")
    parser.add_argument("--out", type=Path, required=True, metavar="REPORT", help="the directory of the report")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="submissions at a time (default: 2)")
    parser.add_argument("--lesson", metavar="NN", help="such as 02: grade this one (default: what each notebook is)")
    parser.add_argument("--lessons", type=Path, default=Path("notebooks"), metavar="DIR", help="(default: notebooks)")
    parser.add_argument("--hidden", default="", metavar="WORD", help="draws hidden cases; keep it to yourself")
    add_limits(parser, "for each question")


def add_limits(parser: argparse.ArgumentParser, each: str) -> None:
    """The limits of a box. each: what has so many seconds."""
    parser.add_argument("--seconds", type=float, default=120.0, help=f"{each} (default: 120)")
    parser.add_argument("--memory", type=size, default="4G", help="for each submission (default: 4G)")


def main(options: argparse.Namespace) -> int:
    """Grades, and writes the report of what was graded, also where it is interrupted; then the exit code is 130."""
    from dtk.classroom import report
    from dtk.classroom.boxed import Limits, Rules, can_be_apart
    from dtk.classroom.lesson import lessons
    from dtk.classroom.sitting import Terms
    from dtk.classroom.submission import submissions
    from dtk.classroom.unattended import grade, line

    known = lessons(options.lessons)
    expected = lessons(options.lessons, [options.lesson])[0] if options.lesson else None
    handed_in = submissions(options.submissions)
    if options.out.resolve().is_relative_to(options.submissions.resolve()):
        raise DtkError("the report would lie among the submissions", remedy="name another directory: --out REPORT")
    options.out.mkdir(parents=True, exist_ok=True)
    hidden = tuple(each.resolve() for each in (options.submissions, options.out, options.lessons))
    rules = Rules(Limits(options.seconds, options.memory), hidden)
    rules = replace(rules, apart=can_be_apart(rules))
    if not rules.apart:
        print(
            _(
                "dtk: this system refuses namespaces to this user: limits of time, memory and processes hold, but a "
                "submission can read and write what you can, and reach the network"
            ),
            file=sys.stderr,
        )
    terms = Terms(tuple(known), expected, options.hidden, rules)
    sheets: list[Sheet] = []
    began, code = time.monotonic(), 0

    def give_up(_number: int, _frame: object) -> None:
        rules.given_up.set()  # also where the exception comes at a moment at which Python ignores it
        raise KeyboardInterrupt

    before = {number: signal.signal(number, give_up) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for sheet in grade(handed_in, terms, options.out, options.jobs):
            sheets.append(sheet)
            print(line(sheet, len(sheets), len(handed_in)), flush=True)
    except KeyboardInterrupt:
        code = 130
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    sheets.sort(key=lambda each: (each.student, each.file))
    report.write_all(sheets, options.out, known, rules.apart)
    words = _(
        "in {seconds:.0f} s; the report is {path}", seconds=time.monotonic() - began, path=options.out / "teacher.html"
    )
    print(ngettext("{n} submission", "{n} submissions", len(sheets)), words)
    return code


def size(text: str) -> int:
    """Bytes, from a text such as 4G; for argparse."""
    try:
        return int(text) if text.isdigit() else int(float(text[:-1]) * (1 << _UNITS[text[-1].upper()]))
    except (ValueError, KeyError, IndexError):
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 4G or 800M") from None
