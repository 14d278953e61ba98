"""What a follower found, judged: whether each of its steps made the same change as the run's step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dtk.proof.followers import lines_of
from dtk.records import RunFolder

__all__ = ["Steps", "judged", "recorded_whole"]

UNDECIDED = 1e-2  # of an update: a variable that rounding changes by more says nothing
MOST_UNDECIDED = 0.1  # of all values, in a step that counts as decided


@dataclass(frozen=True)
class Steps:
    """One follower's findings.

    units: how many steps were followed. differs: the first unit at which the two differ, None where none does.
    variables: names of those that differ there. undecided: units of which rounding leaves too much open. complete:
    whether the follower came to the run's end and had the same variables. coarse: the relative rounding of the coarsest
    type that the steps compute in, 0 for float32.
    """

    units: int
    differs: int | None
    variables: tuple[str, ...]
    undecided: int
    complete: bool
    coarse: float

    @property
    def proved(self) -> bool:
        """Every step was followed to the end, none differs, and none is open."""
        return self.complete and self.units > 0 and self.differs is None and self.undecided == 0


def judged(run: RunFolder, lines: Sequence[dict[str, Any]]) -> Steps:
    """Judges the lines of a follower (`dtk.recording.follow.Follower`) of this run."""
    facts = lines_of(run, "variables")
    counts = {each["number"]: math.prod(each["shape"]) for each in facts}
    names = {each["number"]: each["name"] for each in facts}
    last: dict[str, Any] = lines[-1] if lines and "end" in lines[-1] else {"end": "killed", "units": 0}
    wrong = next((line for line in lines if line.get("wrong")), None)
    updates = [line for line in lines if line.get("kind") == "update"]
    return Steps(
        units=len(updates),
        differs=None if wrong is None else int(wrong["unit"]),
        variables=() if wrong is None else tuple(names[number] for number in wrong["wrong"]),
        undecided=sum(_is_open(line, counts) for line in updates),
        complete=last["end"] == "done" and last["units"] == len(updates) == _recorded(run)[0],
        coarse=float(last.get("coarse", 0.0)),
    )


def recorded_whole(run: RunFolder) -> bool:
    """Whether every unit of the run was recorded, and what its function left behind, so that all can be followed."""
    recorded, made = _recorded(run)
    ended = any("end" in line for line in lines_of(run, "units"))
    return recorded > 0 and recorded == made and ended


def _recorded(run: RunFolder) -> tuple[int, int]:
    """Units with their states, and units that there were."""
    lines = lines_of(run, "units")
    last = next((line["last"]["units"] for line in lines if "last" in line), 0)
    return sum("unit" in line and "end" not in line for line in lines), last


def _is_open(line: dict[str, Any], counts: dict[int, int]) -> bool:
    """Whether rounding is so large in a step that more than a small part of all values says nothing."""
    noisy = [number for number, ratio in zip(line["numbers"], line["ratio"], strict=True) if ratio > UNDECIDED]
    return sum(counts[n] for n in noisy) > MOST_UNDECIDED * sum(counts[n] for n in line["numbers"])
