"""What programs train: data of a few kB from a fixed seed, with something in it to be learned, and a plain network."""

from __future__ import annotations

from typing import Any


def images(count: int, size: int = 12, channels: int = 1, classes: int = 4, seed: int = 0) -> tuple[Any, Any]:
    """Pictures `(count, size, size, channels)` from 0 to 1, each its class's pattern and noise; labels `(count,)`."""
    import numpy as np

    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, count)
    patterns = rng.random((classes, size, size, channels))
    pictures = 0.7 * patterns[labels] + 0.3 * rng.random((count, size, size, channels))
    return pictures.astype("float32"), labels.astype("int64")


def tokens(count: int, length: int = 12, vocabulary: int = 40, classes: int = 2, seed: int = 0) -> tuple[Any, Any]:
    """Ids `(count, length)` from 1 up, of which each class likes other ones; labels `(count,)`."""
    import numpy as np

    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, count)
    liked = 1 + (vocabulary - 1) * (labels[:, None] + rng.random((count, length))) / classes
    ids = np.where(rng.random((count, length)) < 0.5, liked, rng.integers(1, vocabulary, (count, length)))
    return ids.astype("int64"), labels.astype("int64")


def sequences(count: int, length: int = 16, channels: int = 2, seed: int = 0) -> Any:
    """Noisy sine waves of different phase and frequency, `(count, length, channels)`."""
    import numpy as np

    rng = np.random.default_rng(seed)
    phase, frequency = rng.random((2, count, 1, channels)) * [[[[6]]], [[[1]]]]
    time = np.arange(length)[None, :, None]
    waves = np.sin(phase + (0.3 + frequency) * time) + 0.1 * rng.standard_normal((count, length, channels))
    return waves.astype("float32")


def table(count: int, seed: int = 0) -> tuple[dict[str, Any], Any]:
    """Patients: numbers, whole numbers and strings, by column; whether each is ill."""
    import numpy as np

    rng = np.random.default_rng(seed)
    age, pressure = rng.integers(30, 80, count), rng.normal(130, 15, count)
    sex, pain = rng.integers(0, 2, count), rng.integers(1, 5, count)
    thal = rng.choice(["normal", "fixed", "reversible"], count)
    risk = (age - 55) / 10 + (pressure - 130) / 20 + pain - 2.5 + 2 * (thal == "fixed") + rng.standard_normal(count)
    columns = {"age": age.astype("float32"), "pressure": pressure.astype("float32"), "sex": sex, "pain": pain}
    return {**columns, "thal": thal}, (risk > 0.7).astype("float32")


def rings(count: int, noises: int = 1, width: int = 6) -> tuple[Any, ...]:
    """Points near the unit circle, `(count, 2)`, and so many times noise for each, `(count, width)`."""
    import numpy as np

    rng = np.random.default_rng(11)
    angles = rng.uniform(0, 2 * np.pi, count)
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1) + rng.normal(0, 0.05, (count, 2))
    return tuple(each.astype("float32") for each in (points, *rng.normal(size=(noises, count, width))))


def dense(inputs: int, *widths: int, activation: str = "tanh", biased: bool = True) -> Any:
    """A network of dense layers; biased: whether the last of them, which has no activation, has a bias."""
    import keras

    *hidden, last = widths
    layers = [keras.layers.Dense(width, activation=activation) for width in hidden]
    return keras.Sequential([keras.layers.Input((inputs,)), *layers, keras.layers.Dense(last, use_bias=biased)])


def slices(*arrays: Any) -> Any:
    """The arrays (or dictionaries of them) as a dataset of single examples."""
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(arrays if len(arrays) > 1 else arrays[0])
