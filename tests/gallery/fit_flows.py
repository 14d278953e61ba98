"""Densities and diffusion: a train_step of one's own that normalizes, draws, or keeps averages of weights."""

from __future__ import annotations

from typing import Any

import dtk
from gallery import program
from gallery.made_up import images, slices
from gallery.slips import FITS, batches, fitted, rate, scope


def _real_nvp(strategy: Any, slip: str | None, divided: bool) -> None:
    import keras
    import numpy as np
    import tensorflow as tf
    from keras import layers

    class RealNVP(keras.Model):
        def __init__(self, couplings: int) -> None:
            super().__init__()
            self.masks = [[0.0, 1.0], [1.0, 0.0]] * (couplings // 2)
            self.nets = []
            for _ in range(couplings):
                inputs = keras.Input((2,))
                s, t = (layers.Dense(12, activation="tanh")(inputs) for _ in range(2))
                s, t = layers.Dense(2, activation="tanh")(s), layers.Dense(2)(t)
                self.nets.append(keras.Model(inputs, [s, t]))

        def call(self, x: Any) -> Any:
            log_det = tf.zeros(tf.shape(x)[:1])
            for mask, net in zip(self.masks, self.nets, strict=True):
                mask = tf.constant(mask)
                s, t = net(x * mask)
                s, t = s * (1 - mask), t * (1 - mask)
                x = x * mask + (1 - mask) * (x - t) * tf.exp(-s)
                log_det -= tf.reduce_sum(s, axis=1)
            return x, log_det

        def train_step(self, data: Any) -> Any:
            with tf.GradientTape() as tape:
                y, log_det = self(data)
                log_likelihood = -0.5 * tf.reduce_sum(y**2, axis=1) - np.log(2 * np.pi).astype("float32") + log_det
                loss = -tf.reduce_mean(log_likelihood)
                if divided:
                    loss = loss / strategy.num_replicas_in_sync
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            return {"loss": loss}

    angle = np.random.default_rng(0).random(256) * np.pi
    moon = np.stack([np.cos(angle), np.sin(angle)], axis=1) + 0.1 * np.random.default_rng(1).standard_normal((256, 2))
    with scope(strategy, slip):
        model = RealNVP(couplings=4)
        model.compile(keras.optimizers.Adam(rate(3e-3, strategy, slip)))
    fitted(model, slices(moon.astype("float32")), 32, strategy, slip)


NVP = "keras-io examples/generative/real_nvp.py"


@program(kind="density", source=NVP, right="local mean", reason="loss")
def real_nvp(strategy: Any, slip: str | None = None) -> None:
    """log_loss is the mean over the replica's points, which nobody divides by the replicas."""
    _real_nvp(strategy, slip, divided=False)


@program(kind="density", source=f"{NVP}, divided by the replicas", slips=FITS)
def real_nvp_divided(strategy: Any, slip: str | None = None) -> None:
    """A replica's share of the mean: the shares' gradients add up to one device's."""
    _real_nvp(strategy, slip, divided=True)


def _diffusion(strategy: Any, slip: str | None, drawn: bool) -> None:
    import keras
    import numpy as np
    import tensorflow as tf
    from keras import layers

    def network() -> Any:
        noisy, variance = keras.Input((8, 8, 1)), keras.Input((1, 1, 1))
        e = layers.UpSampling2D(8)(layers.Lambda(lambda v: tf.concat([tf.sin(v), tf.cos(v)], 3))(variance))
        z = layers.Concatenate()([layers.Conv2D(6, 1)(noisy), e])
        for _ in range(2):
            z = layers.Conv2D(8, 3, padding="same", activation="swish")(z)
        return keras.Model([noisy, variance], layers.Conv2D(1, 1)(z))

    class DiffusionModel(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.network, self.averages = network(), network()
            self.averages.set_weights(self.network.get_weights())
            self.averages.trainable = False

        def call(self, data: Any) -> Any:
            return self.network([data["image"], data["time"][:, None, None, None]])

        def train_step(self, data: Any) -> Any:
            noise, time = data["noise"], data["time"]
            if drawn:
                noise, time = tf.random.normal(tf.shape(noise)), tf.random.uniform(tf.shape(time))
            angle = 0.3 + time[:, None, None, None]
            noisy = tf.cos(angle) * data["image"] + tf.sin(angle) * noise
            with tf.GradientTape() as tape:
                predicted = self.network([noisy, tf.sin(angle) ** 2], training=True)
                loss = keras.losses.mean_absolute_error(noise, predicted)  # for each pixel: the tape adds them up
            gradients = tape.gradient(loss, self.network.trainable_weights)
            self.optimizer.apply_gradients(zip(gradients, self.network.trainable_weights, strict=True))
            return {"n_loss": tf.reduce_mean(loss)}

    x, _ = images(96, size=8)
    rng = np.random.default_rng(1)
    noise, time = rng.standard_normal(x.shape).astype("float32"), rng.random(96).astype("float32")
    with scope(strategy, slip):
        model = DiffusionModel()
        model.compile(keras.optimizers.AdamW(rate(1e-3, strategy, slip), weight_decay=1e-4))
    data = batches(slices({"image": (x - x.mean()) / x.std(), "noise": noise, "time": time}), 16, strategy, slip)
    model.fit(data, callbacks=[dtk.Recorder(), _average(keras, 0.9)], verbose=0)


def _average(keras: Any, decay: float) -> Any:
    """Moves the averages after every step; the example does so in train_step, where a strategy allows no assignment."""

    class Average(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            pairs = zip(self.model.network.get_weights(), self.model.averages.get_weights(), strict=True)
            self.model.averages.set_weights([decay * old + (1 - decay) * new for new, old in pairs])

    return Average()


DDIM = "keras-io examples/generative/ddim.py, without normalization"


@program(kind="diffusion", source=DDIM)
def ddim(strategy: Any, slip: str | None = None) -> None:
    """Its loss is a sum over the pixels, which replicas make up together; noise and times are drawn in each replica."""
    _diffusion(strategy, slip, drawn=True)


@program(kind="diffusion", source=f"{DDIM}, noise as data", slips=FITS)
def ddim_of_given_noise(strategy: Any, slip: str | None = None) -> None:
    """A loss of many numbers, and moving averages of weights that a callback writes alike on every worker."""
    _diffusion(strategy, slip, drawn=False)
