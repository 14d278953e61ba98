"""Grading a whole directory: so many submissions at a time, each kept as soon as it is graded.

What was graded is kept in the report's directory by the submission's content: called again, it grades what is new.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from dtk.classroom.boxed import GivenUp
from dtk.classroom.results import Sheet, write
from dtk.classroom.sitting import Terms, sit
from dtk.classroom.submission import Submission
from dtk.language import _

__all__ = ["grade", "line"]

_KEPT = ".graded"


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


def line(sheet: Sheet, count: int, of: int) -> str:
    width = len(str(of))
    points = f"{sheet.points}/{len(sheet.marks)}" if sheet.marks else "-"
    words = [sheet.problem] if sheet.problem else [f"{m.question}: {m.said}" for m in sheet.marks if m.how == "stopped"]
    return f"{count:{width}}/{of}  {sheet.student:20}  {points:>5}  {sheet.seconds:5.1f} s  {'; '.join(words)}".rstrip()
