"""Loops and fits over sentences of unequal lengths: means over words, and over the words of several micro-batches."""

from __future__ import annotations

import dtk
from proof_programs import add, add_wrong
from proof_programs.parts import BATCH, COUNT, batches, built, crossentropy, looped, optimizer_of

WORDS, LENGTH, MICRO = 20, 10, 4


def sentences():
    """Ids `(COUNT, LENGTH)` from 1 up, padded with 0, and the following ids. Lengths: 2 to LENGTH, mostly short."""
    import numpy as np

    rng = np.random.default_rng(41)
    ids = np.zeros((COUNT, LENGTH + 1), "int64")
    for row, length in zip(ids, 2 + (rng.random(COUNT) ** 2 * (LENGTH - 1)).astype(int), strict=True):
        first, pace = rng.integers(1, WORDS), rng.integers(1, 4)
        row[: length + 1] = 1 + (first + pace * np.arange(length + 1)) % (WORDS - 1)
    return ids[:, :-1], ids[:, 1:]


def network(dropout=0.0, batch_norm=False, masked=False, recurrent=True):
    """Ids `(examples, length)` to logits `(examples, length, WORDS)`; masked: Keras's mask goes with them."""
    import keras
    from keras import layers

    inputs = keras.Input((LENGTH,), dtype="int64")
    z = layers.Embedding(WORDS, 12, mask_zero=masked)(inputs)
    z = layers.GRU(16, return_sequences=True)(z) if recurrent else layers.Dense(16, "tanh")(z)
    z = layers.BatchNormalization()(z) if batch_norm else z
    z = layers.Dropout(dropout)(z) if dropout else z
    return keras.Model(inputs, layers.Dense(WORDS, name="logits")(z))


def divided(total, count, n, mistake, ragged):
    """A replica's share of the mean over all words: the sum of its losses by the words of all."""
    import tensorflow as tf

    everyone = tf.distribute.get_replica_context().all_reduce("SUM", count)
    ways = {
        "own words": total / count / n,  # and the gradients are added: a mean of means
        "own words, not divided": total / count,
        "own words times n": total / count * n,
        "ragged": ragged / n,
    }
    return ways.get(mistake, total / everyone)


def by_loop(strategy, steps=300, mistake=None, optimizer="adam", recorded=True, **facts):
    """Mistakes: see `divided`."""
    import tensorflow as tf

    n = strategy.num_replicas_in_sync
    net, update = built(strategy, optimizer, network, **facts)

    def replica_step(inputs):
        x, y = inputs
        counted = tf.cast(y > 0, tf.float32)
        with tf.GradientTape() as tape:
            each = crossentropy(y, net(x, training=True)) * counted
            ragged = tf.reduce_mean(tf.ragged.boolean_mask(each, y > 0).flat_values)
            loss = divided(tf.reduce_sum(each), tf.reduce_sum(counted), n, mistake, ragged)
        update.apply_gradients(zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables, strict=True))
        return loss

    looped(strategy, replica_step, strategy.experimental_distribute_dataset(batches(sentences(), steps)), net, recorded)


def in_one_call(strategy, steps=300, mistake=None, optimizer="adam", **facts):
    """Each replica takes its part of the batch in four micro-batches, and applies the sum of their gradients.

    Mistakes: "mean of means", "one replica's words" (the normalizer is this replica's own), "one replica's words,
    averaged" (and the gradients are divided by the replicas), "micro twice" (divided by the micro-batches, too).
    """
    import tensorflow as tf

    n = strategy.num_replicas_in_sync
    net, update = built(strategy, optimizer, network, **facts)

    def replica_step(inputs):
        x, y = inputs
        mine = tf.reduce_sum(tf.cast(y > 0, tf.float32))
        everyone = tf.distribute.get_replica_context().all_reduce("SUM", mine)
        gathered, total = [tf.zeros(w.shape) for w in net.trainable_variables], 0.0
        for part in range(MICRO):
            x_part, y_part = x[part::MICRO], y[part::MICRO]
            counted = tf.cast(y_part > 0, tf.float32)
            words = tf.reduce_sum(counted)
            by = {"mean of means": words * MICRO * n, "one replica's words": mine, "micro twice": everyone * MICRO}
            by["one replica's words, averaged"] = mine * n
            with tf.GradientTape() as tape:
                each = crossentropy(y_part, net(x_part, training=True)) * counted
                loss = tf.reduce_sum(each) / by.get(mistake, everyone)
            gradients = tape.gradient(loss, net.trainable_variables)
            gathered = [held + tf.convert_to_tensor(each) for held, each in zip(gathered, gradients, strict=True)]
            total += loss
        update.apply_gradients(zip(gathered, net.trainable_variables, strict=True))
        return total

    looped(strategy, replica_step, strategy.experimental_distribute_dataset(batches(sentences(), steps)), net)


def by_fit(strategy, steps=300, masked=True, optimizer="adam", eagerly=False, **facts):
    """masked: Keras's loss object takes the mean over the words that its mask leaves, in each replica."""
    import keras

    with strategy.scope():
        net = network(masked=masked, **facts)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        net.compile(optimizer_of(optimizer), loss, run_eagerly=eagerly)
    net.fit(batches(sentences(), steps), verbose=0, callbacks=[dtk.Recorder()])


add("words", by_loop, behind=True)
add("words, not recorded", by_loop, recorded=False)
add("words in micro-batches", in_one_call, behind=True)
add("words by fit, padding counted", by_fit, masked=False)

LOOP = {
    "own words": "each replica divides by its own number of words: a mean of means",
    "own words, not divided": "each replica divides by its own number of words, and not by the replicas: n times",
    "own words times n": "each replica divides by its own number of words, and multiplies by the replicas: n² times",
    "ragged": "the mean over the words of a replica's ragged sequences: a mean of means",
}
for key, truth in LOOP.items():
    add_wrong(f"words, {key}", by_loop, truth, mistake=key)
add_wrong("words, own words, sgd", by_loop, LOOP["own words"], mistake="own words", optimizer="sgd")
CALL = {
    "mean of means": "each micro-batch of each replica counts the same, whatever its words",
    "one replica's words": "the normalizer is one replica's number of words: about n times, and by each replica's own",
    "one replica's words, averaged": "each replica divides by its own words in all its micro-batches: a mean of means",
    "micro twice": "the sum over the micro-batches is divided by their number twice; one device does that, too",
}
for key, truth in CALL.items():
    add_wrong(f"micro-batches, {key}", in_one_call, truth, {"shared": key == "micro twice"}, mistake=key)
MASK = "Keras's mask: each replica takes the mean over its own words, and these means are averaged"
add_wrong("words by fit, masked", by_fit, MASK, {"expected": None})
add_wrong("words by fit, masked, eagerly", by_fit, MASK, {"expected": None}, eagerly=True, recurrent=False)
assert BATCH % (4 * MICRO) == 0
