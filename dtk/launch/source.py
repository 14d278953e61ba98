"""A function as a program that a person can read and change: its source, what it calls, and what it captures."""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections.abc import Iterator
from typing import Any

from dtk.language import _
from dtk.worker import ship

__all__ = ["Written", "written"]


class Written:
    """The parts of a program. imports: lines; values: assignments; functions: sources, each after those it needs.

    reason: why there is no such program; "" where there is one. uses_dtk: whether a function names it.
    """

    def __init__(self) -> None:
        self.imports: dict[str, None] = {}
        self.values: dict[str, str] = {}
        self.functions: dict[str, str] = {}
        self.reason = ""

    @property
    def uses_dtk(self) -> bool:
        lines = [*self.imports, *(line.strip() for source in self.functions.values() for line in source.splitlines())]
        words = [line.split() for line in lines if line.startswith(("import ", "from "))]
        return any(each[1].split(".")[0] == "dtk" for each in words)

    def text(self) -> str:
        """Imports, values and functions as one text."""
        values = "\n".join(f"{name} = {value}" for name, value in self.values.items())
        head = "\n\n".join(part for part in ("\n".join(sorted(self.imports)), values) if part)
        return "\n\n\n".join(part for part in [head, *(source.rstrip() for source in self.functions.values())] if part)


def written(fn: Any) -> Written:
    """The program of a function from a cell or a file; with a reason where its source alone is not the function."""
    found = Written()
    found.reason = next(_write(fn, found), "")
    return found


def _write(fn: Any, found: Written) -> Iterator[str]:
    """Fills `found`; yields the first reason why that can't be."""
    if not inspect.isfunction(fn) or fn.__name__ == "<lambda>":
        yield _("{name} is no function that a def makes", name=getattr(fn, "__name__", type(fn).__name__))
        return
    for each in reversed(list(ship.own_functions(fn, set()))):  # those that a function calls come before it
        try:
            source = textwrap.dedent(inspect.getsource(each))
        except (OSError, TypeError):
            yield _("the source of {name} is not at hand", name=each.__name__)
            return
        try:
            ast.parse(source)
        except SyntaxError:  # a lambda in the middle of a line
            yield _("the source of {name} is no statement by itself", name=each.__name__)
            return
        if inspect.isfunction(each) and not _is_the_same(each, source):
            yield _("{name} is made in a way that its source alone does not repeat", name=each.__name__)
            return
        if found.functions.setdefault(each.__name__, source) != source:
            yield _("two functions are called {name}", name=each.__name__)
            return
        for name, value in [*ship.captured(each), *_at_its_head(each, source)]:
            if name == ship.DEFAULT_VALUE:
                continue  # the source has it
            line = _of_value(name, value)
            if line is None:
                kind = type(value).__name__
                yield _("{owner} captures {name}, a {kind}", owner=each.__name__, name=name, kind=kind)
                return
            if line.startswith(("import ", "from ")):
                found.imports[line] = None
            elif line and found.values.setdefault(name, line) != line:
                yield _("{name} has two values", name=name)
                return


def _at_its_head(fn: Any, source: str) -> Iterator[tuple[str, Any]]:
    """What default values, decorators and annotations name: not the function's code, but its source needs it."""
    for statement in ast.parse(source).body:
        heads: list[ast.AST | None] = [statement]
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            # Names inside of a function may be its own, such as `_`, which IPython has as well.
            heads = [statement.args, *statement.decorator_list, statement.returns]
        for head in heads:
            if head is not None:
                yield from _named(fn, head)


def _named(fn: Any, tree: ast.AST) -> Iterator[tuple[str, Any]]:
    """The names in a piece of source that are there where the function was made."""
    known = getattr(fn, "__globals__", {})
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in known:
            yield node.id, known[node.id]


def _is_the_same(fn: types.FunctionType, source: str) -> bool:
    """Whether a source compiles to this function: not where a decorator or a factory has made it."""
    # Python 3.11 and later compile a method call in another way where the file imports the name, so that it counts.
    known = [(name, value) for name, value in _named(fn, ast.parse(source)) if not ship.is_own(value)]
    imported = [name for name, value in known if isinstance(value, types.ModuleType) or callable(value)]
    for head in ("".join(f"import {name}\n" for name in dict.fromkeys(imported)), ""):
        codes = [
            each for each in compile(head + source, "source", "exec").co_consts if isinstance(each, types.CodeType)
        ]
        for each in codes:
            if each.co_name == fn.__name__ and _alike(each, fn.__code__):
                return True
    return False


def _alike(one: types.CodeType, other: types.CodeType) -> bool:
    if other.co_freevars:  # captured by cells: other instructions for these values, which become the program's own
        return one.co_argcount == other.co_argcount and one.co_varnames == other.co_varnames
    return list(ship.code(one)) == list(ship.code(other))


def _of_value(name: str, value: Any) -> str | None:
    """The line that makes a captured value: an import, or what follows `name = `; "" for a function of the program."""
    if isinstance(value, types.ModuleType):
        home = value.__name__
        return f"import {home}" if name in (home, home.partition(".")[0]) else f"import {home} as {name}"
    if ship.is_plain(value) or (isinstance(value, (list, dict)) and reads_back(value)):
        return repr(value)
    if inspect.isroutine(value) or inspect.isclass(value):
        if ship.is_own(value):
            return "" if value.__name__ == name else None
        home, own = getattr(value, "__module__", None) or "", getattr(value, "__qualname__", "")
        if home and "." not in own:
            return f"from {home} import {own}" if own == name else f"from {home} import {own} as {name}"
    return None


def reads_back(value: Any) -> bool:
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError):
        return False
