"""Whether two runs trained on as many examples in as many steps: what was trained comes before how well."""

from __future__ import annotations

import numpy as np

from dtk.checks.evidence import Evidence
from dtk.checks.facts import outside, scope_of
from dtk.errors import VerificationError
from dtk.language import N_, _

__all__ = ["check_steps_and_examples", "spread"]


def check_steps_and_examples(ours: Evidence, theirs: Evidence) -> None:
    """The same number of steps, and at each of them as many examples as the baseline had."""
    common = min(ours.steps, theirs.steps)
    mine, other = ours.examples.sum(axis=1), theirs.examples.sum(axis=1)
    apart = np.flatnonzero(mine[:common] != other[:common])
    said = {"run": ours.name, "steps": ours.steps, "others": theirs.steps}
    if len(apart) and apart[0] == 0:
        what = N_("baseline: {other} examples a step, {run}: {mine}")
        if theirs.steps != ours.steps:
            what = N_("baseline: {other} examples a step, {run}: {mine} ({others} steps against {steps})")
        raise VerificationError(
            _(what, other=other[0], mine=mine[0], **said),
            step=1,
            reason="examples",
            remedy=_batch_remedy(ours),
            numbers={"baseline": int(other[0]), "run": int(mine[0])},
        )
    if ours.steps != theirs.steps:
        raise VerificationError(
            _("baseline: {others} steps, {run}: {steps}, of {examples} examples each", examples=mine[0], **said),
            step=common + 1,
            reason="steps",
            remedy=_steps_remedy(ours),
            numbers={"baseline": theirs.steps, "run": ours.steps},
        )
    if len(apart):
        k = int(apart[0])
        said |= {"step": k + 1, "other": other[k], "mine": mine[k], "spread": spread(ours.examples[k])}
        raise VerificationError(
            _("step {step}: baseline {other} examples, {run} {mine} ({spread})", **said),
            step=k + 1,
            reason="examples",
            remedy=_(
                "give both the same data in batches of the same global size, with drop_remainder in both or in neither"
            ),
            numbers={"baseline": int(other[k]), "run": int(mine[k])},
        )


def _batch_remedy(ours: Evidence) -> str:
    scope = scope_of(ours.run)
    if scope is None or not outside(ours.run):
        return _("pass the global batch as an argument, the same to both")
    return _(
        "the model was made under {strategy}, so that each worker trains by itself on whole batches: create model and "
        "optimizer inside `with strategy.scope():`",
        strategy=scope.strategy or _("the default strategy"),
    )


def _steps_remedy(ours: Evidence) -> str:
    if not ours.restarts:
        return _("give both the same data, epochs and steps_per_epoch")
    number, first = ours.restarts[-1]
    return _(
        "attempt {attempt} began at step {step}, and its checkpoint may not hold the place in the data; save at the "
        "end of an epoch, or the iterator too",
        attempt=number,
        step=first,
    )


def spread(examples: np.ndarray) -> str:
    """How many examples each replica has, in words."""
    each = enumerate(examples)
    return _(", ").join(_("{count} on replica {replica}", count=count, replica=replica) for replica, count in each)
