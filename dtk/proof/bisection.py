"""What followers found at the first step that differs: between the workers or in the program, and what it looks like.

Each rule rests on two updates made from the same state: the run's, and one device's. Where as many replicas in one
process make the run's update, the workers did their part, and the program computes something else with several
replicas; where they don't, the difference is between the workers. What all steps that were followed share is no chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dtk.errors import in_words
from dtk.language import N_, _, first_three
from dtk.proof.case import Case, Diagnosis, alike, either
from dtk.proof.evidence import RTOL, allowed, aside, parted, spread, told_by
from dtk.proof.following import COARSE, followed, tolerance
from dtk.proof.mistakes import MISTAKES
from dtk.proof.proof import Part, Steps
from dtk.records import RunFolder
from dtk.records.events import Traced, of_kind
from dtk.records.facts import RATES, by_ring, outside, rates_known, scope_of
from dtk.scaling.shares import global_loss, uneven
from dtk.worker.recorded import weight_of

SAME_RATIO = 1e-3  # of a factor that all variables' changes have in common, and of a cosine that is 1
ABOUT = 0.25  # of the ratio of the mean losses of two batches
STEADY = 0.02  # of what a loss is too large by, where the examples have no part in it
NOISE = 5e-6  # of a loss, which rounding may be
FEW = 4  # values, of which some are parallel by chance
ENOUGH = 6  # steps whose losses tell a pattern from chance


def look_at_scope(case: Case) -> Diagnosis | None:
    """A model that was made outside of the strategy's scope, so that whatever differs may come of that."""
    scope = scope_of(case.ours.run)
    if scope is None or not outside(case.ours.run):
        return None
    what = N_(
        "the model was made under {strategy}, outside of the {run}'s with {n} replicas, so that each worker trains by "
        "itself: {failed}"
    )
    numbers = {"run": case.ours.name, "n": case.ours.replicas, "failed": case.failed.what}
    return case.found("not in scope", _(what, strategy=scope.strategy or _("the default strategy"), **numbers))


def look_at_parting(case: Case) -> Diagnosis | None:
    """Workers that hold different weights."""
    if case.failed.reason != "replicas":
        return None
    what, other = case.failed.what, _other_settings(case)
    if other is not None:
        return case.found(other[0], in_words(what, other[1]))
    ours = case.ours.run.folder
    part = parted(ours)
    if part is not None and (key := told_by(part.names)):
        return case.found(key, what)
    if (part.before or aside(ours, part.names, apart=True)) if part else (case.one is not None and case.one.whole):
        return case.found("set by hand", what)
    if part is None or case.one is None or (case.one.step is not None and case.one.step < part.step):
        return None
    split = any(line.get("split") for line in case.one.lines if line["step"] == part.step)
    chief_is_right = case.one.step is None or case.one.step > part.step or case.one.between
    if split or part.worker == 0:
        return case.found("not summed", what)
    if not chief_is_right:  # perhaps rightly, where nothing tells whether it draws
        unknown = case.operations.draws is None and not by_ring(case.ours.run)
        return either(what, ["not summed", "one worker"]) if unknown else case.found("not summed", what)
    words = N_("{what}; worker 0 makes the update of {whom} in that step, so worker {worker} alone changes the sum")
    return case.found("one worker", _(words, what=what, whom=case.followed[1].whom, worker=part.worker))


def look_at_divisor(case: Case) -> Diagnosis | None:
    """A global batch that grows with the replicas, and a loss that is not divided by it."""
    if case.failed.reason != "divisor" or not case.same_function:
        return None
    ratio, n = case.failed.numbers["run"] / case.failed.numbers["baseline"], case.ours.replicas
    key = "local mean" if abs(ratio / n - 1) < ABOUT else "divided twice" if abs(ratio * n - 1) < ABOUT else ""
    return case.found(key, case.failed.what) if key else None


def look_at_between(case: Case) -> Diagnosis | None:
    """Something other than a step that changed the state: a learning rate, a callback, the start."""
    if case.failed.reason != "between" or case.one is None:
        return None
    rates = told_by([part.name for part in case.one.parts]) == "learning rate"
    other = "start" if case.failed.step == 1 else "set by hand"
    return case.found("learning rate" if rates else other, case.failed.what)


def look_at_settings(case: Case) -> Diagnosis | None:
    """An optimizer's settings that are not the same, on one worker or on one device."""
    other = _other_settings(case) if case.failed.reason in ("update", "loss") else None
    return None if other is None else case.found(other[0], in_words(_where(case), other[1]))


def look_at_untrained(case: Case) -> Diagnosis | None:
    """Variables that no gradient changes, which a step sets otherwise than one device."""
    if case.failed.reason != "update" or case.one is None:
        return None
    ours, line = case.ours.run.folder, next(line for line in case.one.lines if line["wrong"])
    changed = [case.one.variables[n][0] for n, size in zip(line["numbers"], line["size"], strict=True) if size]
    gathers = any(line.get("targets", [1])) and aside(ours, changed)  # gradients, and applies none
    told = not case.shared_by_replicas or bool(case.ours.steps) != case.ours.of_calls or _factor(case.one.parts)
    if (gathers and told) or not aside(ours, [part.name for part in case.one.parts]):
        return None
    where, both = _where(case), ["replica gradient", "set by hand"]
    return either(where, both, [*case.facts()]) if gathers else case.found("set by hand", where)


def look_at_factor(case: Case) -> Diagnosis | None:
    """All gradients that differ are longer than one device's by one number, which the replicas explain."""
    if case.failed.reason not in ("update", "loss") or case.one is None or case.ours.replicas < 2:
        return None
    n, factor, names = case.ours.replicas, _factor(of_gradients(case.one)), {part.name for part in case.one.parts}
    kept = {*case.one.kept.values()}
    all_alike = names <= kept and (2 * len(names) > len(kept) or not _rate_compared(case))  # a few have no own rate
    if all_alike and factor is not None and case.failed.reason == "update":
        what = N_("{where}: {factor:.4g} times as far, though the optimizer's own variables change alike")
        said, held = _(what, where=_where(case), factor=factor), [each[0] for each in case.one.variables]
        copied = any(held.count(name) > 1 for name in names)  # which of the two an optimizer has, names don't tell
        return either(said, ["learning rate", "set by hand"]) if copied else case.found("learning rate", said)
    of_loss = {n: ("local mean", f"{n}"), 1 / n: ("divided twice", f"1/{n}")}
    of_loss |= {n * n: ("scaled twice", f"{n}²"), 1 / n**2: ("scaled twice", f"1/{n}²")}
    key, times = next((named for value, named in of_loss.items() if scaled(case.one, value)), ("", ""))
    if not key:
        return None
    what = N_("{where}; the gradients that differ are {times} times as long, {n} being the number of replicas")
    what = _(what, where=_where(case), times=times, n=n)
    suspects = [key]
    if case.failed.reason != "loss":
        more = [] if case.steps else [key, *(["global batch"] if key == "local mean" else [])]  # no loss was recorded
        # Where no weight differs, Adam's steps are no longer where gradients are.
        rate = [] if factor is None or names <= {*case.one.kept} or _rate_compared(case) else ["learning rate"]
        # One loss on all replicas: summed before, or of the same examples, where nothing tells what they have read.
        same = case.ours.of_calls and np.isnan(case.prints).any() and alike(case.ours.shares[_steps(case)]).all()
        suspects = [*more, *(["sharding off"] if same and key == "local mean" else []), "gradient scale", *rate]
    return either(what, suspects, [*case.facts()]) if len(suspects) > 1 else case.found(suspects[0], what)


def look_at_update(case: Case) -> Diagnosis | None:
    """The same loss from the same state, and another update."""
    if case.failed.reason not in ("update", "loss") or case.one is None:
        return None
    where, step, n = case.said.what if case.inside and case.said else _where(case), _step(case) - 1, case.ours.replicas
    if uneven(case.ours.examples)[step] and not uneven(case.ours.examples)[:step].any():
        what = N_("{where}: the first step whose replicas have unequal batches ({spread})")
        return case.found("uneven batch", _(what, where=where, spread=spread(case.ours.examples[step])))
    if case.many is None:
        return None
    if not case.shared_by_replicas:
        if case.failed.reason != "update" or not case.same_function:
            return _one_workers_loss(case)
        what = _("{where}: not what one device makes of this state, nor {n} replicas in one process", where=where, n=n)
        if _factor(case.one.parts) is not None and not _rate_compared(case):
            return either(what, ["learning rate", "reduction"], [*case.facts()])
        return case.found("reduction", what)
    if case.failed.reason != "update" and not case.inside:
        return None
    clips, sparse = _clips(case), case.operations.sparse
    # Nothing differs but variables whose gradients come as rows, and what the optimizer has of them.
    rows = sparse and all(part.name in sparse or weight_of(part.name, sparse) for part in case.one.parts)
    if clips and rows:
        return either(where, ["clipping", "sparse gradient"], [*clips, *case.facts()])
    return case.found("clipping" if clips else "sparse gradient", where, clips) if clips or rows else None


def _clips(case: Case) -> list[str]:
    words = N_("each replica clips its own gradients, before they are added up: {operations}")
    return [_(words, operations=first_three(clips))] if (clips := case.operations.clips) else []


def _one_workers_loss(case: Case) -> Diagnosis | None:
    """Workers whose loss is not what replicas in one process compute of the same inputs, where that of others is."""
    assert case.many is not None
    step, ours, theirs, steps = _step(case), case.many.ours, case.many.theirs, case.many.steps
    if case.failed.reason != "loss" or theirs is None or steps is None or step not in steps.followed:
        return None
    mine, other = (side.only(case.failed.loss).shares[step - 1] for side in (ours, theirs))
    apart = np.flatnonzero(np.abs(mine - other) > allowed(other, tolerance(steps, step)[-1:]))
    who = dict.fromkeys(_("worker {worker}", worker=replica // ours.run.replicas) for replica in apart)
    if not 0 < len(who) < ours.run.folder.workers:
        return None
    if case.ours.of_calls and not case.same_data:  # nor is it known what they have read
        words = N_("{where}; on {who} alone it is not what a replica in one process computes")
        lead = _(words, where=_where(case), who=_(" and ").join(who))
        return either(lead, ["one worker's loss", "other data"], [*case.facts()])
    what = N_(
        "{where}; of {who} alone it is not what a replica in one process computes from the same state: {mine:.6g} in "
        "place of {other:.6g} on replica {replica}"
    )
    most = int(np.argmax(np.abs(mine - other)))
    shares = {"replica": most, "mine": mine[most], "other": other[most]}
    return case.found("one worker's loss", _(what, where=_where(case), who=_(" and ").join(who), **shares))


def look_at_shape(case: Case) -> Diagnosis | None:
    """A term that each replica adds whole, a loss that depends on a replica's part, or a gradient of something else."""
    if case.failed.reason not in ("loss", "update") or case.one is None or not case.shared_by_replicas:
        return None
    unread = case.ours.of_calls and np.isnan(case.prints).any()  # of calls it has to be known what they read
    if case.operations.draws != [] or case.same_data is False or unread or case.inside:
        return None
    return _term(case) or _own_numbers(case) or _own_gradients(case)


def _term(case: Case) -> Diagnosis | None:
    excess, signs, n = (case.mine - case.other)[_steps(case)], _signs(case), case.ours.replicas
    if not signs.any():
        return None
    # Not a term, but all of the loss; or of calls, gradients that are averaged by hand.
    whole = any(np.abs(case.ratio[_steps(case)] / value - 1).mean() < STEADY for value in (n, 1 / n))
    # If the loss hardly changes, an excess that is a multiple of it looks constant, too.
    longer = [part.longer for part in of_gradients(case.one)] if case.one is not None else []
    constant = len(excess) >= ENOUGH and signs.min() > 0 and np.ptp(excess) <= STEADY * excess.mean()
    if constant and min(longer, default=0) <= (1 + n) / 2 and not (whole and case.ours.of_calls):
        why = N_(
            "the loss is too large by {excess:.3g} at every step, whatever the examples: each replica adds a term whole"
        )
        return case.found("regularisation", in_words(_where(case), _(why, excess=float(excess.mean()))))
    key, times = (not whole and _grown(case)) or ("", 0.0)
    if key in ("", "own mean"):
        return None
    what = N_("the loss is off by {excess:.3g}, and with {n} replicas in one process by {times:.3g} times that: {why}")
    said = _(what, excess=max(excess, key=abs), n=2 * n, times=times, why=_(MISTAKES[key].among))
    return case.found(key, in_words(_where(case), said), also=("local mean",) if key == "regularisation" else ())


def _signs(case: Case) -> np.ndarray:
    """Of the steps that were followed: 1 where the loss is too large, -1 where it is too small, 0 where it agrees."""
    excess = case.mine - case.other
    return np.where(np.abs(excess) > NOISE * np.abs(case.other), np.sign(excess), 0)[_steps(case)]


def _grown(case: Case) -> tuple[str, float] | None:
    """The mistake in a term of the loss that twice as many replicas in one process tell, as they are further off by it.

    And by how many times, the same at all steps, or about, of an own divisor; "": off otherwise; None: not known.
    """
    n, coarse = case.ours.replicas, case.one is None or case.one.coarse
    its = None if coarse else followed(case.ours, case.source or case.ours.run, 2 * n).sides[1]
    if its is None:
        return None
    steps = [step for step in _steps(case) if step < its.steps and case.examples[step] == its.examples[step].sum()]
    steps = [step for step in steps if not (uneven(case.ours.examples)[step] or uneven(its.examples)[step])]
    other, whole = case.other[steps], (2 * n - 1) / (n - 1)
    excess, mine = global_loss(its.only(case.failed.loss).shares, its.examples)[steps] - other, case.mine[steps] - other
    for key, times in (("regularisation", whole), ("divided twice", whole / 2)):
        apart = np.abs(excess - times * mine)
        if steps and (apart <= SAME_RATIO * np.abs(excess) + NOISE * np.abs(other)).all():
            return key, times
    return ("own mean" if abs(excess.sum() / mine.sum() / whole - 1) < ABOUT else "", whole) if steps else None


def whole_penalty(case: Case, steps: Steps) -> Diagnosis:
    """Gradients that are one device's but for multiples of the weights."""
    why = N_("the gradients differ by multiples of the weights alone: each replica adds the penalty, or decay, whole")
    if sum((1 if p.name in steps.kept else -1) * (p.toward[0] - p.toward[1]) for p in of_gradients(steps)) < 0:
        why = N_("the gradients differ by multiples of the weights alone: a penalty, or decay, is left out or divided")
    return case.found("regularisation", in_words(_where(case), _(why)))


def _own_numbers(case: Case) -> Diagnosis | None:
    """A replica's own divisor: one device's loss is then a weighted mean of the replicas' means. Or no such loss."""
    steps, n, other = _steps(case), case.ours.replicas, case.other[_steps(case)]
    noise = max(NOISE, COARSE * (case.one.coarse if case.one else 0)) * np.abs(other)
    outside, times = np.ones(len(steps), bool), n
    for divisor in (1, n, n * n):  # whatever else the shares are divided by, or not
        means = case.ours.shares[: case.steps][steps] * n / divisor
        beyond = (other < means.min(axis=1) - noise) | (means.max(axis=1) + noise < other)
        if beyond.sum() < outside.sum():
            outside, times = beyond, divisor
    above = case.ours.shares[: case.steps][steps].sum(axis=1) / times - other
    telling = np.abs(above) > noise
    if telling.sum() >= ENOUGH and not outside.any() and len(set(np.sign(above[telling]))) == 2:
        why = MISTAKES["own mean"].symptom
        if times > 1:
            why = N_("one device's loss lies between the replicas' means, divided by {times}: each has its own divisor")
        return case.found("own mean", in_words(_where(case), _(why, times=times)), also=("whole batch",))
    if np.ptp(case.ratio[steps]) <= RTOL * abs(case.ratio[steps[0]]) or not telling.any():
        return None
    why = N_("the loss is no sum over examples: what each replica computes of its part is not what all of them give")
    seen = N_("at {n} of {steps} steps the losses differ; one device's always lies between the replicas' own means")
    at, suspects = telling, ["own mean", "whole batch"]
    # A term that each divides by a number of its own, beside others, misses to either side, or is N times too large.
    grown = _grown(case) if len({*_signs(case)}) == 1 else ("own mean", 0.0)
    if outside.any():
        seen = N_("at {n} of {steps} steps one device's loss does not lie between the replicas' own means")
        at, suspects = outside, suspects[grown is not None and grown[0] != "own mean" :]
    seen, said = _(seen, n=int(at.sum()), steps=len(steps)), in_words(_where(case), _(why))
    if grown is None:
        suspects = ["regularisation", *["divided twice"] * int(_signs(case)[0] < 0), *suspects]
    return either(said, suspects, [seen, *case.facts()]) if suspects[1:] else case.found("whole batch", said, [seen])


def _own_gradients(case: Case) -> Diagnosis | None:
    """The losses agree, the update does not, by no common factor: a replica's gradient is not that of its loss."""
    if case.one is None or case.failed.reason != "update" or len(_steps(case)) < ENOUGH or _signs(case).any():
        return None
    parts = of_gradients(case.one)
    if beside_a_penalty(parts, 1.0):
        return whole_penalty(case, case.one)
    near = all(part.along > 1 - STEADY for part in parts) and any(abs(part.longer - 1) > STEADY for part in parts)
    if near or (case.one.kept and _step(case) > 1):  # an optimizer that keeps something may hide that they are longer
        return either(_where(case), ["gradient scale", "replica gradient"], [*case.facts()])
    why = N_(
        "the replicas' gradients are not those of their shares of the loss, such as clipped, normalized or noisy ones, "
        "or without what other replicas contribute (a gather that passes no gradient)"
    )
    return case.found("replica gradient", in_words(_where(case), _(why)))


def _steps(case: Case) -> list[int]:
    """The steps that were followed, from the first that differs on; counted from 0."""
    assert case.one is not None
    return [step - 1 for step in case.one.followed if _step(case) <= step <= case.steps]


def _where(case: Case) -> str:
    names = first_three([part.name for part in case.one.parts]) if case.one is not None else ""
    if case.failed.reason == "loss" and case.failed.step is not None and case.failed.step <= case.steps:
        return case.losses(case.failed.step)
    if not names or not case.ours.shares[_step(case) - 1 : _step(case)].any():
        return case.failed.what
    what = N_("at {step} the loss is that of {whom}, and the update is not: {names}")
    return _(what, step=case.ours.at(_step(case)), names=names, whom=case.followed[1].whom)


def _step(case: Case) -> int:
    return case.failed.step or 1


def of_gradients(steps: Steps) -> list[Part]:
    """The parts that are in proportion to gradients: an optimizer's first moments, or the weights where it has none."""
    kept = [part for part in steps.parts if part.name in steps.kept]
    moments = [part for part in kept if part.name.lower().endswith(("momentum", "_m", "/m")) or "/m/" in part.name]
    return moments or [part for part in steps.parts if part not in kept]


def _rate_compared(case: Case) -> bool:
    """Whether each optimizer's learning rate is known to be the same: a variable, or a schedule at its first step."""
    assert case.one is not None
    rates = [name for name, _ in case.one.variables if name.split("/")[-1] in RATES]
    optimizers = of_kind(case.ours.run.folder.worker(0).events, Traced)
    return len(rates) >= len(optimizers) > 0 or (_step(case) == 1 and rates_known(case.ours.run))


def scaled_alike(case: Case, times: float) -> bool:
    """Whether all gradients may be one device's so many times: False where the update tells that they are not.

    Nothing tells after an optimizer's first step, in a call of several steps, or where one of several losses differs.
    """
    steps = case.one
    if steps is None or steps.several(case.steps) or steps.coarse or case.failed.loss or steps.step != _step(case):
        return True
    moments = any(part.name in steps.kept for part in of_gradients(steps))
    return (steps.step > 1 if moments else bool(steps.kept)) or scaled(steps, times)


def scaled(steps: Steps, times: float) -> bool:
    """Whether changes are those of gradients so many times as long: moments are in proportion to these, or to squares.

    Those that a loop keeps by itself have no telling names, nor its weights, which go as far by Adam.
    """
    kept, parts, powers = [part for part in steps.parts if part.name in steps.kept], of_gradients(steps), [1, 2, 0]
    if kept and not any(part in kept for part in parts):  # squares alone
        parts, powers = kept, [2]
    fits = [[abs(part.longer / times**k - 1) <= SAME_RATIO >= abs(part.along - 1) for k in powers] for part in parts]
    return all(map(any, fits)) and any(each[0] for each in fits)


def _factor(parts: Sequence[Part]) -> float | None:
    """By what all changes are longer than one device's, in the same direction; None where there is no such number."""
    if not parts or any(abs(part.along - 1) > SAME_RATIO or not np.isfinite(part.apart) for part in parts):
        return None
    longer = [part.longer for part in parts]
    return float(np.mean(longer)) if np.ptp(longer) <= SAME_RATIO * np.mean(longer) else None


def beside_a_penalty(parts: Sequence[Part], times: float) -> bool:
    """Whether the gradients are one device's, so many times, but for multiples of the weights, as L2 penalties have."""
    left = [(part.values, *part.left(times)) for part in parts]
    return any(values > FEW and along > 1 - SAME_RATIO for values, _size, along in left) and all(
        size <= SAME_RATIO or along > 1 - SAME_RATIO for _values, size, along in left
    )


def _other_settings(case: Case) -> tuple[str, str] | None:
    """The mistake, and which setting of an optimizer differs, in words: between workers, or else from one device's."""
    ours = case.ours.run.folder
    sides = [(_("worker {worker}", worker=worker), _settings(ours, worker)) for worker in range(ours.workers)]
    if case.failed.reason != "replicas" and 1 in case.followed and case.followed[1].run is not None:
        sides.append((case.followed[1].whom, _settings(case.followed[1].run.folder, 0)))
    first, mine = sides[0]
    for who, other in sides[1:]:
        for (name, held), (_its, its) in zip(mine, other, strict=False):
            for key in sorted({*held} & {*its}):
                if held[key] != its[key]:
                    words = N_("{setting} of {name} is {mine} on {first}, {its} on {who}")
                    said = _(words, setting=key, name=name, mine=held[key], first=first, its=its[key], who=who)
                    return "learning rate" if key in RATES else "settings", said
    return None


def _settings(run: RunFolder, worker: int) -> list[tuple[str, dict[str, Any]]]:
    """Of each optimizer, with its rate at its first update; after a restart that is one of a later step."""
    held = of_kind(run.worker(worker).events, Traced)
    rates = [{} if each.rate is None or run.earlier else {"learning_rate": float(f"{each.rate:.6g}")} for each in held]
    return [(each.optimizer, {**(each.settings or {}), **rate}) for each, rate in zip(held, rates, strict=True)]


def unknown(case: Case) -> Diagnosis:
    """Nothing that is known fits: what was found, what was excluded, what would decide."""
    decide = ""
    if case.inside or (case.one is not None and case.one.several(case.steps)):
        decide = N_("what would decide: the same with one step in each call, as by steps_per_execution=1")
    elif case.one is not None and case.failed.reason in ("loss", "update"):
        decide = N_(
            "what would decide: each replica's loss and gradients at {step}, before and after the sum; or, where fewer "
            "than {n} steps were followed, a longer run"
        )
    clips = _clips(case) if case.many is None or case.shared_by_replicas else []
    evidence = [*case.facts(), *clips, *([_(decide, step=case.ours.at(_step(case)), n=2 * ENOUGH)] if decide else [])]
    failed = case.failed if case.many is None else in_words(case.failed.what, case.side)
    record = N_("record the steps (dtk.Recorder() in fit, dtk.record_step in a loop): losses and examples tell more")
    remedy = "" if case.ours.steps and not case.ours.of_calls else _(record)
    return Diagnosis("unknown", _("I don't know why: {failed}", failed=failed), tuple(evidence), (), remedy)
