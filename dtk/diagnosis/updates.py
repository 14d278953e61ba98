"""Mistakes in what became of the weights: how far they moved, and in which direction."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dtk.checks.facts import counted_before
from dtk.checks.losses import RTOL
from dtk.checks.numerals import AT_STEP_1, OFFSET, SMALL, relative, rounded
from dtk.checks.verify import ATOL
from dtk.checks.weights import way
from dtk.diagnosis.case import Case, said_of
from dtk.diagnosis.suspects import ENDS
from dtk.diagnosis.verdict import Diagnosis, either, found
from dtk.language import N_, _

__all__ = ["Moved", "look_at_state", "look_at_updates", "moved", "only_rates_differ"]

ALONG = 0.9  # cosine of two updates that count as one direction: after some steps of another rate it has fallen to this
AS_FAR = 0.05  # updates whose lengths are this close count as equally long
# A ratio of lengths this close to N or 1/N is that of a rate scaled by N; after many steps it is not exact.
NEAR_N = np.log(1.25)
# A gradient that is off by a term of its own (a penalty) points elsewhere: along the other's to this only by accident.
PARALLEL, FAR = 0.999, np.log(1.3)
# A kink was seen to enlarge rounding a hundredfold in one step; a rate that changes makes losses differ at once.
AT_ONCE = 1000.0
GROWTH = 5.0  # a gradient that is off at every step makes losses differ in proportion to the steps, at most so fast


class Moved(NamedTuple):
    """Final minus initial weights, the run's against the baseline's: ratio of lengths, and cosine."""

    ratio: float
    cosine: float

    @property
    def sentence(self) -> str:
        return _("updates: ratio of lengths {ratio:.3g}, cosine {cosine:.3f}", ratio=self.ratio, cosine=self.cosine)


def moved(case: Case) -> Moved | None:
    """How far the run's weights moved, over how far the baseline's did; None where it is not known.

    Moving statistics are left out: no gradient changes them.
    """
    assert case.theirs is not None, "there is a baseline to compare with"
    ours, theirs = case.ours.run.folder.worker(0), case.theirs.run.folder.worker(0)
    a, b, c, d = ours.weights("initial"), ours.weights("final"), theirs.weights("initial"), theirs.weights("final")
    a, c = a or c, c or a  # a loop may be seen only after its first step; equal losses at step 1 stand for the start
    if a is None or b is None or c is None or d is None:
        return None
    if len({tuple(x.shape for x in one.arrays) for one in (a, b, c, d)}) > 1:
        return None
    mine, other = way(a, b), way(c, d)
    with np.errstate(all="ignore"):
        lengths = float(np.linalg.norm(mine)), float(np.linalg.norm(other))
        cosine = float(mine @ other) / (lengths[0] * lengths[1]) if all(lengths) else float("nan")
        ratio = lengths[0] / lengths[1] if lengths[1] else float("nan")
    return Moved(ratio, cosine) if np.isfinite([ratio, cosine]).all() else None


def only_rates_differ(case: Case) -> bool:
    """Whether of the initial variables (an Estimator's are the optimizer's, too) only learning rates differ."""
    if case.theirs is None or case.failed.reason != "initial weights":
        return False
    a, b = (side.run.folder.worker(0).weights("initial") for side in (case.ours, case.theirs))
    if a is None or b is None or [x.shape for x in a.arrays] != [y.shape for y in b.arrays]:
        return False
    pairs = zip(a.names, a.arrays, b.arrays, strict=True)
    return all(name.endswith("learning_rate") for name, x, y in pairs if not np.allclose(x, y, rtol=0, atol=ATOL))


def look_at_state(case: Case) -> Diagnosis | None:
    """An optimizer that goes on from another training, in only one of the two: its momentum or averages differ."""
    step = case.failed.step or case.steps + 1
    if case.theirs is None or step < 2 or case.other_names or case.failed.reason not in ("loss", *ENDS):
        return None
    mine, other = (counted_before(side.run) for side in (case.ours, case.theirs))
    if mine is None or other is None or mine == other or case.other_rate or case.same_data is False:
        return None
    what = _(
        "{until}; as training began the optimizer had counted {mine} steps in the {run}, {other} in the baseline: it "
        "went on from another training",
        until=_until(case, step),
        mine=mine,
        run=case.ours.name,
        other=other,
    )
    tested = _("the optimizer's count of steps before the first one, in both")
    return found("start", what, tested, case.facts())


def look_at_updates(case: Case) -> Diagnosis | None:
    """Losses that agree at first: the same way by another length is the learning rate, a tiny one is rounding."""
    step = case.failed.step or case.steps + 1  # without a step: the losses agree at all of them
    if case.theirs is None or step < 2 or case.other_names or case.failed.reason not in ("loss", *ENDS):
        return None
    if case.other_rate and case.same_data is not False:
        return _by_rates(case, step, case.facts())
    move = moved(case)
    if case.same_data is False:
        return None
    if move is None:
        return _by_rounding(case, step, case.facts()) if _unseen(case) else _without_the_way(case, step)
    evidence = [move.sentence, *case.facts()]
    if case.rate_at_end:  # a callback may have set it by other losses, so it may be an effect
        evidence.append(_("the first updates have the same learning rates, but {rate}", rate=case.rate_at_end))
    if move.cosine >= ALONG and abs(move.ratio - 1) > AS_FAR:
        return _longer(case, move, step, evidence)
    rounding = _rounding(case, move, step, evidence)
    if rounding is not None:
        return rounding
    suspects = ["rounding"] if move.cosine >= ALONG and case.first_apart <= OFFSET else []
    suspects += ["clipping"] if case.clips != [] else []
    suspects += _of_the_model(case)
    if case.rate_at_end or (case.clips and move.cosine < ALONG and case.other_rate is None):
        suspects.append("learning rate")
    suspects += ["regularisation"] if move.cosine >= ALONG and case.replicas > 1 else []
    suspects += ["random"] if case.draws else []
    # Where nothing is known of the update, and the weights went another way, all of this would be guessed.
    if not suspects and _unseen(case):
        return _by_rounding(case, step, evidence)
    if not suspects or (move.cosine < ALONG and not (case.clips or case.rate_at_end or _of_the_model(case))):
        return None
    tested = N_("the weights moved {ratio:.2g} times as far (cosine {cosine:.3f}), and the losses agree at first")
    return either(_then(case, step), suspects, _(tested, **move._asdict()), evidence, ("regularisation",))


def _without_the_way(case: Case, step: int) -> Diagnosis | None:
    """Where the weights were not seen before the first step: what may be the reason, by what the steps hold."""
    suspects = [*(["clipping"] if case.clips else []), *_of_the_model(case), *(["random"] if case.draws else [])]
    tested = _("the losses agree at first; how far the weights moved is not known")
    return either(_then(case, step), [*suspects, "learning rate"], tested, case.facts()) if suspects else None


def _unseen(case: Case) -> bool:
    """Whether only weights differ that no loss sees, such as Adam makes of a gradient that is 0 but for rounding."""
    return case.failed.reason in ENDS and float(case.apart.max()) <= OFFSET


def _by_rounding(case: Case, step: int, evidence: list[str]) -> Diagnosis:
    tested = N_("the losses agree to {difference} at every step, and only weights differ")
    tested = _(tested, difference=rounded(float(case.apart.max())))
    return either(_("{until}, and only weights differ", until=_until(case, step)), ["rounding"], tested, evidence)


def _of_the_model(case: Case) -> list[str]:
    """Suspects that lie in what the model is made of, and may come into play only in a later fit."""
    if case.replicas < 2:
        return []
    return [*(["sparse gradient"] if case.sparse else []), *(["batch norm"] if case.normalised else [])]


def _by_rates(case: Case, step: int, evidence: list[str]) -> Diagnosis:
    """The learning rates differ, as both wrote down: no other reason is needed for another way of the weights."""
    return found(
        "learning rate",
        _("{until}, and {rate}", until=_until(case, step), rate=case.other_rate),
        _("each optimizer's learning rate, read at its first update in both"),
        evidence,
    )


def _until(case: Case, step: int) -> str:
    if step > case.steps:
        return _("the losses agree at all {steps} steps", steps=case.steps)
    until = N_("the losses agree at step 1") if step == 2 else N_("the losses agree until step {step}")
    return _(until, step=step - 1)


def _then(case: Case, step: int) -> str:
    return _("{until}, then the updates differ", until=_until(case, step))


def _clipped(case: Case) -> str:
    """How gradients are clipped, in words."""
    return said_of(case.clips, N_("none"))


def _longer(case: Case, move: Moved, step: int, evidence: list[str]) -> Diagnosis:
    """The same direction, another length: a learning rate, unless something else can be the reason."""
    n, length = case.replicas, np.log(move.ratio)
    by_n = n > 1 and min(abs(length - np.log(n)), abs(length + np.log(n))) < NEAR_N
    plain = by_n or (move.cosine >= PARALLEL and abs(length) >= FAR)
    lead = _(
        "{until}, but the {run}'s weights moved {ratio:.2g} times as far as the baseline's, in the same direction "
        "(cosine {cosine:.2f})",
        until=_until(case, step),
        run=case.ours.name,
        **move._asdict(),
    )
    also = ["random"] if case.draws else []
    also += _of_the_model(case)
    if plain and case.clips == [] and not also:
        lead = _("{lead}; N={n} fits", lead=lead, n=n) if by_n else lead
        if case.other_rate == "":
            what = _("{lead}: a gradient that is scaled in only one of the two", lead=lead)
            tested = _("the learning rates are the same at the first update and at the end, and no gradient is clipped")
            return found("gradient scale", what, tested, evidence)
        what = _("{lead}: a learning rate, or a gradient, that is scaled in only one of the two", lead=lead)
        tested = _(
            "the directions are the same, the lengths are not, the losses agree at step 1, and no gradient is clipped "
            "by tf.clip_* or the optimizer"
        )
        return found("learning rate", what, tested, evidence)
    suspects = ["learning rate"] if case.other_rate is None or not (case.clips or also) else []
    suspects += [*(["clipping"] if case.clips != [] else []), *also]
    if not plain and n > 1:
        suspects.append("regularisation")
    tested = N_("the ratio of the lengths is not near N or 1/N; clipping on each replica: {clips}")
    if by_n:
        tested = N_("the ratio of the lengths is near N or 1/N; clipping on each replica: {clips}")
    return either(lead, suspects, _(tested, clips=_clipped(case)), evidence, ("regularisation",))


def _rounding(case: Case, move: Moved, step: int, evidence: list[str]) -> Diagnosis | None:
    """Differences of rounding's size at first, that grow faster than a gradient's that is off at every step."""
    before, at = case.apart[: step - 1], case.apart[step - 1 : step]
    if move.cosine <= 0.99 or abs(move.ratio - 1) > AS_FAR or step < 3:
        return None
    if before.max() > RTOL or not (at < SMALL).all() or case.first_apart > AT_STEP_1:
        return None
    since = case.apart[1:step] / np.arange(1, len(case.apart[1:step]) + 1)  # for each update made so far
    early, last = since[: max(1, step // 2 - 1)], since[-3:]
    if last.max() < GROWTH * max(early.max(), AT_STEP_1 / 10):
        return None
    begins = case.clips != [] or _of_the_model(case) or case.rate_at_end
    if begins or (len(at) and at[0] > AT_ONCE * max(before.max(), AT_STEP_1 / 10)):
        # What begins at a step of its own looks the same: a gradient that is clipped there, a rate that changes there.
        suspects = ["rounding", *(["clipping"] if case.clips != [] else [])]
        suspects += ["learning rate"] if case.other_rate is None else []
        suspects += _of_the_model(case)
        tested = N_("the losses differ by rounding alone until step {step}; clipping on each replica: {clips}")
        return either(_then(case, step), suspects, _(tested, step=step - 1, clips=_clipped(case)), evidence)
    # What a kink enlarges, an optimizer's other setting does as well: momentum, or a rate that changes on the way.
    lead = N_(
        "the losses agree to {rounding} at all {steps} steps, and only the weights differ; the weights moved alike "
        "(cosine {cosine:.4f})"
    )
    if len(at):
        lead = N_(
            "the losses agree to {rounding} until step {steps}, then differ: relative difference {relative}; the "
            "weights moved alike (cosine {cosine:.4f})"
        )
    apart = relative(float(at[0])) if len(at) else ""
    lead = _(lead, rounding=rounded(float(before.max())), steps=step - 1, relative=apart, cosine=move.cosine)
    tested = _(
        "the losses of step 1 differ by rounding alone ({rounding}), and the difference grows more than in proportion "
        "to the steps, as that of a gradient that is off at every step would, but not at once; no gradient is clipped "
        "by tf.clip_* or the optimizer",
        rounding=rounded(float(case.apart[0])),
    )
    return either(lead, ["rounding", "learning rate"], tested, evidence)
