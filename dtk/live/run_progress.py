"""What a live view knows of a run: steps, loss, examples/s, the time left."""

from __future__ import annotations

import math
from array import array
from collections import deque
from datetime import timedelta
from statistics import median

from dtk.language import N_, _, three
from dtk.records import Record, events
from dtk.records.events import Event
from dtk.watch.reader import Reader
from dtk.watch.waiting import clauses

_WINDOW = 50  # steps by whose pace the rest is expected
_MOST_SHARES = 16  # of more replicas, or workers, only the loss is kept and not what each contributes
_OPEN_STEPS = 4096  # steps that some replicas have recorded and others not; beyond it the oldest are given up


class RunProgress:
    """How far a run is, by its records and events while they are written, as `reader` reads them.

    step: the last that every replica has recorded; reached: each member's last. loss: its global loss, NaN before the
    first. rate: examples/s of all workers together, as `dtk.scaling.timing.throughput_of` has it. total: the steps that
    the announced training has, None where that is not known. steps, losses: each step's number, and its global loss as
    curves to be added up: one for each worker, or for each replica where one worker has all; a single one for one
    replica and for more than 16. evaluator: what the evaluator does, in words. evaluated: its last evaluation, or "".
    """

    def __init__(self, reader: Reader, replicas: int):
        """replicas: in each worker."""
        reader.following, folder = self, reader.folder
        self.reached = [0] * len(folder.members)
        self.evaluator, self.evaluated = _("waiting for a checkpoint"), ""
        self.workers, self.replicas = folder.workers, replicas * folder.workers
        self.step, self.epoch, self.loss = 0, 0, float("nan")
        count = self.workers if self.workers > 1 else replicas
        self.steps = array("q")
        self.losses = [array("d") for __ in range(count if count <= _MOST_SHARES else 1)]
        self._open: dict[int, list[Record]] = {}  # by step, of those that not all replicas have recorded yet
        self._recent: deque[float] = deque(maxlen=_WINDOW)  # ends
        self._rates = array("d")  # examples/s of each step but the first
        self._planned: tuple[int, int | None, int | None] | None = None  # steps before, steps an epoch, epochs
        self._epoch_began = 0  # steps before the present epoch
        self._measured: int | None = None  # steps of the last whole epoch, where they were not announced

    def take(self, member: int, news: Event | Record) -> None:
        """Take in what the reader has read (`dtk.watch.reader`)."""
        if isinstance(news, Record):
            self.reached[member] = max(self.reached[member], news.step)
            self._take(news)
        elif isinstance(news, (events.Evaluating, events.Evaluation)):
            self._take_evaluation(news)
        elif isinstance(news, events.Counted):  # after a restart, what was trained before
            self.reached[member] = max(self.reached[member], news.recorded)
        elif isinstance(news, events.Training) and member == 0:
            self._planned = (self.reached[member], news.steps, news.epochs)
            self._measured = None

    def _take_evaluation(self, news: events.Evaluating | events.Evaluation) -> None:
        what = _("evaluating") if isinstance(news, events.Evaluating) else _("evaluated")
        said = what if news.step is None else clauses([what, _("step {step}", step=news.step)])
        if isinstance(news, events.Evaluating):
            self.evaluator = said
            return
        values = [f"{k} {v:.4g}" if isinstance(v, (int, float)) else f"{k} {v}" for k, v in news.metrics.items()]
        self.evaluated = _("{name}: {words}", name=said, words=_(", ").join(values)) if values else said
        self.evaluator = self.evaluated

    def _take(self, record: Record) -> None:
        rows = self._open.setdefault(record.step, [])
        rows.append(record)
        if len(rows) == self.replicas:
            del self._open[record.step]
            self._complete(record.step, record.epoch, rows)
        elif len(self._open) > _OPEN_STEPS:
            del self._open[next(iter(self._open))]

    def _complete(self, step: int, epoch: int, rows: list[Record]) -> None:
        shares = [0.0 for __ in self.losses]
        for row in rows:
            # A replica without examples adds nothing where its share is no number: see dtk.scaling.shares.
            if row.examples or math.isfinite(row.loss):
                curve = row.worker if self.workers > 1 else row.replica
                shares[curve if len(shares) > 1 else 0] += row.loss
        self.loss, ended = sum(shares), max(row.ended for row in rows)
        self.steps.append(step)
        for losses, share in zip(self.losses, shares, strict=True):
            losses.append(share)
        if self._recent:
            seconds = ended - (self._recent[-1] if epoch == self.epoch else min(row.started for row in rows))
            if seconds > 0:  # a clock too coarse says nothing
                self._rates.append(sum(row.examples for row in rows) / seconds)
        self._recent.append(ended)
        if epoch != self.epoch:
            self._measured = step - 1 - self._epoch_began if self.epoch else None
            self._epoch_began, self.epoch = step - 1, epoch
        self.step = step

    @property
    def rate(self) -> float:
        return median(self._rates) if self._rates else math.nan

    @property
    def total(self) -> int | None:
        if self._planned is None:
            return None
        before, steps, epochs = self._planned
        steps = self._measured if steps is None else steps
        return None if steps is None or epochs is None else before + steps * epochs

    @property
    def eta(self) -> float | None:
        """Seconds until the announced steps are done, at the present pace; None where that can't be said."""
        if self.total is None or len(self._recent) < 2 or self.step > self.total:
            return None
        return (self.total - self.step) * (self._recent[-1] - self._recent[0]) / (len(self._recent) - 1)

    def words(self, ended: bool = False) -> str:
        """Return the progress: "step 40/94, loss 0.53, 1,240 examples/s, ETA 0:00:04"; an ETA before its end."""
        if not self.step:
            return _("no step recorded")
        where = N_("step {step}/{total}") if self.total else N_("step {step}")
        parts = [_(where, step=self.step, total=self.total), _("loss {loss:.4g}", loss=self.loss)]
        if self.rate == self.rate:
            parts.append(_("{rate} examples/s", rate=three(self.rate)))
        if self.eta and not ended:
            parts.append(_("ETA {time}", time=timedelta(seconds=max(1, round(self.eta)))))
        return clauses(parts)
