"""Which example went to which replica at which step; what went to several, and what to none. Pure arithmetic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dtk.language import N_, _, ngettext

if TYPE_CHECKING:
    import pandas

__all__ = ["Sharding", "from_lists", "in_words"]


@dataclass(frozen=True, eq=False)
class Sharding:
    """What the replicas of a cluster saw in one pass over a dataset, and what one device sees in it.

    table: one row for each example that a replica was given, columns worker, replica, step (from 1) and example, its
    number, in the order in which they came. alone: the columns step and example of one device's pass.
    replicas counts over all workers, those without any example too. policy: the autoshard policy that was in force,
    "input_context" where the function divided the data itself, "" if unknown.
    """

    table: pandas.DataFrame
    alone: pandas.DataFrame
    workers: int
    replicas: int
    policy: str = ""

    @property
    def examples(self) -> int:
        """How many different examples one device sees."""
        return int(self.alone.example.nunique())

    @property
    def repeated(self) -> list[int]:
        """Examples that the replicas together saw more often than one device does, and more than once, in order.

        A dataset that repeats its examples does so on one device too, and that is no mistake.
        """
        expected = Counter(self.alone.example)
        return sorted(int(k) for k, times in Counter(self.table.example).items() if times > max(1, expected[k]))

    @property
    def gaps(self) -> list[int]:
        """Examples that one device sees and the replicas together do not, or not as often, in order."""
        times = Counter(self.table.example)
        return sorted(int(k) for k, expected in Counter(self.alone.example).items() if times[k] < expected)

    @property
    def each_sees_all(self) -> bool:
        """Every replica saw every example of one device's, and there are several replicas."""
        whole = set(self.alone.example)
        seen = [set(group) for _, group in self.table.groupby("replica").example]
        return self.replicas > 1 and len(seen) == self.replicas and all(whole <= part for part in seen)

    @property
    def parts_at(self) -> int | None:
        """The first step at which the replicas together did not see what one device sees then; None if none is."""
        together, alone = _by_step(self.table), _by_step(self.alone)
        apart = [step for step in together.keys() | alone.keys() if together.get(step) != alone.get(step)]
        return min(apart, default=None)

    def __repr__(self) -> str:
        policy = f" policy={self.policy}" if self.policy else ""
        counts = f"examples={self.examples} repeated={len(self.repeated)} gaps={len(self.gaps)}"
        return f"<Sharding{policy} workers={self.workers} replicas={self.replicas} {counts}>"


def from_lists(workers: Sequence[Any], alone: Sequence[Any], policy: str = "", replicas: int = 1) -> Sharding:
    """Make a `Sharding` of the numbers of the examples that each worker saw, by worker, then by step.

    Args:
        workers: of one worker, by step, a list of numbers; with several replicas in a worker, a list of each.
        alone: the same of one device.
        policy: the autoshard policy in force.
        replicas: in each worker.

    Policy DATA deals each global batch of 4 out; with OFF each worker reads all by itself:

    >>> alone = [[0, 1, 2, 3], [4, 5, 6, 7]]
    >>> from_lists([[[0, 1], [4, 5]], [[2, 3], [6, 7]]], alone, policy="DATA")
    <Sharding policy=DATA workers=2 replicas=2 examples=8 repeated=0 gaps=0>
    >>> from_lists([[[0, 1], [2, 3]], [[0, 1], [2, 3]]], alone)
    <Sharding workers=2 replicas=2 examples=8 repeated=4 gaps=4>
    """
    import pandas

    rows = [
        (worker, worker * replicas + local, step, number)
        for worker, steps in enumerate(workers)
        for step, parts in enumerate(steps, 1)
        for local, numbers in enumerate([parts] if replicas == 1 else parts)
        for number in numbers
    ]
    table = pandas.DataFrame(rows, columns=["worker", "replica", "step", "example"]).astype("int64")
    table = table.sort_values(["step", "replica"], kind="stable", ignore_index=True)
    whole = [(step, number) for step, numbers in enumerate(alone, 1) for number in numbers]
    reference = pandas.DataFrame(whole, columns=["step", "example"]).astype("int64")
    return Sharding(table, reference, len(workers), len(workers) * replicas, policy)


def in_words(sharding: Sharding) -> str:
    """What happened to the examples, in one sentence.

    >>> in_words(from_lists([[[0, 1]], [[2, 3]]], [range(4)]))
    'Each of 4 examples went to one replica'
    >>> in_words(from_lists([[[0, 1]], [[0, 1]]], [range(2)]))
    'Every replica saw all 2 examples'
    >>> in_words(from_lists([[[0, 1]], [[0, 2]]], [range(4)]))
    'Of 4 examples, 1 was seen more than once and 1 by no worker'
    """
    count, more, fewer = sharding.examples, len(sharding.repeated), len(sharding.gaps)
    if sharding.each_sees_all:
        return _("Every replica saw all {count:,} examples", count=count)
    if not more and not fewer:
        sentence = N_("Each of {count:,} examples went to one replica")
        if sharding.alone.example.duplicated().any():
            sentence = N_("Each of {count:,} examples was seen as often as by one device")
        return _(sentence, count=count)
    seen = ngettext("{n} was seen more than once", "{n} were seen more than once", more, n=f"{more:,}")
    if fewer:
        never = not set(sharding.gaps) & set(sharding.table.example)
        less = N_("{seen} and {fewer:,} less often than by one device")
        if never:
            less = N_("{seen} and {fewer:,} by no worker")
        seen = _(less, seen=seen, fewer=fewer)
    return _("Of {count:,} examples, {seen}", count=count, seen=seen)


def _by_step(table: pandas.DataFrame) -> dict[int, list[int]]:
    return {int(step): sorted(group) for step, group in table.groupby("step").example}
