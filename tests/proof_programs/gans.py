"""Two networks that train each other, in loops with one tf.function, or one for each."""

from __future__ import annotations

from gallery.made_up import rings

import dtk
from proof_programs import add, add_wrong
from proof_programs.parts import BATCH, COUNT, batches, on_cluster

NOISE = 6


def networks(dropout=0.0, batch_norm=False):
    """A generator `(NOISE,)` to `(2,)`, a discriminator `(2,)` to `(1,)`."""
    import keras
    from keras import layers

    def stack(width, last, name):
        middle = [layers.BatchNormalization()] if batch_norm else []
        middle += [layers.Dropout(dropout)] if dropout else []
        first = [keras.Input((width,)), layers.Dense(24, activation="relu")]
        return keras.Sequential([*first, *middle, layers.Dense(last)], name=name)

    return stack(NOISE, 2, "generator"), stack(2, 1, "discriminator")


def by_loop(strategy, steps=300, mistake=None, separate=False, recorded=True, **facts):
    """separate: a tf.function for each network, one after the other; else both in one.

    Mistakes: "generator twice" (its loss is divided by the replicas once more), "rate" (of the discriminator, 1 % off,
    on the cluster).
    """
    import keras
    import tensorflow as tf

    n = strategy.num_replicas_in_sync
    with strategy.scope():
        generator, discriminator = networks(**facts)
        rate = 1e-3 * (1.01 if mistake == "rate" and on_cluster() else 1.0)
        of_generator, of_discriminator = keras.optimizers.Adam(1e-3), keras.optimizers.Adam(rate)
        of_generator.build(generator.trainable_variables)
        of_discriminator.build(discriminator.trainable_variables)

    def mean(label, outputs):
        each = keras.losses.binary_crossentropy(label(outputs), outputs, from_logits=True)
        return tf.nn.compute_average_loss(each, global_batch_size=BATCH)

    def updated(model, optimizer, tape, loss):
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    def discriminate(inputs):
        real, noise, _second = inputs
        with tf.GradientTape() as tape:
            fake = discriminator(generator(noise, training=True), training=True)
            loss = mean(tf.ones_like, discriminator(real, training=True)) + mean(tf.zeros_like, fake)
        return updated(discriminator, of_discriminator, tape, loss)

    def generate(inputs):
        with tf.GradientTape() as tape:
            loss = mean(tf.ones_like, discriminator(generator(inputs[2], training=True), training=True))
            loss = loss / n if mistake == "generator twice" else loss
        return updated(generator, of_generator, tape, loss)

    both = [tf.function(lambda inputs, step=step: strategy.run(step, (inputs,))) for step in (discriminate, generate)]
    at_once = tf.function(lambda inputs: strategy.run(lambda part: (discriminate(part), generate(part)), (inputs,)))
    for inputs in strategy.experimental_distribute_dataset(batches(rings(COUNT, noises=2), steps)):
        losses = [step(inputs) for step in both] if separate else at_once(inputs)
        if recorded:
            named = dict(zip(("d_loss", "g_loss"), losses, strict=True))
            dtk.record_step(named, batch=inputs, model={"generator": generator, "discriminator": discriminator})


add("gan loop", by_loop, behind=True)
add("gan loop, not recorded", by_loop, recorded=False)
add("gan loop, two functions", by_loop, separate=True, behind=True)
TWICE = "the generator's loss is divided by the replicas twice: its gradients are half, the discriminator's right"
OFF = "settings: the learning rate of the discriminator's optimizer is 1 % larger on the cluster"
for ways, separate in (("one function", False), ("two functions", True)):
    name = ("generator/",)
    add_wrong(
        f"gan, generator divided twice, {ways}",
        by_loop,
        TWICE,
        {"variables": name},
        mistake="generator twice",
        separate=separate,
    )
    facts = {"replicas": False, "variables": ("discriminator/",)}
    add_wrong(f"gan, rate 1 % off, {ways}", by_loop, OFF, facts, mistake="rate", separate=separate)
