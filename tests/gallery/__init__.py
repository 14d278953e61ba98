"""Programs as people write them, each with its right answer. `all_programs()` lists them.

Each is written after a real program, which `source` names, on made-up data of a few kB. A program is a function
`train(strategy, slip=None)`; with a slip it makes that mistake, one that its author could have made (`gallery.slips`).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["PROGRAMS", "Program", "all_programs", "program"]


@dataclass(frozen=True)
class Program:
    """kind: what it is an example of. right: "pass", or the diagnosis that is true of it without a slip.

    reason: where right is a diagnosis, verify's reason. start: further arguments of `dtk.run` (`keras`, `workers`,
    `replicas`); `keras` goes to `dtk.baseline` as well. slips: the mistakes that it can make.
    """

    train: Callable[..., Any]
    kind: str
    source: str
    right: str = "pass"
    reason: str = ""
    start: Mapping[str, Any] = field(default_factory=dict)
    slips: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.train.__name__


PROGRAMS: dict[str, Program] = {}


def program(kind: str, source: str, **facts: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds a training function to the gallery."""

    def add(train: Callable[..., Any]) -> Callable[..., Any]:
        assert train.__name__ not in PROGRAMS, f"two programs are called {train.__name__}"
        PROGRAMS[train.__name__] = Program(train, kind, source, **facts)
        return train

    return add


def all_programs() -> dict[str, Program]:
    """By name, in the order of the modules' names."""
    for module in sorted(found.name for found in pkgutil.iter_modules(__path__)):
        importlib.import_module(f"{__name__}.{module}")
    return PROGRAMS
