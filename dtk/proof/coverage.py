"""What was trained, beside what was compared: updates that were not recorded."""

from __future__ import annotations

from collections.abc import Iterable

from dtk.errors import VerificationError
from dtk.language import N_, _, ngettext
from dtk.proof.evidence import Evidence
from dtk.records.events import NoLoss, Optimizer, Updates, of_kind

__all__ = ["updates_line"]

_REMEDY = N_(
    "add dtk.Recorder() to the callbacks of every fit, and give dtk.record_step all that is trained (model=[a, b]), "
    "once in each step, after the update; or prove less, and have it said: dtk.verify(..., allow_unrecorded=True)"
)


def updates_line(ours: Evidence, allow_unrecorded: bool) -> str:
    """ "check updates: PASS (30 of 30 updates recorded, 2 models)"; raises where some were not, unless they may.

    An update is one call that applies gradients, of any Keras optimizer that the worker made, counted where it is made.
    `numbers` of the error: "made" and "recorded" updates; "worker" where it made others than worker 0; none where
    nothing tells.
    """
    for blind in of_kind(ours.run.folder.worker(0).events, NoLoss)[:1]:
        what = N_(
            "train_step of {model} took no gradient by tf.GradientTape.gradient and did not call compute_loss in the "
            "{run}, so its loss is not known"
        )
        remedy = _("record such training by dtk.record_step")
        raise VerificationError(_(what, model=blind.model, run=ours.name), reason="records", remedy=remedy)
    said = [of_kind(corner.events, Updates)[-1:] for corner in ours.run.folder.each]
    if not allow_unrecorded:
        _check_all_recorded(ours, said)
    if not said[0]:
        return _("updates: not known how many were made; nothing tells whether all were recorded")
    return _line(ours, said[0][0])


def _check_all_recorded(ours: Evidence, said: list[list[Updates]]) -> None:
    if not all(said):
        what = N_("nothing tells how many updates the {run} has made (DTK_UPDATES=0, or an older dtk)")
        remedy = _("run it again, or pass allow_unrecorded=True")
        raise VerificationError(_(what, run=ours.name), reason="updates", remedy=remedy)
    counts = [[(each.name, each.made) for each in events[0].optimizers] for events in said]
    for worker, its in enumerate(counts):
        if its != counts[0]:
            what = N_(
                "worker {worker} made other updates ({counts}) than worker 0 ({first}): replicas in sync update "
                "together"
            )
            raise VerificationError(
                _(what, worker=worker, counts=_listed(its), first=_listed(counts[0])),
                reason="updates",
                remedy=_("train on every worker alike"),
                numbers={"worker": worker},
            )
    made, recorded = _sums(said[0][0].optimizers)
    if recorded < made:
        what = N_("{left} of the {made} updates that the {run} made were not recorded: {missing}")
        missing = _missing(said[0][0].optimizers)
        raise VerificationError(
            _(what, left=made - recorded, made=made, run=ours.name, missing=missing),
            reason="updates",
            remedy=_(_REMEDY),
            numbers={"made": made, "recorded": recorded},
        )


def _line(ours: Evidence, said: Updates) -> str:
    made, recorded = _sums(said.optimizers)
    again = bool(ours.run.folder.earlier)
    line = N_("check updates: PASS ({recorded} of {made} updates recorded, {models}{pace})")
    if recorded < made:
        line = N_("updates: {recorded} of {made} recorded, {models}; {missing} not compared step by step")
    elif not made and again:
        line = N_("updates: none since attempt {attempt} began, {models}; earlier starts are not counted")
    elif again:
        line = N_(
            "check updates: PASS ({recorded} of {made} updates recorded since attempt {attempt} began, {models}{pace})"
        )
    elif not said.optimizers:
        line = N_("check updates: PASS ({steps} steps recorded, no optimizer has counted any update, {models})")
    return _(
        line,
        recorded=recorded,
        made=made,
        models=ngettext("{n} model", "{n} models", len(said.models)),
        pace=_pace(said.optimizers),
        attempt=ours.run.folder.attempt,
        missing=_missing(said.optimizers),
        steps=ours.steps,
    )


def _sums(optimizers: Iterable[Optimizer]) -> tuple[int, int]:
    """How many updates they made, and how many of these were recorded."""
    return sum(each.made for each in optimizers), sum(each.recorded for each in optimizers)


def _missing(optimizers: Iterable[Optimizer]) -> str:
    """ "10 of 20 by adam_1 (sequential_1/dense/kernel, …)", for each that made updates which were not recorded."""
    words = N_("{left} of {made} by {optimizer} ({variables})")
    return _(" and ").join(
        _(words, left=o.made - o.recorded, made=o.made, optimizer=o.name, variables=_(", ").join(o.variables))
        for o in optimizers
        if o.recorded < o.made
    )


def _pace(optimizers: Iterable[Optimizer]) -> str:
    several = [(each.name, *each.pace) for each in optimizers if each.pace is not None]
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
