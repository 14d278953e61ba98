"""A program that was written for any cluster, as a function that a worker calls: a script, or a module."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import os
import runpy
import sys
import textwrap
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import wrapt

from dtk.errors import ClusterConfigError
from dtk.language import N_, _
from dtk.launch import tf_config
from dtk.worker import ship

__all__ = ["Program", "Written", "environment", "what_to_call", "written"]


@dataclass(frozen=True)
class Program:
    """Runs a program as `python train.py` and `python -m package.module` do.

    where: the script's absolute path, or the module's name. argv: what follows it on the command line.
    """

    where: str
    module: bool
    argv: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.where if self.module else os.path.basename(self.where)

    def __call__(self) -> None:
        """Returns, without a value, when the program has come to its end or has left with exit code 0."""
        sys.argv[:] = [self.where, *self.argv]
        sys.path.insert(0, os.getcwd() if self.module else os.path.dirname(self.where))
        if self.uses("estimator"):
            wrapt.register_post_import_hook(_give_estimator, "tensorflow")
        try:
            if self.module:
                runpy.run_module(self.where, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(self.where, run_name="__main__")
        except SystemExit as end:
            if end.code not in (None, 0):
                raise

    def uses(self, name: str) -> bool:
        """Whether a script's source has the name, as tf.estimator has "estimator"; a module isn't opened."""
        if self.module:
            return False
        with open(self.where, "rb") as file:
            return name in ship.names(compile(file.read(), self.where, "exec"))


def _give_estimator(tensorflow: object) -> None:
    """TensorFlow has no tf.estimator since 2.16; a program that names it gets dtk's."""
    from dtk import estimator

    if not hasattr(tensorflow, "estimator"):
        tensorflow.estimator = estimator  # type: ignore[attr-defined]


def what_to_call(fn: Any, argv: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> Any:
    """The function itself, or the program that a path or a module's name stands for."""
    if not isinstance(fn, (str, os.PathLike)):
        if argv:
            words = N_(
                "argv={argv!r} is for a program, such as dtk.run('train.py', argv=['--epochs', '3']); a function takes "
                "args=(...) or kwargs={{...}}"
            )
            raise ClusterConfigError(_(words, argv=argv))
        return fn
    if args or kwargs:
        words = N_("{program} is a program; it takes argv=[...], not args= or kwargs=")
        raise ClusterConfigError(_(words, program=os.fspath(fn)))
    if isinstance(argv, str) or not all(isinstance(each, str) for each in argv):
        words = N_("argv={argv!r}: it takes a list of strings, such as ['--epochs', '3']")
        raise ClusterConfigError(_(words, argv=argv))
    return _program(os.fspath(fn), tuple(argv))


def _program(named: str, argv: tuple[str, ...]) -> Program:
    """A script that can be read and compiled; or, where there is no such file, a module whose package can be found."""
    if os.path.isfile(named):
        where = os.path.abspath(named)
        try:
            with open(where, "rb") as file:
                compile(file.read(), named, "exec")
        except SyntaxError as error:
            words = N_("{file}, line {line}: {what}; it is no Python program as it stands")
            raise ClusterConfigError(_(words, file=named, line=error.lineno, what=error.msg)) from None
        except ValueError as error:
            words = N_("{file}: {what}; it is no Python program as it stands")
            raise ClusterConfigError(_(words, file=named, what=error)) from None
        except OSError as error:
            words = N_("{file} can't be read: {reason}")
            raise ClusterConfigError(_(words, file=named, reason=error.strerror)) from None
        return Program(where, module=False, argv=argv)
    if named.endswith(".py") or not all(map(str.isidentifier, named.split("."))):
        what = N_("{file} is no file, looked for from {folder}")
        if os.path.isdir(named):
            what = N_("{file} is a directory")
        remedy = _("give a script's path, or the name of a module that can be imported")
        raise ClusterConfigError(_(what, file=named, folder=os.getcwd()), remedy=remedy)
    top = named.partition(".")[0]
    if importlib.util.find_spec(top) is None and not os.path.exists(top) and not os.path.exists(f"{top}.py"):
        words = N_("{name} is neither a file nor a module: no package {package} can be imported here")
        raise ClusterConfigError(_(words, name=named, package=top))
    return Program(named, module=True, argv=argv)


def environment(fn: Any, record: bool, baseline_of: int = 0) -> dict[str, str | None]:
    """What a program's workers have in their environment beyond the kernel's; nothing for a function.

    baseline_of: workers of the cluster, where this is one device. Its TF_CONFIG is the chief's in the cluster: the
    numbers count, the ports are not used.
    """
    found: dict[str, str | None] = {}
    if not isinstance(fn, Program):
        return found
    if not (
        record or fn.uses("dtk")
    ):  # marks and states take a worker's time, and without records nothing is made of them
        found |= {name: os.environ.get(name, "0") for name in ("DTK_MARKS", "DTK_STATES")}
    if baseline_of and not fn.uses("estimator"):
        found["TF_CONFIG"] = json.dumps(tf_config.build([1024 + worker for worker in range(baseline_of)])[0])
    return found


# ---- a function as a program that a person can read and change: its source, what it calls, and what it captures


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
    if not inspect.isfunction(fn) or fn.__name__ == "<lambda>":
        name = getattr(fn, "__name__", type(fn).__name__)
        found.reason = _("{name} is no function that a def makes", name=name)
        return found
    for each in reversed(list(ship.own_functions(fn, set()))):  # those that a function calls come before it
        found.reason = _write(each, found)
        if found.reason:
            break
    return found


def _write(fn: Any, found: Written) -> str:
    """Puts one function and what it captures into `found`; returns the reason why that can't be, or ""."""
    name = fn.__name__
    try:
        source = textwrap.dedent(inspect.getsource(fn))
        ast.parse(source)
    except (OSError, TypeError, SyntaxError):  # the last: a lambda in the middle of a line
        return _("the source of {name} is not at hand", name=name)
    if inspect.isfunction(fn) and not _is_the_same(fn, source):
        return _("{name} is made in a way that its source alone does not repeat", name=name)
    if found.functions.setdefault(name, source) != source:
        return _("two functions are called {name}", name=name)
    for captured, value in [*ship.captured(fn), *_at_its_head(fn, source)]:
        if captured == ship.DEFAULT_VALUE:
            continue  # the source has it
        line = _of_value(captured, value)
        if line is None:
            kind = type(value).__name__
            return _("{owner} captures {name}, a {kind}", owner=name, name=captured, kind=kind)
        if line.startswith(("import ", "from ")):
            found.imports[line] = None
        elif line and found.values.setdefault(captured, line) != line:
            return _("{name} has two values", name=captured)
    return ""


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
