"""Loops with two models that train each other: DCGAN, small."""

from __future__ import annotations

from gallery import program
from gallery.made_up import dense, rings
from gallery.slips import LOOPS, average, distributed, looped, rate, scope

BATCH, NOISE = 16, 6


def make_generator_model(normalized=False):
    import keras

    layers = [keras.layers.Input((NOISE,)), keras.layers.Dense(12, use_bias=False)]
    layers += [keras.layers.BatchNormalization()] if normalized else []
    return keras.Sequential([*layers, keras.layers.LeakyReLU(negative_slope=0.3), keras.layers.Dense(2)])


def dcgan(strategy, slip, drawn=False, normalized=False):
    """The tutorial's step with both losses divided by the global batch; drawn: the noise is drawn in the step."""
    import keras
    import tensorflow as tf

    with scope(strategy, slip):
        generator, discriminator = make_generator_model(normalized), dense(2, 12, 1)
        generator_optimizer = keras.optimizers.Adam(rate(2e-3, strategy, slip), beta_1=0.5)
        discriminator_optimizer = keras.optimizers.Adam(rate(2e-3, strategy, slip), beta_1=0.5)
        cross_entropy = keras.losses.BinaryCrossentropy(from_logits=True, reduction="none")

    def train_step(inputs):
        points, noise = inputs
        if drawn:
            noise = tf.random.normal(tf.shape(noise))
        with tf.GradientTape() as gen_tape, tf.GradientTape() as disc_tape:
            generated = generator(noise, training=True)
            real, fake = discriminator(points, training=True), discriminator(generated, training=True)
            gen_each = cross_entropy(tf.ones_like(fake), fake)
            disc_each = cross_entropy(tf.ones_like(real), real) + cross_entropy(tf.zeros_like(fake), fake)
            gen_loss = average(gen_each, BATCH, strategy, slip)
            disc_loss = average(disc_each, BATCH, strategy, slip)
        gen_gradients = gen_tape.gradient(gen_loss, generator.trainable_variables)
        disc_gradients = disc_tape.gradient(disc_loss, discriminator.trainable_variables)
        generator_optimizer.apply_gradients(zip(gen_gradients, generator.trainable_variables, strict=True))
        discriminator_optimizer.apply_gradients(zip(disc_gradients, discriminator.trainable_variables, strict=True))
        return {"disc_loss": disc_loss, "gen_loss": gen_loss}

    looped(
        train_step,
        {"generator": generator, "discriminator": discriminator},
        distributed(rings(128), BATCH, strategy, slip),
        strategy,
    )


@program(kind="loop", source="TensorFlow tutorial generative/dcgan")
def dcgan_noise_drawn_in_the_step(strategy, slip=None):
    """Right as N replicas: each of them draws noise of its own, which one device does not draw."""
    dcgan(strategy, slip, drawn=True)


@program(kind="loop", source="TensorFlow tutorial generative/dcgan, its noise in the data", slips=LOOPS)
def dcgan_noise_as_data(strategy, slip=None):
    """Right: the noise of each example comes with it, whichever replica has it."""
    dcgan(strategy, slip)


@program(kind="loop", source="TensorFlow tutorial generative/dcgan, its noise in the data, with batch norm")
def dcgan_batch_norm(strategy, slip=None):
    """Wrong by the layer alone: the generator normalizes by each replica's own batch."""
    dcgan(strategy, slip, normalized=True)
