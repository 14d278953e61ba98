"""Losses that differ at step 1 in no ratio that a mistake has: what can be the reason, and what is refuted.

From the same weights and the same examples two losses differ by rounding, or because the step draws at random, or
because the loss is not a sum over examples: a layer or a loss depends on the whole batch, or every replica adds a part
of it whole. One is named only where the others are refuted.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dtk.checks.facts import MOVING, events
from dtk.checks.numerals import OFFSET, relative, rounded
from dtk.checks.verify import ATOL
from dtk.diagnosis.case import Case, said_of
from dtk.diagnosis.penalty import LOOKED_AT, look_at_penalty, steady
from dtk.diagnosis.verdict import Diagnosis, either, found
from dtk.events import Updates
from dtk.language import N_, _, ngettext

__all__ = ["ENDS", "look_at_offset", "look_at_statistics", "look_at_unknown_ratio", "only_statistics"]

ENDS = ("final weights", "weights between fits")
LARGE = 0.25  # batch norm and dropout were seen to change the loss of step 1 by less than this


def look_at_statistics(case: Case) -> Diagnosis | None:
    """Moving statistics alone differ, between the replicas or from the baseline's."""
    if not case.normalised or case.theirs is None:
        return None
    only = only_statistics(case)
    if case.failed.reason != "replicas" and not (case.failed.reason in ENDS and only):
        return None
    what = N_(
        "each replica has moving statistics of its own, and the trained weights differ from the baseline's: each "
        "replica normalises its own part of the batch"
    )
    tested = N_("of the replicas' final weights only moving statistics differ")
    also: tuple[str, ...] = ("random",) if case.draws != [] and not only else ()
    if only:
        what = N_(
            "the moving statistics of batch normalisation differ, and no other weights: each replica normalises its "
            "own part of the batch"
        )
        tested = N_("all other weights agree with the baseline's, to verify's atol")
    return found("batch norm", _(what), _(tested), case.facts(), also)


def look_at_unknown_ratio(case: Case) -> Diagnosis | None:
    """Another loss at step 1, beyond verify's tolerance, that no ratio and no penalty explains."""
    if case.theirs is None or case.failed.step != 1 or case.failed.reason != "loss" or case.same_data is False:
        return None
    if case.other_rate and _several_updates(case):
        what = N_("{losses}, after several updates in this step, and {rate}")
        what = _(what, losses=case.losses(1), rate=case.other_rate)
        tested = _("each optimizer's learning rate, read at its first update, in both, and its updates")
        return found("learning rate", what, tested, case.facts())
    return _suspected(case, _("{losses}, in no ratio that a mistake has", losses=case.losses(1)))


def look_at_offset(case: Case) -> Diagnosis | None:
    """Losses that differ from step 1 on by more than rounding, though less than verify allows."""
    if case.theirs is None or case.failed.reason not in ("loss", "offset", *ENDS):
        return None
    if case.failed.reason != "offset" and (case.failed.step or 2) < 2:
        return None
    if case.other_names:
        return None
    if not case.first_apart > OFFSET or case.same_data is False:
        return None
    penalty = look_at_penalty(case)
    if penalty is not None:
        return penalty
    lead = _(
        "the losses differ from step 1 on: relative difference {relative}, where rounding is at most {rounding}",
        relative=relative(float(case.apart[0])),
        rounding=rounded(OFFSET),
    )
    if not steady(case) or case.same_data is None or not _started_alike(case) or case.normalised:
        return _suspected(case, lead)
    suspects = tuple(_suspects(case)[0])
    what = N_(
        "{lead}, and by nearly as much at the steps after it: the two losses are not the same function of the batch"
    )
    tested = N_("the difference at step 1 is more than rounding's, and stays the same for {steps} steps")
    tested = _(tested, steps=min(LOOKED_AT, case.steps))
    return replace(found("offset", _(what, lead=lead), tested, case.facts()), also=suspects)


def _several_updates(case: Case) -> bool:
    """Whether an optimizer makes more updates than there are steps, so that a step's loss comes after some of them."""
    said = events(case.ours.run, Updates)
    return bool(said) and any(each.made > case.ours.steps for each in said[0].optimizers)


def _suspected(case: Case, lead: str) -> Diagnosis | None:
    suspects, tested = _suspects(case)
    evidence, said = case.facts(), _("; ").join(tested)
    if not case.apart[0] < LARGE:
        # More than a layer was seen to do: a wrong division beside it would look the same.
        wrong = "local mean" if case.ratio[0] > 1 else "divided twice"
        suspects += [wrong] if wrong not in suspects and case.replicas > 1 else []
        return either(lead, suspects, said, evidence) if suspects else None
    if "batch norm" in suspects and ("random" not in suspects or case.norms):
        others = tuple(key for key in suspects if key != "batch norm")
        what = N_("{lead}; the model has batch normalisation, and each replica normalises its own part of the batch")
        return found("batch norm", _(what, lead=lead), said, evidence, others)
    if "random" in suspects and case.draws and not {"start", "other data"} & {*suspects}:
        what = ngettext(
            "{lead}, on the same examples; {operations} draws at random in the step, and replicas draw other numbers "
            "than one device",
            "{lead}, on the same examples; {operations} draw at random in the step, and replicas draw other numbers "
            "than one device",
            len(case.draws),
            lead=lead,
            operations=_(", ").join(case.draws[:3]),
        )
        others = tuple(key for key in suspects if key != "random")
        return found("random", what, said, evidence, others)
    return either(lead, suspects, said, evidence) if suspects else None


def _suspects(case: Case) -> tuple[list[str], list[str]]:
    """What can be the reason, and what was tested."""
    suspects, tested = [], []
    if case.normalised and case.replicas > 1:
        if _in_training(case):
            suspects.append("batch norm")
            tested.append(_("the moving statistics changed, so batch normalisation did normalise by its batch"))
        else:
            tested.append(_("batch normalisation is there, but its moving statistics stayed"))
    is_steady = steady(case)
    if case.draws == []:
        tested.append(_("nothing draws at random in the steps' graphs"))
    elif is_steady:
        tested.append(_("the difference stays the same for some steps, so it is not drawn at random"))
    else:
        suspects.append("random")
        known = N_("the difference does not stay the same; whether something draws at random is not known")
        if case.draws is not None:
            known = N_("the difference does not stay the same; whether something draws at random is known to: {draws}")
        tested.append(_(known, draws=said_of(case.draws, "")))
    if case.replicas > 1:
        if bool((case.excess[: LOOKED_AT if is_steady else 1] > 0).all()):
            suspects.append("regularisation")
            tested.append(_("the run's loss is the larger one, as with a penalty, but none fits that is known"))
        else:
            tested.append(_("a penalty that every replica adds makes the run's loss larger, and it is smaller"))
        suspects.append("whole batch")
        hidden = _hidden_ratio(case)
        if hidden:
            suspects.append(hidden)
            tested.append(
                _("in a loop a penalty that both scale rightly may hide a ratio of the rest; none that is known fits")
            )
    if not _started_alike(case):
        suspects.append("start")
        tested.append(_("the initial weights were not recorded"))
    if case.same_data is None:
        suspects.append("other data")
        tested.append(_("no fingerprint tells whether the examples are the same"))
    return suspects, tested


def _hidden_ratio(case: Case) -> str | None:
    """The mistake whose ratio a penalty beside a loop's loss, scaled rightly, would move to this one.

    The run's loss is value · data + p, the baseline's data + p: their ratio lies between 1 and the value.
    """
    if not case.ours.in_loop:
        return None
    ratio, n = float(case.ratio[0]), case.replicas
    bounds = (("divided twice", 1 / n, 1.0), ("local mean", 1.0, float(n)), ("not divided", n, float(case.examples[0])))
    return next((key for key, low, high in bounds if low < ratio < high), None)


def _started_alike(case: Case) -> bool:
    assert case.theirs is not None, "there is a baseline to compare with"
    return bool(case.ours.initial and case.theirs.initial)


def _in_training(case: Case) -> bool:
    """Whether the moving statistics changed; True where the initial weights are not known."""
    corner = case.ours.run.folder.worker(0)
    before, after = corner.weights("initial"), corner.weights("final")
    if before is None or after is None or len(before.arrays) != len(after.arrays):
        return True
    pairs = zip(after.names, before.arrays, after.arrays, strict=True)
    return any(
        x.shape != y.shape or bool(np.any(x != y)) for name, x, y in pairs if any(word in name for word in MOVING)
    )


def only_statistics(case: Case) -> bool | None:
    """Whether moving statistics are all in which the final weights differ from the baseline's; None: not comparable."""
    assert case.theirs is not None, "there is a baseline to compare with"
    a, b = case.ours.run.folder.worker(0).weights("final"), case.theirs.run.folder.worker(0).weights("final")
    if a is None or b is None or [x.shape for x in a.arrays] != [y.shape for y in b.arrays]:
        return None
    pairs = zip(a.names, a.arrays, b.arrays, strict=True)
    return all(np.allclose(x, y, rtol=0, atol=ATOL) for name, x, y in pairs if not any(w in name for w in MOVING))
