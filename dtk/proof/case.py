"""A failed verification as a case to be explained, in the form that recognizers ask for, and what is said of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dtk.errors import VerificationError, in_words
from dtk.language import N_, _
from dtk.proof.evidence import Evidence, check_loss
from dtk.proof.following import Following, tolerance
from dtk.proof.mistakes import MISTAKES
from dtk.proof.proof import Steps, part_in_words
from dtk.records import facts
from dtk.records.events import Traced, content
from dtk.records.tables import RunLike
from dtk.scaling.shares import global_loss


@dataclass(frozen=True)
class Case:
    """Both sides, and what `verify` said.

    theirs: one device's steps, each from the run's own state, where the run could be followed; else the baseline's;
    None where there is neither. followed: by the follower's number of replicas.

    Arrays are `(steps, replicas)` or `(steps,)`, over the steps that both ran; row i is step i + 1.
    """

    ours: Evidence
    theirs: Evidence | None
    failed: VerificationError
    followed: Mapping[int, Following]
    source: RunLike | None = None  # whose function was followed with; None: the run's own
    said: VerificationError | None = None  # by verify, where it is not what `failed` says

    @property
    def one(self) -> Steps | None:
        """What the run is compared with found, one device as a rule; None where the run was not followed."""
        return self.followed[1].steps if 1 in self.followed else None

    @property
    def many(self) -> Following | None:
        """As many replicas in one process; None where they were not asked, or can't run the function."""
        many = self.followed.get(self.ours.replicas) if self.ours.replicas > 1 else None
        return None if many is None or (many.failed is not None and many.failed.reason == "not followed") else many

    @property
    def shared_by_replicas(self) -> bool:
        """Whether as many replicas in one process do what the run does, so that it is the program's doing."""
        return self.many is not None and self.many.failed is None

    @cached_property
    def same_function(self) -> bool:
        """Whether what was followed with is the run's own function, with its arguments, as far as files tell."""
        if self.source is None:
            return True
        mine, its = (content(each.folder.path / "function.pkl") for each in (self.ours.run, self.source))
        return mine == its != b""

    @property
    def steps(self) -> int:
        """Steps that both ran."""
        return min(self.ours.steps, self.theirs.steps) if self.theirs else self.ours.steps

    @cached_property
    def mine(self) -> np.ndarray:
        """The run's global loss at each step."""
        return global_loss(self.ours.shares, self.ours.examples)[: self.steps]

    @cached_property
    def other(self) -> np.ndarray:
        """The baseline's loss at each step."""
        assert self.theirs is not None, "recognizers of losses run with a baseline only"
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
        return self.ours.prints[: self.steps]

    @cached_property
    def agree(self) -> np.ndarray | None:
        """Which steps had the baseline's examples, `(steps,)`; None where no fingerprint tells."""
        if self.theirs is None:
            return None
        theirs = self.theirs.first(self.steps)
        prints, examples = (each.sum(axis=1, keepdims=True) for each in (theirs.prints, theirs.examples))
        return facts.same_examples(self.prints, prints, self.ours.examples[: self.steps], examples)

    @property
    def same_data(self) -> bool | None:
        """Whether every step had the baseline's examples; None where no fingerprint tells."""
        return None if self.agree is None else bool(self.agree.all())

    @property
    def inside(self) -> bool:
        """Whether a call makes several steps: then losses may differ because the update of the first does."""
        made = max((line.get("made", 1) for line in self.one.lines), default=1) if self.one else 1
        return self.ours.of_calls and made > max(1, len(facts.events(self.ours.run, Traced)))

    @cached_property
    def operations(self) -> facts.Operations:
        """What the steps and the pipelines of the two are made of."""
        return facts.operations(self.ours.run, *([self.theirs.run] if self.theirs else []))

    def losses(self, step: int) -> str:
        """The two losses of a step, counted from 1, in words, and in as many digits as tell them apart."""
        short, long = ([f"{side[step - 1]:.{digits}g}" for side in (self.mine, self.other)] for digits in (3, 6))
        mine, other = short if len({*short}) > 1 else long
        what = N_("at {step} the {run}'s loss is {mine}, that of {whom} {other}")
        return _(what, step=self.ours.at(step), run=self.ours.name, whom=self.followed[1].whom, mine=mine, other=other)

    def found(self, mistake: str, what: str, evidence: Sequence[str] = (), also: tuple[str, ...] = ()) -> Diagnosis:
        """A diagnosis whose evidence has all that is known of this case."""
        return found(mistake, what, [*evidence, *self.facts()], also)

    @property
    def side(self) -> str:
        """What as many replicas in one process tell of where the difference is."""
        words = N_(
            "{n} replicas in one process differ as well: the difference is between the workers (data, collectives)"
        )
        if self.shared_by_replicas:
            words = N_(
                "{n} replicas in one process make the same update: the program computes otherwise with {n} replicas"
            )
        elif not self.same_function:
            words = N_(
                "{n} replicas in one process, which run the baseline's function, differ as well: it is not the run's"
            )
        return _(words, n=self.ours.replicas)

    def facts(self) -> Iterator[str]:
        """What is known without a diagnosis, for those who go on looking: what verify says, what the followers tell."""
        yield _("{name}: {words}", name="verify", words=self.said or self.failed)
        if self.one is None:
            return
        if self.many is not None:
            yield self.side
        parts = sorted(self.one.parts, key=lambda each: -each.values)
        yield from map(part_in_words, [*parts[:3], *(each for each in parts[3:] if each.single)][:5])


def by_targets(case: Case) -> Case | None:
    """The same with what gradients were taken of for losses, where no step was recorded; None where that is no loss.

    A target need not be a share of it, as where gradients are averaged by hand: then updates agree whose targets don't.
    """
    if case.one is None or case.failed.reason != "update" or case.failed.step is None:
        return None
    alone = case.followed[1]
    if case.many is not None and case.many.steps is not None and case.shared_by_replicas:
        alone = replace(alone, steps=case.one.given(case.many.steps))
    sides = {n: each.by_call for n, each in {**case.followed, 1: alone}.items() if each.steps is not None}
    (ours, theirs), (_mine, many) = sides[1], sides.get(case.ours.replicas, (None, None))
    one_number = case.ours.replicas > 1 and bool(alike(ours.shares).all())  # the same examples, or a loss summed before
    if not ours.shares.any() or (one_number and many is None):
        return None
    if one_number and many is not None and alike(many.shares).all():
        ours = replace(ours, shares=ours.shares / case.ours.replicas)
    calls = [step - 1 for step in case.one.followed if step >= case.failed.step]
    ours, theirs = _with_reading(calls, ours, theirs, many and many.first(theirs.steps))
    failed = case.failed
    for error in check_loss(ours, theirs, tolerance(case.one, ours.steps)):
        failed = error if error.step == case.failed.step else case.failed
        if (error.step or 0) < case.failed.step or (case.one.coarse and error.step == 1):
            return None
    followed = {n: replace(case.followed[n], ours=mine, theirs=other) for n, (mine, other) in sides.items()}
    return replace(case, ours=ours, theirs=theirs, followed=followed, failed=failed, said=case.failed)


def alike(shares: np.ndarray) -> np.ndarray:
    """At which steps all replicas have the same number."""
    return np.asarray(np.ptp(shares, axis=1) <= 1e-6 * np.abs(shares).max(axis=1))


def _with_reading(calls: list[int], ours: Evidence, theirs: Evidence, many: Any) -> list[Evidence]:
    """The sides with what they have read, where that is known of each of these calls.

    many: replicas in one process. Where they have read what the workers have, numbers of examples tell; fingerprints do
    where these, or the numbers, add up to one device's, as a call may be given more than examples, or all are the same.
    """
    sums = [side.prints.sum(axis=1) for side in (ours, theirs, many or ours)]
    finite = np.isfinite(sums[0] + sums[1])
    counted, add_up = (bool((finite & (np.abs(sums[2] - its) <= facts.SAME_DATA))[calls].all()) for its in sums[:2])
    add_up = add_up or (counted and np.array_equal(*(side.examples.sum(axis=1)[calls] for side in (ours, theirs))))
    known, nothing = finite[:, None] & (counted or add_up), 0.0 if add_up else np.nan
    told = add_up or bool(np.ptp(ours.prints[calls], axis=1).max() <= facts.SAME_DATA)
    return [
        replace(its, examples=np.where(known, its.examples, 0), read=np.where(known & told, its.prints, nothing))
        for its in (ours, theirs)
    ]


# ---- what is said of it: a mistake that was found, or several that leave the same traces, in one sentence


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """What `dtk.diagnose` found. Shows itself, also as a cell's value, as its sentence.

    Attributes:
        mistake: a key of `dtk.proof.mistakes.MISTAKES`, "none" where the runs agree, "unknown" where nothing known
            explains them, or where several mistakes would: these are then in `also`.
        what: what is wrong, with the numbers.
        evidence: facts that it rests on, a sentence each; where a mistake was found the first is its symptom.
        also: further mistakes, which leave the same traces.
        remedy: what to do about it; "" where `what` says that as well, or where nothing is known.
    """

    mistake: str
    what: str
    evidence: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    remedy: str = ""

    @property
    def sentence(self) -> str:
        """All of it in words: what, the remedy, and which other mistakes would look the same."""
        said = in_words(self.what, self.remedy)
        if not self.also or self.mistake == "unknown":  # where `what` lists them
            return said
        return _("{sentence} (the same is seen with: {others})", sentence=said, others=_listed(self.also))

    def __repr__(self) -> str:
        return self.sentence


def found(mistake: str, what: str, evidence: Sequence[str] = (), also: tuple[str, ...] = ()) -> Diagnosis:
    """A diagnosis with the mistake's remedy, whose sentence says which other mistakes would look the same.

    evidence: measurements that neither `what` nor the mistake's symptom states.
    """
    known = MISTAKES[mistake]
    symptom = _("symptom: {symptom}", symptom=_(known.symptom))
    return Diagnosis(mistake, what, (symptom, *evidence), also, _(known.remedy))


def because(what: str, mistake: str) -> str:
    """What differs, and why, where a mistake is told by what it is called among others."""
    return _("{name}: {words}", name=what, words=_(MISTAKES[mistake].among))


def either(lead: str, suspects: Sequence[str], evidence: Sequence[str] = ()) -> Diagnosis:
    """Several mistakes that this pair of runs can't distinguish."""
    what = N_("{lead}: one of these: {suspects}")
    return Diagnosis("unknown", _(what, lead=lead, suspects=_listed(suspects)), tuple(evidence), tuple(suspects))


def _listed(keys: Sequence[str]) -> str:
    known = {key: _(MISTAKES[key].among) for key in keys}
    return _(", or ").join(_("{what} ({why})", what=what, why=key) if what else key for key, what in known.items())
