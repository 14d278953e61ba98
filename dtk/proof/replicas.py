"""Whether all replicas of a run hold the same, to the last bit. Each check raises one sentence."""

from __future__ import annotations

from dtk.digits import first_three
from dtk.errors import VerificationError
from dtk.language import N_, _
from dtk.proof.evidence import Evidence
from dtk.proof.steps import parted
from dtk.records.facts import MOVING, outside

__all__ = ["check_replicas_agree", "check_states_agree"]

_IN_SCOPE = N_(
    "create the model and its optimizer in the strategy's scope, and change weights through the optimizer only"
)
_MADE_THERE = N_(
    "the model was made in the strategy's scope, so look for an optimizer or a layer that was not, and for weights "
    "that are changed without the optimizer (an assign in a layer or a callback)"
)


def check_replicas_agree(ours: Evidence) -> None:
    """The state of all replicas at every recorded step, then the workers' final weights.

    Synchronous replicas add the same sum to the same start. Moving statistics are each replica's own.
    """
    check_states_agree(ours)
    for worker, (first, its) in enumerate(zip(ours.final[:1] * ours.replicas, ours.final[1:], strict=False), start=1):
        pairs = list(zip(first.names, first.arrays, its.arrays, strict=False))
        if len(first.arrays) != len(its.arrays) or any(x.shape != y.shape for _name, x, y in pairs):
            what = N_("worker 0 and worker {worker} hold different models ({mine} and {its} arrays, or other shapes)")
            raise VerificationError(
                _(what, worker=worker, mine=len(first.arrays), its=len(its.arrays)),
                reason="replicas",
                remedy=_("build the same model on every worker"),
            )
        apart = [n for n, x, y in pairs if not any(word in n for word in MOVING) and x.tobytes() != y.tobytes()]
        if apart:
            what = N_("worker 0 and worker {worker} hold different final weights: {names}")
            said = _(what, worker=worker, names=first_three(apart))
            raise VerificationError(said, reason="replicas", remedy=_remedy(ours))


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


def _remedy(ours: Evidence) -> str:
    return _(_MADE_THERE if outside(ours.run) is False else _IN_SCOPE)
