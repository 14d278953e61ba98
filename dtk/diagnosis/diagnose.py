"""`dtk.diagnose`: why a run and its baseline differ, in one sentence with numbers and the line to change.

It runs `dtk.verify`'s checks and explains the one that failed. What was trained comes first, as in `verify`: another
batch, other examples or other weights make every loss differ, so a ratio of losses says something only where these
agree. Each diagnosis rests on a test that could have refuted it, the first line of its evidence; where several
fit, it says so. Where all checks pass, it looks whether the run learns anything (`dtk.diagnosis.standstill`). The
mistakes it knows stand in `dtk.diagnosis.mistakes` and, as a table, in docs/explanation/diagnosis.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dtk.checks import facts
from dtk.checks.coverage import kind_of_updates
from dtk.checks.evidence import check_recorded, collect
from dtk.checks.losses import RTOL, check_loss
from dtk.checks.steps import Following
from dtk.checks.verify import name_of, prove
from dtk.diagnosis.case import Case
from dtk.diagnosis.drift import look_at_drift
from dtk.diagnosis.examples import COUNTED, look_at_counts, look_at_examples, look_at_shards
from dtk.diagnosis.ratios import look_at_finite, look_at_first_loss, look_at_shares
from dtk.diagnosis.standstill import look_at_standstill
from dtk.diagnosis.suspects import look_at_offset, look_at_statistics, look_at_unknown_ratio
from dtk.diagnosis.trials import decide
from dtk.diagnosis.updates import look_at_state, look_at_updates, moved, only_rates_differ
from dtk.diagnosis.verdict import Diagnosis, by_test, found
from dtk.errors import VerificationError
from dtk.events import Training
from dtk.language import N_, _

if TYPE_CHECKING:
    from dtk.checks.evidence import RunLike

__all__ = ["Diagnosis", "diagnose"]

_VERSIONS = N_(
    "{what} (they were made with other versions, {versions}, which may draw other numbers by one seed: make both with "
    "one)"
)


def diagnose(
    run: RunLike,
    baseline: RunLike | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    try_it: bool = False,
) -> Diagnosis:
    """Says why `dtk.verify(run, baseline)` fails, or why nothing is learnt. Prints nothing.

    Args:
        run: from `dtk.run`.
        baseline: from `dtk.baseline`. Without it only what the run's own workers show is known; of a single replica,
            whether it learns.
        rtol, atol: without effect, as for `dtk.verify`.
        try_it: where several mistakes leave the same traces, make the runs that decide (2 to 10 s each), and answer by
            them. They need the two runs' directories.

    Returns:
        A `Diagnosis`, which shows itself as its sentence. `.mistake` is its key: "none" where verify passes and the run
        learns, "unknown" where nothing known explains the difference, or where several mistakes would: these are in
        `.also`, as are those that look the same or were found as well. `.what` and `.remedy` are the sentence's parts;
        `.evidence` is what it rests on, first what was tested. The mistakes are in docs/explanation/diagnosis.md.

    Raises:
        VerificationError: the arguments are no pair of run and baseline.
        TypeError, ValueError: as `dtk.verify`.
    """
    passed: list[str] = []
    followed: dict[int, Following] = {}
    try:
        prove(run, baseline, say=passed.append, found=followed)
    except VerificationError as error:
        if error.reason == "arguments" and baseline is None:
            return _alone(run)
        if error.reason == "arguments":
            raise
        explained = _explain(error, run, baseline, followed)
        if baseline is None:
            return explained
        if try_it:
            explained = decide(explained, run, baseline, _explain)
        other = facts.other_versions(run, baseline)
        return replace(explained, what=_(_VERSIONS, what=explained.what, versions=other)) if other else explained
    pair = _("run and baseline agree") if baseline is not None else _("the run's replicas agree")
    held_up = look_at_standstill(run, pair)
    if held_up is not None:
        tested, *more = held_up.evidence
        return replace(held_up, evidence=(tested, *passed, *more))
    tested = by_test(_("all checks of verify passed, and the loss does not stay where guessing leaves it"))
    what = _("{pair}: nothing to diagnose ({facts})", pair=pair, facts=passed[0])
    return Diagnosis("none", what, (tested, *passed))


def _alone(run: RunLike) -> Diagnosis:
    """A single replica has no other to agree with; whether it learns anything can be asked all the same."""
    pair = _("the run has one replica")
    try:
        check_recorded(run, None)
        collect(run, name_of(run))
    except VerificationError as error:
        return _unrecorded(error, run, None)
    held_up = look_at_standstill(run, pair)
    learns = N_("{pair}, which learns; only a baseline tells whether it is right")
    return held_up or Diagnosis("none", _(learns, pair=pair))


def _explain(
    failed: VerificationError, run: RunLike, baseline: RunLike | None, followed: Mapping[int, Following]
) -> Diagnosis:
    if failed.reason in ("records", "updates"):
        return _unrecorded(failed, run, baseline)
    try:
        ours = collect(run, name_of(run))
        theirs = collect(baseline, _("baseline")) if baseline is not None else None
    except VerificationError as error:  # the workers of one run took different numbers of steps
        return found("steps", error.what, _(COUNTED))
    if failed.loss is not None and theirs is not None:  # one of several losses of a step: it alone tells by its ratio
        ours, theirs = ours.only(failed.loss), theirs.only(failed.loss)
    if 1 in followed and followed[1].theirs is not None:
        theirs = followed[1].theirs  # each of its steps starts from the run's own state
    case = Case(ours, theirs, failed, followed)
    # Losses may be 0, NaN or infinite: a quotient that is none fits no rule, and needs no warning.
    with np.errstate(all="ignore"):
        return next(filter(None, (look(case) for look in _LOOKS)), None) or _unknown(case)


def _unrecorded(error: VerificationError, run: RunLike, baseline: RunLike | None) -> Diagnosis:
    """What was not recorded, or not as often: updates of an optimizer, or any step, though a Recorder was there."""
    if error.reason == "updates":
        tested = _("the updates that each optimizer made are counted, and those that were recorded")
        kind = kind_of_updates(run) if baseline is None else kind_of_updates(run, baseline)
        return found(kind, error.what, tested)
    what = error.what
    silent = [
        side for side in (run, baseline) if side is not None and not len(side.records) and facts.events(side, Training)
    ]
    if silent:
        what = _(
            "fit began in the {run} with a dtk.Recorder among its callbacks, and no step was recorded: its train "
            "function never called train_step, or fit made no step",
            run=_("baseline") if silent[0] is baseline else name_of(silent[0]),
        )
    return found("records", what, _("the records of each replica were read, from step 1 to the last"))


def _look_at_records(case: Case) -> Diagnosis | None:
    """Weights, or what the replicas said of theirs, that nothing recorded."""
    if case.failed.recorded:
        return None
    return found("records", case.failed.what, _("each worker's files were read"))


def _look_at_start(case: Case) -> Diagnosis | None:
    """Other seeds, other initial weights, another model."""
    if case.failed.reason not in ("seeds", "initial weights"):
        return None
    tested = _("seeds, and the initial weights by number, shape and value")
    if only_rates_differ(case):
        what = _("only a learning rate differs as training begins: {what}", what=case.failed.what)
        return found("learning rate", what, tested)
    return found("start", case.failed.what, tested)


def _look_at_losses(case: Case) -> Diagnosis | None:
    """Everything that the losses tell."""
    if case.theirs is None:
        return None
    if case.failed.reason == "replicas":
        # Of the replicas only moving statistics differ, or the drift would have been found: what do the losses say?
        try:
            check_loss(case.ours, case.theirs, RTOL)
        except VerificationError as error:
            case = Case(case.ours, case.theirs, error, case.followed)
    looks = (
        look_at_finite,
        look_at_shares,
        look_at_first_loss,
        look_at_statistics,
        look_at_unknown_ratio,
        look_at_offset,
        look_at_state,
        look_at_updates,
    )
    return next(filter(None, (look(case) for look in looks)), None)


# In this order: workers that don't work together, the data, the start, and only then the losses.
_LOOKS: tuple[Callable[[Case], Diagnosis | None], ...] = (
    _look_at_records,
    look_at_drift,
    look_at_shards,
    look_at_counts,
    _look_at_start,
    look_at_examples,
    _look_at_losses,
)


def _unknown(case: Case) -> Diagnosis:
    known = [by_test(_("every mistake of the table, and none fits")), *case.facts()]
    what = N_("I don't know why: {failed}")
    if case.theirs is not None and case.failed.step == 1 and not (case.ours.initial and case.theirs.initial):
        what = N_(
            "I don't know why: {failed}; the initial weights were not recorded: call dtk.record_step inside of a "
            "tf.function, with model="
        )
    elif case.theirs is not None and not case.other_names and (case.failed.step or 2) > 1:
        move = moved(case)
        if move is not None:
            known.append(move.sentence)
        what = N_("I don't know why: {failed}; run both for 1 or 2 steps, after which the weights show more")
    return Diagnosis("unknown", _(what, failed=case.failed), tuple(known))
