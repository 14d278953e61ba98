"""What was trained, beside what was compared: updates that were not recorded."""

from __future__ import annotations

from collections.abc import Iterable

from dtk.errors import VerificationError
from dtk.events import NoLoss, Optimizer, Updates, of_kind
from dtk.language import N_, _, ngettext
from dtk.proof.evidence import Evidence, RunLike, owner

__all__ = ["kind_of_updates", "updates_line"]

_REMEDY = N_(
    "add dtk.Recorder() to the callbacks of every fit, and give dtk.record_step all that is trained (model=[a, b]), "
    "once in each step, after the update; or prove less, and have it said: dtk.verify(..., allow_unrecorded=True)"
)


def updates_line(ours: Evidence, allow_unrecorded: bool) -> str:
    """ "check updates: PASS (30 of 30 updates recorded, 2 models)"; raises where some were not, unless they may.

    An update is one call that applies gradients, of any Keras optimizer that the worker made, counted where it is made.
    """
    _check_losses_known(ours)
    _check_known(ours, allow_unrecorded)
    missing = [each for each in _optimizers(ours) if each.recorded < each.made]
    if missing and not allow_unrecorded:
        raise VerificationError(_not_recorded(ours, missing), reason="updates", remedy=_(_REMEDY))
    return _line(ours)


def _line(ours: Evidence) -> str:
    optimizers, again = _optimizers(ours), bool(ours.run.folder.earlier)
    made, recorded = _sums(optimizers)
    if not _said(ours.run):
        return _("updates: not known how many were made; nothing tells whether all were recorded")
    models = ngettext("{n} model", "{n} models", len(_said(ours.run)[0].models))
    line = N_("check updates: PASS ({recorded} of {made} updates recorded, {models}{pace})")
    if again:
        line = N_(
            "check updates: PASS ({recorded} of {made} updates recorded since attempt {attempt} began, {models}{pace})"
        )
    if recorded < made:
        line = N_("updates: {recorded} of {made} recorded, {models}; {missing} not compared step by step")
    elif not made and again:
        line = N_("updates: none since attempt {attempt} began, {models}; earlier starts are not counted")
    elif not optimizers:
        line = N_("check updates: PASS ({steps} steps recorded, no optimizer has counted any update, {models})")
    return _(
        line,
        recorded=recorded,
        made=made,
        models=models,
        pace=_pace(optimizers),
        attempt=ours.run.folder.attempt,
        missing=_names([each for each in optimizers if each.recorded < each.made]),
        steps=ours.steps,
    )


def kind_of_updates(run: RunLike) -> str:
    """The mistake that `updates_line` raised for, found in its order."""
    said = _said(run)
    if len(said) < run.folder.workers:
        return "records"
    return "steps" if any(_counts(event) != _counts(said[0]) for event in said) else "unrecorded"


def _check_losses_known(side: Evidence) -> None:
    blind = of_kind(side.run.folder.worker(0).events, NoLoss)
    if blind:
        raise VerificationError(
            _(
                "train_step of {model} took no gradient by tf.GradientTape.gradient and did not call compute_loss in "
                "the {run}, so its loss is not known",
                model=blind[0].model,
                run=side.name,
            ),
            reason="records",
            remedy=_("record such training by dtk.record_step"),
        )


def _check_known(side: Evidence, allow_unrecorded: bool) -> None:
    said = _said(side.run)
    if len(said) < side.run.folder.workers:
        if allow_unrecorded:
            return
        what = N_("nothing tells how many updates the {run} has made (DTK_UPDATES=0, or an older dtk)")
        remedy = _("run it again, or pass allow_unrecorded=True")
        raise VerificationError(_(what, run=side.name), reason="updates", remedy=remedy)
    for worker, event in enumerate(said):
        counts, first = _counts(event), _counts(said[0])
        if counts != first and not allow_unrecorded:
            what = _(
                "{worker} made other updates ({counts}) than worker 0 ({first}): replicas in sync update together",
                worker=owner(side, worker),
                counts=_listed(counts),
                first=_listed(first),
            )
            raise VerificationError(what, reason="updates", remedy=_("train on every worker alike"))


def _said(run: RunLike) -> list[Updates]:
    """The last event `Updates` of each worker that has one."""
    found = [of_kind(corner.events, Updates) for corner in run.folder.each]
    return [events[-1] for events in found if events]


def _counts(event: Updates) -> list[tuple[str, int]]:
    return [(each.name, each.made) for each in event.optimizers]


def _optimizers(side: Evidence) -> list[Optimizer]:
    said = _said(side.run)
    return said[0].optimizers if said else []


def _sums(optimizers: list[Optimizer]) -> tuple[int, int]:
    """How many updates they made, and how many of these were recorded."""
    return sum(each.made for each in optimizers), sum(each.recorded for each in optimizers)


def _not_recorded(side: Evidence, missing: list[Optimizer]) -> str:
    made, recorded = _sums(_optimizers(side))
    return _(
        "{left} of the {made} updates that the {run} made were not recorded: {missing}",
        left=made - recorded,
        made=made,
        run=side.name,
        missing=_names(missing),
    )


def _names(missing: list[Optimizer]) -> str:
    """ "10 of adam_1 (sequential_1/dense/kernel, …)", for each."""
    return _(" and ").join(
        _(
            "{left} of {made} by {optimizer} ({variables})",
            left=each.made - each.recorded,
            made=each.made,
            optimizer=each.name,
            variables=_(", ").join(each.variables),
        )
        for each in missing
    )


def _pace(counted: Iterable[Optimizer]) -> str:
    several = [(each.name, *each.pace) for each in counted if each.pace is not None]
    return "".join(
        _(
            "; {optimizer}: {number} a recorded step",
            optimizer=name,
            number=low if low == high else _("{low} to {high}", low=low, high=high),
        )
        for name, low, high in several
    )


def _listed(counts: list[tuple[str, int]]) -> str:
    parts = [_("{updates} of {optimizer}", updates=made, optimizer=name) for name, made in counts]
    return _(", ").join(parts) or _("none")
