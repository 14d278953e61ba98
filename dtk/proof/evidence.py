"""What two runs left behind, read and found complete: the ground that `dtk.verify` compares on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dtk.errors import VerificationError
from dtk.language import N_, _
from dtk.records import RunFolder
from dtk.records.events import Finished, of_kind
from dtk.records.facts import RunLike
from dtk.records.tables import NAMED
from dtk.scaling.shares import by_step

__all__ = ["RECORDER", "Evidence", "check_arguments", "collect"]

RECORDER = N_("add dtk.Recorder() to the callbacks of fit, or dtk.record_step(…) to a loop of your own")


@dataclass(frozen=True)
class Evidence:
    """One run's numbers. shares and examples: `(steps, replicas)`; epochs: `(steps,)`. Row i is step i + 1."""

    run: RunLike
    name: str  # "cluster", "mirrored run", "run" or "baseline": what sentences call it
    shares: np.ndarray
    examples: np.ndarray
    epochs: np.ndarray

    @property
    def steps(self) -> int:
        return len(self.shares)

    @property
    def replicas(self) -> int:
        """Replicas in sync, over all workers."""
        return self.shares.shape[1]

    @property
    def global_batch(self) -> int:
        """Examples of the largest step; the last one of an epoch may be smaller."""
        return int(self.examples.sum(axis=1).max())

    @cached_property
    def named(self) -> dict[str, np.ndarray]:
        """The shares of each loss of a step, `(steps, replicas)`, by name, where steps have several; else {}."""
        table = self.run.records
        names = [str(column) for column in table.columns if str(column).startswith(NAMED)]
        return {
            name.removeprefix(NAMED): np.nan_to_num(by_step(table, name).to_numpy(), nan=0.0)[: self.steps]
            for name in names
        }

    @cached_property
    def prints(self) -> np.ndarray:
        """The fingerprints of the examples, `(steps, replicas)`; NaN where unknown."""
        return by_step(self.run.records, "data").to_numpy()[: self.steps]

    def first(self, steps: int) -> Evidence:
        """The same, as if the run had ended after so many steps."""
        return replace(self, shares=self.shares[:steps], examples=self.examples[:steps], epochs=self.epochs[:steps])

    def only(self, name: str) -> Evidence:
        """The same with one loss of several in the place of their sum."""
        return replace(self, shares=self.named[name])

    @cached_property
    def restarts(self) -> list[tuple[int, int]]:
        """(number, first step) of each attempt but the first that recorded a step."""
        spans = {attempt.number: attempt.steps for attempt in self.run.folder.attempts[1:]}
        return [(number, span[0]) for number, span in spans.items() if span is not None]


def check_arguments(run: Any, baseline: Any) -> None:
    """Raises TypeError for what is no run, VerificationError for runs in the wrong places, gone, or with other seeds.

    A baseline has one replica: `dtk.baseline`, or a cluster of one worker with one replica.
    """
    for name, value in (("run", run), ("baseline", baseline)):
        if value is None and name == "baseline":
            return
        if not isinstance(getattr(value, "folder", None), RunFolder) or not isinstance(getattr(value, "mode", 0), str):
            source = "dtk.baseline" if name == "baseline" else "dtk.run"
            kind = _("a function") if callable(value) else f"{type(value).__name__} {value!r:.40}"
            what = N_("verify compares what dtk.run and dtk.baseline return; `{name}` is {kind}: pass {source}(…)")
            raise TypeError(_(what, name=name, kind=kind, source=source))
        if not value.folder.path.is_dir():
            what = N_("the directory of `{name}` is gone, and with it the states that verify follows")
            raise VerificationError(_(what, name=name), reason="arguments", remedy=_("run it again"))
    if run.folder.path == baseline.folder.path:
        raise VerificationError(
            _("run and baseline are the same run, which proves nothing"),
            reason="arguments",
            remedy=_("pass the result of dtk.run and that of dtk.baseline"),
        )
    if _replicas(baseline) > 1:
        facts = f"mode={baseline.mode} workers={baseline.folder.workers} replicas={_replicas(baseline)}"
        swapped = _replicas(run) == 1
        remedy = _("swap them: dtk.verify(run, baseline)") if swapped else _("make it with dtk.baseline(train)")
        raise VerificationError(
            _("the second argument is no baseline ({facts}): a baseline has 1 replica on 1 device", facts=facts),
            reason="arguments",
            remedy=remedy,
        )
    if run.seed is not None and baseline.seed is not None and run.seed != baseline.seed:
        raise VerificationError(
            _("baseline: seed {other}, run: seed {mine}", other=baseline.seed, mine=run.seed),
            reason="seeds",
            remedy=_("pass the same seed to dtk.run and dtk.baseline"),
            numbers={"baseline": baseline.seed, "run": run.seed},
        )


def collect(run: RunLike, name: str) -> Evidence:
    """Reads a run whose records are complete: each replica has each step from 1 to the last, once; or nobody has any.

    Raises VerificationError, with the replica and the step, where they are not, and where workers ran
    different numbers of steps or did not come to their end.
    """
    records = run.records
    if not len(records):
        nothing = np.zeros((0, _replicas(run)))
        return Evidence(run, name, nothing, nothing.astype(np.int64), np.zeros(0))
    _check_ended(run, name)
    _check_steps(run, name)
    epochs = records.groupby("step").epoch.first()
    shares, examples = by_step(records, "loss").to_numpy(), by_step(records, "examples").to_numpy(np.int64)
    return Evidence(run, name, shares, examples, epochs.to_numpy())


def _replicas(run: RunLike) -> int:
    return run.folder.workers * run.replicas


def _check_ended(run: RunLike, name: str) -> None:
    for corner in run.folder.each:
        if not of_kind(corner.events, Finished):
            what = N_("worker {worker} of the {run} did not come to its end, so there is nothing final to compare")
            what = _(what, worker=corner.worker, run=name)
            raise VerificationError(what, reason="records", remedy=_("run it again"))


def _check_steps(run: RunLike, name: str) -> None:
    by_replica, replicas = run.records.groupby("replica"), _replicas(run)
    last = by_replica.step.max()
    if list(last.index) != list(range(replicas)):
        what = N_("the {run} has {replicas} replicas, and its records are of the replicas {found}")
        what = _(what, run=name, replicas=replicas, found=_(", ").join(map(str, last.index)))
        raise VerificationError(what, reason="records", remedy=_(RECORDER))
    for replica, steps in by_replica.step:
        times = np.bincount(steps)[1:]
        for k in np.flatnonzero(times != 1)[:1]:
            what = N_("step {step} of replica {replica} of the {run} is recorded {times} times, and its last is {last}")
            what = _(what, step=k + 1, replica=replica, run=name, times=times[k], last=last[replica])
            raise VerificationError(what, step=int(k) + 1, reason="records", remedy=_("run it again"))
    least, most = int(last.idxmin()), int(last.idxmax())
    fewer, steps = int(last.min()), int(last.max())
    if fewer != steps:
        worker = by_replica.worker.first()
        what = N_("replica {most} (worker {its}) ran {steps} steps, replica {least} (worker {other}) {fewer}")
        raise VerificationError(
            _(what, most=most, its=worker[most], steps=steps, least=least, other=worker[least], fewer=fewer),
            step=fewer + 1,
            reason="steps",
            remedy=_("replicas step together, so give every worker the same data and the same steps_per_epoch"),
            numbers={"least": fewer, "most": steps},
        )
