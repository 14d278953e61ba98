"""Training functions that the proof of each step is tried on: right ones, and wrong ones with what is wrong with them.

`right()` and `wrong()` are the registries, by name. Each function takes `strategy, steps=300` and, where it can be
wrong, `mistake=None`: without a mistake the same program is right. `benchmarks/proof_steps.py` trains them.

A small mistake is made on the cluster alone (`parts.on_cluster`), as if its machines were set up otherwise. The field's
are in the program, after real bug reports, and are made wherever it runs; a PASS is true where one device shares it.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ONE_DEVICE", "REFUSED", "REPLICAS", "RIGHT", "WRONG", "Program", "add", "add_wrong", "right", "wrong"]

ONE_DEVICE, REPLICAS, REFUSED = "one device", "replicas", "refused"
MODULES = ("fits", "special_fits", "gans", "loops", "special_loops", "words", "pairs", "reduced", "inputs")


@dataclass(frozen=True)
class Program:
    """expected: ONE_DEVICE or REPLICAS, what a right program agrees with; REFUSED: it can't train under a strategy.

    For a wrong one that is how it is expected without its mistake (None: the mistake is in how it is written). truth:
    which diagnosis is right. variables: parts of the names of those concerned, () for all. shared: one device makes the
    mistake, too, so that a PASS is true; replicas: those in one process make it. behind: whether it takes `dropout=0.4`
    and `batch_norm=True`. late: in a second fit; begins: the first step at which it acts, where no `at` says so.
    """

    train: Callable[..., Any]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    expected: str | None = ONE_DEVICE
    truth: str = ""
    variables: tuple[str, ...] = ()
    shared: bool = False
    replicas: bool = True
    behind: bool = True
    late: bool = False
    begins: int = 1

    def first(self, steps: int) -> int:
        """The first step at which the mistake acts, from 1."""
        return steps // 2 + 1 if self.late else self.kwargs.get("at", self.begins)

    def given(self, **changes: Any) -> Program:
        """The program with other arguments: `given(steps=12, dropout=0.4)`."""
        return dataclasses.replace(self, kwargs={**self.kwargs, **changes})


RIGHT: dict[str, Program] = {}
WRONG: dict[str, Program] = {}


def add(name: str, train: Callable[..., Any], expected: str = ONE_DEVICE, behind: bool = False, **kwargs: Any) -> None:
    """Adds a right program; kwargs: its arguments."""
    assert name not in RIGHT, name
    RIGHT[name] = Program(train, kwargs, expected, behind=behind)


def add_wrong(name: str, train: Callable[..., Any], truth: str, facts: Mapping[str, Any] = {}, **kwargs: Any) -> None:
    """Adds a wrong one; kwargs: its arguments, facts: what `Program` says of it besides."""
    assert name not in WRONG, name
    WRONG[name] = Program(train, kwargs, truth=truth, **facts)


def _registered() -> None:
    for name in MODULES:
        importlib.import_module(f"{__name__}.{name}")


def right() -> dict[str, Program]:
    _registered()
    return RIGHT


def wrong() -> dict[str, Program]:
    _registered()
    return WRONG
