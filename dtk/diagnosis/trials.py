"""Runs that decide between mistakes which leave the same traces: the same function once more, but for one thing.

If run and baseline agree once a suspect is switched off in both, it was the suspect. Before that the baseline is made
once more as it was: where the two baselines differ, no comparison says anything. The runs are made by the two runs
themselves (`Run.again`, in a room above this one).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dtk.checks import facts
from dtk.checks.counts import check_steps_and_examples
from dtk.checks.evidence import collect
from dtk.checks.numerals import OFFSET, relative
from dtk.checks.steps import Following
from dtk.checks.verify import name_of, prove
from dtk.diagnosis.case import Case, said_of
from dtk.diagnosis.mistakes import MISTAKES
from dtk.diagnosis.penalty import GROWS, growth
from dtk.diagnosis.updates import NEAR_N, moved
from dtk.diagnosis.verdict import DECIDES, SAID, Diagnosis, by_test, either, found
from dtk.errors import DtkError, VerificationError
from dtk.language import N_, _
from dtk.measure.scaling import global_loss

if TYPE_CHECKING:
    from dtk.checks.evidence import RunLike

__all__ = ["decide"]

Explain = Callable[[VerificationError, Any, Any, Mapping[int, Following]], Diagnosis]

# Suspects that a pair can do without.
_PAIRS = ("random", "augmentation", "batch norm", "clipping", "sparse gradient", "rounding")
_SWITCH = {"augmentation": "random"}  # what `Run.again(without=...)` calls it
_DATA = ("order", "worker order", "other data", "augmentation", "not reproducible")
_SUMS = ("regularisation", "whole batch", "offset")  # suspects that another number of replicas distinguishes
_RATES = (1.5, 2.0, 3.0, 4.0, 5.0, 8.0, 10.0, 16.0, 20.0, 50.0, 100.0)
_BY_ITSELF = ("not finite", "records", "unrecorded")  # what a switch may bring about, and nothing follows from
# How much better the losses must agree without a suspect, by the largest difference: what is only a part of the reason
# makes it smaller, too. float64 rounds 1e-9 as much as float32, where a mistake stays as it is.
BETTER = {"rounding": 1e-3, "learning rate": 1e-2}
A_TENTH = 0.1


def decide(first: Diagnosis, run: RunLike, baseline: RunLike, explain: Explain) -> Diagnosis:
    """The diagnosis after the further runs that its suspects need; the first one where no run would tell more.

    explain: the diagnosis of a pair that verify finds different.
    """
    suspects = [key for key in (first.mistake, *first.also) if key in MISTAKES]
    if first.mistake == "unknown" and not suspects:
        suspects = ["random", "clipping"]
    if {"worker order", "other data"} & {*suspects} and "augmentation" not in suspects:
        suspects.append("augmentation")  # that no worker wrote of a map that draws is no proof that there is none
    if not any(key in (*_PAIRS, *_SUMS, *_DATA, "learning rate") for key in suspects):
        return first
    if first.mistake not in ("unknown", *_PAIRS, *_SUMS, *_DATA, "learning rate"):
        return first  # known by its ratio; what else leaves that ratio is no question of these runs
    trials = _Trials(run, baseline, explain)
    # Losses may be 0, NaN or infinite.
    with np.errstate(all="ignore"):
        return trials.control() or trials.decide(first, suspects)


class _Trials:
    """said: what was run and what came of it, a sentence each."""

    def __init__(self, run: RunLike, baseline: RunLike, explain: Explain):
        self.run, self.baseline, self.explain = run, baseline, explain
        self.said: list[str] = []
        self.repeats = False  # whether the baseline was seen to be what it was before

    @property
    def _tested(self) -> str:
        return _("; ").join(self.said)

    def control(self) -> Diagnosis | None:
        """The baseline once more, as it was."""
        again = self._made(self.baseline, _("the baseline again, as it was"))
        if again is None:
            return None
        try:
            prove(again, self.baseline)
            mine, other = (collect(side, _("baseline")).shares for side in (again, self.baseline))
            exact = np.array_equal(mine, other)
        except VerificationError as error:
            what = N_("the baseline, made once more with the same seed, differs from the first ({what})")
            tested = N_(
                "made the baseline again, as it was: the two differ, so a comparison with either says nothing else"
            )
            return found("not reproducible", _(what, what=error.what), _(tested), self.said)
        self.repeats = True
        said = N_("the baseline again, as it was: agrees")
        if exact:
            said = N_("the baseline again, as it was: the same losses to the last bit")
        self.said.append(_(said))
        return None

    def decide(self, first: Diagnosis, suspects: list[str]) -> Diagnosis:
        """Tries one suspect after the other until one is confirmed."""
        left = [key for key in suspects if key != "not reproducible" or not self.repeats]
        for key in suspects:
            if key not in left:
                continue
            made: Diagnosis | bool | None = None
            if key in _PAIRS:
                made = self._pair(key)
            elif key == "learning rate":
                made = self._rate()
            elif key in _SUMS and not (set(left) & {"random", "batch norm"} and self._comes_later(key, left)):
                made = self._sums(left)
            if isinstance(made, Diagnosis):
                return made
            if made is False:
                left.remove(key)
        return self._left(first, left)

    def _comes_later(self, key: str, left: list[str]) -> bool:
        """Whether a suspect that would spoil the sums is still to be tried."""
        return any(left.index(other) > left.index(key) for other in ("random", "batch norm") if other in left)

    def _left(self, first: Diagnosis, left: list[str]) -> Diagnosis:
        """What no run refuted."""
        tested = _("; ").join(self.said) or _("no further run could be made")
        evidence = (by_test(tested), *first.evidence)
        if first.mistake in left or (first.mistake in _DATA and first.mistake not in _PAIRS):
            also = tuple(key for key in left if key != first.mistake)
            return replace(first, evidence=evidence, also=also)
        lead = _("further runs were made, and none of them agrees with its baseline")
        if not left:
            return Diagnosis("unknown", _("I don't know why: {failed}", failed=lead), evidence)
        if left == ["whole batch"]:
            what = N_("{suspect}: what else leaves these traces is refuted by further runs")
            (key,) = left
            return found(key, _(what, suspect=_(SAID[key])), tested, first.evidence)
        return replace(either(lead, left, tested, first.evidence), remedy="")  # the runs that would decide were made

    def _pair(self, key: str) -> Diagnosis | bool | None:
        """Both runs without the suspect: the diagnosis where they agree, False where not, None where not known."""
        switch = _SWITCH.get(key, key)
        words = _(DECIDES[switch])
        run = self._made(self.run, words, without=(switch,))
        baseline = self._made(self.baseline, words, without=(switch,)) if run is not None else None
        if run is None or baseline is None:
            return None
        try:
            prove(run, baseline)
        except VerificationError as error:
            self.said.append(_("{runs}: they differ still ({what})", runs=words, what=error.what))
            # Of float64 it refutes rounding; of the others, that it is the only reason.
            rest = self.explain(error, run, baseline, {})
            if rest.mistake in _BY_ITSELF:
                return None
            if key == "rounding" or rest.mistake not in MISTAKES or rest.mistake in (key, "rounding", *_SUMS):
                return self._refuted(key, words, run, baseline)
            evidence = (by_test(self._tested), *rest.evidence)
            return replace(rest, what=_("{runs} differ still: {what}", runs=words, what=rest.what), evidence=evidence)
        if not self._better(key, words, run, baseline):
            return self._refuted(key, words, run, baseline)
        self.said.append(_("{runs}: verify passes", runs=words))
        return found(key, _("{suspect}: {runs} agree", suspect=_(SAID[key]), runs=words), self._tested)

    def _refuted(self, key: str, words: str, run: RunLike, baseline: RunLike) -> bool | None:
        """False; None where the switch is not known to have had its effect, so that nothing follows."""
        if key in ("random", "augmentation"):
            left = facts.augmenting(run, baseline) if key == "augmentation" else facts.drawing(run, baseline)
        elif key == "rounding":
            left = _narrow(run, baseline)
        elif key == "clipping":
            left = facts.clipping(run, baseline)  # an optimizer's settings, such as clipnorm=1.0, stay and do nothing
            left = left and [one for one in left if "=" not in one]
        else:
            left = []
        if left == []:
            return False
        still = N_("{runs} refute nothing: still there is {left}")
        if left is None:
            still = N_("{runs} refute nothing: what is left is not known")
        self.said.append(_(still, runs=words, left=said_of(left, "")))
        return None

    def _rate(self) -> Diagnosis | bool | None:
        """The baseline with the rate that the run seems to have."""
        if not facts.rates(self.baseline):  # no optimizer of Keras, or not seen: nothing would be scaled
            return None
        ours, theirs = collect(self.run, name_of(self.run)), collect(self.baseline, _("baseline"))
        move = moved(Case(ours, theirs, VerificationError(""), {}))
        if move is None or not move.ratio > 0:
            return None
        n = float(ours.replicas)
        known = [n, 1 / n] if n > 1 else []
        factor = next((f for f in known if abs(np.log(move.ratio / f)) < NEAR_N), None)
        factor = factor or min((f for r in _RATES for f in (r, 1 / r)), key=lambda f: abs(np.log(move.ratio / f)))
        factor = factor if abs(np.log(move.ratio / factor)) < NEAR_N else round(move.ratio, 2)
        words = _("the baseline with the learning rate times {factor:.3g}", factor=factor)
        baseline = self._made(self.baseline, words, rate=factor)
        if baseline is None:
            return None
        try:
            prove(self.run, baseline)
        except VerificationError as error:
            self.said.append(_("{runs}: it differs from the run still ({what})", runs=words, what=error.what))
            return False
        if not self._better("learning rate", words, self.run, baseline):
            return False
        self.said.append(_("{runs}: verify passes", runs=words))
        what = N_("the {run} is what the baseline is with {factor:.3g} times the learning rate")
        return found("learning rate", _(what, run=ours.name, factor=factor), self._tested)

    def _sums(self, left: list[str]) -> Diagnosis | bool | None:
        """What N replicas add whole grows the loss of step 1 by N-1 times the same; anything else does not."""
        ours, theirs = collect(self.run, name_of(self.run)), collect(self.baseline, _("baseline"))
        n, batch = ours.replicas, int(ours.examples[0].sum())
        other = next((m for m in (4, 2, 3, 8) if m != n and batch % m == 0), None)
        one, few = (float(global_loss(side.shares, side.examples)[0]) for side in (theirs, ours))
        # Losses that agree at step 1 hold nothing that would grow.
        if other is None or n < 2 or abs(few - one) <= OFFSET * abs(one):
            return None
        kind = "replicas" if self.run.mode == "mirrored" else "workers"
        words = _("the run with {n} replicas", n=other)
        made = self._made(self.run, words, **{kind: other})
        if made is None:
            return None
        try:
            more = collect(made, name_of(made))
            check_steps_and_examples(more, theirs)
        except VerificationError as error:
            self.said.append(_("{runs}: it can't be compared ({what})", runs=words, what=error.what))
            return None
        grew, fits = growth(ours, theirs, more)
        fact = N_(
            "{runs}: the loss of step 1 is off by {times:.4g} times as much as with {before}; a part added whole gives "
            "{whole:.4g}"
        )
        self.said.append(_(fact, runs=words, **grew))
        if fits is None:
            return None
        left[:] = [each for each in left if each in fits or each not in (*GROWS, *_SUMS)]
        key = next((each for each in ("regularisation", "whole batch") if fits & {*left} == {each}), None)
        if key is None or (key == "whole batch" and left != [key]):  # that one by elimination only
            return None
        fact = N_(
            "{suspect}: with {replicas} replicas the loss of step 1 is off by {times:.4g} times as much as with "
            "{before}; a part added whole gives {whole:.4g}"
        )
        return found(key, _(fact, suspect=_(SAID[key]), **grew), self._tested)

    def _better(self, key: str, words: str, run: RunLike, baseline: RunLike) -> bool:
        """Whether these two agree so much better than the first two that it is no accident, and all of the reason."""
        before, after = self._apart(self.run, self.baseline), self._apart(run, baseline)
        floor = 1e-12 if key == "rounding" else OFFSET
        # Where only the weights were different, the losses hardly differed before either.
        if after <= max(BETTER.get(key, A_TENTH) * before, floor):
            return True
        differ = N_("{runs}: the losses still differ, relative difference {relative}, before {before}")
        self.said.append(_(differ, runs=words, relative=relative(after), before=relative(before)))
        return False

    def _apart(self, run: RunLike, baseline: RunLike) -> float:
        ours, theirs = (collect(side, "run") for side in (run, baseline))
        mine, other = (global_loss(side.shares, side.examples) for side in (ours, theirs))
        return float((np.abs(mine - other) / np.abs(other)).max())

    def _made(self, side: RunLike, words: str, **changes: Any) -> RunLike | None:
        again: Callable[..., RunLike] | None = getattr(side, "again", None)
        if again is None:
            self.said.append(_("{runs}: not made, as these are no runs of dtk.run and dtk.baseline", runs=words))
            return None
        try:
            return again(**changes)
        except DtkError as error:
            self.said.append(_("{runs}: could not be made ({error})", runs=words, error=error))
            return None


def _narrow(*runs: RunLike) -> list[str]:
    """The final weights that are of fewer digits than float64, of all workers."""
    held = [corner.weights("final") for run in runs for corner in run.folder.each]
    pairs = [pair for one in held if one is not None for pair in zip(one.names, one.arrays, strict=True)]
    return list(
        dict.fromkeys(
            _("{dtype} in {name}", dtype=x.dtype, name=name)
            for name, x in pairs
            if x.dtype.kind in "fV" and x.itemsize < 8
        )
    )
