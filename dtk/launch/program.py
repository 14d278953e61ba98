"""A program that was written for any cluster, as a function that a worker calls: a script, or a module."""

from __future__ import annotations

import os
import runpy
import sys
from dataclasses import dataclass

import wrapt

from dtk.worker import ship

__all__ = ["Program"]


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
