"""How far this process's training has come, and what its model holds: shared by all that record.

What was trained is compared with what was recorded: every optimizer's updates are counted and written down.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import wrapt

from dtk.compat import feeds, updates
from dtk.compat.libraries import tf
from dtk.compat.per_replica import key_of, name_of, strategy_of
from dtk.compat.strategies import has_a_cluster
from dtk.compat.tap import Tap
from dtk.environment import Here
from dtk.errors import ALONE, ClusterConfigError
from dtk.language import N_, _
from dtk.records import Record, events
from dtk.worker.injecting import Injector

MEET_SECONDS = 60.0  # how long a worker of a run "apart" waits for the first steps of the others


@dataclass
class Known:
    """A model that is recorded.

    key: the object itself, or a tuple for a list of variables. part: its place among those that are recorded.
    announced: whether the events say what kind of training it had. tap: what reads its steps, where `fit` trains it.
    """

    key: Any
    part: int
    weights: Callable[[], list[Any]]
    announced: bool = False
    tap: Tap | None = None


@dataclass
class Progress:
    """One count of steps and epochs, whoever records them: several `fit`s, a loop after a `fit`.

    models: those that are recorded, in their order. estimated: what Estimators made, each as an entry of the event
    "updates". trainings: how many began; looping: whether a loop of one's own, with `dtk.record_step`, is among them.
    rings: how many the function has joined (`dtk.ring`), by which it may add up gradients itself.
    """

    place: Here
    steps: int = 0
    epoch: int = 0
    models: dict[Any, Known] = field(default_factory=dict)
    estimated: list[events.Optimizer] = field(default_factory=list)
    trainings: int = 0
    looping: bool = False
    rings: int = 0
    _met: bool = False

    def known(self, model: Any, weights: Callable[[], list[Any]]) -> Known:
        """What is known of the model, which is kept until the function's end, to be compared then."""
        key = model if isinstance(model, tuple) else id(model)
        return self.models.setdefault(key, Known(model, len(self.models), weights))

    def finish(self) -> None:
        """At the function's end: what every recorded model holds then."""
        for model in self.models.values():
            self.save_weights(model)

    def save_weights(self, known: Known) -> None:
        """Writes a model's weights as they are now, in its own order, to the worker's folder."""
        # Read on every worker: a variable that is synchronized when it is read needs all of them.
        weights = known.weights()
        arrays = [weight.numpy() for weight in weights]
        self.place.folder.save_weights([name_of(weight) for weight in weights], arrays, known.part)

    def record(self, rows: Sequence[Any], names: list[str], span: tuple[float, float]) -> None:
        """Writes down the next step: for each local replica its examples, their fingerprint, and its losses' shares.

        names: of the losses, where there are several; what a row has beyond them adds nothing. span: begin and end (s).
        """
        self.steps += 1
        first = self.place.worker * len(rows)  # a worker's replicas follow each other in the cluster's numbering
        step, (began, ended) = (self.steps, self.epoch), span
        self.place.journal.record(
            Record(self.place.worker, first + k, *step, float(sum(losses)), int(examples), began, ended, float(data))
            for k, (examples, data, *losses) in enumerate(rows)
        )
        if names:
            shares = [dict(zip(names, map(float, row[2:]), strict=False)) for row in rows]
            self.place.journal.losses((first + k, self.steps, each) for k, each in enumerate(shares))

    def before_step(self, count: int = 1, weights: Callable[[], list[Any]] = list) -> None:
        """The next `count` steps begin now: brings the faults that are due (`dtk.faults`).

        weights: gives the trainable weights of the model. Every recorder calls this, on every worker.
        """
        if self.place.mode == "apart" and self.steps and not self._met:
            self._met = True
            # The first step, in which the function is traced, is made: `dtk.scaling.summary.apart` counts only those
            # during which all were at work.
            self.place.meet(lambda peer: peer.records or events.of_kind(peer.events, events.Finished), MEET_SECONDS)
        self._injector.before(self.steps + 1, self.steps + count, weights)

    @cached_property
    def _injector(self) -> Injector:
        return Injector(self.place)

    def begins(self, counted: int | None, offset: int = 0) -> int:
        """A training begins (a `fit`, a loop), at which the optimizer has counted so many steps; None: unknown.

        After a restart, `steps` becomes what the run has trained by then: what was recorded when the same training,
        by its number in the function, first began, and what the optimizer has counted since. offset: to be added to
        this training's own epochs; returned is that of its first beginning.
        """
        self.trainings += 1
        corners = [attempt.worker(self.place.worker) for attempt in self.place.run.earlier]
        begun = [event for corner in corners for event in events.of_kind(corner.events, events.Counted)]
        first = next((event for event in begun if event.training == self.trainings), None)
        if first is not None and counted is not None and first.counted is not None:
            self.steps, offset = first.recorded + max(0, counted - first.counted), first.offset
        facts: dict[str, Any] = {"training": self.trainings, "counted": counted, "offset": offset}
        self.place.journal.event(events.Counted(self.place.now(), recorded=self.steps, **facts))
        return offset


@functools.lru_cache(1)
def progress(place: Here) -> Progress:
    """This process's count, which begins anew with each run."""
    return Progress(place)


@functools.cache
def say_unrecorded(who: str) -> None:
    """Says, once, that a recorder was used outside of a run."""
    words = N_("{who}: this process was not started by dtk.run or dtk.baseline; nothing is recorded")
    print(_(words, who=who))


def check_strategy(weights: list[Any], place: Here) -> None:
    """Raises where each worker of a cluster trains under a strategy that knows of no other worker, or under none.

    Further where an evaluator trains: its steps belong to no worker.
    """
    if place.role == "evaluator":
        words = N_(
            "the evaluator trains a model of its own, beside the workers'; give it a function that evaluates "
            "checkpoints (evaluator=True is for Estimator's train_and_evaluate)"
        )
        raise ClusterConfigError(_(words))
    if _may_train_alone(place):
        return
    strategy = strategy_of(weights)
    if strategy is not None and strategy.num_replicas_in_sync <= place.replicas:
        words = N_(
            "the model was made under {name}, so each of the {workers} workers trains alone; make "
            "tf.distribute.MultiWorkerMirroredStrategy() in its place, or run one worker with replicas={workers}"
        )
        if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            words = N_(
                "the strategy was made while TF_CONFIG was not set, so each of the {workers} workers trains "
                "alone; leave out the line that removes it, such as os.environ.pop('TF_CONFIG')"
            )
        raise ClusterConfigError(_(words, name=type(strategy).__name__, workers=place.workers))
    if not has_a_cluster():
        raise ClusterConfigError(_(ALONE, workers=place.workers))


def _may_train_alone(place: Here) -> bool:
    return place.workers == 1 or place.mode != "cluster" or place.role != "worker" or progress(place).rings > 0


# ---- every optimizer's updates: made, and recorded


def _counts_updates(place: Here) -> bool:
    return os.environ.get("DTK_UPDATES") != "0" and place.role != "evaluator"


def watch_updates(place: Here) -> None:
    """From now on; TensorFlow and Keras may be imported or not. `DTK_UPDATES=0` does without; verify then refuses."""
    if not _counts_updates(place):
        return

    def traced(optimizer: updates.UpdateCounter, **facts: Any) -> None:
        alone = not _may_train_alone(place) and not has_a_cluster()
        place.journal.event(events.Traced(place.now(), optimizer=optimizer.name, alone=alone, **facts))

    updates.watch_gradients(place.replicas)
    feeds.watch_datasets(lambda **found: place.journal.event(events.Augments(place.now(), **found)))
    for name in ("keras", "tf_keras"):
        wrapt.register_post_import_hook(lambda keras: updates.watch(keras, place.replicas, traced), name)


def write_updates(place: Here) -> None:
    """At the function's end: what each optimizer made, and what of it was recorded."""
    if not _counts_updates(place):
        return
    state = progress(place)
    counted, models = list(state.estimated), list(state.models.values())
    lost_of = [({key_of(weight) for weight in m.weights()}, m.tap.unread() if m.tap else 0) for m in models]
    for each in updates.counted():
        inside, outside = each.so_far()
        lost = min(inside, sum(many for keys, many in lost_of if keys & {*each.variables}))
        recorded, names = inside - lost + min(outside, each.recorded), [*each.variables.values()]
        counted.append(events.Optimizer(name=each.name, variables=names, made=inside + outside, recorded=recorded))
    place.journal.event(events.Updates(place.now(), optimizers=counted, models=len(models) + len(state.estimated)))


# ---- what the evaluator writes down: one event per evaluation, with its times, its step and its metrics


def evaluating(place: Here, step: int | None = None) -> float:
    """Says that an evaluation begins, for those who watch; returns its start, in seconds since the call of `dtk.run`.

    step: of the weights that are evaluated, None where it is not known yet.
    """
    started = place.now()
    place.journal.event(events.Evaluating(started, step=step))
    return started


def evaluated(place: Here, *, step: int | None, started: float, metrics: Mapping[str, Any]) -> None:
    """Writes down an evaluation that ends now: its start, the step of its weights, and its metrics by name.

    Metrics are numbers, also NumPy's and TensorFlow's. An array becomes a list.
    """
    plain = {str(name): np.asarray(value).tolist() for name, value in metrics.items()}
    step = None if step is None else int(step)
    place.journal.event(events.Evaluation(place.now(), started=started, step=step, metrics=plain))
