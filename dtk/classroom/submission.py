"""What students handed in: whose it is, which lesson, and what of it is to be run and judged.

A directory has `STUDENT/NAME.ipynb`, with `STUDENT/answers.jsonl` beside it where predictions are to be reported, or
`STUDENT.ipynb`. Students may have changed anything: cells are found by their ids, by the checks behind them, or by the
names that they make.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dtk.classroom.lesson import Cell, Lesson, Task, open_notebook
from dtk.errors import DtkError
from dtk.language import _

__all__ = ["Step", "Submission", "lesson_of", "steps", "submissions"]

_LARGEST = 50 << 20  # bytes of a notebook
_CHECK = re.compile(r"""\bdtk\.check\(\s*["']([\w.]+)["']""")


@dataclass(frozen=True)
class Submission:
    """One notebook of one student."""

    student: str
    file: Path

    @property
    def folder(self) -> Path | None:
        """Where its own files are; None where it shares the directory with the others'."""
        return self.file.parent if self.file.parent.name == self.student else None

    def cells(self) -> list[Cell]:
        """Raises a DtkError, in a sentence, where there is no notebook to be read."""
        if self.file.is_symlink():
            raise DtkError(_("{file} is a link", file=self.file.name))
        if not self.file.is_file():
            raise DtkError(_("there is no notebook"))
        size = self.file.stat().st_size
        if size == 0:
            raise DtkError(_("{file} is empty", file=self.file.name))
        if size > _LARGEST:
            raise DtkError(_("{file} is too large, {mb} MB", file=self.file.name, mb=size >> 20))
        try:
            cells = open_notebook(self.file)["cells"]
            found = [dict(cell) for cell in cells]
            for cell in found:
                str(cell["source"]) + str(cell["cell_type"]) + str(dict(cell["metadata"]))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise DtkError(_("{file} is no notebook", file=self.file.name)) from None
        return found

    def digest(self) -> str:
        """Of all files that count: the notebook, and what lies beside it. Of a large one its size and time count."""
        folder, whole = self.folder, hashlib.sha256(f"{self.student}/{self.file.name}".encode())
        for file in sorted(folder.rglob("*")) if folder else [self.file]:
            if file.is_file() and not file.is_symlink():
                state = file.stat()
                whole.update(f"{file.relative_to(self.file.parent)} {state.st_size}".encode())
                whole.update(file.read_bytes() if state.st_size <= _LARGEST else str(state.st_mtime_ns).encode())
        return whole.hexdigest()


@dataclass(frozen=True)
class Step:
    """A cell to be run, or a question to be judged by the lesson's own check: then `question` is its name.

    cell: its id, or a number where it has none. source: of the cell; of a question the call of its check. task: the id
    of the lesson's exercise that the cell fills in, or that the question belongs to. edited: whether the cell is one of
    the lesson's that the student changed.
    """

    cell: str
    source: str
    question: str = ""
    task: str = ""
    edited: bool = False


def submissions(folder: Path) -> list[Submission]:
    """What is in a directory, by student. A student without a notebook has one that is not there.

    Raises:
        DtkError: there is nothing.
    """
    found: list[Submission] = []
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        if entry.name.startswith((".", "_")):
            continue
        if entry.is_dir() and not entry.is_symlink():
            files = sorted(file for file in entry.rglob("*.ipynb") if ".ipynb_checkpoints" not in file.parts)
            found += [Submission(entry.name, file) for file in files or [entry / "*.ipynb"]]
        elif entry.suffix == ".ipynb" or entry.is_symlink():
            found.append(Submission(entry.stem, entry))
    if not found:
        raise DtkError(
            _("{folder} has no submissions", folder=folder),
            remedy=_("a directory with STUDENT/NAME.ipynb, or STUDENT.ipynb, is asked for"),
        )
    return found


def lesson_of(cells: Sequence[Cell], lessons: Sequence[Lesson]) -> Lesson | None:
    """The lesson that a notebook comes from: the one with whose exercises it has most in common."""

    def likeness(lesson: Lesson) -> tuple[int, int]:
        ids = {str(cell.get("id")) for cell in cells}
        names = {name for cell in cells for name in _CHECK.findall(cell["source"])}
        sources = {cell["source"] for cell in cells if cell["cell_type"] == "code"}
        checks = sum(question.name in names for question in lesson.questions)
        known = sum(cell["id"] in ids or cell["source"] in sources for cell in lesson.notebook["cells"])
        return checks, known

    best = max(lessons, key=likeness, default=None)
    if best is None or (likeness(best)[0] == 0 and likeness(best)[1] < len(best.notebook["cells"]) / 3):
        return None
    return best


def steps(cells: Sequence[Cell], lesson: Lesson) -> list[Step]:
    """What is to be done, in the student's order: their cells, the lesson's where they removed one, and the checks.

    A question whose exercise can't be found is not among it.
    """
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    ids = [_id(cell, at) for at, cell in enumerate(code)]
    checks = {question.cell for question in lesson.questions}
    ours = {cell["id"]: cell["source"] for cell in lesson.notebook["cells"] if cell["cell_type"] == "code"}
    stubs = {task.cell for task in lesson.tasks}
    found: list[tuple[int, Step]] = []
    judged: list[tuple[int, Step]] = []
    for task in lesson.tasks:
        at = _place(task, code, ids)
        if at is None:
            continue
        for question in task.questions:
            behind = [n for n, cell in enumerate(code) if question.cell == ids[n] or _only_checks(cell, question.name)]
            judged.append((max([at, *behind]), Step(question.cell, question.call, question.name, task.cell)))
        ids[at] = task.cell
    for at, cell in enumerate(code):
        if ids[at] in checks or _only_checks(cell):
            continue
        edited = ids[at] in ours and not _as_handed_out(ids[at], cell["source"], ours[ids[at]])
        found.append((at, Step(ids[at], cell["source"], task=ids[at] if ids[at] in stubs else "", edited=edited)))
    whole = [*found, *_removed(lesson, code, ids), *judged]
    whole.sort(key=lambda each: (each[0], bool(each[1].question)))
    ordered = [step for _at, step in whole]
    last = max((at for at, step in enumerate(ordered) if step.question), default=-1)
    return ordered[: last + 1]


def _as_handed_out(cell: str, source: str, lessons: str) -> bool:
    """Whether a cell is the lesson's; an edition adds the class's settings to the one that sets up."""
    return source == lessons or (cell == "setup" and source.startswith(f"{lessons}\n\nimport os\n"))


def _removed(lesson: Lesson, code: Sequence[Cell], ids: Sequence[str]) -> list[tuple[int, Step]]:
    """The lesson's cells that the student's notebook lacks, each behind the one that it follows in the lesson."""
    known = {cell["source"]: at for at, cell in enumerate(code)}
    apart = {task.cell for task in lesson.tasks} | {question.cell for question in lesson.questions}
    found, at = [], -1
    for cell in lesson.notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        here = ids.index(cell["id"]) if cell["id"] in ids else known.get(cell["source"])
        if here is not None:
            at = max(at, here)
        elif cell["id"] not in apart:
            found.append((at, Step(cell["id"], cell["source"])))
    return found


def _place(task: Task, code: Sequence[Cell], ids: Sequence[str]) -> int | None:
    """Which cell fills in an exercise: by its id, by the check behind it, or by the names that it makes."""
    if task.cell in ids:
        return ids.index(task.cell)
    names = {question.name for question in task.questions}
    for at, cell in enumerate(code):
        if names & set(_CHECK.findall(cell["source"])):
            return at if not _only_checks(cell) else at - 1 if at else None
    wanted = _made(task.stub)
    places = [at for at, cell in enumerate(code) if wanted and wanted <= _made(cell["source"])]
    return places[-1] if places else None


def _id(cell: Cell, at: int) -> str:
    return str(cell.get("id") or f"code cell {at + 1}")


def _only_checks(cell: Cell, name: str = "") -> bool:
    """Whether a cell is a check and nothing else; of the question `name`, where that is given."""
    found = _CHECK.findall(cell["source"])
    if not found or (name and name not in found):
        return False
    try:
        body = ast.parse(cell["source"]).body
    except SyntaxError:
        return False
    return all(isinstance(part, ast.Expr) and ast.unparse(part).startswith("dtk.check(") for part in body)


def _made(source: str) -> set[str]:
    """The names that a cell makes at its top."""
    try:
        body = ast.parse(source).body
    except SyntaxError:
        return set()
    found: set[str] = set()
    for part in body:
        if isinstance(part, ast.FunctionDef | ast.ClassDef):
            found.add(part.name)
        elif isinstance(part, ast.Assign):
            found |= {target.id for target in part.targets if isinstance(target, ast.Name)}
    return found
