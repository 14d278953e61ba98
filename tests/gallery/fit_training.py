"""How training goes: learning rates, callbacks, several fits, frozen layers, distillation, clipping, augmentation."""

from __future__ import annotations

from typing import Any

import dtk
from gallery import program
from gallery.made_up import images, sequences, slices
from gallery.slips import FITS, batches, fitted, rate, scope


def _transfer_learning(strategy: Any, slip: str | None, statistics_frozen: bool) -> None:
    import keras
    import numpy as np
    from keras import layers

    x, y = images(160)
    with scope(strategy, slip):
        picture = keras.Input((12, 12, 1))
        z = layers.Conv2D(8, 3, strides=2, activation="tanh")(picture)
        normalization = layers.BatchNormalization()
        z = layers.Conv2D(8, 3, activation="tanh")(normalization(z))
        base = keras.Model(picture, layers.GlobalAveragePooling2D()(z))
        rng = np.random.default_rng(2)  # as if it had been trained before
        base.set_weights([np.abs(rng.normal(0.1, 0.3, w.shape)) + 0.1 for w in base.get_weights()])
        base.trainable = False
        inputs = keras.Input((12, 12, 1))
        z = base(layers.Rescaling(2.0, offset=-1.0)(inputs), training=False)
        model = keras.Model(inputs, layers.Dense(1)(z))
        loss = keras.losses.BinaryCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(rate(0.01, strategy, slip)), loss, metrics=["binary_accuracy"])
    data = batches(slices(x, (y[:, None] > 1).astype("float32")), 16, strategy, slip)
    model.fit(data, callbacks=[dtk.Recorder()], verbose=0)
    base.trainable = True
    normalization.trainable = not statistics_frozen
    with scope(strategy, slip):
        model.compile(keras.optimizers.Adam(rate(1e-3, strategy, slip)), loss, metrics=["binary_accuracy"])
    model.fit(data, callbacks=[dtk.Recorder()], verbose=0)


TRANSFER = "keras-io guides/transfer_learning.py"


@program(kind="transfer learning", source=TRANSFER)
def transfer_learning(strategy: Any, slip: str | None = None) -> None:
    """A frozen base under a new head, then all fine-tuned at a low rate: two fits, each with its own optimizer.

    The guide counts on `base(x, training=False)` to keep BatchNormalization as in inference. Keras 3 overrides it in
    `fit`, so that once the base is trainable each replica normalizes by its own examples.
    """
    _transfer_learning(strategy, slip, statistics_frozen=False)


@program(
    kind="transfer learning",
    source="keras-io examples/vision/image_classification_efficientnet_fine_tuning.py",
    slips=FITS,
)
def transfer_learning_frozen_statistics(strategy: Any, slip: str | None = None) -> None:
    """BatchNormalization that stays frozen while the rest is fine-tuned runs as in inference."""
    _transfer_learning(strategy, slip, statistics_frozen=True)


@program(kind="distillation", source="keras-io examples/vision/knowledge_distillation.py", slips=FITS)
def distillation(strategy: Any, slip: str | None = None) -> None:
    """A teacher is trained, and a student by a compute_loss of two loss objects, both divided by the replicas."""
    import keras
    from keras import layers, ops

    class Distiller(keras.Model):
        def __init__(self, student: Any, teacher: Any) -> None:
            super().__init__()
            self.student, self.teacher = student, teacher

        def compile(self, optimizer: Any, student_loss_fn: Any, distillation_loss_fn: Any, alpha: float) -> None:
            super().compile(optimizer=optimizer)
            self.student_loss_fn, self.distillation_loss_fn = student_loss_fn, distillation_loss_fn
            self.alpha, self.temperature = alpha, 3

        def compute_loss(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None, training: bool = True) -> Any:
            soft = ops.softmax(self.teacher(x, training=False) / self.temperature, axis=1)
            student_loss = self.student_loss_fn(y, y_pred)
            distillation_loss = self.distillation_loss_fn(soft, ops.softmax(y_pred / self.temperature, axis=1))
            distillation_loss *= self.temperature**2
            return self.alpha * student_loss + (1 - self.alpha) * distillation_loss

        def call(self, x: Any) -> Any:
            return self.student(x)

    def network(width: int) -> Any:
        first = layers.Conv2D(width, 3, strides=2, padding="same", activation="gelu")
        second = layers.Conv2D(2 * width, 3, strides=2, padding="same")
        return keras.Sequential([keras.Input((12, 12, 1)), first, second, layers.Flatten(), layers.Dense(4)])

    x, y = images(128)
    with scope(strategy, slip):
        teacher = network(12)
        hard = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        teacher.compile(keras.optimizers.Adam(5e-3), hard)
    fitted(teacher, slices(x, y), 16, strategy)  # right
    with scope(strategy, slip):
        distiller = Distiller(network(4), teacher)
        optimizer = keras.optimizers.Adam(rate(5e-3, strategy, slip))
        distiller.compile(optimizer, hard, keras.losses.KLDivergence(), alpha=0.1)
    fitted(distiller, slices(x, y), 16, strategy, slip)


@program(kind="recurrent", source="keras-io examples/timeseries/timeseries_weather_forecasting.py", slips=FITS)
def weather_forecast(strategy: Any, slip: str | None = None) -> None:
    """An LSTM, validation, ReduceLROnPlateau by its loss, and EarlyStopping by the same."""
    import keras
    from keras import layers

    waves = sequences(192)
    past, future = waves[:, :-1], waves[:, -1, :1]
    with scope(strategy, slip):
        inputs = keras.Input((15, 2))
        model = keras.Model(inputs, layers.Dense(1)(layers.LSTM(12)(inputs)))
        model.compile(keras.optimizers.Adam(rate(0.01, strategy, slip)), "mse")
    callbacks = [
        keras.callbacks.EarlyStopping(monitor="val_loss", patience=5),
        keras.callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.5, patience=1, min_delta=0.2),
        dtk.Recorder(),
    ]
    train = batches(slices(past[:128], future[:128]), 32, strategy, slip)
    held_out = batches(slices(past[128:], future[128:]), 32, strategy)
    model.fit(train, epochs=4, validation_data=held_out, callbacks=callbacks, verbose=0)


@program(
    kind="attention",
    source="keras-io examples/timeseries/timeseries_classification_transformer.py, with a schedule",
    slips=FITS,
)
def rates_by_callback(strategy: Any, slip: str | None = None) -> None:
    """A warm-up by a schedule of its own, then a rate that a LearningRateScheduler sets at each epoch's begin."""
    import keras
    from keras import layers

    class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
        def __init__(self, peak: float, steps: int) -> None:
            self.peak, self.steps = peak, steps

        def __call__(self, step: Any) -> Any:
            return self.peak * keras.ops.minimum(1.0, (keras.ops.cast(step, "float32") + 1) / self.steps)

    waves = sequences(128, channels=4)
    label = (waves[:, 0, 0] > waves[:, 0, 1]).astype("int64")
    with scope(strategy, slip):
        inputs = keras.Input((16, 4))
        z = layers.LayerNormalization(epsilon=1e-6)(inputs)
        z = inputs + layers.MultiHeadAttention(2, 4, use_bias=False)(z, z)
        z = z + layers.Conv1D(4, 1)(layers.Conv1D(4, 1, activation="gelu")(layers.LayerNormalization(epsilon=1e-6)(z)))
        z = layers.GlobalAveragePooling1D(data_format="channels_first")(z)
        model = keras.Model(inputs, layers.Dense(2, activation="softmax")(z))
        model.compile(keras.optimizers.Adam(WarmUp(rate(0.01, strategy, slip), 4)), "sparse_categorical_crossentropy")
    data = batches(slices(waves, label), 32, strategy, slip)
    model.fit(data, epochs=2, callbacks=[dtk.Recorder()], verbose=0)
    with scope(strategy, slip):
        model.compile(keras.optimizers.Adam(), "sparse_categorical_crossentropy")
    schedule = keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.01 * 0.5**epoch)
    model.fit(data, epochs=2, callbacks=[schedule, dtk.Recorder()], verbose=0)


def _clipped(strategy: Any, slip: str | None, **clip: float) -> None:
    import keras
    import numpy as np
    from keras import layers

    waves = sequences(128)
    symbols = np.digitize(waves[..., 0], [-0.6, 0.0, 0.6])
    with scope(strategy, slip):
        first = [keras.Input((15,), dtype="int64"), layers.Embedding(4, 8), layers.LSTM(16, return_sequences=True)]
        model = keras.Sequential([*first, layers.Dense(4)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(rate(0.5, strategy, slip), **clip), loss)
    fitted(model, slices(symbols[:, :-1], symbols[:, 1:]), 16, strategy, slip)


CHARACTERS = "TensorFlow tutorial, text/text_generation"


@program(kind="recurrent", source=f"{CHARACTERS}, with global_clipnorm", right="clipping", reason="update")
def clipped_characters(strategy: Any, slip: str | None = None) -> None:
    """Keras 3 clips each replica's gradient before the sum: what one device clips once, replicas clip apart."""
    _clipped(strategy, slip, global_clipnorm=0.05)


@program(kind="recurrent", source=f"{CHARACTERS}, with a clipnorm that is never reached", slips=FITS)
def characters_below_the_clip(strategy: Any, slip: str | None = None) -> None:
    """A norm above every gradient's clips nothing, in a replica as on one device."""
    _clipped(strategy, slip, clipnorm=50.0)


def _mixed_up(strategy: Any, slip: str | None, seeded: bool) -> None:
    import keras
    import numpy as np
    import tensorflow as tf
    from keras import layers

    x, y = images(128)
    labels = np.eye(4, dtype="float32")[y]

    def mixed(number: Any, first: Any, second: Any) -> Any:
        """Two examples added, each by its share, which is drawn."""
        if seeded:  # by the pair's number, whoever draws
            share = tf.random.stateless_uniform((), seed=tf.stack([number, 7]))
        else:
            share = tf.numpy_function(lambda: np.random.default_rng().beta(0.4, 0.4), [], tf.float64)
            share = tf.cast(tf.ensure_shape(share, ()), tf.float32)
        return tuple(share * one + (1 - share) * other for one, other in zip(first, second, strict=True))

    with scope(strategy, slip):
        stack = [keras.Input((12, 12, 1)), layers.Conv2D(8, 3, strides=2, activation="tanh"), layers.Flatten()]
        model = keras.Sequential([*stack, layers.Dense(4, activation="softmax")])
        model.compile(keras.optimizers.Adam(rate(0.003, strategy, slip)), "categorical_crossentropy")
    pairs = tf.data.Dataset.zip((slices(np.arange(128)), slices(x, labels), slices(x[::-1], labels[::-1])))
    fitted(model, pairs.map(mixed, num_parallel_calls=2), 16, strategy, slip)


MIXUP = "keras-io examples/vision/mixup.py, by the pair"


@program(kind="classification", source=MIXUP, right="not reproducible")
def mixup(strategy: Any, slip: str | None = None) -> None:
    """The pipeline draws how much of each example, by NumPy and without a seed: every process draws other numbers."""
    _mixed_up(strategy, slip, seeded=False)


@program(kind="classification", source=f"{MIXUP}, a seed for each pair", slips=FITS)
def mixup_seeded(strategy: Any, slip: str | None = None) -> None:
    """What is drawn depends on the pair's number alone, so every process draws the same for it."""
    _mixed_up(strategy, slip, seeded=True)


@program(kind="classification", source="TensorFlow guide, mixed precision, with bfloat16")
def mixed_precision(strategy: Any, slip: str | None = None) -> None:
    """bfloat16 has eight bits: a replica's gradient, a sum over its examples, is rounded to them before it is added."""
    import keras
    from keras import layers

    x, y = images(128)
    with scope(strategy, slip):
        stack = [
            keras.Input((12, 12, 1)),
            layers.Flatten(),
            layers.Dense(24, activation="tanh", dtype="mixed_bfloat16"),
        ]
        model = keras.Sequential([*stack, layers.Dense(4, activation="softmax", dtype="float32")])
        model.compile(keras.optimizers.SGD(rate(0.05, strategy, slip)), "sparse_categorical_crossentropy")
    fitted(model, slices(x, y), 16, strategy, slip)
