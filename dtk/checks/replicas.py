"""Whether all replicas of a run hold the same weights, to the last bit. Each check raises one sentence."""

from __future__ import annotations

from dtk.checks.evidence import Evidence, kind_of_weights, owner
from dtk.checks.facts import MOVING, outside
from dtk.checks.numerals import first_three
from dtk.checks.weights import array_of, distance, upto
from dtk.errors import VerificationError
from dtk.events import Replicas, of_kind
from dtk.language import N_, _
from dtk.proof.steps import parted
from dtk.records import Weights

__all__ = ["check_replicas_agree", "check_states_agree"]

_IN_SCOPE = N_(
    "create the model and its optimizer in the strategy's scope, and change weights through the optimizer only"
)
_MADE_THERE = N_(
    "the model was made in the strategy's scope, so look for an optimizer or a layer that was not, and for weights "
    "that are changed without the optimizer (an assign in a layer or a callback)"
)


def check_replicas_agree(ours: Evidence) -> None:
    """Identical weights on all replicas, to the last bit: synchronous replicas add the same sum to the same start.

    Moving statistics are each replica's own, of its part of the batch. Workers are compared by what each of them wrote:
    at every recorded step, and at the end. Replicas within a worker are compared there, by the
    recorder, which wrote an event `Replicas`.
    """
    check_states_agree(ours)
    for which, held in (("initial", ours.initial), ("final", ours.final)):
        for worker, weights in enumerate(held[1:], start=1):
            _check_identical(ours, held[0], weights, which, worker)
    for moment in ours.run.folder.worker(0).moments:
        between = [held_then for corner in ours.run.folder.each if (held_then := corner.weights(moment))]
        for worker, held_then in enumerate(between[1:], start=1):
            _check_identical(ours, between[0], held_then, moment, worker)
    if ours.run.replicas > 1:
        for corner in ours.run.folder.each:
            replicas = _("the {n} replicas of {owner}", n=ours.run.replicas, owner=owner(ours, corner.worker))
            _check_said(of_kind(corner.events, Replicas), replicas, ours)


def check_states_agree(ours: Evidence) -> None:
    """What all replicas are to hold alike is the same, to the last bit, before and after each recorded step."""
    found = parted(ours.run.folder)
    if found is None:
        return
    what = N_("worker 0 and worker {worker} diverge at step {step}: {names}")
    if found.before:
        what = N_("worker 0 and worker {worker} diverge before step {step}: {names}")
    if found.worker == 0:
        what = N_("the replicas of worker 0 diverge at step {step}: {names}")
    raise VerificationError(
        _(what, worker=found.worker, step=found.step, names=first_three(found.names)),
        step=found.step,
        reason="replicas",
        remedy=_remedy(ours),
    )


def _moving(name: str) -> bool:
    return any(word in name for word in MOVING)


def _check_said(said: list[Replicas], replicas: str, ours: Evidence) -> None:
    if not said:
        raise VerificationError(
            _("verify can't compare {replicas}: nothing recorded whether they agree", replicas=replicas),
            reason="replicas",
            remedy=_(
                "dtk.Recorder() does at the end of fit, so fit must come to its end with the Recorder among its "
                "callbacks, or dtk.record_step with model="
            ),
            recorded=False,
        )
    apart = [event for event in said if not event.identical and not _moving(str(event.name))]
    if apart:
        name = str(apart[0].name)
        what = _("{replicas} hold different final weights, {name} among them", replicas=replicas, name=name)
        raise VerificationError(what, reason="replicas", remedy=_remedy(ours))


def _check_identical(ours: Evidence, a: Weights, b: Weights, which: str, worker: int) -> None:
    if [x.shape for x in a.arrays] != [y.shape for y in b.arrays]:
        raise VerificationError(
            _(
                "worker 0 and worker {worker} hold different models ({mine} and {its} weight arrays, or other shapes)",
                worker=worker,
                mine=len(a.arrays),
                its=len(b.arrays),
            ),
            reason="replicas",
            remedy=_("build the same model on every worker"),
        )
    apart = [
        i
        for i, (x, y) in enumerate(zip(a.arrays, b.arrays, strict=True))
        if x.tobytes() != y.tobytes() and not _moving(a.names[i])
    ]
    if apart:
        distances = {i: distance(a.arrays[i], b.arrays[i]) for i in apart}
        index = max(distances, key=lambda i: distances[i])
        raise VerificationError(
            _(
                "worker 0 and worker {worker} hold different {weights}: {array} differs by {upto}",
                worker=worker,
                weights=kind_of_weights(which),
                array=array_of(a, index),
                upto=upto(distances[index]),
            ),
            reason="replicas",
            remedy=_remedy(ours),
            numbers={"difference": distances[index]},
        )


def _remedy(ours: Evidence) -> str:
    return _(_MADE_THERE if outside(ours.run) is False else _IN_SCOPE)
