"""`dtk.record_step`: what each replica did in a step of a loop of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dtk.compat.per_replica import local_values
from dtk.environment import Here, here
from dtk.errors import ClusterConfigError
from dtk.recording.fingerprint import element_shapes, fingerprint, first_leaf
from dtk.recording.progress import Progress, check_strategy, compare_replicas, progress, save_weights
from dtk.records import Record

__all__ = ["record_step"]

_loop: _Loop | None = None
_said = False


def record_step(losses: Any, *, batch: Any, model: Any = None, epoch: Any = None, step: Any = None) -> None:
    """Records one step of a custom training loop; call it once a step, on every worker, and in the baseline.

        per_replica_losses = strategy.run(train_step, args=(batch,))
        dtk.record_step(per_replica_losses, batch=batch, model=model)

    Inside or outside of a `tf.function`, also of one that holds a whole epoch.

    losses: what `strategy.run` returned, a scalar a replica: its share of the global loss, the sum over its examples
    divided by the global batch (`tf.nn.compute_average_loss(..., global_batch_size=...)`). batch: the distributed
    batch; examples are counted by the first dimension of its first component. model: anything with `weights` or
    `variables`; what they hold when the function returns is compared by `dtk.verify`, and what they hold before the
    first step as well, where record_step is called inside the `tf.function` and the model is built by then. epoch,
    step: whole numbers or scalar tensors; by default epoch 1, and steps counted from 1 (pass `optimizer.iterations`,
    which has counted this step, to have a step that is recorded twice or left out noticed).

    A step lasts from the end of the one before to the moment at which its losses and its update are there.

    Raises ClusterConfigError: losses that are not one scalar for each of this process's replicas, a call inside of
    `strategy.run`, a step twice or out of order. Outside of `dtk.run` and `dtk.baseline` it says once that it
    records nothing.
    """
    import tensorflow as tf

    # AutoGraph would turn what follows into graph operations, and it is no part of the learner's computation.
    tf.autograph.experimental.do_not_convert(_record)(losses, batch, model, epoch, step)


def _record(losses: Any, batch: Any, model: Any, epoch: Any, step: Any) -> None:
    import tensorflow as tf

    global _loop, _said
    place = here()
    if place is None:
        if not _said:
            print("dtk.record_step: this process was not started by dtk.run or dtk.baseline; nothing is recorded")
        _said = True
        return
    if _loop is None or _loop.place is not place:
        _loop = _Loop(place)
    shares, parts = _by_replica(losses, batch, place)
    _loop.begin(parts[0], model)
    rows = [
        tf.stack([tf.cast(share, tf.float64), tf.cast(tf.shape(first_leaf(part))[0], tf.float64), fingerprint(part)])
        for share, part in zip(shares, parts, strict=True)
    ]
    count = [tf.cast(-1 if number is None else number, tf.int64) for number in (epoch, step)]
    if tf.executing_eagerly():
        _loop.write([row.numpy() for row in rows], *(int(number) for number in count))
        return
    # Reading a weight makes the row wait for the step's update, where there is a model to tell by.
    with tf.control_dependencies([tf.identity(weight) for weight in _weights(model)[-1:]]):
        tf.numpy_function(_loop.write, [tf.stack(rows), *count], [])


def _by_replica(losses: Any, batch: Any, place: Here) -> tuple[Sequence[Any], list[Any]]:
    """The losses and the parts of the batch of each local replica; raises where they are not what they should be."""
    import tensorflow as tf

    if tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context():
        raise ClusterConfigError(
            "dtk.record_step was called inside of strategy.run, where one replica can't see the others; call it after, "
            "with what strategy.run returned"
        )
    shares = local_values(losses)
    if len(shares) != place.replicas:
        raise ClusterConfigError(
            f"dtk.record_step got {len(shares)} loss{'es' * (len(shares) != 1)} for the {place.replicas} replicas of "
            "this process; pass what strategy.run returned, before any strategy.reduce"
        )
    for replica, share in enumerate(shares):
        shape = tf.convert_to_tensor(share).shape
        if shape.rank != 0:
            raise ClusterConfigError(
                f"dtk.record_step: the loss of replica {replica} has the shape {tuple(shape.as_list())}, but should be "
                "one number, the replica's share; return tf.nn.compute_average_loss(per_example_loss, "
                "global_batch_size=global_batch) from the step"
            )
    leaves = tf.nest.flatten(batch)
    locals_ = [local_values(leaf) for leaf in leaves]
    if not leaves or any(len(values) != len(shares) for values in locals_):
        raise ClusterConfigError(
            f"dtk.record_step: the batch has no part for each of the {len(shares)} replicas; pass batch= as the "
            "distributed dataset gave it"
        )
    parts = [tf.nest.pack_sequence_as(batch, [values[r] for values in locals_]) for r in range(len(shares))]
    return shares, parts


def _weights(model: Any) -> list[Any]:
    if model is None:
        return []
    held = getattr(model, "weights", None)
    held = getattr(model, "variables", None) if held is None else held
    if held is None:
        raise ClusterConfigError(
            f"dtk.record_step: model= is a {type(model).__name__}, which has neither weights nor variables; pass the "
            "model itself"
        )
    return list(held)


class _Loop:
    """This process's loop: its count goes on from what a Recorder has counted before it."""

    def __init__(self, place: Here):
        self.place = place
        self.progress: Progress = progress(place)
        self.began = next(event["at"] for event in place.folder.events if event["state"] == "running")
        self.given: int | None = None  # the last step that the learner's own count said
        self.announced = False
        self.counts = False  # whether the count of steps has begun
        self.model: Any = None

    def begin(self, part: Any, model: Any) -> None:
        """At the first call, which in a `tf.function` comes before its first step: what is there to record."""
        import tensorflow as tf

        weights = _weights(model)
        check_strategy("dtk.record_step", weights, self.place)
        if weights:
            self.model = model
            self.progress.at_end["loop"] = lambda: self._finish(model)
        if not self.announced:
            self.announced = True
            now = self.place.now()
            self.place.journal.event(now, "loop", kind="loop", shapes=element_shapes(part), model=bool(weights))
            self.place.journal.event(now, "training", steps=None, epochs=None)
            if weights and not self.progress.initial_saved and not tf.executing_eagerly():
                with tf.init_scope():
                    save_weights(self.place, "initial", weights)
                self.progress.initial_saved = True

    def write(self, rows: Any, epoch: Any, step: Any) -> None:
        ended, given = self.place.now(), int(step)
        if not self.counts:
            self._begin_counting(given)
        if given >= 0:
            self._check_order(given)
        if int(epoch) >= 0:
            self.progress.epoch = int(epoch)
        self.progress.epoch = max(1, self.progress.epoch)
        self.progress.steps += 1
        first = self.place.worker * len(rows)  # a worker's replicas follow each other in the cluster's numbering
        self.place.journal.record(
            Record(
                worker=self.place.worker,
                replica=first + local,
                step=self.progress.steps,
                epoch=self.progress.epoch,
                loss=float(loss),
                examples=int(examples),
                started=self.began,
                ended=ended,
                data=float(data),
            )
            for local, (loss, examples, data) in enumerate(rows)
        )
        self.began = ended
        self.progress.before_step(weights=self._trainable)
        self.began = self.place.now()

    def _begin_counting(self, given: int) -> None:
        """At the first step, which is computed by now: where the count goes on after a restart of the cluster."""
        self.counts = True
        self.progress.begins(given - 1 if given >= 0 else None)
        if given < 0 and self.place.run.attempt > 1 and self.place.worker == 0:
            print(
                "dtk.record_step: this start of the cluster counts its steps from 1; where training goes on from a "
                "checkpoint, pass step=optimizer.iterations, so that steps keep their numbers"
            )
        self.progress.before_step(weights=self._trainable)

    def _trainable(self) -> list[Any]:
        held = _weights(self.model)
        return [weight for weight in held if getattr(weight, "trainable", True)]

    def _check_order(self, given: int) -> None:
        before, self.given = self.given, given
        if before is None or given == before + 1:
            return
        what = f"step {given} was recorded twice" if given == before else f"step {given} came after step {before}"
        raise ClusterConfigError(
            f"dtk.record_step: {what}; call it once in each step, after the optimizer has counted it"
        )

    def _finish(self, model: Any) -> None:
        weights = _weights(model)
        save_weights(self.place, "final", weights)
        compare_replicas(self.place, weights)
