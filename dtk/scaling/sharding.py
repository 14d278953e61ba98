"""Which example went to which replica at which step; what went to several, and what to none. Pure arithmetic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dtk.language import N_, _, ngettext

if TYPE_CHECKING:
    import pandas

__all__ = ["Sharding", "from_lists", "in_words"]


@dataclass(frozen=True, eq=False)
class Sharding:
    """What the replicas of a cluster saw in one pass over a dataset, and what one device sees in it.

    table: one row for each example that a replica was given, columns worker, replica, step (from 1) and example, its
    number, in the order in which they came. alone: the columns step and example of one device's pass; its step
    is 0 where only the numbers are known. replicas counts over all workers, those without any example too. policy: the
    autoshard policy that was in force, "input_context" where the function divided the data itself, "" if unknown.
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
        """The first step at which the replicas together did not see what one device sees then; None if none is.

        None too where one device's steps are not known.
        """
        together, alone = _by_step(self.table), _by_step(self.alone)
        apart = [step for step in together.keys() | alone.keys() if together.get(step) != alone.get(step)]
        return min(apart) if apart and 0 not in alone else None

    def __repr__(self) -> str:
        policy = f" policy={self.policy}" if self.policy else ""
        counts = f"examples={self.examples} repeated={len(self.repeated)} gaps={len(self.gaps)}"
        return f"<Sharding{policy} workers={self.workers} replicas={self.replicas} {counts}>"


def from_lists(
    workers: Sequence[Any], alone: Sequence[Any] | int | None = None, policy: str = "", replicas: int = 1
) -> Sharding:
    """A `Sharding` from what functions returned: by worker, then by step, the numbers of the examples it saw.

    A worker of several replicas has, by step, one list per replica; `replicas` is their number in each worker.
    alone: what one device saw, in the same form without the workers; or how many examples there are, numbered
    from 0; by default as many as the largest number seen says. Raises ValueError for anything else.

    Policy DATA deals each global batch of 4 out; with OFF each worker reads all by itself:

    >>> from_lists([[[0, 1], [4, 5]], [[2, 3], [6, 7]]], alone=[[0, 1, 2, 3], [4, 5, 6, 7]], policy="DATA")
    <Sharding policy=DATA workers=2 replicas=2 examples=8 repeated=0 gaps=0>
    >>> from_lists([[[0, 1], [2, 3]], [[0, 1], [2, 3]]], alone=6)
    <Sharding workers=2 replicas=2 examples=6 repeated=4 gaps=2>
    """
    import pandas

    rows = []
    for worker, steps in enumerate(workers):
        for step, parts in enumerate(_steps(steps, replicas, _("worker {worker}", worker=worker)), 1):
            for local, numbers in enumerate(parts):
                rows += [(worker, worker * replicas + local, step, number) for number in numbers]
    table = pandas.DataFrame(rows, columns=["worker", "replica", "step", "example"]).astype("int64")
    table = table.sort_values(["step", "replica"], kind="stable", ignore_index=True)
    if alone is None:
        alone = int(table.example.max()) + 1 if len(table) else 0
    if isinstance(alone, int):
        whole = [(0, number) for number in range(alone)]
    else:
        steps = _steps(alone, 1, _("one device"))
        whole = [(step, number) for step, parts in enumerate(steps, 1) for number in parts[0]]
    reference = pandas.DataFrame(whole, columns=["step", "example"]).astype("int64")
    return Sharding(table, reference, len(workers), len(workers) * replicas, policy)


def in_words(sharding: Sharding) -> str:
    """What happened to the examples, in one sentence.

    >>> in_words(from_lists([[[0, 1]], [[2, 3]]], alone=4))
    'Each of 4 examples went to one replica'
    >>> in_words(from_lists([[[0, 1]], [[0, 1]]], alone=2))
    'Every replica saw all 2 examples'
    >>> in_words(from_lists([[[0, 1]], [[0, 2]]], alone=4))
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


def _steps(steps: Any, replicas: int, who: str) -> list[list[list[int]]]:
    """By step and replica the numbers, from lists or arrays that may leave out the replicas' level."""
    result, part = [], steps
    try:
        for part in steps:
            parts = [np.asarray(part)] if replicas == 1 and np.ndim(_first(part)) == 0 else [*map(np.asarray, part)]
            if len(parts) != replicas or any(p.ndim != 1 or (p.size and p.dtype.kind not in "iu") for p in parts):
                raise ValueError
            result.append([p.astype(int).tolist() for p in parts])
    except (TypeError, ValueError):
        words = N_("{who}: expected, by step, a list of the numbers of the examples that it saw; got {part!r}")
        if replicas > 1:
            words = N_("{who}: expected, by step and replica, a list of the numbers of the examples; got {part!r}")
        raise ValueError(_(words, who=who, part=part)[:200]) from None
    return result


def _first(part: Any) -> Any:
    return part[0] if len(part) else 0


def _by_step(table: pandas.DataFrame) -> dict[int, list[int]]:
    return {int(step): sorted(group) for step, group in table.groupby("step").example}
