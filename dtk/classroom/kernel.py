"""The process in a box that runs a student's cells and judges the answers: `python -m dtk.classroom.kernel`.

    python -m dtk.classroom.kernel CHANNEL STACKS WORK LESSON

CHANNEL and STACKS are numbers of inherited descriptors: questions and answers go through the first, a line of JSON
each; Python's stack goes to the second at SIGUSR1, also from a loop in C. WORK is the directory that cells run in.

    {"cell": id, "source": ...}                   -> {"error": None or {"kind", "text", "line"}, "waits": [...]}
    {"check": name, "call": ..., "seed": ...}     -> {"judged": ..., "hint", "detail", "error", "changed", "waits"}

Each answer also says whether the box's disk is full now, as then nothing after it can work, and has the question's key.

The functions that judge are held from before the first cell on (`untouched`).
"""

from __future__ import annotations

import builtins
import contextlib
import faulthandler
import json
import os
import shutil
import signal
import socket
import sys
import traceback
import types
from collections.abc import Iterator
from typing import Any

from IPython.core.interactiveshell import InteractiveShell

from dtk import errors
from dtk.classroom.untouched import Untouched
from dtk.lessons.check import all_exercises
from dtk.lessons.exercise import CheckFailed, NotSolved
from dtk.watch import waiting

__all__ = ["main"]

_MOST = 4000  # characters of a message that go on to the grader
_FULL = 20
_TEXT = {"kind": "", "text": "", "line": 0}


class _Checked(Exception):
    """Ends a check's cell with what was judged."""

    def __init__(self, answer: dict[str, Any]):
        self.answer = answer


class _Shell(InteractiveShell):
    """A notebook's shell without windows: `%matplotlib` asks for some."""

    def enable_gui(self, gui: str | None = None) -> None:
        return None


class Kernel:
    """Cells run here as in a notebook; `check` judges by exercises that no cell has touched."""

    def __init__(self, lesson: str):
        self.shell = _Shell.instance(colors="NoColor")
        self.shell.history_manager.enabled = False
        self._exercises = all_exercises(lesson)
        for name in ("check", "run", "baseline", "verify"):
            getattr(sys.modules["dtk"], name)  # is there from its first use on
        self._judges: dict[type, Any] = {type(each): type(each).judge for each in self._exercises.values()}
        self._untouched = Untouched()
        self._busy = False
        signal.signal(signal.SIGINT, self._interrupt)

    def _interrupt(self, *_: object) -> None:
        if self._busy:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def _at_work(self) -> Iterator[None]:
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    def cell(self, source: str) -> dict[str, Any]:
        """Runs a cell. What it printed went to the process's output."""
        error: BaseException | None
        try:
            with self._at_work():
                done = self.shell.run_cell(source, store_history=False)
                error = done.error_before_exec or done.error_in_exec
        except BaseException as late:  # IPython lets some through
            error = late
        if "matplotlib.pyplot" in sys.modules:
            sys.modules["matplotlib.pyplot"].close("all")
        if error is None:
            return {"error": None, "waits": []}
        found = {"kind": _kind(error), "text": _short(error), "line": _line(error)}
        return {"error": found, "waits": _waits(error)}

    def check(self, name: str, call: str, seed: str) -> dict[str, Any]:
        """Judges as the lesson's check cell `call` would, with cases of the seed."""
        changed = self._untouched.put_back()
        found: dict[str, Any]
        try:
            with self._at_work():
                exec(compile(call, "<check>", "exec"), {**self.shell.user_ns, "dtk": _Lesson(self, name, seed)})
            found = {"judged": "failed", "error": {**_TEXT, "text": "the lesson's cell checks nothing"}}
        except _Checked as checked:
            found = checked.answer
        except BaseException as error:  # a name that no cell made, or an interrupt
            stopped = isinstance(error, KeyboardInterrupt)
            found = {"judged": "stopped" if stopped else "failed", "waits": _waits(error)}
            found["error"] = {"kind": _kind(error), "text": _short(error), "line": 0}
        meanwhile = self._untouched.put_back()
        if meanwhile:  # by the answer, while it was judged: then nobody knows what was
            found = {"judged": "changed"}
        changed = sorted({*changed, *meanwhile})
        return {"hint": "", "detail": "", "error": None, "waits": [], **found, "changed": changed}

    def judge(self, name: str, seed: str, answer: Any, objects: tuple[Any, ...]) -> dict[str, Any]:
        """What comes of an answer. The hint may be shown to students, all else is the teacher's."""
        exercise = self._exercises[name]
        try:
            judge: Any = self._judges[type(exercise)]
            judge(exercise, answer, *objects, seed=seed)
        except NotSolved as error:
            return {"judged": "empty", "detail": _short(error)}
        except CheckFailed as error:
            found: dict[str, Any] = {"judged": "wrong", "hint": error.remedy, "detail": _short(error)}
            if error.__cause__ is not None:
                found["error"] = {**_TEXT, "kind": _kind(error.__cause__)}
            return found
        except Exception as error:
            return {"judged": "failed", "detail": _short(error), "error": {**_TEXT, "kind": _kind(error)}}
        return {"judged": "passed"}


class _Lesson:
    """`dtk` as the lesson's check cell sees it: the check is the grader's."""

    def __init__(self, kernel: Kernel, name: str, seed: str):
        self._kernel, self._name, self._seed = kernel, name, seed

    def check(self, name: str, answer: Any, *objects: Any) -> None:
        if name == self._name:
            raise _Checked(self._kernel.judge(name, self._seed, answer, objects))

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.modules["dtk"], name)


def _kind(error: BaseException) -> str:
    """The nearest of its classes that Python or dtk has: the name of one that a cell made can say anything."""
    for kind in type(error).__mro__:
        if vars(builtins).get(kind.__name__) is kind or vars(errors).get(kind.__name__) is kind:
            return kind.__name__
    return "BaseException"


def _short(error: BaseException) -> str:
    try:
        return " ".join(f"{type(error).__name__}: {error}".split())[:_MOST]
    except Exception:
        return type(error).__name__


def _line(error: BaseException) -> int:
    """The line of the cell that raised it; 0 where none did."""
    if isinstance(error, SyntaxError):
        return error.lineno or 0
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if _of_cell(frame)]
    return lines[-1] if lines else 0


def _of_cell(frame: types.FrameType) -> bool:
    return frame.f_code.co_filename.startswith("<ipython-input")


def _waits(error: BaseException) -> list[list[str]]:
    """What each worker of the run that this error ended was doing: (worker, what or on what it waits, where)."""
    folder = getattr(error, "folder", None)
    try:
        found = waiting.load(folder) if folder is not None else None
    except Exception:
        return []
    return (
        [[each.name, each.blocked if each.waits else each.what, each.place] for each in found.states] if found else []
    )


def _full(place: str) -> bool:
    """Whether the box has a disk of its own, and it is full."""
    disk = shutil.disk_usage(place)
    return os.path.ismount(place) and disk.free < disk.total / _FULL


def main() -> None:
    channel, stacks = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=False)
    sys.modules["ray"] = None  # type: ignore[assignment]  # it waits for a network; practice machines do without it
    kernel = Kernel(sys.argv[4])
    os.chdir(sys.argv[3])
    sys.path = ["", *(each for each in sys.path if each not in ("", os.sep))]
    lines = channel.makefile("rb")
    channel.sendall(b'{"ready": true}\n')
    for line in lines:
        asked = json.loads(line)
        if "cell" in asked:
            answer = kernel.cell(asked["source"])
        else:
            answer = kernel.check(asked["check"], asked["call"], asked["seed"])
        whole = {**answer, "full": _full(os.path.dirname(sys.argv[3])), "key": asked["key"]}
        channel.sendall(json.dumps(whole).encode() + b"\n")


if __name__ == "__main__":
    main()
