"""The submissions that `submissions.py` makes of a lesson, each with the marks that it has to get."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtk.classroom.lesson import Lesson, Question, Task
from dtk.lessons.exercise import Exercise

__all__ = ["Made", "made", "write"]

_BUILTINS = set(dir(__builtins__)) | set(__builtins__ if isinstance(__builtins__, dict) else ())


@dataclass(frozen=True)
class Made:
    """A student's notebook. cells: what stands there instead of the solution, by the exercise's cell. lost: the
    questions without a point. whole: the file's text, where it is none that is made from the lesson.
    """

    student: str
    cells: dict[str, str]
    lost: tuple[str, ...] = ()
    whole: bytes | None = None
    extra: str = ""


def made(lesson: Lesson, other: Lesson, folder: Path) -> list[Made]:
    """All of them; `folder` is where they will be handed in."""
    first, last = lesson.tasks[0], lesson.tasks[-1]
    every = tuple(question.name for question in lesson.questions)
    lost = {task.cell: tuple(question.name for question in task.questions) for task in lesson.tasks}
    found = [
        Made("right", {}),
        Made("empty", {task.cell: task.stub for task in lesson.tasks}, every),
        Made("partly", {first.cell: first.stub}, lost[first.cell]),
        Made("syntax", {first.cell: "def share(a, b: return"}, lost[first.cell]),
        Made("no-notebook", {}, every, b"this is no notebook"),
        Made("nothing", {}, every, b""),
        Made(
            "no-cells",
            {},
            every,
            json.dumps({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode(),
        ),
        Made("other-lesson", {}, every, json.dumps(dict(other.notebook)).encode()),
    ]
    found += [
        Made(f"wrong-{name}-{number}", {task.cell: source}, (name,))
        for task in lesson.tasks
        for name, number, source in _misconceptions(task)
    ][:10]
    for at, (student, code, answers) in enumerate(_hostile(folder, lesson)):
        task = (first, last)[at % 2]
        source = code + (f"\n{task.solution}" if answers else "")
        found.append(Made(student, {task.cell: source}, () if answers else lost[task.cell]))
    return [*found, *_cheats(first, lost)]


def _hostile(folder: Path, lesson: Lesson) -> Iterator[tuple[str, str, bool]]:
    """(student, what stands in the exercise's cell, whether it gets that far that the answer counts)."""
    yield "endless-python", "while True:\n    pass", False
    yield "endless-c", "sum(range(10**13))", False
    yield "deaf", "while True:\n    try:\n        while True: pass\n    except BaseException: pass", False
    yield "stall", _STALL, False
    yield "exits", "import os\nos._exit(3)", False
    yield "forks", "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", False
    yield "disk", "with open('big', 'wb') as file:\n    for _ in range(5120): file.write(bytes(1 << 20))", False
    yield "memory", "kept = []\nwhile True: kept.append(bytearray(1 << 27))", False
    yield "kills", "import os\nos.kill(os.getppid(), 9)\ntry: os.kill(-1, 9)\nexcept OSError: pass", True
    yield "deletes", _DELETES.format(folder=str(folder)), True
    yield "loud", "for _ in range(1024): print('x' * (1 << 20))", True
    yield "daemon", "import subprocess\nsubprocess.Popen(['sleep', '86399'], start_new_session=True)", True
    yield "widgets", "import ipywidgets\nfrom IPython.display import display\ndisplay(ipywidgets.IntSlider())", True
    yield "asks", "input('What is the answer?')", False
    yield "reads", _READS.format(folder=str(folder), right=lesson.name), False


def _cheats(task: Task, lost: dict[str, tuple[str, ...]]) -> list[Made]:
    name = _answer(task.questions[0])
    always = "import dtk.lessons.exercise as e\ne.same = lambda *a, **k: True\ne.Exercise.judge = lambda *a, **k: 1\n"
    return [
        Made("patches-check", {task.cell: f"import dtk\ndtk.check = print\n{name} = lambda *a: 0.5"}, lost[task.cell]),
        Made("patches-lessons", {task.cell: f"{always}{name} = lambda *a: 0.5"}, lost[task.cell]),
        Made(
            "patches-late",
            {task.cell: f"def {name}(*a):\n{textwrap.indent(always, '    ')}    return 0.5"},
            lost[task.cell],
        ),
    ]


def write(submissions: list[Made], lesson: Lesson, folder: Path) -> dict[str, dict[str, str]]:
    """Writes them; returns student -> question -> the points that are due."""
    expected = {}
    for each in submissions:
        place = folder / each.student
        place.mkdir()
        file = place / f"{lesson.name}.ipynb"
        file.write_bytes(each.whole if each.whole is not None else _notebook(lesson, each.cells))
        expected[each.student] = {q.name: str(int(q.name not in each.lost)) for q in lesson.questions}
    return expected


def _notebook(lesson: Lesson, cells: dict[str, str]) -> bytes:
    solutions = {task.cell: task.solution for task in lesson.tasks}
    found = []
    for cell in lesson.cells:
        source = cells.get(cell["id"], solutions.get(cell["id"], cell["source"]))
        found.append({**cell, "source": source, **({"outputs": []} if cell["cell_type"] == "code" else {})})
    return json.dumps({**lesson.notebook, "cells": found}).encode()


def _misconceptions(task: Task) -> Iterator[tuple[str, int, str]]:
    """(question, number, the cell with this misconception's answer), of those whose source stands for itself."""
    for question in task.questions:
        exercise = question.exercise
        if not isinstance(exercise, Exercise) or exercise.play is not None:
            continue
        for number, idea in enumerate(exercise.wrong, 1):
            source = _lambda(idea.answer)
            if source is not None:
                objects = _call(question).args[2:]
                given = ", ".join(map(ast.unparse, objects))
                answer = source if exercise.cases else f"({source})({given})"
                yield question.name, number, f"import numpy as np\n{task.solution}\n{_answer(question)} = {answer}"


def _lambda(function: Any) -> str | None:
    """A lambda's source; None where it is none, or uses what only its own file has."""
    try:
        lines, _start = inspect.getsourcelines(inspect.getmodule(function))
        tree = ast.parse("".join(lines))
    except (OSError, TypeError):
        return None
    code = getattr(function, "__code__", None)
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Lambda) and code is not None and node.lineno == code.co_firstlineno
    ]
    names = {*_BUILTINS, "np"}
    if len(found) != 1 or code.co_freevars or not set(code.co_names) <= names | _attributes(found[0]):
        return None
    return ast.unparse(found[0])


def _attributes(node: ast.AST) -> set[str]:
    return {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def _call(question: Question) -> ast.Call:
    return next(
        node for node in ast.walk(ast.parse(question.call)) if isinstance(node, ast.Call) and len(node.args) > 1
    )


def _answer(question: Question) -> str:
    return ast.unparse(_call(question).args[1])


_STALL = """
def stall(strategy):
    import time

    import tensorflow as tf

    if not dtk.is_chief():
        time.sleep(86399)
    return strategy.reduce("SUM", strategy.run(lambda: tf.constant(1.0)), axis=None)


dtk.run(stall, workers=2, stall_timeout=None)"""
_DELETES = """
import os, shutil
for path in (os.getcwd(), os.environ["HOME"], {folder!r}, os.path.expanduser("~root"), "/home"):
    for name in os.listdir(path) if os.path.isdir(path) else ():
        shutil.rmtree(os.path.join(path, name), ignore_errors=True)
        try: os.unlink(os.path.join(path, name))
        except OSError: pass"""
_READS = """
import glob, json
found = glob.glob({folder!r} + "/*/*.ipynb") + glob.glob({folder!r} + "/../**/*", recursive=True)
cells = json.load(open({folder!r} + "/right/{right}.ipynb"))["cells"]
for cell in cells:
    if cell["metadata"].get("tags") == ["exercise"]:
        exec("".join(cell["source"]))"""
