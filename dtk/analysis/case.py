"""A failed verification as a case to be explained: what the two runs recorded, in the form that recognisers ask for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dtk.analysis.evidence import Evidence
from dtk.analysis.mistakes import MISTAKES
from dtk.analysis.numerals import rounded
from dtk.analysis.scaling import by_step, global_loss, weighted_loss
from dtk.errors import VerificationError

__all__ = ["Case", "Diagnosis", "found"]

# float64 sums of cosines of the same float32 examples: seen to agree to 1e-9. One other example moves a sum by 0.5
# or so, and two unlike batches of 64 come within 1e-3 of each other once in some thousand steps.
SAME_DATA = 1e-3
MOVING = ("moving_mean", "moving_variance")


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """What `dtk.diagnose` found. Shows itself, also as a cell's value, as its sentence.

    mistake: a key of `dtk.analysis.mistakes.MISTAKES`, "none" where the runs agree, "unknown" where nothing known
    explains them. evidence: facts that it rests on, a sentence each. also: further mistakes, which leave the same
    traces, or, where runs agree and nothing is learnt, were found as well.
    """

    mistake: str
    sentence: str
    evidence: tuple[str, ...] = ()
    also: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.sentence

    def __repr__(self) -> str:
        return self.sentence


def found(mistake: str, what: str, evidence: list[str] | None = None, also: tuple[str, ...] = ()) -> Diagnosis:
    """A diagnosis whose sentence ends with the remedy, and says which other mistakes would look the same."""
    others = f" (the same is seen with: {', '.join(also)})" if also else ""
    return Diagnosis(mistake, f"{what}; {MISTAKES[mistake].remedy}{others}", tuple(evidence or ()), also)


@dataclass(frozen=True)
class Case:
    """Both sides, and what `verify` said. theirs: None where there is no baseline.

    Arrays are `(steps, replicas)` or `(steps,)`, over the steps that both ran; row i is step i + 1.
    """

    ours: Evidence
    theirs: Evidence | None
    failed: VerificationError
    rtol: float
    atol: float

    @property
    def replicas(self) -> int:
        return self.ours.replicas

    @property
    def steps(self) -> int:
        """Steps that both ran."""
        return min(self.ours.steps, self.theirs.steps) if self.theirs else self.ours.steps

    @cached_property
    def mine(self) -> np.ndarray:
        """The run's global loss at each step."""
        return global_loss(self.ours.shares, self.ours.examples)[: self.steps]

    @cached_property
    def weighted(self) -> np.ndarray:
        """The run's loss weighted by examples: what one device would have computed on even and uneven batches."""
        return weighted_loss(self.ours.shares, self.ours.examples)[: self.steps]

    @cached_property
    def other(self) -> np.ndarray:
        """The baseline's loss at each step."""
        assert self.theirs is not None, "recognisers of losses run with a baseline only"
        return global_loss(self.theirs.shares, self.theirs.examples)[: self.steps]

    @cached_property
    def ratio(self) -> np.ndarray:
        """The run's loss over the baseline's at each step; NaN where the baseline's is 0."""
        return np.divide(self.mine, self.other, out=np.full(self.steps, np.nan), where=self.other != 0)

    @cached_property
    def examples(self) -> np.ndarray:
        """The run's examples at each step, over all replicas."""
        return self.ours.examples.sum(axis=1)[: self.steps]

    @cached_property
    def prints(self) -> np.ndarray:
        """The run's fingerprints, `(steps, replicas)`; NaN where unknown."""
        return by_step(self.ours.run.records, "data").to_numpy()[: self.steps]

    @cached_property
    def base_prints(self) -> np.ndarray:
        """The baseline's fingerprints, `(steps,)`; NaN where unknown, or without a baseline."""
        if self.theirs is None:
            return np.full(self.steps, np.nan)
        return by_step(self.theirs.run.records, "data").to_numpy().sum(axis=1)[: self.steps]

    @cached_property
    def prints_known(self) -> bool:
        """Whether every step of both has a fingerprint."""
        return bool(np.isfinite(self.prints).all() and np.isfinite(self.base_prints).all())

    @cached_property
    def same_data(self) -> bool | None:
        """Whether every step had the baseline's examples; None where no fingerprint tells."""
        if not self.prints_known:
            return None
        return not (np.abs(self.prints.sum(axis=1) - self.base_prints) > SAME_DATA).any()

    @cached_property
    def normalised(self) -> bool:
        """Whether the model has batch normalisation, by the names of its weights."""
        return any(any(word in name for word in MOVING) for name in self.names)

    @cached_property
    def names(self) -> list[str]:
        """The names of the run's weights, in the model's order; [] where none were recorded."""
        weights = self.ours.run.folder.worker(0).weights("final")
        return weights.names if weights else []

    @cached_property
    def label(self) -> tuple[int, ...]:
        """The axes of one label that are longer than 1; () for one number, or where unknown."""
        events = [event for event in self.ours.run.folder.worker(0).events if event["state"] == "loop"]
        shapes = events[0]["shapes"] if events else []
        axes = shapes[1] if len(shapes) > 1 else []
        return tuple(int(axis) for axis in axes if axis and axis > 1)

    @cached_property
    def names_dropout(self) -> bool:
        """Whether the function that was sent to the workers has the word dropout in it."""
        file = self.ours.run.folder.path / "function.pkl"
        # Searched as bytes, never unpickled: names of attributes stand in it as they are.
        return file.exists() and b"dropout" in file.read_bytes().lower()

    def losses(self, step: int) -> str:
        """The two losses of a step, counted from 1, in words."""
        mine, other = self.mine[step - 1], self.other[step - 1]
        return f"at step {step} the {self.ours.name}'s loss is {mine:.3g}, the baseline's {other:.3g}"

    def facts(self) -> list[str]:
        """What is known without a diagnosis: for those who go on looking."""
        facts = [f"verify: {self.failed}"]
        if self.theirs is None:
            return facts
        data = {True: "are the same at every step", False: "differ", None: "are not known"}[self.same_data]
        facts.append(f"the examples {data}, by their fingerprints")
        with np.errstate(invalid="ignore", divide="ignore"):
            apart = np.abs(self.mine - self.other) / np.abs(self.other)
        shown = ", ".join(rounded(float(value)) for value in apart[:3])
        facts.append(f"relative differences of the losses from step 1 on: {shown}{', …' if self.steps > 3 else ''}")
        return facts
