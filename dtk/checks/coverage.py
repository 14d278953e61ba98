"""What was trained, beside what was compared: updates that were not recorded, and losses by name."""

from __future__ import annotations

from collections.abc import Iterable

from dtk.checks.evidence import Evidence, RunLike, owner
from dtk.checks.losses import check_loss
from dtk.digits import counted
from dtk.errors import VerificationError
from dtk.events import NoLoss, Optimizer, Updates, of_kind

__all__ = ["check_named_losses", "kind_of_updates", "updates_line"]

_REMEDY = (
    "add dtk.Recorder() to the callbacks of every fit, and give dtk.record_step all that is trained (model=[a, b]), "
    "once in each step, after the update; or prove less, and have it said: dtk.verify(..., allow_unrecorded=True)"
)


def updates_line(ours: Evidence, theirs: Evidence | None, allow_unrecorded: bool) -> str:
    """ "check updates: PASS (30 of 30 updates recorded, 2 models)"; raises where some were not, unless they may.

    An update is one call that applies gradients, of any Keras optimizer that the worker made, counted where it is made.
    """
    sides = [side for side in (ours, theirs) if side is not None]
    for side in sides:
        _ = side.final  # what recorded no weights at all is said first
        _check_losses_known(side)
        _check_known(side, allow_unrecorded)
        _check_by_hand(side, allow_unrecorded)
        missing = [each for each in _optimizers(side) if each.recorded < each.made]
        if missing and not allow_unrecorded:
            raise VerificationError(_not_recorded(side, missing), reason="updates", remedy=_REMEDY)
    if theirs is not None and not allow_unrecorded and not any(side.run.folder.earlier for side in sides):
        _check_as_many(ours, theirs)
    optimizers = _optimizers(ours)
    made, recorded = _sums(optimizers)
    if not _said(ours.run):
        return "updates: not known how many were made; nothing tells whether all were recorded"
    models = counted(len(_said(ours.run)[0].models), "model")
    if not made and ours.run.folder.earlier:
        return f"updates: none since attempt {ours.run.folder.attempt} began, {models}; earlier starts are not counted"
    if not optimizers:
        return f"check updates: PASS ({ours.steps} steps recorded, no optimizer has counted any update, {models})"
    if recorded < made:
        missing = [each for each in optimizers if each.recorded < each.made]
        return f"updates: {recorded} of {made} recorded, {models}; {_names(missing)} not compared step by step"
    since = f" since attempt {ours.run.folder.attempt} began" if ours.run.folder.earlier else ""
    return f"check updates: PASS ({recorded} of {made} updates recorded{since}, {models}{_pace(optimizers)})"


def kind_of_updates(*runs: RunLike) -> str:
    """The mistake that `updates_line` raised for, found in its order: of several runs the first that has one."""
    for run in runs:
        said = _said(run)
        if len(said) < run.folder.workers:
            return "records"
        if any(_counts(event) != _counts(said[0]) for event in said):
            return "steps"
        if any(each.recorded < each.made for each in said[0].optimizers):
            return "unrecorded"
    return "steps"


def check_named_losses(ours: Evidence, theirs: Evidence, rtol: float) -> None:
    """Each loss of a step that has several, as `check_loss` has the one: a sum can be right where its parts are not."""
    if list(ours.named) != list(theirs.named):
        lists = [", ".join(side.named) or "one loss a step" for side in (theirs, ours)]
        raise VerificationError(
            f"baseline: {lists[0]}; {ours.name}: {lists[1]}: they take other gradients",
            reason="loss",
            remedy="run the same function in both",
        )
    for name in ours.named:
        try:
            check_loss(ours.only(name), theirs.only(name), rtol)
        except VerificationError as error:
            raise error.of_loss(name) from None


def _check_by_hand(side: Evidence, allow_unrecorded: bool) -> None:
    names = [name for event in _said(side.run)[:1] for name in event.by_hand]
    if names and not allow_unrecorded:
        raise VerificationError(
            f"gradients were taken of {len(names)} variable{'s' * (len(names) > 1)} ({', '.join(names[:3])}"
            f"{', …' * (len(names) > 3)}) that no Keras optimizer has updated in the {side.name} and no recorded model "
            "holds: if they are trained by hand, give them to dtk.record_step, in model=[…]",
            reason="updates",
            remedy="if not, dtk.verify(..., allow_unrecorded=True)",
        )


def _check_losses_known(side: Evidence) -> None:
    blind = of_kind(side.run.folder.worker(0).events, NoLoss)
    if blind:
        raise VerificationError(
            f"train_step of {blind[0].model} took no gradient by tf.GradientTape.gradient and did not call "
            f"compute_loss in the {side.name}, so its loss is not known",
            reason="records",
            remedy="record such training by dtk.record_step",
        )


def _check_known(side: Evidence, allow_unrecorded: bool) -> None:
    said = _said(side.run)
    if len(said) < side.run.folder.workers:
        if allow_unrecorded:
            return
        raise VerificationError(
            f"nothing tells how many updates the {side.name} has made (DTK_UPDATES=0, or an older dtk)",
            reason="updates",
            remedy="run it again, or pass allow_unrecorded=True",
        )
    for worker, event in enumerate(said):
        counts, first = _counts(event), _counts(said[0])
        if counts != first and not allow_unrecorded:
            raise VerificationError(
                f"{owner(side, worker)} made other updates ({_listed(counts)}) than worker 0 ({_listed(first)}): "
                "replicas in sync update together",
                reason="updates",
                remedy="train on every worker alike",
            )


def _check_as_many(ours: Evidence, theirs: Evidence) -> None:
    mine, other = (_sums(_optimizers(side))[0] for side in (ours, theirs))
    if mine != other:
        raise VerificationError(
            f"baseline: {other} updates in {theirs.steps} steps, {ours.name}: {mine}",
            reason="updates",
            remedy="make the same updates in both",
            numbers={"baseline": other, "run": mine},
        )


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
    return f"{made - recorded} of the {made} updates that the {side.name} made were not recorded: {_names(missing)}"


def _names(missing: list[Optimizer]) -> str:
    """ "10 of adam_1 (sequential_1/dense/kernel, …)", for each."""
    parts = [
        f"{each.made - each.recorded} of {each.made} by {each.name} ({', '.join(each.variables)})" for each in missing
    ]
    return " and ".join(parts)


def _pace(counted: Iterable[Optimizer]) -> str:
    several = [(each.name, *each.pace) for each in counted if each.pace is not None]
    words = [(name, f"{low}" if low == high else f"{low} to {high}") for name, low, high in several]
    return "".join(f"; {name}: {each} a recorded step" for name, each in words)


def _listed(counts: list[tuple[str, int]]) -> str:
    return ", ".join(f"{made} of {name}" for name, made in counts) or "none"
