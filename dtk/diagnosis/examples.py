"""Mistakes in what the replicas saw: recognised by numbers of examples and their fingerprints."""

from __future__ import annotations

import numpy as np

from dtk.checks.facts import SAME_DATA, outside, scope_of
from dtk.checks.numerals import first_three
from dtk.compat.pipelines import BY_FILE, PYTHON
from dtk.diagnosis.case import Case
from dtk.diagnosis.verdict import Diagnosis, either, found
from dtk.language import N_, _, ngettext

__all__ = ["look_at_counts", "look_at_examples", "look_at_shards"]

COUNTED = N_("the examples of each step, and the steps, are counted on every replica")


def look_at_shards(case: Case) -> Diagnosis | None:
    """Sharding switched off: at every step all replicas saw the same examples."""
    if case.replicas < 2 or not np.isfinite(case.prints).all():
        return None
    # Data that are all alike have equal fingerprints on every replica as well, but these add up to the baseline's.
    if case.theirs is None or case.same_data or case.alike:
        return None
    # Of several trainings one alone may be so: the steps that saw other examples than the baseline tell.
    apart = ~(np.abs(case.prints.sum(axis=1) - case.base_prints) <= SAME_DATA)
    if np.ptp(case.prints[apart], axis=1).max() > SAME_DATA:
        return None
    counts = case.ours.examples[: case.steps][apart][0]
    if outside(case.ours.run):
        return _outside(case, int(counts.sum()), int(case.theirs.examples[0].sum()))
    return found(
        "sharding off",
        _(
            "all {n} replicas saw the same {examples} examples at each of {steps} steps, so sharding is switched off",
            n=case.replicas,
            examples=counts[0],
            steps=apart.sum(),
        ),
        _("the replicas' fingerprints are equal at each of these steps, and don't add up to the baseline's"),
    )


def look_at_counts(case: Case) -> Diagnosis | None:
    """Another number of examples a step, or of steps."""
    if case.theirs is None:
        return found("steps", case.failed.what, _(COUNTED)) if case.failed.reason == "steps" else None
    mine, other = int(case.examples[0]), int(case.theirs.examples[0].sum())
    n = case.replicas
    if mine != other:
        if outside(case.ours.run):
            return _outside(case, mine, other)
        what = N_("step 1 has {mine} examples in the {run}, {other} in the baseline")
        if n > 1 and mine == n * other:
            what = N_(
                "step 1 has {mine} examples in the {run}, {other} in the baseline, {n} times as many: each of the {n} "
                "replicas reads a whole batch"
            )
        elif n > 1 and mine * n == other:
            what = N_(
                "step 1 has {mine} examples in the {run}, {other} in the baseline, 1/{n} of it: the batch of one "
                "replica is taken for the global one"
            )
        scope = _("the scope that the model was made in: the strategy's")
        if outside(case.ours.run) is None:
            scope = _("the scope that the model was made in: not known")
        said = _(what, mine=mine, run=case.ours.name, other=other, n=n)
        return found("global batch", said, _(COUNTED), [scope])
    if case.failed.reason in ("steps", "examples"):
        base = case.theirs.examples.sum(axis=1)[: case.steps]
        later = np.flatnonzero(case.examples != base)
        if n > 1 and len(later) and (case.examples[later] == n * base[later]).all():
            what = _(
                "from step {step} on there are {mine} examples a step in the {run}, {other} in the baseline, {n} times "
                "as many: each of the {n} replicas reads a whole batch",
                step=later[0] + 1,
                mine=case.examples[later[0]],
                run=case.ours.name,
                other=base[later[0]],
                n=n,
            )
            return found("global batch", what, _(COUNTED))
        return found("steps", case.failed.what, _(COUNTED))
    return None


def _outside(case: Case, mine: int, other: int) -> Diagnosis:
    scope = scope_of(case.ours.run)
    assert scope is not None, "a model outside of the scope has a scope of its own"
    return found(
        "not in scope",
        _(
            "the model was made under {strategy}, outside of the {run}'s with {n} replicas, so that each worker trains "
            "by itself: step 1 has {mine} examples over all workers, {other} in the baseline",
            strategy=scope.strategy or _("the default strategy"),
            run=case.ours.name,
            n=case.replicas,
            mine=mine,
            other=other,
        ),
        ngettext(
            "the model's own strategy has {n} replica in sync",
            "the model's own strategy has {n} replicas in sync",
            scope.replicas,
        ),
    )


def look_at_examples(case: Case) -> Diagnosis | None:
    """The same number of examples a step, but not the same ones."""
    if case.theirs is None or case.same_data is not False:
        return None
    apart = np.abs(case.prints.sum(axis=1) - case.base_prints) > SAME_DATA
    step = int(np.flatnonzero(apart)[0]) + 1
    what = _(
        "at {apart} of {steps} steps, first at step {step}, the {run} saw other examples than the baseline",
        apart=apart.sum(),
        steps=case.steps,
        step=step,
        run=case.ours.name,
    )
    mine, other = _by_epoch(case, case.prints.sum(axis=1)), _by_epoch(case, case.base_prints)
    evidence = _sums(case, step, mine, other)
    tested = _("fingerprints at each step, and their sums over each epoch")
    by_file = [each for each in case.augments if each.startswith(BY_FILE)]
    if by_file and case.ours.run.folder.workers > 1:
        said = _(
            "{what}: each worker reads whole files of its own ({readers})",
            what=what,
            readers=by_file[0].removeprefix(BY_FILE).strip(" ()"),
        )
        tested = _("{tested}; the dataset reads files, and its auto-shard policy shards these", tested=tested)
        return found("file sharding", said, tested, evidence)
    if not (np.abs(mine - other) > SAME_DATA).any():
        said = _("{what}, though the same ones over each epoch: another order", what=what)
        return found("order", said, tested, evidence)
    resumed = [number for number, first in case.ours.restarts if first == step]
    if resumed:
        began = _(
            "{what}: attempt {attempt} began there, and its checkpoint does not hold the place in the data",
            what=what,
            attempt=resumed[0],
        )
        tested = _("the first step with other examples is the first of attempt {attempt}", attempt=resumed[0])
        return found("other data", began, tested, evidence)
    whole = len(other) > 1 and np.ptp(other) <= SAME_DATA  # the baseline's epochs all had the same examples
    if whole and np.ptp(mine) <= SAME_DATA and case.ours.run.folder.workers > 1:
        what = _("{what}, in each epoch the same other ones", what=what)
        return either(what, ["worker order", "other data", "not reproducible"], tested, evidence)
    return _over_an_epoch(case, what, tested, evidence, whole)


def _over_an_epoch(case: Case, what: str, tested: str, evidence: list[str], whole: bool) -> Diagnosis:
    """What was read is not the same over an epoch either. whole: the baseline's epochs all had the same examples."""
    over = _("{what}, over an epoch as well", what=what)
    alone = case.ours.run.folder.workers < 2  # one process reads for all replicas
    if whole and alone:
        return found("other data", over, tested, evidence)
    if whole:
        missed = _(
            "{what}, over an epoch as well: the workers read in different orders, so that shards overlap and miss some",
            what=what,
        )
        return found("worker order", missed, tested, evidence)
    # Where the baseline's epochs had the same examples, no map changes them. Stateless operations draw by a seed, which
    # may be the example's own number: they are no evidence.
    python = [one for one in case.augments if one.startswith(PYTHON)]
    stateful = [one for one in case.augments if one not in python and not one.startswith("Stateless")]
    if stateful:
        ops = _(", ").join(stateful[:3])
        tested = N_("the sums differ over an epoch too, and a map of the dataset draws at random ({operations})")
        drawn = N_("{what}, over an epoch as well: a map of the dataset draws at random ({operations})")
        also = ("other data" if alone else "worker order", "order")
        said = _(drawn, what=what, operations=ops)
        return found("augmentation", said, _(tested, operations=ops), evidence, also)
    # One epoch, or epochs that end early: nothing tells which examples there are in all.
    suspects = [
        *(["python data"] if python else []),
        *([] if alone else ["worker order"]),
        "order",
        "other data",
        "augmentation",
        "not reproducible",
    ]
    if case.augments:
        tested = _(
            "{tested}; a map of the dataset draws ({operations}), perhaps by a seed of each example's own",
            tested=tested,
            operations=_(", ").join(case.augments[:3]),
        )
    return either(over, suspects, tested, evidence)


def _sums(case: Case, step: int, mine: np.ndarray, other: np.ndarray) -> list[str]:
    """The fingerprints' sums, at the first step that differs and over each epoch, in words."""
    listed = [first_three([f"{value:.4f}" for value in sums]) for sums in (mine, other)]
    return [
        _(
            "sum of the fingerprints at step {step}: {mine:.4f}, baseline {other:.4f}",
            step=step,
            mine=case.prints[step - 1].sum(),
            other=case.base_prints[step - 1],
        ),
        _("over each epoch: {mine}, baseline {other}", mine=listed[0], other=listed[1]),
    ]


def _by_epoch(case: Case, prints: np.ndarray) -> np.ndarray:
    """The sum over each epoch, `(epochs,)`."""
    epochs = case.ours.epochs[: case.steps]
    return np.array([prints[epochs == epoch].sum() for epoch in np.unique(epochs)])
