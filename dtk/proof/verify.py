"""`dtk.verify`: did the cluster compute what one device would have computed? In this order:

    reason             what is looked at
    "arguments"        a run, and a baseline where there is one
    "records"          every replica recorded every step, once, and every worker came to its end
    "seeds"            both began alike, where there is a baseline
    "updates"          every update of every optimizer was recorded
    "replicas"         all replicas hold the same state, to the last bit, before and after each step
    "between"          the follower's state before each step is the run's: what happens between steps is the same
    "steps", "examples", "data"  the follower reads the same examples at every step
    "loss", "divisor"  its loss is the run's, from the same state
    "update"           so is its update, variable by variable, up to the rounding that was measured
    "variables", "states", "not decidable", "not reproducible", "not followed"  nothing can be concluded, and why

What was trained comes before how well. The first thing that fails is raised, as a VerificationError with this
reason; what passed is printed, as facts without measured numbers, so that it can stand in a notebook.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from dtk.errors import VerificationError
from dtk.language import N_, _, first_three, ngettext
from dtk.proof.evidence import Evidence, can_be_followed, check_arguments, check_replicas_agree, collect, without_states
from dtk.proof.following import Following, check_every_step
from dtk.proof.mistakes import MISTAKES
from dtk.proof.proof import Proof
from dtk.records.events import Loop, Updates, of_kind
from dtk.records.tables import RunLike
from dtk.worker.recorded import RecordedStates


def verify(
    run: RunLike, baseline: RunLike | None = None, rtol: float | None = None, atol: float | None = None
) -> Proof:
    """Follows a run step by step; prints a line for each check that passed, raises at the first that failed.

    Args:
        run: from `dtk.run`.
        baseline: from `dtk.baseline`, or a run of one worker with one replica: its function is what is called once
            more, with its seed. None: the run's own function is.
        rtol, atol: without effect; each update is compared with what rounding makes of the same update.

    Returns:
        A `Proof`, which shows itself as a figure. It is saved with the run.

    Raises:
        VerificationError: a check failed. `.step` is the first step that differs, `.reason` the check, `.proof` what
            was found until then.
        TypeError: an argument is no run.
    """
    if rtol is not None or atol is not None:
        words = _("rtol and atol have no effect any more: each update is compared with the measured rounding level")
        warnings.warn(words, DeprecationWarning, stacklevel=2)
    return prove(run, baseline, print)


def prove(
    run: RunLike,
    baseline: RunLike | None = None,
    say: Callable[[str], None] = lambda line: None,
    found: dict[int, Following] | None = None,
) -> Proof:
    """What `verify` does.

    say: gets each line once its check has passed. found: gets what each follower found, by its number of replicas.
    """
    lines: list[str] = []
    found = {} if found is None else found
    try:
        for line in _checks(run, baseline, found):
            lines.append(line)
            say(line)
    except VerificationError as error:
        reason = "not decidable" if error.reason == "not reproducible" else error.reason
        verdict = reason if reason in ("not decidable", "not followed") else "failed"
        error.proof = _proof(run, verdict, lines, found, str(error))
        if error.reason != "arguments":
            error.proof.save(run.folder.path)
        raise
    proof = _proof(run, "one device" if len(found) == 1 else "replicas", lines, found)
    proof.save(run.folder.path)
    return proof


def _proof(run: RunLike, verdict: str, lines: Sequence[str], found: Mapping[int, Following], failed: str = "") -> Proof:
    followers = {replicas: each.steps for replicas, each in found.items() if each.steps is not None}
    steps = int(run.records.step.max()) if len(run.records) else 0
    return Proof(verdict, tuple(lines), steps, failed, followers)


def _checks(run: RunLike, baseline: RunLike | None, found: dict[int, Following]) -> Iterator[str]:
    """What `verify` prints, line by line, each once its check has passed; raises what `verify` raises."""
    check_arguments(run, baseline)
    ours = collect(run, name_of(run))
    # Where nothing recorded steps, states prove every update, and that all workers hold the same.
    if not ours.steps and not can_be_followed(run):
        raise without_states(ours)
    yield from _header(ours)
    if ours.steps:
        yield updates_line(ours)
    if ours.replicas > 1:
        check_replicas_agree(ours)
        calls = 0 if ours.steps else len(RecordedStates(run.folder).units)
        words = N_("check replicas agree: PASS (the state of {calls} calls)")
        yield _(words if calls else N_("check replicas agree: PASS ({steps} steps)"), steps=ours.steps, calls=calls)
    yield from check_every_step(ours, baseline or run, found)


def name_of(run: RunLike) -> str:
    """What sentences call a run that is no baseline."""
    return _({"cluster": N_("cluster"), "mirrored": N_("mirrored run")}.get(run.mode, N_("run")))


def _header(ours: Evidence) -> Iterator[str]:
    run, workers = ours.run, ours.run.folder.workers
    known = f"mode={run.mode} workers={workers} replicas={ours.replicas}"
    yield f"{known} global_batch={ours.global_batch} steps={ours.steps}" if ours.steps else known
    words = (N_("worker {worker} (chief): {steps} steps, exit 0"), N_("worker {worker}: {steps} steps, exit 0"))
    for worker in range(workers if ours.steps else 0):
        # `collect` found each worker's "finished" event, which a worker writes only when its exit code is 0.
        yield _(words[worker > 0], worker=worker, steps=ours.steps)


def updates_line(ours: Evidence) -> str:
    """ "check updates: PASS (30 of 30 updates recorded, 2 models)"; raises where some were not.

    An update is one call that applies gradients, of any Keras optimizer that the worker made, counted where it is made.
    `numbers` of the error: "made" and "recorded" updates; "worker" where it made others than worker 0; or none.
    """
    for blind in [each.blind for each in of_kind(ours.run.folder.worker(0).events, Loop) if each.blind][:1]:
        what = N_(
            "train_step of {model} took no gradient by tf.GradientTape.gradient in the {run}, so its loss is not known"
        )
        remedy = _("record such training by dtk.record_step")
        raise VerificationError(_(what, model=blind, run=ours.name), reason="records", remedy=remedy)
    said = [of_kind(corner.events, Updates)[-1:] for corner in ours.run.folder.each]
    made, recorded = _all_recorded(ours, said)
    (first,), attempt = said[0], ours.run.folder.attempt
    models = ngettext("{n} model", "{n} models", first.models)
    since = _(" since attempt {attempt} began", attempt=attempt) if ours.run.folder.earlier else ""
    line = N_("check updates: PASS ({made} of {made} updates recorded{since}, {models})")
    if recorded < made:
        line = N_("check updates: PASS ({recorded} of {made} updates recorded{since}, {left} by their states alone)")
    if not made and ours.run.folder.earlier:
        line = N_("updates: none{since}, {models}; earlier starts are not counted")
    elif not first.optimizers:
        line = N_("check updates: PASS ({steps} steps recorded, no optimizer has counted any update, {models})")
    numbers = {"made": made, "recorded": recorded, "left": made - recorded, "steps": ours.steps}
    return _(line, models=models, since=since, **numbers)


def _all_recorded(ours: Evidence, said: list[list[Updates]]) -> tuple[int, int]:
    """How many updates the optimizers made, and how many of these were recorded; raises where that is too few."""
    if not all(said):
        what = N_("nothing tells how many updates the {run} has made (DTK_UPDATES=0, or an older dtk)")
        raise VerificationError(_(what, run=ours.name), reason="updates", remedy=_("run it again"))
    counts = [[(each.name, each.made) for each in events[0].optimizers] for events in said]
    for worker, its in enumerate(counts):
        if its != counts[0]:
            what = N_(
                "worker {worker} made other updates ({counts}) than worker 0 ({first}): replicas in sync update "
                "together"
            )
            what = _(what, worker=worker, counts=_listed(its), first=_listed(counts[0]))
            remedy, numbers = _("train on every worker alike"), {"worker": worker}
            raise VerificationError(what, reason="updates", remedy=remedy, numbers=numbers)
    optimizers = said[0][0].optimizers
    made, recorded = sum(each.made for each in optimizers), sum(each.recorded for each in optimizers)
    if recorded < made and not (RecordedStates(ours.run.folder).complete and (recorded or not stood_still(ours.run))):
        what = N_("{left} of the {made} updates that the {run} made were not recorded: {missing}")
        each = [one for one in optimizers if one.recorded < one.made]
        missing = [f"{one.name} {one.made - one.recorded}/{one.made} ({first_three(one.variables)})" for one in each]
        what = _(what, left=made - recorded, made=made, run=ours.name, missing=_(" and ").join(missing))
        remedy, numbers = _(MISTAKES["unrecorded"].remedy), {"made": made, "recorded": recorded}
        raise VerificationError(what, reason="updates", remedy=remedy, numbers=numbers)
    return made, recorded


def stood_still(run: RunLike) -> bool:
    """Whether each weight of the recorded models is, at the end, what a variable held before the first step."""
    last, states = run.folder.worker(0).weights, RecordedStates(run.folder)
    if last is None or not states.units:
        return False
    first = [value for copies in states.before(0).values() for value in copies]
    # A copy's variables have the same names, so values tell; weights' files have bfloat16 as float32.
    begun, ended = ({(a.shape, a.astype(np.float64).tobytes()) for a in each} for each in (first, last.arrays))
    return ended <= begun


def _listed(counts: list[tuple[str, int]]) -> str:
    return _(", ").join(f"{name} {made}" for name, made in counts) or _("none")
