"""`dtk.verify`: did the cluster compute what one device would have computed? In this order:

    reason             what is looked at
    "arguments"        a run and a baseline, in this order
    "records"          every replica recorded every step, once, and every worker came to its end
    "steps"            all workers, and the baseline, ran the same number of steps
    "examples"         the replicas' examples add up to the baseline's at every step
    "updates"          every update of every optimizer was recorded
    "seeds"            both were seeded alike
    "initial weights"  both started from the same weights
    "replicas"         all replicas hold identical weights, at the start and at the end
    "loss"             the global loss is the same at every step; "uneven batch" where one explains why it is not;
                       "offset" where it differs within rtol, from step 1 on and by as much at each of four steps
    "weights between fits"  the weights where one training of several ends or begins are the same
    "final weights"    the weights at the end are the same; and where they agree only because they moved by little,
                       they moved alike

Training is chaotic: rounding of 1e-7 grows from step to step, and with ReLU or Adam the two runs may part although each
step is right. So where losses or weights part, the baseline's function is run once more, each step from the state that
the run recorded (`dtk.checks.steps`): if every step then makes the same update, the run is proved by its steps.

What was trained comes before how well. The first thing that fails is raised, as a VerificationError with this
reason; what passed is printed, as facts without measured numbers, so that it can stand in a notebook.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dtk.checks.counts import check_steps_and_examples
from dtk.checks.coverage import check_named_losses, updates_line
from dtk.checks.evidence import check_arguments, check_recorded, collect
from dtk.checks.losses import RTOL, check_loss, loss_line
from dtk.checks.numerals import scientific
from dtk.checks.replicas import check_replicas_agree
from dtk.checks.steps import check_every_step, why_not
from dtk.checks.weights import check_final_weights, check_start, check_weights_between
from dtk.errors import VerificationError
from dtk.language import N_, _

if TYPE_CHECKING:
    from dtk.checks.evidence import Evidence, RunLike

__all__ = ["checks", "name_of", "verify"]


def verify(
    run: RunLike,
    baseline: RunLike | None = None,
    rtol: float = RTOL,
    atol: float = 1e-4,
    allow_unrecorded: bool = False,
) -> None:
    """Compares a run with a baseline; prints a line for each check that passed, raises at the first that failed.

    Args:
        run: from `dtk.run`.
        baseline: from `dtk.baseline`, or a run of one worker with one replica. None: checks only that every worker ran
            every step and that all replicas hold identical weights.
        rtol: tolerance of the global loss at each step, relative to the baseline's.
        atol: tolerance of each weight, absolute, in the weight's own unit.
        allow_unrecorded: True accepts training that was not recorded, and names it in a line. Of such training only the
            final weights of models that other training recorded are compared.

    Raises:
        VerificationError: a check failed. `.step` is the first step at which the runs differ, `.reason` the check.
        TypeError: an argument is no run.
        ValueError: a tolerance is no number from 0 up.
    """
    for line in checks(run, baseline, rtol, atol, allow_unrecorded):
        print(line)


def checks(
    run: RunLike, baseline: RunLike | None, rtol: float, atol: float, allow_unrecorded: bool = False
) -> Iterator[str]:
    """What `verify` prints, line by line, each once its check has passed; raises what `verify` raises."""
    _check_tolerances(rtol=rtol, atol=atol)
    check_arguments(run, baseline)
    check_recorded(run, baseline)
    ours = collect(run, name_of(run))
    theirs = collect(baseline, _("baseline")) if baseline is not None else None
    yield from _header(ours)
    reason, doubt = why_not(ours), None
    if theirs is not None:
        try:
            check_steps_and_examples(ours, theirs)
        except VerificationError as error:
            if reason or error.step != 1 or error.reason != "examples":
                raise
            doubt = error  # unless it takes as many more examples as there are more replicas
        check_start(ours, theirs, atol)
    yield updates_line(ours, theirs, allow_unrecorded)
    if ours.replicas > 1:
        check_replicas_agree(ours)
        yield _("check replicas agree: PASS ({steps} steps)", steps=ours.steps)
    if not reason:
        yield from check_every_step(ours, baseline or run, doubt)
    elif theirs is not None:
        yield from _to_the_end(ours, theirs, rtol, atol)


def _to_the_end(ours: Evidence, theirs: Evidence, rtol: float, atol: float) -> Iterator[str]:
    """Losses and weights of a run whose steps can't be followed."""
    check_named_losses(ours, theirs, rtol)
    check_loss(ours, theirs, rtol)
    yield loss_line(theirs, rtol)
    check_weights_between(ours, theirs, atol)
    check_final_weights(ours, theirs, atol)
    yield _("check weights vs single device: PASS (atol={atol})", atol=scientific(atol))


def name_of(run: RunLike) -> str:
    """What sentences call a run that is no baseline."""
    return _({"cluster": N_("cluster"), "mirrored": N_("mirrored run")}.get(run.mode, N_("run")))


def _header(ours: Evidence) -> Iterator[str]:
    run, workers = ours.run, ours.run.folder.workers
    yield (
        f"mode={run.mode} workers={workers} replicas={ours.replicas} "
        f"global_batch={ours.global_batch} steps={ours.steps}"
    )
    for worker in range(workers):
        # `collect` found each worker's "finished" event, which a worker writes only when its exit code is 0.
        line = (
            N_("worker {worker}: {steps} steps, exit 0")
            if worker
            else N_("worker {worker} (chief): {steps} steps, exit 0")
        )
        yield _(line, worker=worker, steps=ours.steps)


def _check_tolerances(**tolerances: float) -> None:
    for name, value in tolerances.items():
        if not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
            what = N_("{name}={value!r}: a tolerance is a finite number from 0 up, such as 1e-4")
            raise ValueError(_(what, name=name, value=value))
