"""Loops over pairs of things: several views of an example, words and contexts, queries and candidates."""

from __future__ import annotations

import dtk
from gallery import program
from gallery.made_up import dense
from gallery.slips import LOOPS, average, distributed, looped, rate, scope

BATCH = 16


def clusters(count=128, views=1, features=6, seed=21):
    """Points around four centers, in so many noisy views each, and the center's number."""
    import numpy as np

    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, count)
    centers = rng.normal(0, 1.5, (4, features))
    return [(centers[labels] + rng.normal(0, 0.5, (count, features))).astype("float32") for _ in range(views)], labels


def siamese(strategy, slip, biased):
    """One network embeds a triplet; biased: its last layer has a bias, which no distance depends on."""
    import keras
    import tensorflow as tf

    with scope(strategy, slip):
        embedding = dense(6, 12, 4, biased=biased)
        optimizer = keras.optimizers.Adam(rate(3e-3, strategy, slip))

    @tf.function
    def train_step(anchor, positive, negative):
        with tf.GradientTape() as tape:
            a, p, n = (embedding(part, training=True) for part in (anchor, positive, negative))
            near, far = (tf.reduce_sum(tf.square(a - other), axis=-1) for other in (p, n))
            loss = average(tf.nn.softplus(near - far + 0.5), BATCH, strategy, slip)
        gradients = tape.gradient(loss, embedding.trainable_weights)
        optimizer.apply_gradients(zip(gradients, embedding.trainable_weights, strict=True))
        return loss

    (anchors, positives), _ = clusters(views=2)
    for batch in distributed((anchors, positives, anchors[::-1].copy()), BATCH, strategy, slip):
        losses = strategy.run(train_step, args=batch)
        dtk.record_step(losses, batch=batch, model=embedding, step=optimizer.iterations.numpy())


@program(kind="loop", source="keras.io example vision/siamese_network, as a loop", slips=LOOPS)
def triplets_in_a_loop(strategy, slip=None):
    """Right: a triplet's loss needs its own three parts and no other example."""
    siamese(strategy, slip, biased=False)


@program(kind="loop", source="keras.io example vision/siamese_network, as a loop")
def siamese_with_a_useless_bias(strategy, slip=None):
    """Right but for rounding: the last bias cancels in each distance, its gradient is what rounding leaves, and Adam
    makes a whole step of that. The losses agree.
    """
    siamese(strategy, slip, biased=True)


@program(kind="loop", source="TensorFlow tutorial text/word2vec, as a loop", slips=LOOPS)
def skip_grams(strategy, slip=None):
    """Right: the negatives of a word were drawn when the data were made. Gradients of embeddings are sparse."""
    import keras
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(31)
    targets = rng.integers(0, 20, 128)
    contexts = np.concatenate([(targets[:, None] + 1) % 20, rng.integers(0, 20, (128, 3))], axis=1)
    with scope(strategy, slip):
        words, surroundings = keras.layers.Embedding(20, 4), keras.layers.Embedding(20, 4)
        words.build(), surroundings.build()
        optimizer = keras.optimizers.Adam(rate(2e-2, strategy, slip))
    trainable = [*words.trainable_variables, *surroundings.trainable_variables]

    def train_step(inputs):
        target, context = inputs
        with tf.GradientTape() as tape:
            dots = tf.einsum("be,bce->bc", words(target), surroundings(context))
            labels = tf.one_hot(tf.zeros_like(target), 4)
            each = tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=dots)
            loss = average(each, BATCH, strategy, slip)
        optimizer.apply_gradients(zip(tape.gradient(loss, trainable), trainable, strict=True))
        return loss

    looped(train_step, [words, surroundings], distributed((targets, contexts), BATCH, strategy, slip), strategy)


def two_towers(strategy, slip, gathered):
    """Retrieval: each query's own candidate among the others of the batch, or of all replicas' batches."""
    import keras
    import tensorflow as tf

    with scope(strategy, slip):
        queries, candidates = dense(6, 8, 4), dense(6, 8, 4)
        optimizer = keras.optimizers.Adagrad(rate(0.1, strategy, slip))
    trainable = queries.trainable_variables + candidates.trainable_variables

    def train_step(inputs):
        query, candidate = inputs
        context = tf.distribute.get_replica_context()
        with tf.GradientTape() as tape:
            asked, offered = queries(query, training=True), candidates(candidate, training=True)
            own = tf.range(tf.shape(asked)[0])
            if gathered:
                offered = context.all_gather(offered, axis=0)
                own += context.replica_id_in_sync_group * tf.shape(asked)[0]
            scores = tf.matmul(asked, offered, transpose_b=True)
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=own, logits=scores)
            loss = average(each, BATCH, strategy, slip)
        optimizer.apply_gradients(zip(tape.gradient(loss, trainable), trainable, strict=True))
        return loss

    (first, second), _ = clusters(views=2)
    looped(
        train_step,
        {"query": queries, "candidate": candidates},
        distributed((first, second), BATCH, strategy, slip),
        strategy,
    )


@program(
    kind="loop",
    source="TensorFlow Recommenders tutorial basic_retrieval, as a loop",
    right="whole batch",
    reason="loss",
)
def two_towers_in_batch_negatives(strategy, slip=None):
    """Wrong: the other candidates of the batch are the negatives, and a replica has only half of them."""
    two_towers(strategy, slip, gathered=False)


@program(kind="loop", source="TensorFlow Recommenders tutorial basic_retrieval, candidates gathered", slips=LOOPS)
def two_towers_gathered(strategy, slip=None):
    """Right: each replica scores its queries against the candidates of all, and gradients find their way back."""
    two_towers(strategy, slip, gathered=True)
