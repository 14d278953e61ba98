"""A contrastive loss: each example's two views against the views of all others in the global batch."""

from __future__ import annotations

from proof_programs import add, add_wrong
from proof_programs.parts import BATCH, COUNT, batches, built, looped


def views(features=16):
    """Two noisy views of each of COUNT points: two arrays `(COUNT, features)`."""
    import numpy as np

    rng = np.random.default_rng(21)
    points = rng.normal(size=(COUNT, features))
    return [(points + 0.3 * rng.normal(size=points.shape)).astype("float32") for _ in range(2)]


def encoder(features=16, dropout=0.0, batch_norm=False):
    import keras
    from keras import layers

    middle = [layers.BatchNormalization()] if batch_norm else []
    middle += [layers.Dropout(dropout)] if dropout else []
    first = [keras.Input((features,)), layers.Dense(32, activation="relu")]
    return keras.Sequential([*first, *middle, layers.Dense(8), layers.UnitNormalization()])


def against_all(own, other, n, mistake):
    """A replica's share of the mean of InfoNCE over the global batch. own, other: its views, `(examples, 8)`."""
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    size = tf.shape(own)[0]
    first = size * tf.cast(context.replica_id_in_sync_group, tf.int32) if n > 1 else 0

    def entropy(queries, keys, places):
        logits = tf.matmul(queries, keys, transpose_b=True) / 0.2
        return tf.nn.sparse_softmax_cross_entropy_with_logits(places, logits)

    if mistake == "local negatives":
        return tf.reduce_sum(entropy(own, other, tf.range(size))) / BATCH
    if mistake == "local negatives, local mean":
        return tf.reduce_mean(entropy(own, other, tf.range(size)))
    if mistake is None:  # all_gather has a gradient: what all replicas make of one's views is added up
        return tf.reduce_sum(entropy(own, context.all_gather(other, 0), first + tf.range(size))) / BATCH
    # As torch.distributed.all_gather, which has none: one's own views are put back where they were.
    keys, queries = (
        tf.tensor_scatter_nd_update(
            tf.stop_gradient(context.all_gather(each, 0)), (first + tf.range(size))[:, None], each
        )
        for each in (other, own)
    )
    if mistake == "gathered without gradient":
        return tf.reduce_sum(entropy(own, keys, first + tf.range(size))) / BATCH
    whole = tf.reduce_mean(entropy(queries, keys, tf.range(BATCH)))  # of all, with a gradient for one's own
    return whole / n if mistake == "local gradient divided" else whole  # right: "own gradient of the whole"


def contrastive(strategy, steps=300, mistake=None, optimizer="adam", recorded=True, **facts):
    """Mistakes: see `against_all`; "own gradient of the whole" is right, by another way."""
    import tensorflow as tf

    n = strategy.num_replicas_in_sync
    net, update = built(strategy, optimizer, encoder, **facts)

    def replica_step(inputs):
        with tf.GradientTape() as tape:
            own, other = (net(view, training=True) for view in inputs)
            loss = against_all(own, other, n, mistake)
        update.apply_gradients(zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables, strict=True))
        return loss / n if mistake == "own gradient of the whole" else loss

    looped(strategy, replica_step, strategy.experimental_distribute_dataset(batches(views(), steps)), net, recorded)


add("contrastive", contrastive, behind=True)
add("contrastive, own gradient of the whole", contrastive, mistake="own gradient of the whole")
TRUTHS = {
    "local negatives": "each replica compares with its own examples only: an in-batch loss with local negatives",
    "local negatives, local mean": "local negatives, and the mean over a replica's own examples: n times",
    "gathered without gradient": "all are compared, but no gradient reaches the other replicas' examples as negatives",
    "local gradient divided": "each replica's own gradient of the whole loss is divided by the replicas: 1/n",
}
for key, truth in TRUTHS.items():
    for name in ("adam", "sgd"):
        add_wrong(f"contrastive, {key}, {name}", contrastive, truth, mistake=key, optimizer=name)
