"""The lessons' files: copied for a learner (`dtk lessons`, `dtk lab`), and the editions of `dtk class build`.

Students, teachers and graders each need another edition, made from the lessons' own marks:

    student    exercises as they are handed out, no solution, no output
    solution   the same with each exercise solved
    nbgrader   source/LESSON/LESSON.ipynb and nbgrader_config.py, for `nbgrader generate_assignment LESSON`
    otter      LESSON/LESSON.ipynb, for `otter assign LESSON.ipynb dist`

Two builds of the same lessons are equal to the byte. A variant draws other numbers for the checks' cases. Hidden cases
are drawn from a word that students don't know: the lessons are public, so a case in them is hidden from nobody.

The lessons say themselves which cell is an exercise's, which check it and which code solves it: a cell to be filled in
is tagged `exercise`, a cell that calls `dtk.check` is tagged `check`, and the solution is the Python in a folded text
between two lines that nobody sees:

    <!-- ### BEGIN SOLUTION -->
    <!-- ### END SOLUTION -->

Cells are dicts as a notebook's file has them, `source` as one string.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtk.course.exercise import all_exercises
from dtk.errors import REPOSITORY, DtkError, need, one_of, page
from dtk.language import ENGLISH, N_, _, languages

FIRST = "00_start_here.ipynb"


def brought(language: str = ENGLISH) -> Path:
    """The folder of the lessons that came with dtk: inside the package, or in a clone beside it.

    Raises DtkError where there is none in this language, or none at all.
    """
    package = Path(__file__).parent.parent
    found = [place for place in (package / "notebooks", package.parent / "notebooks") if (place / FIRST).is_file()]
    if not found:
        raise DtkError(_("dtk was installed without its lessons; they are at {page}", page=f"{REPOSITORY}/tree/main"))
    one_of("language", language, [name for name in languages() if (_in(found[0], name) / FIRST).is_file()])
    return _in(found[0], language)


def bring(to: Path, language: str = ENGLISH, overwrite: bool = False) -> Path:
    """Copies the lessons without outputs: English ones to the folder `to`, others to `to`/zh, or `to` of that name.

    In a folder of that name, figures and checks are in that language (dtk/language.py). Returns the folder.
    """
    folder, mine = _in(to, language), brought(language)
    if folder.resolve() == mine.resolve():
        words = _("{folder} has the lessons that belong to dtk itself", folder=to)
        raise DtkError(words, remedy=_("name another folder"))
    files = sorted([*mine.glob("*.ipynb"), *mine.glob("*.md")])
    # Links hold without a clone.
    copy({file.name: _with_addresses(_blank(file)) for file in files}, folder, overwrite)
    return folder


def _blank(file: Path) -> str:
    """The text of a file; of a notebook without outputs, so that a prediction comes before its answer."""
    text = file.read_bytes().decode()
    notebook: dict[str, Any] = json.loads(text) if file.suffix == ".ipynb" else {}
    for cell in notebook.get("cells", ()):
        cell |= _EMPTY if cell["cell_type"] == "code" else {}
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n" if notebook else text


def copy(files: Mapping[str, str], folder: Path, overwrite: bool = False) -> None:
    """Writes files into a folder, and prints how many; raises DtkError where it can't be written.

    One that is there and differs is a learner's own, and stays; overwrite: it is replaced as well.
    """
    kept = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            file, new = folder / name, text.encode()
            if file.exists() and file.read_bytes() != new and not overwrite:
                kept.append(name)
            else:
                file.write_bytes(new)
    except OSError as error:
        words = _("the lessons can't be written into {folder}: {why}", folder=folder, why=error.strerror)
        raise DtkError(words, remedy=_("name another folder")) from None
    print(_("{files} files of lessons are in {folder}", files=len(files), folder=folder), flush=True)
    if kept:
        words = N_("{files} differ from dtk's, so they stay as they are: --overwrite replaces them")
        print(_(words, files=", ".join(kept)), flush=True)


def lab(to: Path, language: str = ENGLISH, options: Sequence[str] = ()) -> None:
    """Becomes JupyterLab, with its own options, open at the first lesson; copies the lessons where there are none yet.

    Raises DtkError where JupyterLab is not installed; nothing was copied or installed.
    """
    need("lab", "dtk lab")
    folder = _in(to, language)
    if not any((folder / file.name).exists() for file in brought(language).glob("*.ipynb")):
        bring(to, language)
    first = [f"--LabApp.default_url=/lab/tree/{FIRST}"] if (folder / FIRST).is_file() else []
    print(_("begin with 00_start_here; README.md has a path of two hours: parts of 00, 02, 04 and 06"), flush=True)
    command = [sys.executable, "-m", "jupyterlab", f"--notebook-dir={folder.resolve()}", *first, *options]
    os.execv(command[0], command)


def _in(folder: Path, language: str) -> Path:
    """Where in a folder the lessons in a language lie."""
    return folder if language in (ENGLISH, folder.name) else folder / language


# ---- editions


Cell = dict[str, Any]
_EMPTY: Cell = {"execution_count": None, "outputs": []}  # what a code cell has before it was run
_DETAILS = re.compile(r"<details>\n(?:(?!</details>).)*?<!-- ### BEGIN SOLUTION -->.*?</details>\n*", flags=re.DOTALL)
_SOLUTION = re.compile(
    r"<!-- ### BEGIN SOLUTION -->\n```python\n(.*?)\n```\n<!-- ### END SOLUTION -->", flags=re.DOTALL
)
_CHECK = re.compile(r'dtk\.check\(\s*"([^"]+)"')


@dataclass(frozen=True)
class Task:
    """One cell to be filled in, for one point. name: of the exercise, "02.shares". cell: its id. stub: as it is handed
    out. check: the id of the cell that checks it. call: that one's code. solution: what to have in the stub's place.
    """

    name: str
    cell: str
    stub: str
    check: str
    call: str
    solution: str

    def hidden(self, seed: str) -> str:
        """The call on cases that `seed` draws; "" without it, and where a value is asked for, which has no cases."""
        if not seed or not all_exercises(self.name.partition(".")[0])[self.name].drawn:
            return ""
        return f"{self.call.rstrip()[:-1]}, seed={json.dumps(seed)})"


@dataclass(frozen=True)
class Lesson:
    """A notebook. name: its file's, without the ending."""

    name: str
    notebook: Mapping[str, Any]
    tasks: tuple[Task, ...]

    @property
    def cells(self) -> list[Cell]:
        """Copies, which an edition changes."""
        return [dict(cell, metadata=dict(cell["metadata"])) for cell in self.notebook["cells"]]

    @property
    def title(self) -> str:
        (first, *_) = (cell["source"] for cell in self.notebook["cells"] if cell["source"].startswith("# "))
        return first.partition("\n")[0].removeprefix("# ")


def lessons(folder: Path, names: list[str] | None = None) -> list[Lesson]:
    """The lessons in a folder, in order; of `names`, such as "02" or "lab_3", those whose files begin so.

    Raises DtkError where there is none, or none of that name.
    """
    files = sorted(folder.glob("*.ipynb"))
    if not files:
        raise DtkError(f"there are no lessons in {folder}", remedy="name their folder: --lessons notebooks")
    for name in names or ():
        if not any(file.stem.startswith(name) for file in files):
            there = ", ".join(file.stem for file in files)
            raise DtkError(f"no lesson in {folder} begins with {name!r}", remedy=f"there are {there}")
    return [read(file) for file in files if not names or file.stem.startswith(tuple(names))]


def read(file: Path) -> Lesson:
    """A lesson's notebook.

    Raises DtkError where it is none, or its exercises, checks and solutions don't fit together; with the cell.
    """
    try:
        notebook = json.loads(file.read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            cell["source"] = "".join(cell["source"])
            cell.setdefault("metadata", {})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DtkError(f"{file.name} is no notebook: {type(error).__name__}: {error}") from None
    return Lesson(file.stem, notebook, tuple(_tasks(file, notebook["cells"])))


def _tasks(file: Path, cells: list[Cell]) -> Iterator[Task]:
    """An exercise's cell, the check behind it, and the text with its solution make a task."""
    stub: Cell | None = None
    check: Cell | None = None
    for cell in cells:
        tags, found = cell["metadata"].get("tags", ()), _SOLUTION.findall(cell["source"])
        if "exercise" in tags and stub is None:
            stub = cell
        elif "check" in tags and _CHECK.search(cell["source"]) and stub and check is None:
            check = cell
        elif len(found) == 1 and stub and check:
            name = _CHECK.findall(check["source"])[0]
            yield Task(name, stub["id"], stub["source"], check["id"], check["source"], found[0])
            stub = check = None
        elif "exercise" in tags or found or ("check" in tags and "dtk.check(" in cell["source"]):
            stub = cell
            break
    if stub is not None:  # a cell that does not fit, or an exercise without its check or its solution
        raise DtkError(
            f"{file.name}: cell {stub['id']}: an exercise takes a cell, a check behind it and one solution behind that",
            remedy="dtk/course/lesson_files.py says how lessons are marked",
        )


_BADGE = re.compile(
    r"^\[!\[[^\]]*\]\([^)]*colab[^)]*\)\]\(https://colab[^)]*/github/[^)]*/notebooks/[^)]*\)\n*", re.MULTILINE
)
_NBGRADER = """\
# Written by `dtk class build`. What takes the place of a solution stands behind the exercise as it is handed out.
c = get_config()
c.ClearSolutions.code_stub = {"python": "# write your answer above, in place of what stands there"}
c.ClearSolutions.enforce_metadata = False
c.Execute.timeout = 120  # seconds for a cell
c.Execute.iopub_timeout = 60  # for its outputs, which come late on a busy machine
"""


def build(
    edition: str, lessons: Sequence[Lesson], folder: Path, out: Path, variant: str = "", hidden: str = ""
) -> list[Path]:
    """Writes an edition of these lessons, which lie in `folder`, into `out`.

    Args:
        edition: one of EDITIONS.
        variant: draws the cases of checks, for a student or a group; "": the lessons' own.
        hidden: a word that students don't know; graders' editions draw the hidden cases from it. "": there are none.

    Returns:
        The files, in the order of their names.

    Raises:
        DtkError: `out` holds something already.
    """
    if out.exists() and any(out.iterdir()):
        raise DtkError(f"{out} is not empty", remedy="name a new folder; nothing of another build may be left in it")
    found = {"student": {"README.md": _readme(lessons)}, "nbgrader": {"nbgrader_config.py": _NBGRADER}}.get(edition, {})
    texts = {file.name: file.read_text(encoding="utf-8") for file in folder.glob("*.md") if file.stem != "README"}
    settings = _settings(folder, variant)
    for lesson in lessons:
        # Graders take a folder a lesson, with the texts that lie beside it, such as the glossary.
        within = {"nbgrader": f"source/{lesson.name}/", "otter": f"{lesson.name}/"}.get(edition, "")
        found |= {within + name: text for name, text in texts.items()}
        cells = [_for_class(cell, settings) for cell in EDITIONS[edition](lesson, hidden)]
        metadata = {key: lesson.notebook["metadata"][key] for key in ("kernelspec", "language_info")}
        whole = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
        found[f"{within}{lesson.name}.ipynb"] = json.dumps(whole, indent=1, ensure_ascii=False) + "\n"
    for place, text in found.items():
        file = out / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_with_addresses(text), encoding="utf-8")
    return [out / place for place in sorted(found)]


def _readme(lessons: Sequence[Lesson]) -> str:
    how = _(
        "Open a lesson in JupyterLab and run its cells from the top. Predict where it asks you to, write your answers "
        "into the cells of the exercises, and run the checks below them. Hand in the notebook, and the file "
        "answers.jsonl beside it, which holds your predictions."
    )
    rows = [f"- [{lesson.name}]({lesson.name}.ipynb): {lesson.title}" for lesson in lessons]
    return "\n".join(["# " + _("Lessons"), "", how, "", *rows, ""])


# ---- cells


def _for_class(cell: Cell, settings: list[str]) -> Cell:
    """A cell without output, set up as the class is; without the badge, which opens the lesson with solutions."""
    source = _BADGE.sub("", cell["source"])
    metadata = {key: value for key, value in cell["metadata"].items() if key != "dtk"}
    if cell["id"] == "setup":
        source = "\n".join([source, "", *settings])
    kept: Cell = {"cell_type": cell["cell_type"], "id": cell["id"], "metadata": metadata}
    kept |= _EMPTY if cell["cell_type"] == "code" else {}
    return {**kept, "source": source.splitlines(keepends=True)}


def _settings(folder: Path, variant: str) -> list[str]:
    spoken = folder.resolve().name
    settings = {"DTK_ANSWERS": "answers.jsonl"}
    settings |= {"DTK_LANG": spoken} if spoken in languages() and spoken != ENGLISH else {}
    settings |= {"DTK_VARIANT": variant} if variant else {}
    lines = [f"os.environ[{json.dumps(name)}] = {json.dumps(value)}" for name, value in settings.items()]
    return ["import os", "", *lines]


def _solution(lesson: Lesson, _hidden: str) -> list[Cell]:
    solved = {task.cell: task.solution for task in lesson.tasks}
    return [{**cell, "source": solved.get(cell["id"], cell["source"])} for cell in lesson.cells]


def _without_solutions(lesson: Lesson, _hidden: str = "") -> list[Cell]:
    """The lesson's cells; a text that held nothing but a solution is left out."""
    cells = [{**cell, "source": _DETAILS.sub("", cell["source"]).strip("\n")} for cell in lesson.cells]
    return [cell for cell in cells if cell["source"]]


def _with_marks(task: Task, begin: str, end: str, stub: str) -> str:
    """What is handed out, and behind it the solution, between marks; a cell that writes a file has it in its place."""
    first, _newline, rest = task.solution.partition("\n")
    if first.startswith("%%"):
        return "\n".join([first, begin, rest, end])
    return "\n".join([stub, begin, task.solution, end])


def _nbgrader(lesson: Lesson, hidden: str) -> list[Cell]:
    tasks = {task.cell: task for task in lesson.tasks}
    checks = {task.check: task for task in lesson.tasks}
    cells = _without_solutions(lesson)
    for cell in cells:
        mark: dict[str, Any] = {"schema_version": 3, "grade_id": cell["id"], "task": False}
        if task := tasks.get(cell["id"]):
            cell["source"] = _with_marks(task, "### BEGIN SOLUTION", "### END SOLUTION", task.stub)
            cell["metadata"]["nbgrader"] = {**mark, "grade": False, "locked": False, "solution": True}
        elif task := checks.get(cell["id"]):
            if call := task.hidden(hidden):
                cell["source"] = "\n".join([task.call, "### BEGIN HIDDEN TESTS", call, "### END HIDDEN TESTS"])
            cell["metadata"]["nbgrader"] = {**mark, "grade": True, "locked": True, "solution": False, "points": 1}
    return cells


def _otter(lesson: Lesson, hidden: str) -> list[Cell]:
    """Otter's form: raw cells around each exercise, its solution and its tests, which are functions that raise."""
    tasks = {task.cell: task for task in lesson.tasks}
    checks = {task.check for task in lesson.tasks}
    config = ["# ASSIGNMENT CONFIG", f"name: {lesson.name}", "init_cell: false", "check_all_cell: false"]
    config += ["export_cell: false", "tests:", "    ok_format: false"]
    cells = [_raw("otter", *config)]
    for cell in _without_solutions(lesson):
        task = tasks.get(cell["id"])
        if task is None:
            cells += [cell] if cell["id"] not in checks else []
            continue
        name = f"q{task.name.replace('.', '_')}"
        cells.append(_raw(f"{cell['id']}-q", "# BEGIN QUESTION", f"name: {name}", "points: 1"))
        stub = f'""" # BEGIN PROMPT\n{task.stub}\n"""; # END PROMPT'
        solved = _with_marks(task, "# BEGIN SOLUTION NO PROMPT", "# END SOLUTION", stub)
        cells += [_raw(f"{cell['id']}-s", "# BEGIN SOLUTION"), {**cell, "source": solved}]
        cells += [_raw(f"{cell['id']}-e", "# END SOLUTION"), _raw(f"{cell['id']}-t", "# BEGIN TESTS")]
        cells.append(_test(task.check, task.call, hidden=False))
        if call := task.hidden(hidden):
            cells.append(_test(f"{task.check}-h", call, hidden=True))
        cells += [_raw(f"{cell['id']}-u", "# END TESTS"), _raw(f"{cell['id']}-z", "# END QUESTION")]
    return cells


def _raw(name: str, *lines: str) -> Cell:
    return {"cell_type": "raw", "id": name, "metadata": {}, "source": "\n".join(lines)}


def _test(name: str, call: str, hidden: bool) -> Cell:
    """A test of Otter's: a function that gets what it names from the student's notebook."""
    names = sorted({node.id for node in ast.walk(ast.parse(call)) if isinstance(node, ast.Name)})
    head = ['""" # BEGIN TEST CONFIG', "hidden: true", '""" # END TEST CONFIG'] if hidden else []
    lines = [*head, f"def test_{re.sub(r'[^a-z0-9]', '_', name.lower())}({', '.join(names)}):"]
    lines += [f"    {line}" for line in call.splitlines()]
    return {"cell_type": "code", "id": name, "metadata": {}, "source": "\n".join(lines)}


EDITIONS: dict[str, Callable[[Lesson, str], list[Cell]]] = {
    "student": _without_solutions,
    "solution": _solution,
    "nbgrader": _nbgrader,
    "otter": _otter,
}


def _with_addresses(text: str) -> str:
    """Replace links to files of `docs/`, which hold in a clone, by their addresses.

    >>> "/docs/guide/clusters.md" in _with_addresses("[clusters](../docs/guide/clusters.md)")
    True
    """
    return re.sub(r"\]\((?:\.\./)+docs/", f"]({page('')}", text)
