"""A program that was written for any cluster, as a function that a worker calls: a script, or a module."""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import wrapt

from dtk.errors import ClusterConfigError
from dtk.language import N_, _
from dtk.worker import ship


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
        program = Program(os.path.abspath(named), module=False, argv=argv)
        try:
            program.uses("dtk")  # compiles it
        except (SyntaxError, ValueError) as error:  # the second: null bytes, in Python 3.11
            words = N_("{file} is no Python program as it stands: {why}")
            raise ClusterConfigError(_(words, file=named, why=error)) from None
        except OSError as error:
            words = N_("{file} can't be read: {reason}")
            raise ClusterConfigError(_(words, file=named, reason=error.strerror)) from None
        return program
    top = named.partition(".")[0]
    is_module = all(map(str.isidentifier, named.split("."))) and not named.endswith(".py")
    beside = os.path.exists(top) or os.path.exists(f"{top}.py")
    if not is_module or not (beside or importlib.util.find_spec(top)):
        words = N_("{name} is neither a file, looked for from {folder}, nor a module that can be imported here")
        raise ClusterConfigError(_(words, name=named, folder=os.getcwd()))
    return Program(named, module=True, argv=argv)
