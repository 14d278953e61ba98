"""Generative adversarial networks: several models, optimizers and updates in one train_step."""

from __future__ import annotations

from typing import Any

from gallery import program
from gallery.made_up import images, slices
from gallery.slips import FITS, fitted, rate, scope

NOISE = 6


def _networks(keras: Any, classes: int = 0) -> tuple[Any, Any]:
    """A discriminator of images 12 × 12 (beside them a layer for each class) and a generator of them from noise."""
    from keras import layers

    discriminator = keras.Sequential(
        [
            keras.Input((12, 12, 1 + classes)),
            layers.Conv2D(8, 4, strides=2, padding="same", activation="gelu"),
            layers.Conv2D(8, 4, strides=2, padding="same", activation="gelu"),
            layers.Flatten(),
            layers.Dense(1),
        ]
    )
    generator = keras.Sequential(
        [
            keras.Input((NOISE + classes,)),
            layers.Dense(9 * 8, activation="gelu"),
            layers.Reshape((3, 3, 8)),
            layers.Conv2DTranspose(8, 4, strides=2, padding="same", activation="gelu"),
            layers.Conv2DTranspose(8, 4, strides=2, padding="same", activation="gelu"),
            layers.Conv2D(1, 5, padding="same", activation="sigmoid"),
        ]
    )
    return discriminator, generator


def _noise(count: int, seed: int, *shape: int) -> Any:
    import numpy as np

    return np.random.default_rng(seed).standard_normal((count, *shape)).astype("float32")


def _dcgan(strategy: Any, slip: str | None, drawn: bool) -> None:
    import keras
    import tensorflow as tf

    class GAN(keras.Model):
        def __init__(self, discriminator: Any, generator: Any) -> None:
            super().__init__()
            self.discriminator, self.generator = discriminator, generator
            self.seeds = keras.random.SeedGenerator(1337)

        def compile(self, d_optimizer: Any, g_optimizer: Any, loss_fn: Any) -> None:
            super().compile()
            self.d_optimizer, self.g_optimizer, self.loss_fn = d_optimizer, g_optimizer, loss_fn

        def call(self, data: Any) -> Any:
            return self.discriminator(data["image"]), self.generator(data["first"])

        def noise(self, data: Any, which: str) -> Any:
            return keras.random.normal(tf.shape(data[which]), seed=self.seeds) if drawn else data[which]

        def train_step(self, data: Any) -> Any:
            real, size = data["image"], tf.shape(data["image"])[0]
            combined = tf.concat([self.generator(self.noise(data, "first")), real], axis=0)
            labels = tf.concat([tf.ones((size, 1)), tf.zeros((size, 1))], axis=0)
            if drawn:
                labels += 0.05 * tf.random.uniform(tf.shape(labels))
            with tf.GradientTape() as tape:
                d_loss = self.loss_fn(labels, self.discriminator(combined))
            gradients = tape.gradient(d_loss, self.discriminator.trainable_weights)
            self.d_optimizer.apply_gradients(zip(gradients, self.discriminator.trainable_weights, strict=True))
            latent = self.noise(data, "second")
            with tf.GradientTape() as tape:
                g_loss = self.loss_fn(tf.zeros((size, 1)), self.discriminator(self.generator(latent)))
            gradients = tape.gradient(g_loss, self.generator.trainable_weights)
            self.g_optimizer.apply_gradients(zip(gradients, self.generator.trainable_weights, strict=True))
            return {"d_loss": d_loss, "g_loss": g_loss}

    x, _ = images(128)
    with scope(strategy, slip):
        model = GAN(*_networks(keras))
        optimizers = [keras.optimizers.Adam(rate(1e-3, strategy, slip)) for _ in range(2)]
        model.compile(*optimizers, loss_fn=keras.losses.BinaryCrossentropy(from_logits=True))
    data = slices({"image": x, "first": _noise(128, 1, NOISE), "second": _noise(128, 2, NOISE)})
    fitted(model, data, 16, strategy, slip)


DCGAN = "keras-io examples/generative/dcgan_overriding_train_step.py"


@program(kind="GAN", source=DCGAN)
def dcgan(strategy: Any, slip: str | None = None) -> None:
    """The loss object divides by the replicas, but latent vectors and the labels' noise are drawn in each replica."""
    _dcgan(strategy, slip, drawn=True)


@program(kind="GAN", source=f"{DCGAN}, noise as data", slips=FITS)
def dcgan_of_given_noise(strategy: Any, slip: str | None = None) -> None:
    """Two losses of a loss object, two tapes, two optimizers; the latent vectors come with the images."""
    _dcgan(strategy, slip, drawn=False)


def _slope(discriminator: Any, pictures: Any) -> Any:
    """How steep the decision is at each picture: the norm of its gradient, `(examples,)`."""
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(pictures)
        decision = discriminator(pictures, training=True)
    return tf.sqrt(tf.reduce_sum(tf.square(tape.gradient(decision, pictures)), axis=[1, 2, 3]))


def _wgan(strategy: Any, slip: str | None, drawn: bool, divided: bool) -> None:
    import keras
    import tensorflow as tf

    class WGAN(keras.Model):
        def __init__(self, discriminator: Any, generator: Any, extra_steps: int = 2) -> None:
            super().__init__()
            self.discriminator, self.generator, self.d_steps = discriminator, generator, extra_steps

        def compile(self, d_optimizer: Any, g_optimizer: Any) -> None:
            super().compile()
            self.d_optimizer, self.g_optimizer = d_optimizer, g_optimizer

        def call(self, data: Any) -> Any:
            return self.discriminator(data["image"]), self.generator(data["noise"][:, 0])

        def mean(self, values: Any) -> Any:
            return tf.reduce_mean(values) / (strategy.num_replicas_in_sync if divided else 1)

        def noise(self, given: Any) -> Any:
            return tf.random.normal(tf.shape(given)) if drawn else given

        def gradient_penalty(self, real: Any, fake: Any, given: Any) -> Any:
            between = real + self.noise(given)[:, None, None, None] * (fake - real)
            return self.mean((_slope(self.discriminator, between) - 1.0) ** 2)

        def train_step(self, data: Any) -> Any:
            real = data["image"]
            for i in range(self.d_steps):
                with tf.GradientTape() as tape:
                    fake = self.generator(self.noise(data["noise"][:, i]), training=True)
                    d_cost = self.mean(self.discriminator(fake, training=True))
                    d_cost -= self.mean(self.discriminator(real, training=True))
                    d_loss = d_cost + 10.0 * self.gradient_penalty(real, fake, data["alpha"][:, i])
                gradients = tape.gradient(d_loss, self.discriminator.trainable_variables)
                self.d_optimizer.apply_gradients(zip(gradients, self.discriminator.trainable_variables, strict=True))
            with tf.GradientTape() as tape:
                fake = self.generator(self.noise(data["noise"][:, -1]), training=True)
                g_loss = -self.mean(self.discriminator(fake, training=True))
            gradients = tape.gradient(g_loss, self.generator.trainable_variables)
            self.g_optimizer.apply_gradients(zip(gradients, self.generator.trainable_variables, strict=True))
            return {"d_loss": d_loss, "g_loss": g_loss}

    x, _ = images(96)
    with scope(strategy, slip):
        model = WGAN(*_networks(keras))
        model.compile(*(keras.optimizers.Adam(rate(1e-3, strategy, slip), beta_1=0.5, beta_2=0.9) for _ in range(2)))
    data = slices({"image": x, "noise": _noise(96, 1, 3, NOISE), "alpha": _noise(96, 2, 2)})
    fitted(model, data, 16, strategy, slip)


WGAN = "keras-io examples/generative/wgan_gp.py, without normalization and Dropout"


@program(kind="WGAN-GP", source=WGAN, right="local mean", reason="loss")
def wgan_gp(strategy: Any, slip: str | None = None) -> None:
    """Critic's, generator's and penalty's means are the replica's own, undivided; noise is drawn besides."""
    _wgan(strategy, slip, drawn=True, divided=False)


@program(kind="WGAN-GP", source=f"{WGAN}, divided by the replicas, noise as data", slips=FITS)
def wgan_gp_of_given_noise(strategy: Any, slip: str | None = None) -> None:
    """A gradient of a gradient, two updates of the critic and one of the generator a step: each is one device's."""
    _wgan(strategy, slip, drawn=False, divided=True)


def _normalized(keras: Any, last: Any) -> Any:
    """A layer after a convolution with instance normalization."""
    first = keras.layers.Conv2D(6, 3, padding="same", activation="tanh")
    return keras.Sequential([keras.Input((8, 8, 1)), first, keras.layers.GroupNormalization(-1), last])


@program(kind="GAN", source="keras-io examples/generative/cyclegan.py", slips=FITS)
def cyclegan(strategy: Any, slip: str | None = None) -> None:
    """Four networks, four optimizers, one persistent tape; every loss is a loss object's, and nothing is drawn."""
    import keras
    import tensorflow as tf
    from keras import layers

    class CycleGan(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.g, self.f = (
                _normalized(keras, layers.Conv2D(1, 3, padding="same", activation="tanh")) for _ in range(2)
            )
            self.d_x, self.d_y = (_normalized(keras, layers.Conv2D(1, 4, strides=2)) for _ in range(2))
            self.cycle_loss, self.identity_loss = keras.losses.MeanAbsoluteError(), keras.losses.MeanAbsoluteError()
            self.mse = keras.losses.MeanSquaredError()

        def compile(self, optimizers: Any) -> None:
            super().compile()
            self.g_optimizer, self.f_optimizer, self.x_optimizer, self.y_optimizer = optimizers

        def call(self, inputs: Any) -> Any:
            return self.d_x(self.f(inputs)), self.d_y(self.g(inputs))

        def train_step(self, data: Any) -> Any:
            x, y = data
            with tf.GradientTape(persistent=True) as tape:
                fake_y, fake_x = self.g(x), self.f(y)
                cycle = self.cycle_loss(x, self.f(fake_y)) + self.cycle_loss(y, self.g(fake_x))
                judged_x, judged_y = self.d_x(fake_x), self.d_y(fake_y)
                g = self.mse(tf.ones_like(judged_y), judged_y) + 10 * cycle + 5 * self.identity_loss(y, self.g(y))
                f = self.mse(tf.ones_like(judged_x), judged_x) + 10 * cycle + 5 * self.identity_loss(x, self.f(x))
                real_x, real_y = self.d_x(x), self.d_y(y)
                d_x = (self.mse(tf.ones_like(real_x), real_x) + self.mse(tf.zeros_like(judged_x), judged_x)) / 2
                d_y = (self.mse(tf.ones_like(real_y), real_y) + self.mse(tf.zeros_like(judged_y), judged_y)) / 2
            updates = (
                (g, self.g, self.g_optimizer),
                (f, self.f, self.f_optimizer),
                (d_x, self.d_x, self.x_optimizer),
                (d_y, self.d_y, self.y_optimizer),
            )
            for loss, model, optimizer in updates:
                weights = model.trainable_variables
                optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
            return {"G_loss": g, "F_loss": f, "D_X_loss": d_x, "D_Y_loss": d_y}

    horses, zebras = (images(64, size=8, seed=seed)[0] * 2 - 1 for seed in (0, 1))
    with scope(strategy, slip):
        model = CycleGan()
        model.compile([keras.optimizers.Adam(rate(2e-3, strategy, slip), beta_1=0.5) for _ in range(4)])
    fitted(model, slices(horses, zebras), 8, strategy, slip)
