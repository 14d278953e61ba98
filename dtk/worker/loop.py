"""`dtk.record_step`: what each replica did in a step of a loop of one's own.

Its `model=` is a model, a variable, or several of these, as one list.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dtk.compat import updates
from dtk.compat.fingerprint import element_shapes, row
from dtk.compat.libraries import tf
from dtk.compat.per_replica import key_of, local_values, scope_of
from dtk.compat.tap import norms_of
from dtk.environment import Here, here
from dtk.errors import ClusterConfigError
from dtk.language import N_, _
from dtk.records.events import RING, Loop, Running, Scope, Training, of_kind
from dtk.worker.progress import Known, Progress, check_strategy, progress, say_unrecorded

# One thing that a loop trains: the object itself, or what tells the variables of a list from every other; what gives
# its variables, in its own order.
Trained = tuple[Any, Callable[[], list[Any]]]


def record_step(losses: Any, *, batch: Any, model: Any = None, epoch: Any = None, step: Any = None) -> None:
    """Records one step of a custom training loop; call it once per step, on every worker, and in the baseline.

        per_replica_losses = strategy.run(train_step, args=(batch,))
        dtk.record_step(per_replica_losses, batch=batch, model=model)

    Works inside and outside of a `tf.function`, also of one that holds a whole epoch. Outside of `dtk.run` and
    `dtk.baseline` it prints once that it records nothing.

    Args:
        losses: what `strategy.run` returned, a scalar for each replica: its share of the global loss, the sum over its
            examples divided by the global batch (`tf.nn.compute_average_loss(..., global_batch_size=...)`). Several
            losses per step: a dictionary, {"d_loss": ..., "g_loss": ...}; each is recorded, `loss` is their sum.
        batch: the distributed batch; examples are counted by the first dimension of its first component.
        model: all that the loop trains: a model (anything with `weights` or `variables`), a variable, or a list or
            dictionary of these; None: what Keras's optimizers update. `dtk.verify` compares what they hold when the
            function returns.
        epoch: a whole number or a scalar tensor; None: 1.
        step: likewise; None: counted from 1. With `optimizer.iterations`, which has counted this step, a step that is
            recorded twice or left out is noticed.

    Raises:
        ClusterConfigError: losses that are not one scalar for each of this process's replicas, a call inside of
            `strategy.run`, a step recorded twice or out of order.
    """
    # AutoGraph would turn what follows into graph operations, and it is no part of the learner's computation. Outside
    # of a run TensorFlow is not imported for it.
    record = tf.autograph.experimental.do_not_convert(_record) if "tensorflow" in sys.modules else _record
    record(losses, batch, model, epoch, step)


def _record(losses: Any, batch: Any, model: Any, epoch: Any, step: Any) -> None:
    place = here()
    if place is None:
        say_unrecorded("dtk.record_step")
        return
    loop = _loop(place)
    by_name = dict(losses) if isinstance(losses, dict) else {"loss": losses}
    names, models = list(by_name) if len(by_name) > 1 else [], list(_trained(model))
    shares, parts = _by_replica(by_name, batch, place)
    weights = [weight for _, its in models for weight in its()]
    loop.begin(parts[0], models, weights)
    rows = [row(part, of_replica) for of_replica, part in zip(shares, parts, strict=True)]
    handed = {key_of(weight) for weight in weights}
    # Optimizers that update nothing else.
    covered = [each for each in updates.counted() if model is None or handed.issuperset(each.variables)]
    count = [tf.cast(-1 if number is None else number, tf.int64) for number in (epoch, step)]
    write = functools.partial(loop.write, names, covered)
    if tf.executing_eagerly():
        made = [int(each.outside()) for each in covered]
        epoch, step = (int(number) for number in count)
        write([each.numpy() for each in rows], epoch, step, made)
        return
    # Reading a weight makes the row wait for the step's update, where there is a model to tell by.
    with tf.control_dependencies([tf.identity(weight) for weight in weights[-1:]]):
        made = [each.outside() for each in covered]
        tf.numpy_function(write, [tf.stack(rows), *count, tf.stack(made) if made else tf.zeros(0, tf.int64)], [])


def _by_replica(losses: dict[str, Any], batch: Any, place: Here) -> tuple[list[list[Any]], list[Any]]:
    """Each local replica's losses and part of the batch; raises where they are not what they should be."""
    if tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context():
        words = N_(
            "dtk.record_step was called inside of strategy.run, where one replica can't see the others; call it after, "
            "with what strategy.run returned"
        )
        raise ClusterConfigError(_(words))
    shares = zip(*(_shares(name, value, place) for name, value in losses.items()), strict=True)
    remedy = _("pass batch= as the distributed dataset gave it")
    leaves = [tf.constant(leaf) if isinstance(leaf, np.ndarray) else leaf for leaf in tf.nest.flatten(batch)]
    parts = [_checked("batch", local_values(leaf), place, remedy) for leaf in leaves]
    parts = parts or [_checked("batch", (), place, remedy)]
    batches = [tf.nest.pack_sequence_as(batch, its) for its in zip(*parts, strict=True)]
    return [list(each) for each in shares], batches


def _checked(name: str, parts: Sequence[Any], place: Here, remedy: str) -> Sequence[Any]:
    """Of a distributed value the part of each replica of this process."""
    if len(parts) != place.replicas:
        words = N_("dtk.record_step: `{name}` has no part for each of the {n} replicas of this process")
        raise ClusterConfigError(_(words, name=name, n=place.replicas), remedy=remedy)
    return parts


def _shares(name: str, values: Any, place: Here) -> list[Any]:
    """One loss of each replica, as float64."""
    remedy = _("pass what strategy.run returned, before any strategy.reduce")
    shares = _checked(name, local_values(values), place, remedy)
    for replica, share in enumerate(shares):
        shape = tf.convert_to_tensor(share).shape
        if shape.rank != 0:
            words = N_(
                "dtk.record_step: `{name}` of replica {replica} has the shape {shape}, but should be one number, "
                "the replica's share"
            )
            call = "tf.nn.compute_average_loss(per_example_loss, global_batch_size=global_batch)"
            what = _(words, name=name, replica=replica, shape=tuple(shape.as_list()))
            raise ClusterConfigError(what, remedy=_("return {call} from the step", call=call))
    return [tf.cast(share, tf.float64) for share in shares]


class _Loop:
    """This process's loop: its count goes on from what a Recorder has counted before it."""

    def __init__(self, place: Here):
        self.place = place
        self.progress: Progress = progress(place)
        self.began = of_kind(place.folder.events, Running)[0].at
        self.given: int | None = None  # the last step that the learner's own count said
        self.announced = False
        self.models: list[Known] = []

    def begin(self, part: Any, models: list[Trained], weights: list[Any]) -> None:
        """At the first call, which in a `tf.function` comes before its first step: what is there to record."""
        check_strategy(weights, self.place)
        before = len(self.progress.models)
        self.models = [self.progress.known(key, its) for key, its in models]
        if not self.announced or len(self.progress.models) > before:
            now = self.place.now()
            scope = scope_of(weights) if weights else None
            if scope is not None and scope.strategy is None and self.progress.rings:
                scope = Scope(RING, self.place.workers)
            norms = [norm for key, _ in models for norm in norms_of(key)]
            self.place.journal.event(Loop(now, kind="loop", shapes=element_shapes(part), scope=scope, norms=norms))
            if not self.announced:
                self.place.journal.event(Training(now, steps=None, epochs=None))
            self.announced = True

    def write(
        self, names: list[str], covered: list[updates.UpdateCounter], rows: Any, epoch: Any, step: Any, made: Any
    ) -> None:
        if self.place.journal.silent:
            return
        ended, given = self.place.now(), int(step)
        if not self.progress.looping:
            self._begin_counting(given)
        if given >= 0:
            before, self.given = self.given, given
            if before is not None and given != before + 1:
                words = N_("dtk.record_step: step {step} came after step {before}")
                remedy = _("call it once in each step, after the optimizer has counted it")
                raise ClusterConfigError(_(words, step=given, before=before), remedy=remedy)
        self.progress.epoch = max(1, int(epoch) if int(epoch) >= 0 else self.progress.epoch)
        for optimizer, updates_so_far in zip(covered, made, strict=True):
            optimizer.seen(int(updates_so_far))
        self.progress.record(rows, names, (self.began, ended))
        self.progress.before_step(weights=self._trainable)
        self.began = self.place.now()

    def _begin_counting(self, given: int) -> None:
        """At the first step, which is computed by now: where the count goes on after a restart of the cluster."""
        self.progress.looping = True
        self.progress.begins(given - 1 if given >= 0 else None)
        if given < 0 and self.place.run.attempt > 1 and self.place.worker == 0:
            words = N_(
                "dtk.record_step: this start of the cluster counts its steps from 1; where training goes on from a "
                "checkpoint, pass step=optimizer.iterations, so that steps keep their numbers"
            )
            print(_(words))
        self.progress.before_step(weights=self._trainable)

    def _trainable(self) -> list[Any]:
        held = [weight for model in self.models for weight in model.weights()]
        return [weight for weight in held if getattr(weight, "trainable", True)]


_loop = functools.lru_cache(1)(_Loop)


def _trained(given: Any) -> Iterator[Trained]:
    """All that is trained, in the order in which it was given."""
    if isinstance(given, (list, tuple)) and given and all(_is_variable(value) for value in given):
        listed = list(given)
        yield tuple(map(key_of, listed)), lambda: listed
    elif isinstance(given, (list, tuple, Mapping)):
        for value in given.values() if isinstance(given, Mapping) else given:
            yield from _trained(value)
    elif _is_variable(given):
        yield given, lambda: [given]
    elif given is not None:
        _weights(given)
        yield given, lambda: _weights(given)


def _is_variable(value: Any) -> bool:
    return isinstance(value, tf.Variable) or (hasattr(value, "assign") and hasattr(value, "trainable"))


def _weights(model: Any) -> list[Any]:
    held = getattr(model, "weights", None)
    held = getattr(model, "variables", None) if held is None else held
    if held is None:
        words = N_(
            "dtk.record_step: model= is a {name}, which has neither weights nor variables; pass the model itself, or a "
            "list or dictionary of models"
        )
        raise ClusterConfigError(_(words, name=type(model).__name__))
    return list(held)
