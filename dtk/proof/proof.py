"""What `dtk.verify` proved, step by step: saved with the run, shown as a table and a figure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dtk.proof.steps import Steps, judged
from dtk.records import write_whole

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

__all__ = ["VERDICTS", "Proof", "kept"]

FILE = "proof.json"
# What a proof may say, and the exit code of `dtk run --verify` for it.
VERDICTS = {
    "one device": 0,
    "replicas": 0,
    "failed": 1,
    "not decidable": 3,
    "not followed": 4,
}


@dataclass(frozen=True)
class Proof:
    """What `dtk.verify` found. Shows itself as a small table and a figure; `VerificationError.proof` is one, too.

    Attributes:
        verdict: "one device" (every step makes the update that one device makes from the same state), "replicas" (as
            many replicas in one process do, and one device does without what each replica does by itself), "failed",
            "not decidable" (rounding is as large as the updates) or "not followed".
        lines: what `verify` printed.
        steps: of the run.
        failed: what differs, in a sentence; "" where nothing does.
        followers: what each follower found, by its number of replicas.
    """

    verdict: str
    lines: tuple[str, ...]
    steps: int
    failed: str = ""
    followers: Mapping[int, Steps] = field(default_factory=dict, repr=False)

    @property
    def table(self) -> pandas.DataFrame:
        """A row for each step of each follower.

        Columns: replicas (the follower's), step, apart (the norm of the difference of the two updates over the norm of
        the run's, all variables), rounding (how much of that rounding may be), variable (the one that differs most),
        its_apart, differs (whether a variable differs by more than rounding).
        """
        import pandas

        rows = [_row(replicas, line, steps) for replicas, steps in self.followers.items() for line in steps.lines]
        names = ("replicas", "step", "apart", "rounding", "variable", "its_apart", "differs")
        return pandas.DataFrame(rows, columns=list(names))

    def figure(self, ax: Axes | None = None) -> Axes:
        """Draws the difference of the updates step by step, and below it how much of that rounding may be."""
        axes: Axes = import_module("dtk.view.proof").proof(self, ax)  # the room of figures knows this one
        return axes

    def save(self, folder: Path) -> None:
        """Writes it into a run's directory, from which `kept` reads it."""
        facts = {"verdict": self.verdict, "lines": self.lines, "steps": self.steps, "failed": self.failed}
        followed = {replicas: steps.read for replicas, steps in self.followers.items()}
        write_whole(folder / FILE, json.dumps({**facts, "followers": followed}).encode())

    def __repr__(self) -> str:
        return f"<Proof {self.verdict}: {self.steps} steps>"

    def _repr_png_(self) -> bytes | None:
        if not self.followers:
            return None
        picture: bytes = import_module("dtk.view.proof").picture(self)
        return picture


def kept(folder: Path) -> Proof | None:
    """What `verify` last said of a run, from its directory; None where it was never asked, or an older dtk was."""
    try:
        facts = json.loads((folder / FILE).read_text())
        followers = {int(replicas): judged(read) for replicas, read in facts["followers"].items()}
        return Proof(facts["verdict"], tuple(facts["lines"]), facts["steps"], facts["failed"], followers)
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _row(replicas: int, line: dict[str, Any], steps: Steps) -> tuple[Any, ...]:
    size, apart, level = (np.array(line[name], float) for name in ("size", "apart", "level"))
    finite = np.isfinite(size)
    whole = float(np.linalg.norm(size[finite])) or math.inf
    parts = (float(np.linalg.norm(apart) / whole), float(np.linalg.norm((level * size)[finite]) / whole))
    most = max(range(len(line["ratio"])), key=lambda k: line["ratio"][k], default=None)
    largest = ("", 0.0) if most is None else (steps.variables[line["numbers"][most]][0], line["ratio"][most])
    return (replicas, line["step"], *parts, *largest, bool(line["wrong"]))
