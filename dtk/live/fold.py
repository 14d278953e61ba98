"""Lines of several workers as one stream in which equal lines stand once: "[worker 0-3] Epoch 1/3"."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence

from dtk.language import _, ngettext

__all__ = ["Fold", "label", "named", "workers_in_words"]

_HOLD = 0.5  # seconds that a line waits for the same line of the other workers


class Fold:
    """Keeps the order of each member's lines. workers: how many; further: the names of members after them."""

    def __init__(self, workers: int, further: Sequence[str] = (), clock: Callable[[], float] = time.monotonic):
        self._queues: list[deque[tuple[float, str]]] = [deque() for _ in range(workers + len(further))]
        self._counts: list[Counter[str]] = [Counter() for _ in self._queues]  # how often each line is in a queue
        self._names, self._clock = dict(enumerate(further, workers)), clock

    def add(self, member: int, lines: Iterable[str]) -> None:
        now = self._clock()
        for line in lines:
            self._queues[member].append((now, line))
            self._counts[member][line] += 1

    def ready(self, last: bool = False) -> list[tuple[str, str]]:
        """Return (label, line) of lines that need not wait any longer; with `last` of all that are left."""
        said: list[tuple[str, str]] = []
        now = self._clock()
        while waiting := [member for member, queue in enumerate(self._queues) if queue]:
            oldest = min(waiting, key=lambda member: self._queues[member][0][0])
            at, line = self._queues[oldest][0]
            alike = [member for member in waiting if self._queues[member][0][1] == line]
            if len(alike) < len(self._queues) and not last and now - at < _HOLD:
                break
            for member in waiting:  # what stands before the same line in another's queue comes first
                if member not in alike and line in self._counts[member]:
                    while self._queues[member][0][1] != line:
                        said.append((self._label([member]), self._pop(member)))
                    alike.append(member)
            for member in alike:
                self._pop(member)
            said.append((self._label(sorted(alike)), line))
        return said

    def _pop(self, member: int) -> str:
        line = self._queues[member].popleft()[1]
        counts = self._counts[member]
        counts[line] -= 1
        if not counts[line]:
            del counts[line]
        return line

    def _label(self, members: list[int]) -> str:
        workers = [member for member in members if member not in self._names]
        return named(workers, [self._names[member] for member in members if member in self._names])


def named(workers: Sequence[int], further: Sequence[str] = ()) -> str:
    """Label what members have in common. further: names of those that are no workers.

    >>> named([0, 1, 3], ["evaluator"])
    '[worker 0-1,3, evaluator]'
    """
    names = [_("worker {worker}", worker=label(workers))] if workers else []
    return f"[{', '.join([*names, *further])}]"


def workers_in_words(numbers: Sequence[int]) -> str:
    """Name workers within a sentence.

    >>> workers_in_words([1]), workers_in_words([2, 0, 1])
    ('worker 1', 'workers 0-2')
    """
    return ngettext("worker {workers}", "workers {workers}", len(numbers), workers=label(sorted(numbers)))


def label(numbers: Sequence[int]) -> str:
    """Join numbers in their order, with runs of them shortened.

    >>> label([0]), label([0, 1, 2, 3]), label([0, 2, 3, 7])
    ('0', '0-3', '0,2-3,7')
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{first}" if first == end else f"{first}-{end}" for first, end in runs)
