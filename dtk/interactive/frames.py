"""Where a worker stands: the learner's frames, and what a name is there, read while the main thread waits."""

from __future__ import annotations

import ast
import bdb
import gc
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

from dtk.interactive.own_files import Files
from dtk.language import N_, _

__all__ = ["Frame", "NoName", "current", "frames", "resolve"]

_looking = threading.Lock()


class NoName(Exception):
    """The expression has no value where the worker stands, or is more than a name."""


@dataclass(frozen=True)
class Frame:
    """One of the learner's. within: "step()", "train.py" at the level of a script, "" at that of a cell.

    names: local to it. replica: in whose thread.
    """

    file: str
    line: int
    within: str
    names: Mapping[str, Any]
    replica: int | None = None


def current() -> dict[int, FrameType]:
    """Of each thread the innermost frame."""
    with _looking:  # Python below 3.12 stands still for ever if it collects garbage in `_current_frames`
        collects = gc.isenabled()
        gc.disable()
        try:
            return sys._current_frames()
        finally:
            if collects:
                gc.enable()


def frames(files: Files) -> list[Frame]:
    """Those in files of the learner's: innermost first; of the replicas' own threads before those of the main thread.

    In a debugger they are those that it shows, as it shows them.
    """
    now = current()
    threads = [each for each in threading.enumerate() if each.ident in now]
    own = [each for each in threads if getattr(each, "replica_id", None) is not None]
    main = [each for each in threads if each is threading.main_thread()]
    found: list[Frame] = []
    for thread in [*sorted(own, key=lambda each: each.replica_id), *main]:  # type: ignore[attr-defined]
        found += _walk(now[thread.ident or 0], files, getattr(thread, "replica_id", None))
    return found


def _walk(frame: FrameType | None, files: Files, replica: int | None) -> Iterator[Frame]:
    while frame is not None:
        debugger = frame.f_locals.get("self") if frame.f_code.co_name == "interaction" else None
        if isinstance(debugger, bdb.Bdb) and getattr(debugger, "curframe", None) is not None:
            yield from _debugged(debugger, files, replica)
            return
        if frame.f_code.co_filename in files:
            yield Frame(frame.f_code.co_filename, frame.f_lineno, _within(frame), frame.f_locals, replica)
        frame = frame.f_back


def _debugged(debugger: Any, files: Files, replica: int | None) -> Iterator[Frame]:
    """The frame that a debugger shows, whosever it is, and the learner's that called it, dead ones among them."""
    for frame, line in reversed(debugger.stack[: debugger.curindex + 1]):
        if frame is debugger.curframe:
            # To read f_locals anew would undo what was assigned at the prompt.
            names = getattr(debugger, "curframe_locals", None) or frame.f_locals
            yield Frame(frame.f_code.co_filename, line, _within(frame), names, replica)
        elif frame.f_code.co_filename in files:
            yield Frame(frame.f_code.co_filename, line, _within(frame), frame.f_locals, replica)


def _within(frame: FrameType) -> str:
    if frame.f_code.co_name != "<module>":
        return f"{frame.f_code.co_name}()"
    file = frame.f_code.co_filename
    return "" if file.startswith("<") else os.path.basename(file)


def resolve(code: str, scopes: list[Mapping[str, Any]]) -> tuple[int, Any]:
    """Which of the scopes has the name, and the expression's value there: names, attributes, constant indices.

    Nothing is called, so that no all-reduce begins. Raises NoName, which says why.

    >>> resolve("x[1]", [{}, {"x": [7, 8]}])
    (1, 8)
    """
    try:
        node: Any = ast.parse(code.strip(), mode="eval").body
    except SyntaxError:
        raise NoName(_("{code}: no name, such as loss or model.weights[0]", code=code)) from None
    way: list[tuple[bool, Any]] = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            way.insert(0, (True, node.attr))
        elif isinstance(node, ast.Subscript) and (index := _constant(node.slice)) is not None:
            way.insert(0, (False, index[0]))
        else:
            words = N_("{code}: more than a name with attributes and numbers, such as loss or model.weights[0]")
            raise NoName(_(words, code=code))
        node = node.value
    for k, scope in enumerate(scopes):
        if node.id in scope:
            return k, _along(scope[node.id], way, code)
    raise NoName(_("no {name} here", name=node.id))


def _constant(node: ast.expr) -> tuple[Any] | None:
    try:
        return (ast.literal_eval(node),)
    except (ValueError, TypeError):
        return None


def _along(value: Any, way: list[tuple[bool, Any]], code: str) -> Any:
    try:
        for is_attribute, key in way:
            value = getattr(value, key) if is_attribute else value[key]
    except Exception as error:
        raise NoName(f"{code}: {type(error).__name__}: {error}") from None
    return value
