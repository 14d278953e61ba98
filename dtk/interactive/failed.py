"""The error of a cell that did not come to its end on all workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dtk.errors import DtkError, folded
from dtk.interactive.labels import colored
from dtk.language import N_, _

__all__ = ["CellFailed"]


class CellFailed(DtkError):
    """A cell raised on a worker of a cluster that stays, or can't come to its end there. The cluster is open.

    Attributes:
        worker: index of the worker that raised; of the first that waits, where none raised.
        tracebacks: by worker, the traceback as text, with the learner's lines.
        waits: for each worker that waits in a collective for what can't come, by index, the workers that it waits for.
    """

    def __init__(
        self,
        what: str,
        *,
        worker: int,
        tracebacks: Mapping[int, str],
        waits: Mapping[int, Sequence[int]],
        said: Sequence[tuple[Sequence[int], str]] = (),
        **parts: Any,
    ):
        super().__init__(what, **parts)
        self.worker = worker
        self.tracebacks = dict(tracebacks)
        self.waits = {each: list(awaited) for each, awaited in waits.items()}
        self._said = list(said)  # `what` in parts: of which workers, what

    def with_words(self, words: str) -> CellFailed:
        """The same, with something more to say."""
        return CellFailed(
            f"{self.what}; {words}",
            worker=self.worker,
            tracebacks=self.tracebacks,
            waits=self.waits,
            said=[*self._said, ([], words)],
            remedy=self.remedy,
        )

    def _render_traceback_(self) -> list[str]:
        lines: list[str] = []
        by_text: dict[str, list[int]] = {}
        for worker, text in self.tracebacks.items():
            by_text.setdefault(text, []).append(worker)
        for text, workers in by_text.items():
            lines += [colored(workers), *folded(text.rstrip().splitlines()), ""]
        several = len(self._said) > 1 or (self._said and self.remedy)
        return [*lines, *(self._in_lines() if several else super()._render_traceback_())]

    def _in_lines(self) -> list[str]:
        """The sentence, a line for each part of it, and for each way on."""
        said = [f"{colored(workers)} {words}" if workers else words for workers, words in self._said]
        awaited = {worker for others in self.waits.values() for worker in others} - {*self.waits}
        one = N_("%%worker {worker}, with the lines that it has not run, lets it catch up")
        rest = [_(one, worker=worker) for worker in sorted(awaited)]
        ways = [*rest, _("cluster.free() ends the wait")] if self.remedy else []
        heads = [_("then: {way}", way=way) for way in ways[:1]] + [_("or: {way}", way=way) for way in ways[1:]]
        return [f"{type(self).__name__}:", *said, *heads]
