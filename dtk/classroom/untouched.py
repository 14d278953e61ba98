"""Whether what judges an answer is still what it was before the first cell ran: dtk's own functions, and Python's.

A cell can change any of them, as it runs in the same process. What was changed is named and put back.
"""

from __future__ import annotations

import builtins
import copy
import inspect
import itertools
import numbers
import random
import reprlib
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

from dtk.lessons.exercise import Exercise, Misconception, Trial

__all__ = ["Untouched"]

_OURS = (builtins, copy, inspect, itertools, numbers, random, reprlib, np)  # what `dtk.lessons.exercise` uses, too
_PARTS = ("__code__", "__defaults__", "__kwdefaults__")
_JUDGES = (type, types.FunctionType, types.BuiltinFunctionType, np.ufunc, Exercise, Trial)
_MISSING = object()
_Place = tuple[str, Any, str, Any]  # the module, what holds it, its name there, what it was


class Untouched:
    """What the modules that are imported now hold, as far as it judges: functions, classes, exercises."""

    def __init__(self, package: str = "dtk") -> None:
        loaded = list(sys.modules.items())
        ours = [module for name, module in loaded if name.split(".")[0] == package and module is not None]
        self._places: list[_Place] = []
        self._seen: set[int] = set()
        for module in (*_OURS, *ours):
            for name, value in list(vars(module).items()):
                if isinstance(value, _JUDGES):
                    self._places.append((module.__name__, module, name, value))
                self._places += self._inside(module.__name__, value, package)

    def _inside(self, module: str, value: Any, package: str) -> Iterator[_Place]:
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        if isinstance(value, types.FunctionType):
            if value.__module__ and value.__module__.partition(".")[0] == package:
                yield from ((module, value, part, getattr(value, part)) for part in _PARTS)
        elif isinstance(value, type):
            if value.__module__.partition(".")[0] == package:
                for name, part in list(vars(value).items()):
                    if isinstance(part, types.FunctionType | property | staticmethod | classmethod):
                        yield module, value, name, part
                        yield from self._inside(module, getattr(part, "__func__", part), package)
        elif isinstance(value, Exercise | Trial | Misconception):
            for name, part in list(vars(value).items()):
                yield module, value, name, part
                yield from self._inside(module, part, package)
        elif isinstance(value, list | tuple) and value and isinstance(value[0], Exercise | Trial | Misconception):
            for part in value:
                yield from self._inside(module, part, package)

    def put_back(self) -> list[str]:
        """The modules in which something was changed, which is now as it was."""
        changed: list[str] = []
        for module, holder, name, value in self._places:
            if _held(holder, name) is not value:
                changed.append(module)
                if isinstance(holder, Exercise | Trial | Misconception):
                    object.__setattr__(holder, name, value)  # frozen, which kept nobody from it
                else:
                    setattr(holder, name, value)
        return sorted(set(changed))


def _held(holder: Any, name: str) -> Any:
    return getattr(holder, name, _MISSING) if name in _PARTS else vars(holder).get(name, _MISSING)
