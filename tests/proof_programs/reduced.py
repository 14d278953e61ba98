"""Loops that add their gradients by hand, clip them after that and apply the sum; and what goes wrong there."""

from __future__ import annotations

import dtk
from proof_programs import add, add_wrong
from proof_programs.parts import (
    BATCH,
    arrays,
    batches,
    built,
    crossentropy,
    looped,
    network,
    on_cluster,
    on_worker,
    optimizer_of,
)


def share(each, model, n, mistake=None):
    """A replica's share of the global loss. Mistakes: `LOSSES`; "penalty divided" is right."""
    import keras
    import tensorflow as tf

    right = tf.nn.compute_average_loss(each, global_batch_size=BATCH)

    def penalty():
        return 0.01 * tf.add_n([tf.reduce_sum(w.value**2) for w in model.trainable_variables if len(w.shape) > 1])

    ways = {
        "local mean": lambda: tf.reduce_mean(each),
        "times n": lambda: right * n,
        "times n squared": lambda: tf.reduce_mean(each) * n,
        "loss object times n": lambda: keras.losses.MeanAbsoluteError()(0 * each[:, None], each[:, None]) * n,
        "divided twice": lambda: right / n,
        "divided three times": lambda: right / n / n,
        "penalty": lambda: right + penalty(),
        "penalty divided": lambda: right + penalty() / n,  # right
        "whole batch": lambda: tf.reduce_logsumexp(each) / n,
        "spread": lambda: right + tf.math.reduce_std(each) / n,
    }
    return ways[mistake]() if mistake in ways else right


LOSSES = {
    "local mean": "each replica takes the mean over its own examples: n times the loss",
    "times n": "rightly divided by the global batch, then multiplied by the replicas: n times the loss",
    "times n squared": "each replica's mean, multiplied by the replicas once more: n² times the loss",
    "loss object times n": "Keras's loss object divides by the replicas, and the program multiplies by them: n times",
    "divided twice": "divided by the replicas once too often: 1/n of the loss",
    "divided three times": "divided by the replicas twice too often: 1/n² of the loss",
    "penalty": "the penalty is added whole in every replica: n times the penalty",
    "whole batch": "log-sum-exp over a replica's examples instead of all",
    "spread": "the standard deviation of the losses within a replica instead of over all",
}


def norm(gradients, twice=()):
    """Over all; twice: of which variables it is counted twice, as of a tied weight that is in the list twice."""
    import tensorflow as tf

    return tf.sqrt(tf.add_n([tf.reduce_sum(g**2) * (2.0 if i in twice else 1.0) for i, g in enumerate(gradients)]))


def clipped(gradients, limit, twice=()):
    import tensorflow as tf

    factor = limit / tf.maximum(norm(gradients, twice), limit)
    return [gradient * factor for gradient in gradients]


def added(gradients, n, mistake, place, size):
    """The gradients' sum over the replicas, or what a mistake makes of it."""
    import tensorflow as tf

    if mistake == "part of worker 1" and on_worker(1):
        gradients[place] *= size
    if mistake == "not summed":
        return gradients
    context = tf.distribute.get_replica_context()
    total = list(context.all_reduce("SUM", gradients))
    if mistake == "mean":
        total = [each / n for each in total]
    if mistake == "one variable not summed":
        total[place] = gradients[place]
    if mistake == "one variable summed twice" and n > 1:
        total[place] = context.all_reduce("SUM", total[place])
    if mistake == "half of a variable" and n > 1:  # of its first axis, as where a buffer ends too early
        half = total[place].shape[0] // 2
        total[place] = tf.concat([total[place][:half], gradients[place][half:]], axis=0)
    wrong = {"sum on worker 1": on_worker(1), "sum on all workers": on_cluster(), "sum on all replicas": n > 1}
    if wrong.get(mistake):
        total[place] *= size
    return total


def by_hand(
    strategy,
    steps=300,
    model="cnn",
    optimizer="adam",
    clip=None,
    mistake=None,
    place=-2,
    size=1.5,
    at=1,
    apply="as it is",
    recorded=True,
    **facts,
):
    """clip: the sum's norm at most. apply: "as it is" (the optimizer doesn't sum, as by Keras 2's
    skip_gradients_aggregation) or "divided" (it gets 1/n of the sum, and adds that n times). Mistakes: LOSSES and
    GRADIENTS; "sum later" begins at step `at`.
    """
    import tensorflow as tf

    n = strategy.num_replicas_in_sync
    net, update = built(strategy, optimizer, network, model, **facts)
    variables = net.trainable_variables
    if apply == "as it is":
        update._all_reduce_sum_gradients = list

    def replica_step(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            loss = share(crossentropy(y, net(x, training=True)), net, n, mistake)
        gradients = tape.gradient(loss, variables)
        if mistake == "clipped before":
            gradients = clipped(gradients, clip)
        gradients = added(gradients, n, mistake, place, size)
        if mistake == "sum later" and on_cluster():
            gradients[place] *= tf.where(update.iterations + 1 >= at, size, 1.0)
        if clip and mistake != "clipped before" and (mistake != "clipped on worker 1" or on_worker(1)):
            limit = clip / 2 if mistake == "other clip on worker 1" and on_worker(1) else clip
            gradients = clipped(gradients, limit, twice=(0,) if mistake == "norm counted twice" else ())
        gradients = gradients if apply == "as it is" else [each / n for each in gradients]
        update.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    data = strategy.experimental_distribute_dataset(batches(arrays(model), steps))
    looped(strategy, replica_step, data, net, recorded)


def alone(strategy, steps=300, optimizer="sgd", recorded=True, **facts):
    """No gradient leaves a worker: its model knows nothing of the strategy."""
    import tensorflow as tf

    place = dtk.environment.here()
    workers = place.workers if place.mode == "cluster" else 1
    net, update = network(**facts), optimizer_of(optimizer)
    update.build(net.trainable_variables)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(crossentropy(y, net(x, training=True))) / BATCH
        update.apply_gradients(zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables, strict=True))
        return loss

    for x, y in batches(arrays("cnn"), steps):
        part = slice(place.worker * BATCH // workers, (place.worker + 1) * BATCH // workers)
        loss = step(x[part], y[part])
        if recorded:
            dtk.record_step(loss, batch=(x[part], y[part]), model=net)


add("clipped after the sum", by_hand, clip=0.1, behind=True)
add("clipped after the sum, divided", by_hand, clip=0.1, apply="divided")
add("penalty divided", by_hand, mistake="penalty divided", behind=True)
OWN, KERNEL = {"replicas": False}, {"variables": ("logits/kernel",)}
ALONE = OWN | KERNEL
GRADIENTS = {
    "clipped before": ({}, "each replica clips its own gradient before the sum"),
    "clipped on worker 1": (OWN, "only worker 1 clips the sum: the replicas part"),
    "other clip on worker 1": (OWN, "worker 1 clips the sum to half of the others' norm: the replicas part"),
    "norm counted twice": ({"shared": True}, "one weight's norm is counted twice; one device does that, too"),
    "not summed": ({}, "gradients are not summed: each replica updates by its own, and they part"),
    "mean": ({}, "gradients of shares are averaged instead of summed: 1/n"),
    "one variable not summed": (KERNEL, "one variable's gradient is not summed; its replicas part"),
    "one variable summed twice": (KERNEL, "one variable's gradient is summed twice: n times"),
    "half of a variable": (KERNEL, "the second half of one variable's gradient is not summed; its replicas part"),
    "part of worker 1": (ALONE, "worker 1's part of one variable's gradient is 1.5 times as large; the replicas agree"),
    "sum on worker 1": (ALONE, "worker 1 multiplies the sum for one variable by 1.5: the replicas part"),
    "sum on all workers": (ALONE, "every worker multiplies the sum for one variable by 1.5; the replicas agree"),
    "sum on all replicas": (KERNEL, "every replica multiplies the sum for one variable by 1.5, in one process, too"),
}
for key, (facts, truth) in GRADIENTS.items():
    more = {"clip": 0.1} if "clip" in key or "norm" in key else {"optimizer": "sgd"}
    add_wrong(key, by_hand, truth, facts, mistake=key, **more)
for name in ("not summed", "mean", "sum on all replicas", "part of worker 1"):
    add_wrong(f"{name}, adam", by_hand, GRADIENTS[name][1], GRADIENTS[name][0], mistake=name, optimizer="adam")
LATER = "from step 100 on, every worker multiplies the sum for one variable by 1.02"
add_wrong("sum later", by_hand, LATER, ALONE, mistake="sum later", at=100, size=1.02, optimizer="sgd")
PART = "part of worker 1"
add_wrong(f"{PART}, 2 %", by_hand, f"as `{PART}`, by 1.02", ALONE, mistake=PART, size=1.02)
OUTSIDE = "the model is made outside of the strategy's scope: each worker trains its own"
add_wrong("a model for each worker", alone, OUTSIDE, {"expected": None})
