"""Autoencoders and variational autoencoders."""

from __future__ import annotations

from typing import Any

from gallery import program
from gallery.made_up import images, sequences, slices
from gallery.slips import FITS, fitted, rate, scope


@program(kind="autoencoder", source="TensorFlow tutorial, generative/autoencoder (anomaly detection)", slips=FITS)
def anomaly_detector(strategy: Any, slip: str | None = None) -> None:
    """A subclass of Model of two Sequentials, built by its first step; the loss is `mae`."""
    import keras
    from keras import layers

    class AnomalyDetector(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            down = [layers.Dense(width, activation="tanh") for width in (32, 16, 8)]
            up = [layers.Dense(16, activation="tanh"), layers.Dense(32, activation="tanh")]
            self.encoder = keras.Sequential(down)
            self.decoder = keras.Sequential([*up, layers.Dense(16, activation="sigmoid")])

        def call(self, x: Any) -> Any:
            return self.decoder(self.encoder(x))

    x = sequences(256, channels=1)[..., 0]
    x = (x - x.min()) / (x.max() - x.min())
    with scope(strategy, slip):
        model = AnomalyDetector()
        model.compile(keras.optimizers.Adam(rate(1e-3, strategy, slip)), "mae")
    fitted(model, slices(x, x), 32, strategy, slip)


@program(
    kind="autoencoder",
    source="The Keras Blog, Building Autoencoders in Keras (sparsity by activity_regularizer)",
    slips=FITS,
)
def sparse_autoencoder(strategy: Any, slip: str | None = None) -> None:
    """The penalty of the codes is divided by the replica's examples and by the replicas: Keras 3 does both."""
    import keras
    from keras import layers

    x, _ = images(256)
    flat = x.reshape(256, -1)
    with scope(strategy, slip):
        inputs = keras.Input((144,))
        code = layers.Dense(16, activation="softplus", activity_regularizer=keras.regularizers.L1(1e-2))(inputs)
        model = keras.Model(inputs, layers.Dense(144, activation="sigmoid")(code))
        model.compile(keras.optimizers.Adam(rate(3e-3, strategy, slip)), "binary_crossentropy")
    fitted(model, slices(flat, flat), 32, strategy, slip)


def _vae_networks(keras: Any, sampling: Any) -> tuple[Any, Any]:
    """An encoder of images 12 × 12 and noise, and a decoder of what it samples."""
    from keras import layers

    image, epsilon = keras.Input((12, 12, 1), name="image"), keras.Input((2,), name="noise")
    z = layers.Conv2D(8, 3, activation="tanh", strides=2, padding="same")(image)
    z = layers.Dense(16, activation="tanh")(layers.Flatten()(z))
    mean, log_var = layers.Dense(2, name="z_mean")(z), layers.Dense(2, name="z_log_var")(z)
    encoder = keras.Model({"image": image, "noise": epsilon}, [mean, log_var, sampling(mean, log_var, epsilon)])
    latent = keras.Input((2,))
    z = layers.Reshape((6, 6, 4))(layers.Dense(144, activation="tanh")(latent))
    z = layers.Conv2DTranspose(8, 3, activation="tanh", strides=2, padding="same")(z)
    return encoder, keras.Model(latent, layers.Conv2DTranspose(1, 3, activation="sigmoid", padding="same")(z))


def _vae(strategy: Any, slip: str | None, drawn: bool, divided: bool) -> None:
    """drawn: the sampling layer draws; otherwise the noise comes with the data. divided: by the replicas."""
    import keras
    import numpy as np
    import tensorflow as tf
    from keras import layers

    class Sampling(layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.seed_generator = keras.random.SeedGenerator(1337)

        def call(self, mean: Any, log_var: Any, noise: Any) -> Any:
            epsilon = keras.random.normal(tf.shape(mean), seed=self.seed_generator) if drawn else noise
            return mean + tf.exp(0.5 * log_var) * epsilon

    class VAE(keras.Model):
        def __init__(self, encoder: Any, decoder: Any) -> None:
            super().__init__()
            self.encoder, self.decoder = encoder, decoder

        def call(self, data: Any) -> Any:
            return self.decoder(self.encoder(data)[2])

        def train_step(self, data: Any) -> Any:
            with tf.GradientTape() as tape:
                mean, log_var, z = self.encoder(data)
                errors = keras.losses.binary_crossentropy(data["image"], self.decoder(z))
                reconstruction_loss = tf.reduce_mean(tf.reduce_sum(errors, axis=(1, 2)))
                kl_loss = -0.5 * (1 + log_var - tf.square(mean) - tf.exp(log_var))
                kl_loss = tf.reduce_mean(tf.reduce_sum(kl_loss, axis=1))
                total_loss = reconstruction_loss + kl_loss
                if divided:
                    total_loss = total_loss / strategy.num_replicas_in_sync
            gradients = tape.gradient(total_loss, self.trainable_weights)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
            return {"loss": total_loss, "reconstruction_loss": reconstruction_loss, "kl_loss": kl_loss}

    x, _ = images(128)
    noise = np.random.default_rng(1).standard_normal((128, 2)).astype("float32")
    with scope(strategy, slip):
        model = VAE(*_vae_networks(keras, Sampling()))
        model.compile(keras.optimizers.Adam(rate(3e-3, strategy, slip)))
    fitted(model, slices({"image": x, "noise": noise}), 16, strategy, slip)


VAE = "keras-io examples/generative/vae.py"


@program(kind="VAE", source=VAE, right="local mean", reason="loss")
def vae(strategy: Any, slip: str | None = None) -> None:
    """Its own train_step takes the mean over the replica's images; sampling moves it much less."""
    _vae(strategy, slip, drawn=True, divided=False)


@program(kind="VAE", source=f"{VAE}, divided by the replicas")
def vae_divided(strategy: Any, slip: str | None = None) -> None:
    """The mean is right now, and each replica draws other noise than one device for the same images."""
    _vae(strategy, slip, drawn=True, divided=True)


@program(kind="VAE", source=f"{VAE}, noise as data", right="local mean", reason="loss")
def vae_undivided(strategy: Any, slip: str | None = None) -> None:
    """Nothing is drawn, and the mean is over the replica's images alone."""
    _vae(strategy, slip, drawn=False, divided=False)


@program(kind="VAE", source=f"{VAE}, divided by the replicas, noise as data", slips=FITS)
def vae_of_given_noise(strategy: Any, slip: str | None = None) -> None:
    """The noise comes with each image, and the mean is divided by the replicas: replicas are one device."""
    _vae(strategy, slip, drawn=False, divided=True)


def _vae_of_layers(strategy: Any, slip: str | None, drawn: bool) -> None:
    import keras
    import numpy as np
    from keras import layers, ops

    class Encoder(layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.proj = layers.Dense(24, activation="tanh")
            self.mean, self.log_var = layers.Dense(4), layers.Dense(4)

        def call(self, inputs: Any) -> Any:
            z = self.proj(inputs)
            return self.mean(z), self.log_var(z)

    class VariationalAutoEncoder(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.seeds = Encoder(), keras.random.SeedGenerator(1337)
            self.decoder = keras.Sequential([layers.Dense(24, activation="tanh"), layers.Dense(144, "sigmoid")])

        def call(self, inputs: Any) -> Any:
            pixels, noise = inputs[:, :144], inputs[:, 144:]
            mean, log_var = self.encoder(pixels)
            if drawn:
                noise = keras.random.normal(ops.shape(mean), seed=self.seeds)
            reconstructed = self.decoder(mean + ops.exp(0.5 * log_var) * noise)
            self.add_loss(-0.5 * ops.mean(log_var - ops.square(mean) - ops.exp(log_var) + 1))
            return reconstructed

    x, _ = images(256)
    noise = np.random.default_rng(1).standard_normal((256, 4)).astype("float32")
    rows = np.concatenate([x.reshape(256, -1), noise], axis=1)
    with scope(strategy, slip):
        model = VariationalAutoEncoder()
        loss = keras.losses.MeanSquaredError()
        model.compile(keras.optimizers.Adam(rate(1e-3, strategy, slip)), loss=loss)
    fitted(model, slices(rows, rows[:, :144]), 32, strategy, slip)


GUIDE = "keras-io guides/making_new_layers_and_models_via_subclassing.py, VariationalAutoEncoder"


@program(kind="VAE", source=GUIDE)
def vae_add_loss(strategy: Any, slip: str | None = None) -> None:
    """Keras scales the KL term of add_loss; each replica draws its own noise, which moves the losses a little only."""
    _vae_of_layers(strategy, slip, drawn=True)


@program(kind="VAE", source=f"{GUIDE}, noise as data", slips=FITS)
def vae_add_loss_given_noise(strategy: Any, slip: str | None = None) -> None:
    """The mean that goes to add_loss is the replica's, and Keras divides it by the replicas."""
    _vae_of_layers(strategy, slip, drawn=False)
