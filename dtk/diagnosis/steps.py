"""What followers found at the first step that differs: between the workers or in the program, and what it looks like.

Each rule rests on two updates made from the same state: the run's, and one device's. Where as many replicas in one
process make the run's update, the workers did their part, and the program computes something else with several
replicas; where they don't, what lies between the workers is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dtk.checks.counts import spread
from dtk.checks.facts import outside, scope_of
from dtk.checks.numerals import first_three, relative, rounded
from dtk.checks.steps import whom
from dtk.diagnosis.case import Case, said_of
from dtk.diagnosis.verdict import Diagnosis, by_test, found
from dtk.events import Traced, of_kind
from dtk.language import N_, _
from dtk.measure.scaling import uneven
from dtk.proof.steps import Part, Steps, parted

__all__ = [
    "known",
    "look_at_between",
    "look_at_divisor",
    "look_at_parting",
    "look_at_settings",
    "look_at_shape",
    "look_at_update",
    "unknown",
]

SAME_RATIO = 1e-3  # of a factor that all variables' changes have in common
PARALLEL = 1e-3  # of a cosine that is 1
ABOUT = 0.25  # of the ratio of the mean losses of two batches
MOST = 0.8  # of the variables that a step has changed
OWN_PART = N_(
    "this is no sum over examples that all are divided by the same number, but each replica's own of its part (a mean "
    "over its own tokens, negatives of its own)"
)
STEADY = 1e-3  # of a ratio of losses that stays the same


def look_at_parting(case: Case) -> Diagnosis | None:
    """Workers that hold different weights."""
    if case.failed.reason != "replicas":
        return None
    settings = _other_settings(case)
    if settings:
        tested = _("the optimizers' settings are compared, worker by worker")
        return found(
            "settings", _("{what}; {settings}", what=case.failed.what, settings=settings), tested, case.facts()
        )
    scope = scope_of(case.ours.run)
    if case.ours.run.replicas == 1 and outside(case.ours.run) is not False:
        tested = _("the state of every step is compared bit by bit; the scope that the model was made in is not known")
        if scope is not None:
            tested = _("the scope that the model was made in has {n} replica in sync", n=scope.replicas)
        return found("not in scope", case.failed.what, tested, case.facts())
    part = parted(case.ours.run.folder)
    if part is None or part.before:
        what = N_("{what}: something sets them on each worker by itself, outside of a step")
        tested = _("the state before and after every step is compared bit by bit")
        return found("set by hand", _(what, what=case.failed.what), tested, [*case.facts()])
    chief = ""
    if case.one is not None:
        wrong = {each.name for each in case.one.parts} if case.one.step == part.step else set()
        chief = _("worker 0 makes one device's update of them")
        if wrong & {*part.names}:
            chief = _("worker 0 does not make one device's update of them either")
    what = N_("{what}: in that step each worker changes them by something of its own")
    tested = _("the state before the step is the same on all workers, bit by bit, and after it is not")
    return found("not summed", _(what, what=case.failed.what), tested, [*([chief] if chief else []), *case.facts()])


def look_at_divisor(case: Case) -> Diagnosis | None:
    """A global batch that grows with the replicas, and a loss that is not divided by it."""
    if case.failed.reason != "divisor":
        return None
    ratio, n = case.failed.numbers["run"] / case.failed.numbers["baseline"], case.replicas
    key = "local mean" if abs(ratio / n - 1) < ABOUT else "divided twice" if abs(ratio * n - 1) < ABOUT else ""
    tested = _("the mean losses of two batches of the same data, by the same weights, are about the same")
    return found(key, case.failed.what, tested, case.facts()) if key else None


def look_at_between(case: Case) -> Diagnosis | None:
    """Something other than a step that changed the state: a learning rate, a callback, the start."""
    if case.failed.reason != "between" or case.one is None:
        return None
    names = [part.name for part in case.one.parts]
    tested = _("the state before every step is compared with what one device has made of the one after the step before")
    if all(name.split("/")[-1] in ("learning_rate", "current_learning_rate") for name in names):
        return found("learning rate", case.failed.what, tested, case.facts())
    if case.failed.step == 1:
        return found("start", case.failed.what, tested, case.facts())
    return found("set by hand", case.failed.what, tested, case.facts())


def look_at_settings(case: Case) -> Diagnosis | None:
    """An optimizer's settings that are not the same, on one worker or on one device."""
    if case.failed.reason not in ("update", "loss"):
        return None
    settings = _other_settings(case)
    if not settings:
        return None
    tested = _("the optimizers' settings at their first update are compared")
    return found("settings", _("{what}; {settings}", what=_where(case), settings=settings), tested, case.facts())


def look_at_update(case: Case) -> Diagnosis | None:
    """The same loss from the same state, and another update."""
    if case.failed.reason != "update" or case.one is None:
        return None
    n, where, factor = case.replicas, _where(case), _factor(_of_gradients(case.one))
    evidence = [*known(case), *case.facts()]
    for value, words in ((n, N_("{n} times, the number of replicas")), (1 / n, N_("1/{n}, of {n} replicas"))):
        if factor is not None and n > 1 and abs(factor / value - 1) < SAME_RATIO:
            what = _("{where}: {words} as long, in the same direction", where=where, words=_(words, n=n))
            tested = _(
                "the changes are parallel, and that is their ratio to {tolerance}", tolerance=rounded(SAME_RATIO)
            )
            return found("gradient scale", what, tested, evidence)
    if case.many is None:
        return None
    if not case.shared_by_replicas:
        what = N_("{where}: not what one device makes of this state, nor {n} replicas in one process")
        tested = _("the losses of this step agree, the workers hold the same weights, and the settings are the same")
        return found("reduction", _(what, where=where, n=n), tested, evidence)
    return _of_the_program(case, where, factor, evidence)


def _of_the_program(case: Case, where: str, factor: float | None, evidence: list[str]) -> Diagnosis | None:
    """An update that as many replicas in one process make as well."""
    step = _step(case) - 1
    if case.sparse:
        names = first_three(case.sparse)
        tested = _("the optimizer takes rows of {names} one by one; replicas in one process do so as well", names=names)
        return found("sparse gradient", where, tested, evidence)
    if case.clips:
        how = said_of(case.clips, "")
        tested = _("a replica's own gradients are clipped ({how}); replicas in one process do so as well", how=how)
        return found("clipping", where, tested, evidence)
    if uneven(case.ours.examples)[step] and not uneven(case.ours.examples)[:step].any():
        what = N_("{where}: the first step whose replicas have unequal batches ({spread})")
        tested = _("all steps before have equal batches, and agree")
        return found("uneven batch", _(what, where=where, spread=spread(case.ours.examples[step])), tested, evidence)
    all_of_it = case.one is not None and len(case.one.parts) > MOST * _changed(case.one)
    if all_of_it and factor is None and case.draws == [] and case.clips == [] and case.same_data:
        what = N_("{where}; {n} replicas in one process compute what the workers do: {why}")
        tested = _("the examples are the same, nothing draws or clips, and no factor is common to all changes")
        return found("whole batch", _(what, where=where, n=case.replicas, why=_(OWN_PART)), tested, evidence)
    return None


def look_at_shape(case: Case) -> Diagnosis | None:
    """Another loss from the same state: a term that each replica adds whole, or one that depends on its part."""
    if (
        case.failed.reason != "loss"
        or case.one is None
        or not case.shared_by_replicas
        or case.draws
        or case.draws is None
    ):
        return None
    n, steps = case.replicas, [step - 1 for step in case.one.followed if step - 1 < case.steps]
    excess, evidence = case.excess[steps], [*known(case), *case.facts()]
    toward = _toward(case)
    if toward is not None and (excess > 0).all():
        what = N_(
            "{losses}, and the update differs along the weights themselves (cosine {cosine:.3f}): each of the {n} "
            "replicas adds the penalty whole"
        )
        tested = _("what the updates differ by is parallel to the weights, as a penalty's gradient is")
        return found("regularisation", _(what, losses=case.losses(_step(case)), cosine=toward, n=n), tested, evidence)
    ratio = case.ratio[steps]
    if case.same_data and len(ratio) > 1 and np.ptp(ratio) > STEADY * abs(ratio[0]):
        what = N_("{losses}; {n} replicas in one process compute what the workers do: {why}")
        tested = _("the examples are the same, nothing draws, and the ratio of the losses is another at each step")
        return found("whole batch", _(what, losses=case.losses(_step(case)), n=n, why=_(OWN_PART)), tested, evidence)
    return None


def known(case: Case) -> Iterator[str]:
    """What the followers tell, whatever it is: for those who go on looking."""
    if case.one is None:
        return
    if case.many is not None:
        side = N_("{n} replicas in one process differ as well: what lies between the workers is another (data, sums)")
        if case.shared_by_replicas:
            side = N_(
                "{n} replicas in one process make the same update: the program computes otherwise with {n} replicas"
            )
        yield _(side, n=case.replicas)
    for part in sorted(case.one.parts, key=lambda each: -each.values)[:3]:
        yield _(
            "{name}: differs by {apart} of its change, {longer:.4g} times as long, cosine {along:.4f}",
            name=part.name,
            apart=relative(min(part.apart, 1e9)),
            longer=part.longer,
            along=part.along,
        )


def _where(case: Case) -> str:
    if case.one is None or not case.one.parts:
        return case.failed.what
    names = first_three([part.name for part in case.one.parts])
    what = N_("at step {step} the loss is one device's, and the update is not: {names}")
    if case.failed.reason != "update":
        what = N_("from step {step} on the loss and the update are not one device's: {names}")
    return _(what, step=_step(case), names=names)


def _step(case: Case) -> int:
    return case.failed.step or 1


def _changed(steps: Steps) -> int:
    """How many variables the first step that differs has changed."""
    line = next(line for line in steps.lines if line.get("wrong"))
    return sum(size > 0 for size in line["size"])


def _of_gradients(steps: Steps) -> list[Part]:
    """The parts that are in proportion to gradients: an optimizer's first moments, or the weights where it has none."""
    slots = [part for part in steps.parts if _is_slot(part, steps)]
    moments = [part for part in slots if part.name.endswith(("momentum", "_m")) or "/m/" in part.name]
    return moments or [part for part in steps.parts if part not in slots]


def _is_slot(part: Part, steps: Steps) -> bool:
    """Whether it is an optimizer's variable for one of the weights, by the name of which its own begins or ends."""
    _, *own = part.name.split("/")
    names = [name for name, _ in steps.variables if "/" in name and name != part.name]
    return any("_".join(own).startswith(name.replace("/", "_")) or part.name.endswith(f"/{name}") for name in names)


def _factor(parts: list[Part]) -> float | None:
    """By what all changes are longer than one device's, in the same direction; None where there is no such number."""
    if not parts or any(abs(part.along - 1) > PARALLEL for part in parts):
        return None
    longer = [part.longer for part in parts]
    return float(np.mean(longer)) if np.ptp(longer) <= SAME_RATIO * np.mean(longer) else None


def _toward(case: Case) -> float | None:
    """The cosine of weights and of what their updates differ by, where all that differ are parallel to theirs."""
    assert case.one is not None
    line = next((line for line in case.one.lines if line.get("wrong")), None)
    if line is None or "toward" not in line:
        return None
    found = [
        abs(value)
        for number, value in zip(line["numbers"], line["toward"], strict=True)
        if number in line["wrong"] and value
    ]
    return min(found) if found and min(found) > 1 - PARALLEL else None


def _other_settings(case: Case) -> str:
    """Which settings of an optimizer differ, in words: between workers, then from one device's; "" for none."""
    sides = [(_("worker {n}", n=each.worker), _settings(each.events)) for each in case.ours.run.folder.each]
    if case.followed.get(1) is not None and case.followed[1].theirs is not None:
        sides.append((_("one device"), _settings(case.followed[1].theirs.run.folder.worker(0).events)))
    first, mine = sides[0]
    for who, other in sides[1:]:
        for (name, held), (_its, its) in zip(mine, other, strict=False):
            for key in sorted({*held} & {*its}):
                if held[key] != its[key]:
                    words = N_("{setting} of {name} is {mine} on {first}, {its} on {who}")
                    return _(words, setting=key, name=name, mine=held[key], first=first, its=its[key], who=who)
    return ""


def _settings(events: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(event.optimizer, event.settings or {}) for event in of_kind(events, Traced)]


def unknown(case: Case) -> Diagnosis:
    """Nothing that is known fits: what was found, what was excluded, what would decide."""
    tested = [by_test(_("every mistake of the table, and none fits")), *known(case), *case.facts()]
    what = N_("I don't know why: {failed}")
    if case.one is None and case.failed.reason in ("loss", "final weights", "weights between fits", "offset"):
        what = N_(
            "I don't know why: {failed}; the steps could not be followed, which would tell the first that differs"
        )
    elif case.many is None and case.replicas > 1 and case.one is not None:
        what = N_("I don't know why: {failed}; {whom} were not asked")
    return Diagnosis("unknown", _(what, failed=case.failed, whom=whom(case.replicas)), tuple(tested))
