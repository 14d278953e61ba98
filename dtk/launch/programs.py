"""A program in the place of a function: found and compiled before any process starts."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from dtk.errors import ClusterConfigError
from dtk.language import N_, _
from dtk.launch import tf_config
from dtk.launch.program import Program

__all__ = ["environment", "what_to_call"]


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
        except (SyntaxError, ValueError) as error:
            line, what = (error.lineno, error.msg) if isinstance(error, SyntaxError) else (None, error)
            words = N_("{file}: {what}; it is no Python program as it stands")
            if line:
                words = N_("{file}, line {line}: {what}; it is no Python program as it stands")
            raise ClusterConfigError(_(words, file=named, line=line, what=what)) from None
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
