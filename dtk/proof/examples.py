"""Mistakes in what the replicas saw: recognized by numbers of examples and their fingerprints."""

from __future__ import annotations

import numpy as np

from dtk.language import N_, _
from dtk.proof.case import Case, Diagnosis, because, either, found
from dtk.proof.evidence import EXAMPLES
from dtk.records.facts import SAME_DATA


def look_at_shards(case: Case) -> Diagnosis | None:
    """Sharding switched off: at every step all replicas saw the same examples."""
    # Data that are all alike have equal fingerprints on every replica as well, but these add up to the baseline's.
    if case.ours.replicas < 2 or case.agree is None or case.agree.all():
        return None
    apart = ~case.agree  # of several trainings one alone may be so
    if np.ptp(case.prints[apart], axis=1).max() > SAME_DATA:
        return None
    what = N_("all {n} replicas saw the same {examples} examples at each of {steps} steps, so sharding is switched off")
    examples = case.ours.examples[: case.steps][apart][0][0]
    return found("sharding off", _(what, n=case.ours.replicas, examples=examples, steps=apart.sum()))


def look_at_counts(case: Case) -> Diagnosis | None:
    """Another number of examples a step, or of steps."""
    if case.theirs is None:
        return found("steps", case.failed.what) if case.failed.reason == "steps" else None
    base, n = case.theirs.examples.sum(axis=1)[: case.steps], case.ours.replicas
    apart = np.flatnonzero(case.examples != base)
    if not len(apart):
        what = _other_epochs(case) or (case.failed.what if case.failed.reason in ("steps", "examples") else "")
        return found("steps", what) if what else None
    first = int(apart[0])
    if case.agree is not None and not case.agree[:first].all():
        return None  # other examples before, which numbers that differ later follow from
    mine, other, what = int(case.examples[first]), int(base[first]), EXAMPLES
    on = not first or 1 < len(apart) == len(base) - first  # a further training, and no last batch alone
    whole = n > 1 and on and bool((case.examples[apart] == n * base[apart]).all())
    same = whole and np.ptp(case.prints[apart], axis=1).max() <= SAME_DATA  # as well if all data are alike
    if whole and not same:
        what = N_(
            "{step} has {mine} examples in the {run}, {other} on one device, {n} times as many: each of the {n} "
            "replicas reads a whole batch"
        )
    elif n > 1 and not first and mine * n == other:
        what = N_(
            "{step} has {mine} examples in the {run}, {other} on one device, 1/{n} of it: the batch of one replica is "
            "taken for the global one"
        )
    elif case.ours.of_calls and not same:  # what they are given need not be examples
        return None
    said = _(what, step=case.ours.at(first + 1), mine=mine, run=case.ours.name, whom=_("one device"), other=other, n=n)
    if same:
        return either(said, ["sharding off", "global batch"], [*case.facts()])
    return found("steps" if first and not whole else "global batch", said)


def _other_epochs(case: Case) -> str:
    """Which step belongs to another epoch, or another model, as one side made more steps before it; "" for none."""
    assert case.theirs is not None
    steps = min(case.failed.step or case.steps, case.steps)
    mine, other = case.ours.epochs[:steps], case.theirs.epochs[:steps]
    for k in np.flatnonzero(mine != other)[:1]:
        what = N_(
            "step {step} is in epoch {mine} in the {run}, in epoch {other} on one device: epochs of other lengths"
        )
        return _(what, step=k + 1, mine=mine[k], run=case.ours.name, other=other[k])
    if case.failed.reason == "variables" and case.ours.steps != case.theirs.steps:
        what = N_("{failed}: the {run} made {mine} steps in all, one device {other}")
        return _(what, failed=case.failed.what, run=case.ours.name, mine=case.ours.steps, other=case.theirs.steps)
    return ""


def look_at_examples(case: Case) -> Diagnosis | None:
    """The same number of examples a step, but not the same ones."""
    if case.theirs is None or case.agree is None or case.agree.all():
        return None
    apart = ~case.agree
    step = int(np.flatnonzero(apart)[0]) + 1
    seen = N_("at {apart} of {steps} steps, first at {step}, the {run} saw other examples than the baseline")
    what = _(seen, apart=apart.sum(), steps=case.steps, step=case.ours.at(step), run=case.ours.name)
    many = case.many.theirs.prints[: case.steps] if case.many and case.many.theirs else case.prints[:0]
    otherwise = np.abs(case.prints[: len(many)] - many) > SAME_DATA  # than replicas in one process, as far as these go
    replicas = np.flatnonzero(otherwise[apart[: len(many)]].any(axis=0))
    workers, each = case.ours.run.folder.workers, np.unique(replicas // case.ours.run.replicas)
    who = _(" and ").join(_("worker {worker}", worker=worker) for worker in each) if len(each) < workers else ""
    what = _("{what} ({why})", what=what, why=who) if who else what
    piped = case.one is not None and "pipelines" in case.followed[1].how
    if case.operations.files and workers > 1 and not (piped or otherwise[step - 1 : step].any()):
        return found("file sharding", because(what, "file sharding"), case.operations.files[:1])
    # Of a follower's steps, which ends where it has seen enough, and of calls it is not known which are an epoch.
    if who and (case.ours.of_calls or piped):
        return case.found("other data", what, also=("worker order",))
    if case.ours.of_calls:
        suspects = ["python data"] * bool(case.operations.python) + ["worker order"] * (workers > 1)
        return either(what, [*suspects, "order", "other data"], [*case.facts()])
    begins = np.unique(case.ours.epochs[: case.steps], return_index=True)[1]
    both = case.prints, case.theirs.prints[: case.steps]
    mine, other = (np.add.reduceat(prints.sum(axis=1), begins) for prints in both)
    epoch, whole_epoch = (int((side.epochs == 1).sum()) for side in (case.ours, case.theirs))
    if workers > 1 and epoch and whole_epoch // epoch == workers:
        twice = N_("{what}: an epoch has {epoch} steps, on one device {all}; the examples are sharded twice")
        return found("other data", _(twice, what=what, epoch=epoch, all=whole_epoch))
    if not (np.abs(mine - other) > SAME_DATA).any():
        return found("order", _("{what}, though the same ones over each epoch: another order", what=what))
    resumed = [number for number, first in case.ours.restarts if first == step]
    if resumed:
        began = N_("{what}: attempt {attempt} began there, and its checkpoint does not hold the place in the data")
        return found("other data", _(began, what=what, attempt=resumed[0]))
    whole = len(other) > 1 and np.ptp(other) <= SAME_DATA  # the baseline's epochs all had the same examples
    over = _("{what}, over an epoch as well", what=what)
    # Of a run's own function verify has seen whether it reads the same when it is called again.
    anew = [] if 1 in case.followed and case.same_function else ["not reproducible"]
    if whole and np.ptp(mine) <= SAME_DATA and workers > 1:
        return either(over, ["worker order", "other data", *anew])
    return _over_an_epoch(case, over, whole, anew)


def _over_an_epoch(case: Case, over: str, whole: bool, anew: list[str]) -> Diagnosis:
    """What was read is not the same over an epoch either. whole: the baseline's epochs all had the same examples."""
    assert case.theirs is not None
    alone = case.ours.run.folder.workers < 2  # one process reads for all replicas
    if whole and alone:
        return found("other data", over)
    if whole:
        return found("worker order", because(over, "worker order"), also=("other data",))
    # Where the baseline's epochs had the same examples, no map changes them. Stateless operations draw by a seed, which
    # may be the example's own number: they are no evidence.
    stateful = [one for one in case.operations.augments if not one.startswith("Stateless")]
    if stateful:
        also = ("other data" if alone else "worker order", "order")
        return found("augmentation", because(over, "augmentation"), stateful[:3], also)
    # One epoch, or epochs that end early: nothing tells which examples there are in all.
    suspects = ["steps"] * (case.ours.steps != case.theirs.steps) + ["python data"] * bool(case.operations.python)
    suspects += [*["worker order"] * (not alone), "order", "other data", "augmentation", *anew]
    return either(over, suspects, [*case.operations.python, *case.operations.augments][:3])
