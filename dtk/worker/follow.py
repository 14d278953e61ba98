"""In a follower: each step from the state that the cluster recorded, and this process's update beside the cluster's.

A follower runs the function of a run again. At each recorded unit (`dtk.compat.states`) it compares its own state with
the cluster's, takes the cluster's over, makes the step, compares the two updates, and takes over what the cluster had
then. So rounding can't add up, and a step that was computed otherwise shows at the step itself.

How large a difference is rounding, is measured, not chosen: where an update differs by more than was seen to be
rounding so far, the step is made again, several times, with weights and inputs changed in their last bit, same batch,
same draws. What this changes in a variable's update, rounding may change in it as well.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dtk.compat import updates
from dtk.compat.feeds import Feed, called, can_be_fed, read_beside, rows, sharded
from dtk.compat.states import Variable, watcher
from dtk.environment import Here
from dtk.records import RunFolder
from dtk.records.facts import GENERATOR
from dtk.worker.progress import progress
from dtk.worker.recorded import (
    FEW,
    UNMEASURED,
    Change,
    Damaged,
    Folds,
    RecordedStates,
    State,
    compared,
    described,
    differs,
    end_alike,
    weight_of,
)
from dtk.worker.rounding import Levels, Made, Repeated, one, same_bits
from dtk.worker.states import NOTHING, READ, Ended, Snapshot, Watched, first_step, take

FEEDS = 16  # iterators, or datasets, that are fed at a time; of more, the oldest are forgotten
MEASURED = 40  # steps that are repeated at most, and a tenth of all that are followed
_ONCE = Made(None, None, (), {}, NOTHING, NOTHING)  # a step that can't be made again
FURTHER = READ - 1  # steps that are looked at after the first wrong one: what is the same at all of them is no chance


class Follower:
    """Follows the units of a run in this process.

    A line of `follow.jsonl`: {"unit", "units": how many it stands for, "step": its first, "kind": "update" or
    "between" (what happened since the unit before, or what the function began with), "numbers": of the variables
    compared, "apart", "size", "own", "along", "level": for each the norm of the difference of the two changes, of the
    cluster's change, of this process's, their scalar product, and how much of the cluster's change rounding may be,
    "floor": how much storing rounds of it, "toward": how far the two go along the weight before (of an optimizer's
    variable: the weight that it belongs to), "wrong": numbers of those that differ by more, "single": [number, value
    here, value in the cluster] of each of these that is one number, "mine", "targets": what gradients were taken of,
    by replica, a mean over the updates, here and in the cluster, "first": the first of these here, "made": updates,
    "read", "given": by replica, how many examples this process has read, and the cluster's calls were given, and their
    fingerprint, "measured": false where the step did not repeat itself, "open": true where nothing tells how much of it
    is rounding, "split": numbers of those of which this process's replicas hold different values, "here": the step that
    this process is at}. The first line: {"variables": [name, values] by number}, the last: {"end": why, "recorded":
    units there were, "made": updates in the cluster (calls that train, where an optimizer has counted none; 0: not
    known), "here": these in this process, "whole": whether all were followed and nothing is missing between them,
    "levels", "coarse", "unmatched", "damaged": the step whose state is}.
    """

    def __init__(self, place: Here, asked: dict[str, Any]):
        """asked: {"dir": of the run, "workers": its number, "levels": by variable}; more: see `follower_of`."""
        self.place, self.watched = place, Watched(place)
        self.recorded = RecordedStates(RunFolder(Path(asked["dir"]), asked["workers"]))
        self._left, self._followed, self._repeated, self._steps = -1, 0, 0, 0  # steps: recorded when a unit began
        self._asked = self.place.replicas > 1 or "pipelines" in asked  # to say what is read in each call
        # Before a call that may be a unit: the state, what was taken over before, and a line where something differs.
        self._open: tuple[Snapshot, State, dict[str, Any] | None] | None = None
        self._began: tuple[int, Snapshot] | None = None  # of a unit that takes several calls here: its place, the state
        self.levels = Levels({int(number): level for number, level in asked.get("levels", {}).items()})
        self._feeds: dict[int, tuple[Any, Feed | None]] = {}
        self._beside: dict[int, tuple[Any, list[Any]]] = {}  # a function, and the data that it reads by itself
        self._used: list[Feed] = []  # by the call that is under way
        self._folds = Folds()
        self._taken: State = {}  # what was taken over after the unit before
        self._file = os.open(place.folder.path / "follow.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._write({"variables": [[each["name"], math.prod(each["shape"])] for each in self.recorded.variables]})

    # ---- a unit

    def around(self, subject: Any, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if self.ended:
            return call(*args, **kwargs)
        args, kwargs = self._fed(subject, args, kwargs)  # always, or a function's graph is not made for what it gets
        if not self.watched.looks_at(subject):
            result = call(*args, **kwargs)
            called(trains=False)
            return result
        begun = self.begins(subject)
        try:
            result = call(*args, **kwargs)
        except Exception as error:
            if self.watched.ended_with_data(error):
                self.ends(subject, begun)
            self._undo()  # of no unit: what comes before the next one is yet to come
            raise
        self.ends(subject, begun, _ONCE._replace(subject=subject, call=call, args=args, kwargs=kwargs))
        return result

    def begins(self, subject: Any) -> Any:
        """Before what may be a unit; `ends` gets what this returns: where it begins, and the state."""
        if self.ended or not self.watched.looks_at(subject):
            return None, take(everything=True)
        now = None
        first = None if self._began is not None else self.recorded.beginning(self.watched.position)
        self._steps = self._steps if self._began is not None else progress(self.place).steps
        if first is not None and self.watched.trains(subject):
            with self._undamaged():
                now = self._between(first)
        return first, now or take(everything=True)

    def ends(self, subject: Any, begun: Any, by: Made = _ONCE) -> None:
        """by: what can be made again; without it nothing can."""
        first, before = begun
        after, known = take(everything=True), self.watched.trains(subject)
        if self.ended or not called(self.watched.called(subject, before, after)):
            self._undo()
            return
        opened, self._open = self._open, None
        self._say(opened[2] if opened else None)
        made = by._replace(before=before, after=after)
        with self._undamaged():
            if self._began is not None:  # the unit has begun in an earlier call
                first, earlier = self._began
                made = _ONCE._replace(before=earlier, after=after, several=True)
            elif first is not None and not known:
                # What it began with, or did before it trained.
                self._say(self._changes(before, self.recorded.before(first), self.recorded.units[first].step))
            self._began, self._taken = None, {}
            if first is not None:
                self._unit(first, made)
            else:
                updates.targets()

    @contextlib.contextmanager
    def _undamaged(self) -> Iterator[None]:
        try:
            yield
        except Damaged as damage:
            self._end("damaged", damaged=damage.args[0])

    def _unit(self, first: int, made: Made) -> None:
        """What a call has made, or several, beside the recorded units that make as many updates."""
        last = self.recorded.ending(first, self.watched.position)
        if last is None:
            if self.recorded.units[first].ended > self.watched.position:
                self._began = (first, made.before)
            return
        begun, there = self.recorded.before(first), self.recorded.after(last)
        made_here = self.watched.position[0] - self.recorded.units[first].began[0]
        (mine, first_of_all), theirs = updates.targets(), self.recorded.total("taken", first, last)
        matched = self._matched(made, first, last)
        line = self._compare(made, begun, there, matched)
        with self.recorded.ahead():
            for later in self.recorded.without_update(last) if line["wrong"] else ():
                # Calls that make no update, as evaluations, can't be counted by it: one may be several there.
                left = self.recorded.after(later)
                further = self._compare(made, begun, left, matched)
                if not further["wrong"]:
                    last, there, line = later, left, further
                    self.watched.position = self.recorded.units[last].ended
                    break
        if updates.may_overflow() and self._skipped(line["changes"]):
            line["wrong"] = []  # by rounding: a scaled loss, or a gradient, overflows in one of the two
        if line["wrong"]:
            self._measure(line, made, begun, matched, made_here)
        self._followed += 1 + last - first
        facts: dict[str, Any] = {"unit": last + 1, "units": 1 + last - first, "step": self.recorded.units[first].step}
        facts["here"] = first_step(self.place, self._steps, made_here)
        if theirs and made.call is not None:
            asked = line["wrong"] or self._left >= 0 or self._asked
            read = rows(self._used, made.args, made.kwargs) if asked else []
            mine, theirs = ([value / max(1, made_here) for value in each] for each in (mine, theirs))
            facts |= {"targets": theirs, "mine": mine, "first": first_of_all, "made": made_here, "read": read}
            facts |= {"given": self.recorded.total("read", first, last)}
        # One of the two alone has made a call that sets variables, before the one that updates them.
        aside = bool(line["wrong"]) and made_here == 1 and made.several != (last > first)
        facts["kind"] = "between" if aside else "update"
        self._write_line(line, self._weights(matched, begun) if line["wrong"] else {}, **facts)
        self._take_over(matched, there, made.after)
        if line.get("measured", True):  # of the others later steps decide
            self._stop_early(line["wrong"])

    def _matched(self, made: Made, first: int, last: int) -> dict[int, Variable]:
        """By the cluster's number; ends where a variable of either has no counterpart.

        One that does not change need not have one: what nobody holds any more stays until garbage is collected. If an
        optimizer, or a layer, is built inside of a step or its wrapper here, and outside there, its name's end tells.
        """
        numbers, facts = self.recorded.numbers, self.recorded.variables
        expected = self.recorded.units[last].here
        mine = [each for each in made.after.values if each.role == ""]
        left = [each for each in mine if numbers.get(each.identity) not in expected]
        left, there = [each for each in left if not made.before.same(made.after, each)], self.recorded.after(last)
        free = expected - {numbers.get(each.identity) for each in mine}
        changed = free & self.recorded.changed(first, last)
        others = [*sorted(changed), *sorted(free - changed)]
        for each in left:
            alike = (n for n in others if end_alike(facts[n]["identity"], each.identity, len(there.get(n, [()]))))
            if (number := next(alike, None)) is not None:
                others.remove(number)
                numbers[each.identity] = number
        lost = {str(each.identity[0]) for each in left if numbers.get(each.identity) not in expected}
        lost |= {facts[number]["name"] for number in changed.intersection(others)}
        if lost:
            self._end("unmatched", unmatched=sorted(lost))
        matched = {n: each for each in mine if (n := numbers.get(each.identity)) is not None and n in expected}
        if len(matched) != len(self.levels.belongs):
            by_name = {v.name: n for n, v in matched.items()}
            self.levels.belongs = {n: by_name.get(weight_of(v.name, by_name) or "") for n, v in matched.items()}
        return matched

    def _fed(self, subject: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The arguments; each iterator or dataset, and each that is read beside them, can be had again."""
        if id(subject) not in self._beside:
            beside = []
            for value, put in read_beside(subject):
                feed = self._feed(value)
                if feed is not None:
                    put(feed.handed)
                    beside.append(feed)
            self._beside[id(subject)] = subject, beside
        self._used = [*self._beside[id(subject)][1]]
        handed = tuple(map(self._handed, args)), {name: self._handed(value) for name, value in kwargs.items()}
        for feed in self._used:
            feed.begins()
        return handed

    def _handed(self, value: Any) -> Any:
        feed = self._feed(value)
        if feed is None:
            return value
        self._used += [feed] * (feed not in self._used)
        return feed.handed

    def _feed(self, value: Any) -> Feed | None:
        """What stands for it, from now on; None for what nothing can stand for."""
        beside = [feed for _, feeds in self._beside.values() for feed in feeds]
        given = [feed for _, feed in self._feeds.values() if feed is not None]
        known = next((feed for feed in (*beside, *given) if feed.handed is value), None)
        if known is not None or not can_be_fed(value):
            return known
        if id(value) not in self._feeds:
            feed = None
            with contextlib.suppress(TypeError, ValueError, NotImplementedError):
                feed = Feed(value)
            self._feeds = dict([(id(value), (value, feed)), *self._feeds.items()][:FEEDS])
        return self._feeds[id(value)][1]

    # ---- comparing

    def _between(self, first: int) -> Snapshot | None:
        """Compares what both did since the unit before, and takes the cluster's state over; the state, if it stays."""
        snapshot, there, line = take(everything=True), self.recorded.before(first), None
        if self._taken or self.watched.position == (0, 0):
            line = self._changes(snapshot, there, self.recorded.units[first].step)
        self._open = snapshot, self._taken, line
        return None if self._take_over(self._by_number(snapshot), there, snapshot) else snapshot

    def _say(self, line: dict[str, Any] | None) -> None:
        if line is not None:
            self._write_line(line, {}, kind="between")
            self._stop_early(line["wrong"])

    def _undo(self) -> None:
        """Puts back what was taken over for a call that is no unit."""
        if self._open is not None:
            snapshot, self._taken, _line = self._open
            self._open = None
            for variable in self._by_number(snapshot).values():
                if snapshot.of(variable):
                    variable.assign(snapshot.of(variable))

    def _by_number(self, snapshot: Snapshot) -> dict[int, Variable]:
        numbers = self.recorded.numbers
        return {numbers[v.identity]: v for v in snapshot.values if v.role == "" and v.identity in numbers}

    def _changes(self, snapshot: Snapshot, there: State, step: int) -> dict[str, Any] | None:
        """Since the unit before, or since nothing at the start: a line where the two are not the same."""
        changes = []
        for number, variable in self._by_number(snapshot).items():
            mine = snapshot.of(variable)
            if not mine or number not in there:
                continue
            ours, theirs = one(variable, mine), one(variable, self._folds(variable, there[number]))
            if self._goes_on_otherwise(variable) or same_bits(ours, theirs):
                continue
            start = self._taken.get(number)
            base = np.zeros_like(theirs) if start is None else one(variable, self._folds(variable, start))
            changes.append(Change(number, variable.dtype, base, ours, base, theirs))
        line = self._line(changes)
        wrong = [n for n, ratio in line["ratio"].items() if ratio > max(UNMEASURED, line["floor"][n])]
        return {**line, "wrong": wrong, "step": step} if changes else None

    def _compare(self, made: Made, begun: State, done: State, matched: dict[int, Variable]) -> dict[str, Any]:
        changes, split = [], []
        for number, variable in matched.items():
            if self._goes_on_otherwise(variable):
                continue
            here_before, here_after = made.before.of(variable), made.after.of(variable)
            self._folds.learn(variable, done[number], here_after)
            ended = one(variable, self._folds(variable, done[number]))
            there = one(variable, self._folds(variable, begun[number])) if number in begun else np.zeros_like(ended)
            start = one(variable, here_before) if here_before else there
            if variable.kept == "mirrored" and not all(same_bits(here_after[0], copy) for copy in here_after[1:]):
                split.append(number)
            changes.append(Change(number, variable.dtype, start, one(variable, here_after), there, ended))
        return {**self._line(changes), "split": split}

    def _skipped(self, changes: list[Change]) -> bool:
        """Whether either this process or the cluster, not both, has left all weights, counters aside, as they were."""
        weights = [c for c in changes if self.recorded.variables[c.number]["trainable"] and "float" in c.dtype]
        here, there = (any(np.any(each[k] != each[k + 1]) for each in weights) for k in (2, 4))
        return here != there

    def _weights(self, matched: dict[int, Variable], begun: State) -> dict[int, Any]:
        """What the weights held that the optimizers' variables belong to, by these variables' numbers."""
        return {
            n: begun[weight][0]
            for n, weight in self.levels.belongs.items()
            if weight in begun and n in matched and begun[weight][0].shape == matched[n].shape
        }

    def _goes_on_otherwise(self, variable: Variable) -> bool:
        return self.place.replicas == 1 and variable.name.split("/")[-1] == GENERATOR

    def _line(self, changes: list[Change]) -> dict[str, Any]:
        """What changes are compared by, by the variable's number, and the changes."""
        line = {"changes": changes, **compared(changes)}
        line["level"] = {number: max(floor, self.levels.usual(number)) for number, floor in line["floor"].items()}
        line["wrong"] = [number for number, ratio in line["ratio"].items() if differs(ratio, line["level"][number])]
        return line

    def _write_line(self, line: dict[str, Any], weights: dict[int, Any], **facts: Any) -> None:
        """As lists, in the order of "numbers"; how the two changes lie only where one is wrong. weights: see there."""
        changes = line.pop("changes")
        facts["numbers"] = list(line["ratio"])
        if line["wrong"]:
            line |= described(changes, weights)
            single = [each for each in changes if np.size(each.after) == 1 and each.number in line["wrong"]]
            values = [[each.number, *(float(np.ravel(v)[0]) for v in (each.after, each.its_after))] for each in single]
            facts |= {"single": values} if values else {}
        self._write(facts | {name: list(v.values()) if isinstance(v, dict) else v for name, v in line.items()})

    def _take_over(self, matched: dict[int, Variable], there: State, now: Snapshot) -> bool:
        """Takes the cluster's state over; whether this process held anything else."""
        other = False
        for number, variable in matched.items():
            if number not in there:
                continue
            values, mine = self._folds(variable, there[number]), now.of(variable)
            alike = len(values) == len(mine) or len(values) == 1
            if not alike or not all(same_bits(m, values[k % len(values)]) for k, m in enumerate(mine)):
                variable.assign(values)
                other = True
        self._taken = there
        return other

    # ---- how much of it is rounding

    def _measure(
        self, line: dict[str, Any], made: Made, begun: State, matched: dict[int, Variable], counted: int
    ) -> None:
        """Repeats the step with last digits changed; what an update differs by then is this variable's level.

        counted: how many updates the unit has made.
        """
        feeds = self._used
        if self._repeated >= MEASURED + self._followed / 10 or not made.repeatable(feeds):
            line["wrong"] = [number for number in line["wrong"] if line["ratio"][number] > UNMEASURED]
            line["measured"] = False
            if line["wrong"] and (counted > 1 or updates.precision()):  # rounding may have grown, or is as large
                line["wrong"], line["open"] = [], True
            return
        self._repeated += 1
        again = Repeated(made, feeds, matched, begun)
        with self.place.journal.muted():
            spread = again.exactly()
            values = {number: math.prod(matched[number].shape) for number in spread}
            others = sum(values[number] for number, apart in spread.items() if again.part(number, apart) > UNMEASURED)
            # A step that does not repeat itself teaches nothing by being repeated; a sum whose terms cancel, as a
            # bias's before a softmax, is no more than their rounding, which threads alone make another one.
            if others <= FEW * sum(values.values()):
                self.levels.judge(line, again, spread, values)
            else:
                line["measured"] = False
        again.restore()

    # ---- what comes of it

    def _stop_early(self, wrong: list[int]) -> None:
        if wrong and self._left < 0:
            self._left = FURTHER
        elif self._left >= 0:
            self._left -= 1
            if self._left <= 0:
                self._end("enough")

    @property
    def ended(self) -> bool:
        return self._file < 0

    def _end(self, why: str, **facts: Any) -> None:
        self.finish(why, **facts)
        raise Ended(why)

    def finish(self, why: str = "done", **facts: Any) -> None:
        if self._file < 0:
            return
        recorded = self.recorded
        if why == "done":
            try:
                self._compare_end()
            except Damaged as damage:
                why, facts = "damaged", {"damaged": damage.args[0]}
        whole = recorded.complete and self._followed == len(recorded.units) and self.watched.position == recorded.last
        facts |= {"levels": self.levels.above(), "coarse": updates.precision(), "whole": whole, "sharded": sharded()}
        made, here = (made or calls for made, calls in (recorded.last or (0, 0), self.watched.position))
        self._write({"end": why, "recorded": len(recorded.units), "made": made, "here": here, **facts})
        os.close(self._file)
        self._file = -1

    def _compare_end(self) -> None:
        """What the function has changed since its last step; an end that was not recorded leaves the end open."""
        if self.recorded.end is None or not self._taken or self.watched.position != self.recorded.last:
            return
        with contextlib.suppress(Ended):
            self._say(self._changes(take(everything=True), self.recorded.at_end(), self.recorded.end.step))

    def _write(self, line: dict[str, Any]) -> None:
        os.write(self._file, (json.dumps(line) + "\n").encode())


def ended() -> bool:
    """Whether a follower is there that has seen enough."""
    follower = watcher()
    return isinstance(follower, Follower) and follower.ended
