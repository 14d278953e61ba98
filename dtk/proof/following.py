"""Whether each step of a run is what one device, or as many replicas in one process, makes of the same state.

One device that agrees at every step proves the run. Where it does not, the run is followed by as many replicas in one
process as it has. Where these differ as well, something happens between the workers. Where they agree, the program
depends on the number of replicas: rightly, where something is drawn at random or each replica normalizes its own part,
and the run proves itself once that is switched off; wrongly otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from dtk.errors import ALONE, DtkError, VerificationError
from dtk.language import N_, _, first_three
from dtk.launch.launch import whom
from dtk.proof.evidence import (
    RTOL,
    Evidence,
    can_be_followed,
    check_data,
    check_examples,
    check_losses,
    check_pace,
    collect,
    without_states,
)
from dtk.proof.mistakes import MISTAKES
from dtk.proof.proof import Steps, from_the_same_state, judged, part_in_words
from dtk.records import facts
from dtk.records.events import Loop, Traced
from dtk.records.facts import MOVING
from dtk.records.tables import RunLike
from dtk.scaling.shares import global_loss, other_parts
from dtk.worker.recorded import RecordedStates

COARSE = 8.0  # units in the last place of the coarsest type that a step computes in
ONE_SIGN = 0.5  # of the mean of losses without their signs: a smaller mean is of losses of both signs
NEARER = 0.9  # of how far an update is from the run's: one that is of the same examples
_OF_DATA = ("examples", "data", "steps")  # reasons
AGAIN = 0.01  # of a difference, by which it may be another one when the function is called again
_WITHOUT = {"random": N_("random draws"), "batch norm": N_("per-replica normalization")}
PASS = N_("check every step vs {whom}: PASS ({steps} steps; same examples, same settings, same update)")
CALLS = N_(
    "check every step vs {whom}: PASS ({followed} calls{more}; same settings, same update; no examples and no losses "
    "were recorded{same})"
)


@dataclass(frozen=True)
class Following:
    """A run, and a follower of it.

    ours: the run. replicas: the follower's. theirs: its records; None where it has none. failed: the first thing that
    differs. how: what it is told (`launch.follower_of`). run: its own; None where it did not come to its end.
    """

    ours: Evidence
    replicas: int
    theirs: Evidence | None
    steps: Steps | None
    failed: VerificationError | None
    how: Mapping[str, int] = field(default_factory=dict)
    run: RunLike | None = None

    @property
    def whom(self) -> str:
        """What sentences call the follower."""
        return whom(self.replicas, self.how.get("pipelines", 1))

    @property
    def sides(self) -> tuple[Evidence, Evidence | None]:
        """The run and its follower: by their records, or by their calls where the run has none."""
        by_call = self.steps is not None and (self.ours.of_calls or not self.ours.steps)
        return self.by_call if by_call else (self.ours, self.theirs)

    @cached_property
    def by_call(self) -> tuple[Evidence, Evidence]:
        """The run and its follower: what each call took gradients of, and what it has read; 0 or NaN: not known."""
        assert self.steps is not None
        found, other = [], self.run or self.ours.run
        mine = self.ours.run, self.ours.name, "targets", "given", self.ours.replicas
        for run, name, targets, read, replicas in (mine, (other, self.whom, "mine", "read", self.replicas)):
            shares, its = self.steps.by_replica(targets, replicas), self.steps.by_replica(read, replicas, 2)
            examples = np.nan_to_num(its[..., 0]).astype(np.int64)
            found.append(Evidence(run, name, np.nan_to_num(shares), examples, np.ones(len(shares)), its[..., 1]))
        return found[0], found[1]


def check_every_step(ours: Evidence, source: RunLike, found: dict[int, Following]) -> Iterator[str]:
    """Yields the lines of the followers that agree; raises what differs.

    source: the run whose function is called. found: gets what each follower found, by its number of replicas.
    """
    if not can_be_followed(ours.run):
        raise without_states(ours)
    found[1] = alone = _as_workers_read(ours, source, followed(ours, source, 1))
    failed = alone.failed
    if failed is None:
        if facts.outside(ours.run):  # and each worker does what one device does
            raise VerificationError(_(ALONE, workers=ours.run.folder.workers), reason="replicas")
        yield _passed(ours, alone)
        return
    if ours.replicas == 1:
        _check_it_reads_the_same(ours, source, alone)
        raise failed
    if facts.by_ring(ours.run) or "cluster" in alone.how:
        yield from _by_replicas(ours, source, alone, found)
        what = N_("{n} replicas in one process have no ring to be followed in")
        if "cluster" in alone.how:
            what = N_("{n} replicas in one process have one TF_CONFIG, by which the program reads one worker's data")
        remedy = _("train without what each replica does by itself to have every step proved")
        raise _not_decidable(_(what, n=ours.replicas), remedy)
    found[ours.replicas] = many = followed(ours, source, ours.replicas, alone)
    if many.failed is not None:
        _check_it_reads_the_same(ours, source, alone)
        drawn = [one for one in facts.operations(ours.run).draws or [] if not one.startswith("Stateless")]
        if drawn and many.failed.reason != "not followed" and list(_by_replicas(ours, source, alone, found)):
            what = N_("the steps draw by {operations}, whose numbers can't be drawn again")
            remedy = _("without draws every step agrees; draw by a tf.random.Generator or tf.random.stateless_*")
            raise _not_decidable(_(what, operations=first_three(drawn)), remedy)
        # Where a right program differs from one device as well, the replicas alone tell what is wrong.
        raise many.failed if failed.reason != "not followed" and (on_its_own(ours) or _scaled(alone)) else failed
    if alone.steps is not None and many.steps is not None:
        found[1] = alone = replace(alone, steps=alone.steps.given(many.steps))
    yield from _by_replicas(ours, source, alone, found)
    yield _passed(ours, many)


def followed(ours: Evidence, source: RunLike, replicas: int, before: Following | None = None, **how: int) -> Following:
    """Follows a run; more replicas than it has are not judged.

    before: a follower of the same run, which has measured rounding. how: what it is told (`launch.follower_of`).
    """
    run: Any = ours.run
    levels = before.steps.levels if before is not None and before.steps is not None else {}
    found = Following(ours, replicas, None, None, None, how)
    try:
        follower, lines = run.followed(source, replicas, levels, **how)
        found = replace(found, steps=judged(lines), run=follower)
        found = replace(found, theirs=collect(follower, found.whom) if len(follower.records) else None)
    except DtkError as error:
        what = N_("the steps could not be followed on {whom}: {error}")
        said = _(what, whom=found.whom, error=error.what)
        return replace(found, failed=VerificationError(said, reason="not followed", remedy=error.remedy))
    failed = _first(found) if replicas <= ours.replicas else None
    other = facts.other_versions(run, follower)
    if failed is not None and other:
        what = N_("{whom} runs with other versions ({versions}), and differs: {error}")
        said = _(what, whom=found.whom, versions=other, error=failed.what)
        failed = VerificationError(said, reason="not followed", remedy=_("verify the run where it was made"))
    return replace(found, failed=failed)


def _as_workers_read(ours: Evidence, source: RunLike, alone: Following) -> Following:
    """One device that reads what the workers have read, where each of them reads its own part of the data.

    As the only worker of a cluster, by the TF_CONFIG that a program reads; or by as many input pipelines, if these read
    what one device reads by itself, as much of it in each step, and nothing twice. The same follower where none of
    these comes nearer.
    """
    workers, best = ours.run.folder.workers, alone
    if alone.failed is None or workers < 2 or alone.steps is None:
        return alone
    if source.folder.job.get("program"):
        again = followed(ours, source, 1, alone, cluster=1)
        if np.ptp(again.sides[0].shares, axis=1).any():  # replicas that read the same have the same numbers
            best = _nearer(best, again)
    drawn = facts.operations(ours.run)  # examples that are drawn can't be told from those that are read twice
    known = alone.steps.sharded is not None and not (drawn.augments or drawn.python)
    if known and (not ours.steps or alone.failed.reason in _OF_DATA):
        told = {} if alone.run is None or facts.other_rate(ours.run, alone.run) else {"counts": ours.replicas}
        for how in ({}, told):  # a worker's batch may be the global one over the number of replicas
            again = followed(ours, source, 1, alone, **how, pipelines=workers, each=ours.run.replicas)
            if again.steps is not None and _as_many(again, alone):
                return best if not again.steps.sharded else again if drawn.files else _nearer(best, again)
    return best


def _as_many(following: Following, other: Following | None = None) -> bool:
    """Whether a follower is known to read as many examples in each step as its run, or as another follower."""
    sides = following.sides[1], following.sides[0] if other is None else other.sides[1]
    sizes = [side.examples.sum(axis=1) for side in sides if side is not None]
    steps = min(map(len, sizes))
    known = np.all([each[:steps] > 0 for each in sizes], axis=0)
    return len(sizes) == 2 and bool(known.any() and (sizes[0][:steps] == sizes[1][:steps])[known].all())


def _nearer(best: Following, other: Following) -> Following:
    """Which of two followers of a run reads what it has read, as far as examples, or else updates, tell."""
    read = [each.failed is not None and each.failed.reason in _OF_DATA for each in (best, other)]
    parts = [() if each.steps is None else each.steps.parts for each in (best, other)]
    apart = [sum(part.values * min(part.apart, 1.0) for part in its) for its in parts]
    nearer = read[0] > read[1] or (read[0] == read[1] and apart[1] < NEARER * apart[0])
    return other if nearer and (other.failed is None or parts[1]) else best  # what was not followed tells nothing


def _passed(ours: Evidence, following: Following) -> str:
    steps = following.steps
    assert steps is not None
    followed, words = len(steps.followed) - steps.undecided, PASS
    lost = [] if steps.whole else [_("no state was recorded")]
    lost += [_("rounding is as large as the update")] if steps.undecided else []
    numbers = {"followed": followed, "steps": ours.steps, "made": steps.made, "lost": _(", or ").join(lost)}
    if not ours.steps:
        words, given = CALLS, following.by_call[0].prints
        given = given[np.isfinite(given).all(axis=1)]
        more = _(", of {made} updates in all", **numbers) if lost and steps.made else ""
        more += _("; of the others {lost}", **numbers) if lost else ""
        alike = ours.replicas > 1 and given.any() and not np.ptp(given, axis=1).any()
        numbers |= {"more": more, "same": _("; all replicas were given the same examples") if alike else ""}
    elif lost:
        words = N_(
            "check every step vs {whom}: PASS ({followed} of {steps} steps; of the others {lost}; all steps: same "
            "examples)"
        )
    elif followed < ours.steps:
        words = N_(
            "check every step vs {whom}: PASS ({steps} steps in {followed} calls; same examples, same settings, same "
            "update)"
        )
    said, hidden = _(words, whom=following.whom, **numbers), steps.hidden
    but = N_("{said}, but for {n} of {all} variables, whose updates rounding hides: {names}")
    return _(but, said=said, n=len(hidden), all=len(steps.variables), names=first_three(hidden)) if hidden else said


def _check_it_reads_the_same(ours: Evidence, source: RunLike, alone: Following) -> None:
    """Raises VerificationError where one device that follows once more reads, or draws, other examples.

    Where nothing recorded says what it reads, its updates do.
    """
    if alone.failed is None or alone.failed.reason != ("data" if ours.steps else "update"):
        return
    again = followed(ours, source, 1, alone, **alone.how, anew=1)
    if alone.theirs is not None and again.theirs is not None:
        steps = min(alone.theirs.steps, again.theirs.steps)
        same = not any(check_data(alone.theirs.first(steps), again.theirs.first(steps)))
    else:
        same = alone.steps is None or again.steps is None or _as_far(alone.steps, again.steps)
    if not same:
        what = N_(
            "one device differs from the run, and from itself when it calls the function again: what it reads or draws "
            "is not the same twice"
        )
        raise _not_decidable(_(what), _(MISTAKES["not reproducible"].remedy), "not reproducible")


def _as_far(one: Steps, other: Steps) -> bool:
    """Whether two followers differ from a run at the same step, and by as much."""
    its = {part.number: part.apart for part in other.parts}
    close = (np.isclose(its.get(part.number, 0.0), part.apart, rtol=AGAIN, atol=part.level) for part in one.parts)
    return one.step == other.step and all(close)


def _not_decidable(what: str, remedy: str, reason: str = "not decidable") -> VerificationError:
    return VerificationError(_("not decidable: {what}", what=what), reason=reason, remedy=remedy)


def _by_replicas(ours: Evidence, source: RunLike, alone: Following, found: dict[int, Following]) -> Iterator[str]:
    """Why one device differs from a program that does with N replicas what it should; raises its error where not.

    One device follows once more: without what each replica rightly does by itself, and told that there are N replicas
    where the program takes its batch or its rate from that number. found: gets that follower where it differs.
    """
    assert alone.failed is not None
    reasons, mine, scaled = on_its_own(ours), ours, _scaled(alone)
    told, again = {**alone.how, "counts": ours.replicas}, alone
    piped = {**told, "pipelines": ours.run.folder.workers, "each": ours.run.replicas}
    if (scaled or not ours.steps) and alone.steps is not None and alone.steps.sharded is not None:
        read = followed(ours, source, 1, alone, **piped).steps
        if read is not None and read.sharded and not _as_many(followed(ours, source, 1, alone, **told)):
            told = piped  # each worker has a batch of its own
    ways = [tuple(reasons)] if reasons or scaled else []
    if "random" in reasons:  # if all examples draw alike, batch norm leaves no gradient; not every size has fours
        ways.insert(0, (*reasons, "by fours"))
    if scaled and facts.operations(ours.run).draws is None:  # perhaps there is nothing to switch off
        ways.insert(0, ())
    for switches in ways:
        switched = _switched_off(ours, *switches) if switches else ours
        if switched is None:
            break
        mine, again = switched, followed(switched, source, 1, None, **(told if scaled else alone.how))
        if again.failed is None:
            reasons = {switch: reasons[switch] for switch in switches if switch in reasons}
            break
    known = again.failed is None or ours.steps
    other = again if known else followed(mine, source, 1, None, **told)
    if again.failed is not None and other.failed is not None:
        if again.failed.reason != "not followed":  # what is left where one device does all that N replicas rightly do
            found[1] = again
        raise found[1].failed or again.failed
    untold = followed(mine, source, 1, None, **alone.how) if scaled and reasons else alone if known else again
    divides = (scaled or not known) and _divides(other, untold, _batches(alone))
    if again.failed is not None or (scaled and not divides):
        what = N_(
            "the program takes its batch or its learning rate from num_replicas_in_sync; one device that is told of "
            "{n} replicas makes the same updates; no recorded loss tells whether the whole batch divides it"
        )
        remedy = _("record the loss (dtk.record_step(losses, batch=batch)), or pass the batch as an argument")
        raise _not_decidable(_(what, n=ours.replicas), remedy)
    yield _("check every step vs one device: differs ({why})", why=_("; ").join([*reasons.values(), *scaled]))
    how = [_("without {these}", these=_(" and ").join(_(_WITHOUT[switch]) for switch in reasons))] if reasons else []
    how += [_("with num_replicas_in_sync={n}", n=ours.replicas)] if scaled else []
    assert again.steps is not None
    units, steps = len(again.steps.followed), mine.steps
    said = f"{steps or units}" if again.steps.whole else f"{units}/{max(steps, again.steps.made) or '?'}"
    words = N_("check every step vs {whom} {how}: PASS ({steps} steps)")
    yield _(words, whom=again.whom, how=_(", ").join(how), steps=said)


def _switched_off(ours: Evidence, *switches: str) -> Evidence | None:
    """The run made again without these; None where it fails then, or can't be followed."""
    run: Any = ours.run
    try:
        found = collect(run._without(switches), ours.name)
    except DtkError:
        return None
    return found if can_be_followed(found.run) else None


def _scaled(alone: Following) -> list[str]:
    """What the program takes from the number of replicas, in words: its global batch, its learning rate."""
    mine, theirs = alone.sides
    if alone.failed is None or theirs is None or not min(mine.steps, theirs.steps):
        return []
    found, batches = [], _batches(alone)
    if batches[0] != batches[1] and mine.global_batch != theirs.global_batch:
        words = N_("the global batch depends on the number of replicas: {mine} examples here, {other} there")
        updates = 1 if alone.steps is None or not mine.of_calls else int(np.nanmax(alone.steps.by_replica("made")))
        found.append(_(words, mine=-(-mine.global_batch // updates), other=-(-theirs.global_batch // updates)))
    if facts.other_rate(mine.run, theirs.run):
        found.append(_("the learning rate depends on the number of replicas"))
    return found


def _batches(alone: Following) -> list[int]:
    """The examples of the run's first step and of one device's; 0 and 0 where one is not known."""
    batches = [int(side.examples[:1].sum()) for side in alone.sides if side is not None]
    return batches if all(batches) else [0, 0]


def _divides(again: Following, untold: Following, batches: Sequence[int]) -> bool:
    """Whether one device that is told of N replicas has the loss that it has by itself, though the batches differ.

    From the same weights, the means of all steps that both made; False where these tell nothing, or where of a call's
    updates the first and all of them tell otherwise. Raises where the loss is not divided by the whole batch.
    """
    ours, theirs = again.sides[1], untold.sides[1]
    if ours is None or theirs is None:
        return False
    steps = min(ours.steps, theirs.steps)
    pairs = [np.array([global_loss(side.shares, side.examples)[:steps] for side in (ours, theirs)])]
    if again.steps is not None and untold.steps is not None and ours.of_calls:
        pairs = from_the_same_state(again.steps, untold.steps, len(facts.events(ours.run, Traced)))
    if not pairs or not pairs[0].size:
        return False
    alike, same = bool(np.isclose(pairs[-1][0, :1], pairs[-1][1, :1], rtol=RTOL).all()), batches[0] == batches[1]
    if same and (alike or not all(batches)):
        return alike
    if any(abs(side.mean()) < ONE_SIGN * np.abs(side).mean() for pair in pairs for side in pair):
        return False
    times = again.ours.replicas if same else max(batches) / min(batches)
    means, root = [pair.mean(axis=1).tolist() for pair in pairs], math.sqrt(times)
    # A divisor that does not go with the batch makes losses differ by the square of that.
    beyond = [not 1 / root < (mine / other if other else math.inf) < root for mine, other in means]
    if all(beyond):
        mine, other = means[0]
        what = N_(
            "by the same weights {times:.3g} times as many examples as on one device have {ratio:.3g} times the loss "
            "({mine:.3g} and {other:.3g}): it is not divided by the global batch"
        )
        said = _(what, mine=mine, other=other, ratio=mine / (other or math.inf), times=batches[0] / batches[1])
        remedy, numbers = _(MISTAKES["local mean"].remedy), {"run": mine, "baseline": other}
        raise VerificationError(said, step=1, reason="divisor", remedy=remedy, numbers=numbers)
    return not (same or any(beyond))


def on_its_own(ours: Evidence) -> dict[str, str]:
    """What each replica rightly does by itself: what it is called where it is switched off, and why it differs."""
    found = {}
    # What is not known is tried: where steps run eagerly, and where the graph with the updates is not the model's.
    if facts.by_ring(ours.run) or facts.operations(ours.run).draws != []:
        found["random"] = _("each replica draws random numbers for its own part of the batch, as for Dropout or noise")
    held = RecordedStates(ours.run.folder).variables
    norms = [norm for event in facts.events(ours.run, Loop) for norm in event.norms]
    if not (norms and all(norms)) and any(word in each["name"] for word in MOVING for each in held):
        found["batch norm"] = _("each replica normalizes its own part of the batch")
    return found


def _first(following: Following) -> VerificationError | None:
    """The first thing that differs, what was trained before how well; None where every step agrees."""
    ours, theirs, steps, who = following.ours, following.theirs, following.steps, following.whom
    assert steps is not None
    found = [*check_pace(ours, steps.lines, who)]
    found += [_update(ours, steps, who)] if steps.step is not None and steps.between else []
    if following.replicas > 1 and _other_parts(ours, theirs, steps):
        what = N_("{whom} read the same examples at each step, but other parts of them than the workers' replicas")
        remedy = N_("shard by dataset.batch(global batch) and the strategy: then each replica has the same part")
        return VerificationError(_(what, whom=who), reason="not followed", remedy=_(remedy))
    if theirs is not None:
        common = min(ours.steps, theirs.steps)
        mine, other = ours.first(common), theirs.first(common)
        found += [*check_examples(mine, other), *check_data(mine, other)]
        found += check_losses(mine, _only(other, mine, steps), tolerance(steps, common))
    if steps.step is not None and not steps.between:
        found.append(_update(ours, steps, who))
    if found:
        return min(found, key=lambda error: _began(error, steps))  # of the same step the first in the list
    last = max(steps.followed, default=0)
    if steps.end == "unmatched":
        what = N_("these variables are only in one of the two, the {run} and {whom}: {names}")
        said = _(what, run=ours.name, whom=who, names=first_three(steps.unmatched))
        step, remedy = last + 1, _("make the same variables however many replicas there are")
        # What a restarted function has restored may be other variables than those that it made at first.
        reason = "not followed" if ours.restarts else "variables"
        return VerificationError(said, step=step, reason=reason, remedy=remedy)
    if steps.end == "damaged":
        what = N_("the recorded state of {step} is missing, or is not what was written")
        said = _(what, step=ours.at(steps.damaged or 1))
        return VerificationError(said, step=steps.damaged, reason="states", remedy=_("run it again"))
    units = sum(line["units"] for line in steps.lines)
    counted = (
        (N_("{whom} made {others} steps, the {run} {steps}"), 0 if theirs is None else theirs.steps, ours.steps),
        (N_("{whom} made {others} updates, the {run} {steps}"), steps.here if steps.made else 0, steps.made),
        (N_("{whom} made {others} calls that train, the {run} {steps}"), units, steps.recorded),
    )
    for what, made, count in (each for each in counted if each[1] != each[2]):
        remedy = N_("let the data and its size alone decide how many steps there are")
        if not made:
            remedy = N_("if it restores or finds what the run saved, remove that first")
        said = _(what, whom=who, others=made, run=ours.name, steps=count)
        step, reason = 1 + (min(made, count) if ours.steps else last), "steps" if made else "not followed"
        return VerificationError(said, step=step, reason=reason, remedy=_(remedy))
    return None if steps.proved else _undecided(steps, ours.steps or len(steps.followed))


def _began(error: VerificationError, steps: Steps) -> int:
    """The step from which it acts: of a batch that explains its loss, and so the update of its call, the call's."""
    step, inside = error.step or 0, error.reason == "uneven batch" and steps.whole
    return max((first for first in steps.followed if first <= step), default=step) if inside else step


def _undecided(steps: Steps, made: int) -> VerificationError:
    what = N_("at {n} of {steps} steps rounding is as large as the update in over a tenth of all values")
    remedy = N_("compute in float32, with more examples in a batch, or with a larger learning rate")
    if any(line.get("open") for line in steps.lines):
        what = N_(
            "at {n} of {steps} steps nothing tells how much of the difference is rounding, as the call can't be made "
            "again: it reads data of its own, or very many steps' data"
        )
        remedy = N_("give the step its batch, or its iterator, as an argument, and make fewer steps in a call")
    return _not_decidable(_(what, n=steps.undecided, steps=made), _(remedy))


def _other_parts(ours: Evidence, theirs: Evidence | None, steps: Steps) -> bool:
    """Whether the same examples lie on other replicas, by their fingerprints, or what gradients were taken of."""
    if theirs is None:
        return other_parts(steps.by_replica("targets", ours.replicas), steps.by_replica("mine", ours.replicas))
    common = min(ours.steps, theirs.steps)
    ours, theirs = ours.first(common), theirs.first(common)
    agree = facts.same_examples(ours.prints, theirs.prints, ours.examples, theirs.examples)
    apart = (np.abs(ours.prints - theirs.prints) > facts.SAME_DATA).any(axis=1)
    return agree is not None and bool((agree & apart).any())


def _only(theirs: Evidence, ours: Evidence, steps: Steps) -> Evidence:
    """The follower's losses at the steps that it took over a state for; at the others it went its own way."""
    own = np.array(steps.tight(ours.steps))[:, None]
    shares = np.where(own, theirs.shares, ours.shares.sum(axis=1, keepdims=True) / theirs.replicas)
    return replace(theirs, shares=shares)


def tolerance(steps: Steps, count: int) -> np.ndarray:
    """By how much the losses of a run's first steps may differ, `(steps,)`."""
    return np.maximum(steps.rounding(count), max(RTOL, COARSE * steps.coarse))


def _update(ours: Evidence, steps: Steps, who: str) -> VerificationError:
    assert steps.step is not None
    largest = sorted(steps.parts, key=lambda part: -part.values * min(part.apart, 1.0))
    said = {"n": len(largest), "all": len(steps.variables), "parts": _("; ").join(map(part_in_words, largest[:2]))}
    what = N_("{step}: from the same state, the update differs from that of {whom} in {n} of {all} variables: {parts}")
    remedy = N_("compare what both compute there: the loss's divisor, gradients, clipping, settings of the optimizer")
    if steps.between:
        what = N_("before {step}, {n} of {all} variables changed differently from {whom}: {parts}")
        remedy = N_("look at callbacks, assignments and learning rates that are set between steps")
    what, reason = _(what, step=ours.at(steps.step), whom=who, **said), "between" if steps.between else "update"
    numbers = {name: getattr(largest[0], name) for name in ("apart", "level", "longer", "along")}
    return VerificationError(what, step=steps.step, reason=reason, remedy=_(remedy), numbers=numbers)
