"""`dtk class grade`: every submission of a directory, graded unattended, and the report of them.

What was graded is kept in the report's directory by the submission's content: called again, it grades what is new.
"""

from __future__ import annotations

import argparse
import hashlib
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path

from dtk.classroom import report
from dtk.classroom.boxed import GivenUp, Limits, Rules, can_be_apart
from dtk.classroom.lesson import lessons
from dtk.classroom.results import Sheet, write
from dtk.classroom.sitting import Terms, sit
from dtk.classroom.submission import Submission, submissions
from dtk.errors import DtkError
from dtk.language import _, ngettext

__all__ = ["grade", "main"]

_KEPT = ".graded"


def main(options: argparse.Namespace) -> int:
    """Grades, and writes the report of what was graded, also where it is interrupted; then the exit code is 130."""
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
            print(_line(sheet, len(sheets), len(handed_in)), flush=True)
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


def grade(handed_in: list[Submission], terms: Terms, out: Path, jobs: int) -> Iterator[Sheet]:
    """Each submission's sheet, as soon as it is there: graded now, or kept from an earlier call.

    Raises:
        KeyboardInterrupt: passed on, when every box has ended.
    """
    folder = out / _KEPT
    folder.mkdir(exist_ok=True)
    common = _common(terms)
    pool = ThreadPoolExecutor(max(1, jobs))
    waiting: dict[Future[Sheet], tuple[Path, Submission]] = {}
    try:
        for submission in handed_in:
            name = hashlib.sha256(f"{common} {submission.digest()}".encode()).hexdigest()[:24]
            file = folder / f"{name}.json"
            if file.exists():
                yield Sheet.read(file.read_text(encoding="utf-8"))
            else:
                waiting[pool.submit(sit, submission, terms)] = file, submission
        while waiting:
            done, _rest = wait(waiting, return_when=FIRST_COMPLETED)
            for each in done:
                file, submission = waiting.pop(each)
                try:
                    sheet = each.result()
                    write(file, sheet.text())
                except GivenUp:
                    raise KeyboardInterrupt from None
                except Exception as error:  # of ours or of the system's: the others go on, and a later call tries again
                    words = _("not graded: {why}", why=f"{type(error).__name__}: {error}")
                    sheet = Sheet(submission.student, submission.file.name, "", problem=words)
                yield sheet
    finally:
        if waiting:
            terms.rules.given_up.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _common(terms: Terms) -> str:
    """What a sheet depends on besides the submission: lessons, checks, limits, the hidden cases' word."""
    whole = hashlib.sha256(repr((terms.word, terms.expected and terms.expected.name, terms.rules.limits)).encode())
    for lesson in terms.lessons:
        whole.update(repr([(cell["id"], cell["source"]) for cell in lesson.notebook["cells"]]).encode())
    here = Path(__file__).parents[1]
    for file in sorted(here.rglob("*.py")):
        whole.update(f"{file.relative_to(here)} {file.stat().st_size}".encode() + file.read_bytes())
    return whole.hexdigest()


def _line(sheet: Sheet, count: int, of: int) -> str:
    width = len(str(of))
    points = f"{sheet.points}/{len(sheet.marks)}" if sheet.marks else "-"
    words = [sheet.problem] if sheet.problem else [f"{m.question}: {m.said}" for m in sheet.marks if m.how == "stopped"]
    return f"{count:{width}}/{of}  {sheet.student:20}  {points:>5}  {sheet.seconds:5.1f} s  {'; '.join(words)}".rstrip()
