"""`dtk.diagnose`: why a run and its baseline differ, in one sentence with numbers and the line to change.

It runs `dtk.verify`'s checks, in their order, and explains the one that failed. Each diagnosis rests on a measurement
that could have refuted it; where several of `dtk.proof.mistakes` fit, it says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dtk.errors import DtkError, VerificationError
from dtk.language import _
from dtk.proof import bisection, examples, ratios
from dtk.proof.case import Case, Diagnosis, by_targets, found
from dtk.proof.evidence import Evidence, can_be_followed, collect
from dtk.proof.following import Following, on_its_own
from dtk.proof.following import followed as follow
from dtk.proof.verify import name_of, prove, stood_still
from dtk.records import facts
from dtk.records.events import Training
from dtk.records.tables import RunLike


def diagnose(
    run: RunLike,
    baseline: RunLike | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    try_it: bool = False,
) -> Diagnosis:
    """Says why `dtk.verify(run, baseline)` fails. Prints nothing.

    Args:
        run: from `dtk.run`.
        baseline: from `dtk.baseline`, as for `dtk.verify`.
        rtol, atol, try_it: without effect: the run is followed step by step in any case.

    Returns:
        A `Diagnosis`, which shows itself as its sentence. `.mistake` is its key: "none" where verify passes,
        "unknown" where nothing known explains the difference, or where several mistakes would: these are in
        `.also`. `.evidence` is what it rests on, first the symptom. See docs/reference/mistakes.md.

    Raises:
        VerificationError: the arguments are no pair of run and baseline.
        TypeError: as `dtk.verify`.
    """
    followed: dict[int, Following] = {}
    try:
        passed = prove(run, baseline, found=followed).lines
    except VerificationError as error:
        if error.reason == "arguments":
            raise
        return _explain(error, run, baseline, followed)
    return Diagnosis("none", _("nothing to diagnose ({facts})", facts=passed[0]), passed)


def _explain(
    failed: VerificationError, run: RunLike, baseline: RunLike | None, followed: Mapping[int, Following]
) -> Diagnosis:
    if failed.reason in ("not decidable", "not followed", "states"):
        known = failed.reason == "not followed" and Case(collect(run, name_of(run)), None, failed, followed)
        return (known and bisection.look_at_scope(known)) or Diagnosis("unknown", str(failed))
    if failed.reason == "not reproducible":
        data = facts.operations(run)
        also = ("python data",) if data.python else ()
        return found("not reproducible", failed.what, [*data.python, *data.augments][:3], also)
    if failed.reason == "updates":
        key = "unrecorded" if "made" in failed.numbers else "steps" if failed.numbers else "records"
        if failed.numbers.get("recorded") == 0 and stood_still(run):
            key = "optimizer on a copy"
        return found(key, failed.what)
    if failed.reason == "seeds" or (failed.reason == "steps" and not len(run.records)):
        return found("start" if failed.reason == "seeds" else "steps", failed.what)
    if failed.reason == "records":
        what = failed.what
        if not len(run.records) and facts.events(run, Training):
            what = _(
                "fit began with a dtk.Recorder among its callbacks, and no step was recorded: its train function never "
                "called train_step, or fit made no step"
            )
        return found("records", what)
    try:
        ours = collect(run, name_of(run))
        theirs = collect(baseline, _("baseline")) if baseline is not None and len(baseline.records) else None
    except VerificationError as error:  # the workers of one run took different numbers of steps
        return found("steps", error.what)
    if other := next((each for each in followed.values() if each.failed is failed), None):
        followed = {**followed, 1: other}  # what the run is compared with
    if failed.reason == "replicas" and can_be_followed(run):  # does the chief make one device's update?
        many = facts.operations(run).draws is not None and on_its_own(ours) and not facts.by_ring(run)
        followed = {1: follow(ours, baseline or run, ours.replicas if many else 1)}
    elif 1 in followed:
        # Made again without random draws it may read in another order than the baseline, which may have other batches.
        ours, again = followed[1].ours, followed[1].ours.run is not run
        otherwise = again or "pipelines" in followed[1].how or (theirs and theirs.global_batch != ours.global_batch)
        theirs = followed[1].theirs if otherwise else theirs
    if theirs is None and ours.steps and failed.reason in ("data", "examples", "steps", "divisor", "variables"):
        theirs = _in_one_process(run, followed[1].replicas if 1 in followed else 1)
    # Each of a follower's steps starts from the run's own state: a baseline's do at step 1 alone.
    alone = followed[1].theirs if 1 in followed else None
    case = Case(ours, theirs, failed, followed, baseline)
    # Of several losses of a step the one that differs alone tells by its ratio.
    stepwise = case if alone is None else replace(case, ours=ours.only(failed.loss), theirs=alone.only(failed.loss))
    # Losses may be 0, NaN or infinite: a quotient that is none fits no rule, and needs no warning.
    with np.errstate(all="ignore"):
        return _first_answer(case, stepwise)


def _first_answer(case: Case, stepwise: Case) -> Diagnosis:
    """stepwise: each of the run's steps beside one device's from the same state."""
    looks = [*((look, case) for look in _DATA), *((look, stepwise) for look in _STEPS)]
    if not case.ours.steps:  # nothing but states was recorded, and what gradients were taken of
        stepwise = by_targets(case) or case
        then = _BY_STATES if stepwise is case else (*_DATA, *_STEPS)
        looks = [(look, stepwise) for look in then]
    return next(filter(None, (look(its) for look, its in looks)), None) or bisection.unknown(stepwise)


def _in_one_process(run: Any, replicas: int) -> Evidence | None:
    """What the run's function reads in one process, to its end: a follower stops where it has seen enough."""
    try:
        found = collect(run.again(workers=1, replicas=replicas), _("baseline"))
    except DtkError:
        return None
    return found if found.steps else None


# In this order: workers that don't work together, the data, the start, and only then losses and updates.
_DATA: tuple[Callable[[Case], Diagnosis | None], ...] = (
    bisection.look_at_scope,
    bisection.look_at_divisor,
    bisection.look_at_parting,
    examples.look_at_shards,
    examples.look_at_counts,
    lambda case: found("start", case.failed.what) if case.failed.reason == "variables" else None,
    examples.look_at_examples,
)
_STEPS: tuple[Callable[[Case], Diagnosis | None], ...] = (
    bisection.look_at_between,
    bisection.look_at_settings,
    ratios.look_at_finite,
    ratios.look_at_shares,
    ratios.look_at_first_loss,
    bisection.look_at_untrained,
    bisection.look_at_factor,
    bisection.look_at_update,
    bisection.look_at_shape,
)
# Of these what needs neither examples nor losses.
_BY_STATES = tuple(look for look in (*_DATA, *_STEPS[:-2]) if look.__module__ == bisection.__name__)
