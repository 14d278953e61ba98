"""Mistakes that an author could have made, to be put where a program scopes, batches, averages, and updates.

Each helper is what a right program has in its place, unless the slip that it was given is one of its own. A slip's name
is the key of the diagnosis that is true of it (`dtk.proof.mistakes`).
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from training import sharded

import dtk

# What fits where a program uses which helper.
DATA = ("sharding off", "global batch", "steps", "order")  # batches()
SHARE = ("local mean", "divided twice")  # average()
# Of a program that calls fit, and of a loop, where average() may also be left out: the baseline divides.
FITS = (*DATA, "not in scope", "learning rate")
LOOPS = (*DATA, *SHARE, "not divided", "learning rate")


def scope(strategy: Any, slip: str | None) -> Any:
    """Slip "not in scope": the model is made outside of the strategy's scope."""
    return contextlib.nullcontext() if slip == "not in scope" else strategy.scope()


def batches(dataset: Any, batch: int, strategy: Any, slip: str | None = None) -> Any:
    """The dataset in global batches, sharded by policy DATA; drop the remainder.

    Slips: "global batch" (a batch a replica is multiplied by the replicas), "steps" (the cluster's has a batch more),
    "sharding off" (every worker reads all), "order" (shuffled without a seed that the workers share: only with
    a baseline's own order is it the same).
    """
    n = strategy.num_replicas_in_sync
    if slip == "order" and n > 1:
        dataset = dataset.shuffle(10_000, seed=n)
    if slip == "steps" and n > 1:
        dataset = dataset.concatenate(dataset.take(batch))
    if steps := int(os.environ.get("GALLERY_STEPS", 0)):  # as long an epoch
        dataset = dataset.repeat().take(steps * batch + batch * (slip == "steps" and n > 1))
    size = batch * n if slip == "global batch" else batch
    return sharded(dataset.batch(size, drop_remainder=True), "OFF" if slip == "sharding off" else "DATA")


def fitted(model: Any, dataset: Any, batch: int, strategy: Any, slip: str | None = None, **more: Any) -> None:
    """Trains by fit on the dataset in global batches, recorded; more: of fit's arguments."""
    model.fit(batches(dataset, batch, strategy, slip), callbacks=[dtk.Recorder()], verbose=0, **more)


def distributed(arrays: Any, batch: int, strategy: Any, slip: str | None = None, shuffled: int | None = None) -> Any:
    """The arrays' examples, shuffled by that seed, in global batches, dealt out by the strategy."""
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices(arrays)
    dataset = dataset if shuffled is None else dataset.shuffle(len(dataset), seed=shuffled)
    return strategy.experimental_distribute_dataset(batches(dataset, batch, strategy, slip))


def looped(step: Any, model: Any, dataset: Any, strategy: Any, epochs: int = 1) -> None:
    """Has all replicas make the step for each batch, in a graph, and records it; of several epochs with its number."""
    import tensorflow as tf

    @tf.function
    def whole(inputs: Any, epoch: Any) -> None:
        losses = strategy.run(step, args=(inputs,))
        dtk.record_step(losses, batch=inputs, model=model, epoch=epoch)

    for number in range(1, epochs + 1):
        for inputs in dataset:
            whole(inputs, tf.constant(number) if epochs > 1 else None)


def average(per_example: Any, batch: int, strategy: Any, slip: str | None = None) -> Any:
    """A replica's share of the mean over the global batch. Slips: "local mean", "divided twice", "not divided"."""
    import tensorflow as tf

    n = strategy.num_replicas_in_sync
    if slip == "local mean":
        return tf.reduce_mean(per_example)
    if slip == "not divided" and n > 1:
        return tf.reduce_sum(per_example)
    share = tf.nn.compute_average_loss(per_example, global_batch_size=batch)
    return share / n if slip == "divided twice" else share


def penalized(share: Any, weights: Any, factor: float, slip: str | None = None) -> Any:
    """The share and an L2 penalty; slip "regularisation": the penalty whole on every replica."""
    import tensorflow as tf

    penalty = factor * tf.add_n([tf.reduce_sum(tf.square(w)) for w in weights if len(w.shape) > 1])
    return share + (penalty if slip == "regularisation" else tf.nn.scale_regularization_loss(penalty))


def rate(value: float, strategy: Any, slip: str | None = None) -> float:
    """A learning rate; slip "learning rate": multiplied by the number of replicas."""
    return value * strategy.num_replicas_in_sync if slip == "learning rate" else value


def clipped(gradients: Any, norm: float, slip: str | None = None) -> Any:
    """The gradients; slip "clipping": each replica clips its own before they are added up."""
    import tensorflow as tf

    return tf.clip_by_global_norm(gradients, norm)[0] if slip == "clipping" else gradients
