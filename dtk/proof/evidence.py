"""What two runs recorded: read and found complete, alike on all replicas, with the same losses from equal states."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from dtk.errors import VerificationError
from dtk.language import N_, _, first_three, relative
from dtk.proof.mistakes import MISTAKES
from dtk.records import RunFolder
from dtk.records.events import Finished, Loop, Updates, of_kind
from dtk.records.facts import DRAWN, MOVING, RATES, by_ring, outside, same_examples
from dtk.records.tables import NAMED, RunLike
from dtk.scaling.shares import by_step, global_loss, uneven, weighted_loss
from dtk.worker.recorded import RecordedStates, weight_of

_MADE_BY = N_("make the baseline with dtk.baseline(train)")
RECORDER = N_("add dtk.Recorder() to the callbacks of fit, or dtk.record_step(…) to a loop of your own")
FLOAT32 = float(np.finfo(np.float32).eps)
# A mean of numbers near 1 that cancel, as a policy gradient's at the first step: the sum's rounding is some such units.
CANCELING = 4 * FLOAT32
RTOL = 1e-4  # of a loss from the same state; rounding is 1e-6, and an update is compared to 2e-5 in any case
EXAMPLES = N_("{step}: {run} {mine} examples, {whom} {other}")
TOO_SMALL = 1e-6  # where all losses are below, float32's rounding of numbers near 1 may be all that they are


@dataclass(frozen=True)
class Evidence:
    """One run's numbers. shares and examples: `(steps, replicas)`; epochs: `(steps,)`. Row i is step i + 1."""

    run: RunLike
    name: str  # "cluster", "mirrored run", "run" or "baseline": what sentences call it
    shares: np.ndarray
    examples: np.ndarray
    epochs: np.ndarray
    read: np.ndarray | None = None  # fingerprints, `(steps, replicas)`, of calls; those of steps are in the records

    @property
    def steps(self) -> int:
        return len(self.shares)

    def at(self, step: int) -> str:
        """A step in words; where none was recorded, a call that trains."""
        return _("step {step}", step=step) if self.steps and not self.of_calls else _("call {step}", step=step)

    @property
    def of_calls(self) -> bool:  # no step was recorded: what gradients were taken of stands for losses
        return self.read is not None

    @property
    def replicas(self) -> int:
        """Replicas in sync, over all workers."""
        return self.shares.shape[1]

    @property
    def global_batch(self) -> int:
        """Examples of the largest step; the last one of an epoch may be smaller."""
        return int(self.examples.sum(axis=1).max())

    @cached_property
    def named(self) -> dict[str, np.ndarray]:
        """The shares of each loss of a step, `(steps, replicas)`, by name, where steps have several; else {}."""
        table = self.run.records
        named = {name: by_step(table, name).to_numpy() for name in map(str, table.columns) if name.startswith(NAMED)}
        return {name.removeprefix(NAMED): np.nan_to_num(its, nan=0.0)[: self.steps] for name, its in named.items()}

    @cached_property
    def prints(self) -> np.ndarray:
        """The fingerprints of the examples, `(steps, replicas)`; NaN where unknown."""
        return (by_step(self.run.records, "data").to_numpy() if self.read is None else self.read)[: self.steps]

    def first(self, steps: int) -> Evidence:
        """The same, as if the run had ended after so many steps."""
        return replace(self, shares=self.shares[:steps], examples=self.examples[:steps], epochs=self.epochs[:steps])

    def only(self, name: str | None) -> Evidence:
        """The same with one loss of several in the place of their sum; None: with the sum."""
        return self if name is None else replace(self, shares=self.named[name])

    @cached_property
    def restarts(self) -> list[tuple[int, int]]:
        """(number, first step) of each attempt but the first that recorded a step."""
        return [(each.number, each.steps[0]) for each in self.run.folder.attempts[1:] if each.steps is not None]


def check_arguments(run: Any, baseline: Any) -> None:
    """Raises TypeError for what is no run, VerificationError for runs in the wrong places, gone, or with other seeds.

    A baseline has one replica: `dtk.baseline`, or a cluster of one worker with one replica.
    """
    for name, value in (("run", run), ("baseline", baseline)):
        if value is None and name == "baseline":
            return
        if not isinstance(getattr(value, "folder", None), RunFolder) or not isinstance(getattr(value, "mode", 0), str):
            source = "dtk.baseline" if name == "baseline" else "dtk.run"
            kind = f"{type(value).__name__} {getattr(value, '__name__', repr(value)):.40}"
            what = N_("verify compares what dtk.run and dtk.baseline return; `{name}` is {kind}: pass {source}(…)")
            raise TypeError(_(what, name=name, kind=kind, source=source))
        if not value.folder.path.is_dir():
            what = N_("the directory of `{name}` is gone, and with it the states that verify follows")
            raise VerificationError(_(what, name=name), reason="arguments", remedy=_("run it again"))
    if run.folder.path == baseline.folder.path:
        what = _("run and baseline are the same run, which proves nothing")
        raise VerificationError(what, reason="arguments", remedy=_(_MADE_BY))
    if _replicas(baseline) > 1:
        facts = f"mode={baseline.mode} workers={baseline.folder.workers} replicas={_replicas(baseline)}"
        remedy = _("swap them: dtk.verify(run, baseline)") if _replicas(run) == 1 else _(_MADE_BY)
        what = N_("the second argument is no baseline ({facts}): a baseline has 1 replica on 1 device")
        raise VerificationError(_(what, facts=facts), reason="arguments", remedy=remedy)
    if run.seed is not None and baseline.seed is not None and run.seed != baseline.seed:
        what = _("baseline: seed {other}, run: seed {mine}", other=baseline.seed, mine=run.seed)
        numbers = {"baseline": baseline.seed, "run": run.seed}
        raise VerificationError(what, reason="seeds", remedy=_(MISTAKES["start"].remedy), numbers=numbers)


def collect(run: RunLike, name: str) -> Evidence:
    """Reads a run whose records are complete: each replica has each step from 1 to the last, once; or nobody has any.

    Raises VerificationError, with the replica and the step, where they are not, and where workers ran
    different numbers of steps or did not come to their end.
    """
    records = run.records
    if not len(records):
        nothing = np.zeros((0, _replicas(run)))
        return Evidence(run, name, nothing, nothing.astype(np.int64), np.zeros(0))
    for corner in run.folder.each:
        if not of_kind(corner.events, Finished):
            what = N_("worker {worker} of the {run} did not come to its end, so there is nothing final to compare")
            raise VerificationError(_(what, worker=corner.worker, run=name), reason="records", remedy=_("run it again"))
    _check_steps(run, name)
    shares, examples = by_step(records, "loss").to_numpy(), by_step(records, "examples").to_numpy(np.int64)
    return Evidence(run, name, shares, examples, records.groupby("step").epoch.first().to_numpy())


def _replicas(run: RunLike) -> int:
    return run.folder.workers * run.replicas


def _check_steps(run: RunLike, name: str) -> None:
    by_replica, replicas = run.records.groupby("replica"), _replicas(run)
    last = by_replica.step.max()
    if list(last.index) != list(range(replicas)):
        what = N_("the {run} has {replicas} replicas, and its records are of the replicas {found}")
        what = _(what, run=name, replicas=replicas, found=_(", ").join(map(str, last.index)))
        raise VerificationError(what, reason="records", remedy=_(RECORDER))
    for replica, steps in by_replica.step:
        times = np.bincount(steps)[1:]
        for k in np.flatnonzero(times != 1)[:1]:
            what = N_("step {step} of replica {replica} of the {run} is recorded {times} times, and its last is {last}")
            what = _(what, step=k + 1, replica=replica, run=name, times=times[k], last=last[replica])
            raise VerificationError(what, step=int(k) + 1, reason="records", remedy=_("run it again"))
    least, most = int(last.idxmin()), int(last.idxmax())
    fewer, steps = int(last.min()), int(last.max())
    if fewer != steps:
        worker = by_replica.worker.first()
        what = N_("replica {most} (worker {its}) ran {steps} steps, replica {least} (worker {other}) {fewer}")
        what = _(what, most=most, its=worker[most], steps=steps, least=least, other=worker[least], fewer=fewer)
        remedy = _("replicas step together, so give every worker the same data and the same steps_per_epoch")
        numbers = {"least": fewer, "most": steps}
        raise VerificationError(what, step=fewer + 1, reason="steps", remedy=remedy, numbers=numbers)


def can_be_followed(run: RunLike) -> bool:
    """Whether the state of any of its steps was recorded."""
    return bool(RecordedStates(run.folder).units)


def without_states(ours: Evidence) -> VerificationError:
    """Why none of its steps can be followed."""
    if RecordedStates(ours.run.folder).last == (0, 0):  # all calls were watched
        what = _("no call has changed a variable, and what is set between calls can't be followed")
        remedy = _("make updates inside the step: by an optimizer, or in its tf.function or strategy.run")
    elif ours.steps:
        what = _("the state of no step was recorded, so none can be followed")
        remedy = _("make the run by dtk.run, without DTK_STATES=0, with room on the disk")
    else:
        return VerificationError(_("the {run} has no records", run=ours.name), reason="records", remedy=_(RECORDER))
    return VerificationError(what, reason="not followed", remedy=remedy)


# ---- whether all replicas hold the same state


@dataclass(frozen=True)
class Parted:
    """Where a worker's variables are no longer the chief's, which are to be the same on all: a step's, and which.

    before: whether that is so before the step, since something changed them after the one before it.
    """

    worker: int
    step: int
    before: bool
    names: tuple[str, ...]


def parted(run: RunFolder) -> Parted | None:
    """The first step, and worker, at which variables that all replicas are to hold alike are not; None for none."""
    variables = [corner.lines("variables") for corner in run.each]
    names = {json.dumps(each["identity"]): each["name"] for each in variables[0]}
    keys = [{str(each["number"]): json.dumps(each["identity"]) for each in its} for its in variables]
    units = [{line["unit"]: line for line in corner.units if "unit" in line} for corner in run.each]
    held: list[dict[str, list[int]]] = [{} for _ in units]  # each worker's digests, by the variable's identity
    for unit, line in sorted(units[0].items()):
        for when in ("before", "after"):
            written = [its[unit]["digests"][when] if unit in its else {} for its in units]
            changed = [{keys[k][number]: each for number, each in its.items()} for k, its in enumerate(written)]
            held = [had | its for had, its in zip(held, changed, strict=True)]
            for worker, its in enumerate(changed):
                mine, other = held[0], held[worker]
                both = [key for key in {*changed[0], *its} if key in mine and key in other]
                found = [names[key] for key in both if unit in units[worker] and len({*mine[key], *other[key]}) > 1]
                if found:
                    found.sort(key=[*names.values()].index)
                    return Parted(worker, line["step"], when == "before", tuple(found))
    return None


def aside(run: RunFolder, names: Sequence[str], apart: bool = False) -> bool:
    """Whether no optimizer updates these or keeps them of a weight, as of a model's copy, which may be trainable."""
    trained = {each["name"] for each in run.worker(0).lines("variables") if each.get("trainable")}
    made = [one for event in of_kind(run.worker(0).events, Updates) for one in event.optimizers]
    held = [[name.partition(":")[0] for name in one.variables] for one in made]
    trained = trained & {name for its in held for name in its} or trained
    # An optimizer's weights part together: fewer that are apart than it has of a name are other variables.
    trained -= {n for n in names if apart and names.count(n) < min((of.count(n) for of in held if n in of), default=0)}
    return bool(names) and not any(name in trained or weight_of(name, trained) for name in names)


def told_by(names: Collection[str]) -> str:
    """The mistake that it is if nothing else differs: learning rates, or where random numbers go on; "" for others."""
    ends = {name.split("/")[-1] for name in names}
    return "learning rate" if ends <= {*RATES} else "other draws" if ends <= {*DRAWN} else ""


_SCOPE = N_("create the model and its optimizer in the strategy's scope, and change weights through the optimizer only")
_MADE_THERE = N_(
    "the model was made in the strategy's scope, so look for an optimizer or a layer that was not, and for weights "
    "that are changed without the optimizer (an assign in a layer or a callback)"
)
_IN_RING = N_("begin with the same weights on every worker, and add up all gradients of all workers in each step")


def check_replicas_agree(ours: Evidence) -> None:
    """The state of all replicas at every recorded step, then the workers' final weights.

    Synchronous replicas add the same sum to the same start. Moving statistics are each replica's own.
    """
    found = parted(ours.run.folder)
    if found is not None:
        what = N_("worker 0 and worker {worker} diverge at {step}: {names}")
        if found.before:
            what = N_("worker 0 and worker {worker} diverge before {step}: {names}")
        if found.worker == 0:
            what = N_("the replicas of worker 0 diverge at {step}: {names}")
        known = MISTAKES.get(told_by(found.names))
        said = _(what, worker=found.worker, step=ours.at(found.step), names=first_three(found.names))
        remedy = _remedy(ours) if known is None else _(known.remedy)
        raise VerificationError(said, step=found.step, reason="replicas", remedy=remedy)
    first, *others = [corner.weights for corner in ours.run.folder.each]
    own = {each["name"] for each in ours.run.folder.worker(0).lines("variables") if each.get("kept") == "by replica"}
    for worker, its in enumerate(others, start=1):
        if first is None or its is None:
            continue  # nothing recorded them
        pairs = list(zip(first.names, first.arrays, its.arrays, strict=False))
        if len(first.arrays) != len(its.arrays) or any(x.shape != y.shape for _name, x, y in pairs):
            what = N_("worker 0 and worker {worker} hold different models ({mine} and {its} arrays, or other shapes)")
            said = _(what, worker=worker, mine=len(first.arrays), its=len(its.arrays))
            raise VerificationError(said, reason="replicas", remedy=_("build the same model on every worker"))
        apart = [n for n, x, y in pairs if not any(word in n for word in MOVING) and x.tobytes() != y.tobytes()]
        if apart := [name for name in apart if name.partition(":")[0] not in own]:
            what = N_("worker 0 and worker {worker} hold different final weights: {names}")
            said = _(what, worker=worker, names=first_three(apart))
            raise VerificationError(said, reason="replicas", remedy=_remedy(ours))


def _remedy(ours: Evidence) -> str:
    return _(_IN_RING if by_ring(ours.run) else _MADE_THERE if outside(ours.run) is False else _SCOPE)


# ---- the examples of each step: what yields the first error


def check_pace(ours: Evidence, followed: Sequence[dict[str, Any]], whom: str) -> Iterator[VerificationError]:
    """Both are to be at the same step after as many updates, or losses of a step are of other weights."""
    for line in followed if ours.steps and not ours.restarts else ():
        if line["here"] != line["step"]:
            what, began = N_("after as many updates, the {run} is at {step}, {whom} at step {here}"), line["step"] - 1
            said = _(what, step=ours.at(line["step"]), here=line["here"], run=ours.name, whom=whom)
            yield VerificationError(said, step=max(1, began), reason="steps", remedy=_(MISTAKES["steps"].remedy))


def check_examples(ours: Evidence, theirs: Evidence) -> Iterator[VerificationError]:
    mine, other = ours.examples.sum(axis=1), theirs.examples.sum(axis=1)
    for k in np.flatnonzero(mine != other)[:1]:
        step, remedy = int(k) + 1, _("read the same batches, whatever the number of workers")
        said = _(EXAMPLES, step=ours.at(step), run=ours.name, mine=mine[k], whom=theirs.name, other=other[k])
        numbers = {"baseline": int(other[k]), "run": int(mine[k])}
        yield VerificationError(said, step=step, reason="examples", remedy=remedy, numbers=numbers)


def check_data(ours: Evidence, theirs: Evidence) -> Iterator[VerificationError]:
    agree = same_examples(ours.prints, theirs.prints, ours.examples, theirs.examples)
    for k in np.flatnonzero(~agree)[:1] if agree is not None else []:
        what = N_("step {step}: other examples than {whom} reads, by their fingerprints")
        remedy = _("give both the same order (seed the shuffle), and draw in the data by TensorFlow, with a seed")
        yield VerificationError(_(what, step=k + 1, whom=theirs.name), step=int(k) + 1, reason="data", remedy=remedy)


# ---- losses, step by step from the same state: what yields the first error


def check_losses(ours: Evidence, theirs: Evidence, rtol: np.ndarray) -> Iterator[VerificationError]:
    """Each loss of a step that has several, then their sum, which can be right where its parts are not."""
    if list(ours.named) != list(theirs.named):
        other, mine = (_(", ").join(side.named) or _("one loss a step") for side in (theirs, ours))
        what = _("; ").join(_("{name}: {words}", name=n, words=w) for n, w in ((theirs.name, other), (ours.name, mine)))
        yield VerificationError(what, reason="loss", remedy=_("run the same function in both"))
        return
    for name in ours.named:
        for error in check_loss(ours.only(name), theirs.only(name), rtol):
            yield error.of_loss(name)
            return
    yield from check_loss(ours, theirs, rtol)


def check_loss(ours: Evidence, theirs: Evidence, rtol: np.ndarray) -> Iterator[VerificationError]:
    """The global loss at every step, to its rtol of the other's; a loss that is not finite fails, also in both."""
    mine, other = global_loss(ours.shares, ours.examples), global_loss(theirs.shares, theirs.examples)
    for k in map(int, np.flatnonzero(~_close(mine, other, rtol))[:1]):
        one = ours.shares[k : k + 1], ours.examples[k : k + 1]
        if np.isfinite(mine[k]) and uneven(one[1])[0] and _close(weighted_loss(*one), other[k : k + 1], rtol[k])[0]:
            yield _uneven(ours, k)
            return
        what, remedy = _other_loss(ours, theirs, k, mine[k], other[k])
        numbers = {"baseline": float(other[k]), "run": float(mine[k])}
        yield VerificationError(what, step=k + 1, reason="loss", remedy=remedy, numbers=numbers)


def allowed(other: np.ndarray, rtol: np.ndarray | float) -> np.ndarray:
    """How far a loss may be from another: rtol of it, and what float32 rounds numbers near 1 by."""
    return np.asarray(rtol * np.abs(other) + CANCELING)


def spread(examples: np.ndarray) -> str:
    """How many examples each replica has, in words."""
    return _(", ").join(_("{count} on replica {replica}", count=count, replica=k) for k, count in enumerate(examples))


def _close(mine: np.ndarray, other: np.ndarray, rtol: np.ndarray) -> np.ndarray:
    finite = np.isfinite(mine) & np.isfinite(other)
    with np.errstate(invalid="ignore"):  # infinite minus infinite; `finite` says no to it already
        return finite & (np.abs(mine - other) <= allowed(other, rtol))


def _other_loss(ours: Evidence, theirs: Evidence, k: int, mine: float, other: float) -> tuple[str, str]:
    """What is said of losses that differ, and the remedy. Of one that is NaN or infinite no tolerance says anything."""
    if np.isfinite([mine, other]).all():
        values = {"whom": theirs.name, "run": ours.name, "other": f"{other:.3g}", "mine": f"{mine:.3g}"}
        losses = N_("{whom} {other}, {run} {mine}") if values["other"] != values["mine"] else N_("both near {mine}")
        what = N_("{step}: from the same state, the losses differ: {losses}, relative difference {relative}")
        apart = relative(abs(mine - other) / max(abs(other), FLOAT32))
        remedy = _("compare what both make of the same examples: the divisor, penalties, what each replica computes")
        return _(what, step=ours.at(k + 1), losses=_(losses, **values), relative=apart), remedy
    lost = [_("replica {replica}", replica=replica) for replica in np.flatnonzero(~np.isfinite(ours.shares[k]))]
    name = _("{what} ({why})", what=ours.name, why=_(" and ").join(lost)) if lost else ours.name
    what = N_("the loss at step {step} is not finite: {mine:.3g} in the {run}, {other:.3g} beside it")
    return _(what, step=k + 1, mine=mine, run=name, other=other), _(MISTAKES["not finite"].remedy)


def _uneven(ours: Evidence, k: int) -> VerificationError:
    """The error for a difference that unequal replica batches account for to the tolerance."""
    counts, total = ours.examples[k], int(ours.examples[k].sum())
    is_last = not ours.of_calls and (k + 1 == ours.steps or ours.epochs[k + 1] != ours.epochs[k])
    where = _("{step}, the last batch of the epoch,", step=ours.at(k + 1)) if is_last else ours.at(k + 1)
    each = sorted({int(n): Fraction(1, ours.replicas * int(n)) for n in counts if n > 0}.items(), reverse=True)
    kinds = {event.kind for event in of_kind(ours.run.folder.worker(0).events, Loop)}
    who = _("an Estimator") if "estimator" in kinds else _("Keras fit") if "fit" in kinds else _("the loop")
    parts = _(", ").join(_("{weight} where a replica has {n}", weight=weight, n=n) for n, weight in each)
    what = N_(
        "{where} has {total} examples: {spread}; {who} averages the replicas' means, so that an example counts "
        "{parts}, and 1/{total} on one device (weighted by examples the losses agree)"
    )
    what = _(what, where=where, total=total, spread=spread(counts), who=who, parts=parts)
    return VerificationError(what, step=k + 1, reason="uneven batch", remedy=_(MISTAKES["uneven batch"].remedy))
