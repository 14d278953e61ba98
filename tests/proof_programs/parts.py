"""What the programs share: data in global batches, networks, optimizers, and where a mistake is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gallery.made_up import sequences, tokens
from training import digits, sharded

import dtk

BATCH, COUNT = 64, 1024
RATES = {"sgd": 0.05, "momentum": 0.02, "adam": 2e-3, "adamw": 2e-3, "rmsprop": 1e-3, "adagrad": 0.02}
RATES["adafactor"] = 0.01


def on_cluster() -> bool:
    """Whether this is a worker of a cluster, and neither a baseline nor a follower."""
    place = dtk.environment.here()
    return place is not None and place.mode == "cluster"


def on_worker(number: int) -> bool:
    return on_cluster() and dtk.environment.here().worker == number


def arrays(model: str, count: int = COUNT) -> tuple[Any, Any]:
    """Examples and labels that a network of this name takes."""
    if model == "lstm":
        waves = sequences(count)
        return waves, (waves[:, 0, 0] > waves[:, 0, 1]).astype("int64")
    if model in ("attention", "embedding", "tied"):
        return tokens(count)
    if model == "mnist":
        from dtk.datasets import digits as enlarged

        images, labels = enlarged()
        return images[:count].astype("float32") / 255, labels[:count]
    x, y = digits(count)
    return x if model in ("mlp", "residual", "shared") else x.reshape(-1, 8, 8, 1), y


def order(length: int, count: int, seed: int = 7) -> Any:
    """Numbers of examples, each of them once, then each once again in another order, and so on: `(length,)`."""
    import numpy as np

    rng = np.random.default_rng(seed)
    return np.concatenate([rng.permutation(count) for _ in range(-(-length // count))])[:length]


def batches(
    data: Any, steps: int, batch: int = BATCH, mistake: str | None = None, at: int = 200, policy: str = "DATA"
) -> Any:
    """So many global batches of the arrays' examples, the same in every process.

    Mistakes, on the cluster: "duplicated example" (one of step `at`), "short batch" (of step `at`, four examples less),
    "worker's labels" (those of worker 1 belong to other examples).
    """
    import tensorflow as tf

    numbers = order(steps * batch, len(data[0]))
    place = (at - 1) * batch
    if mistake == "duplicated example" and on_cluster() and place < len(numbers):
        numbers[place + 1] = numbers[place]
    if mistake == "short batch" and on_cluster():
        cut = numbers[:place], numbers[place : place + batch - 4], numbers[place + batch :]
        before, short, after = (tf.data.Dataset.from_tensor_slices(part).batch(batch) for part in cut)
        dataset = before.concatenate(short).concatenate(after)
    else:
        dataset = tf.data.Dataset.from_tensor_slices(numbers).batch(batch)
    if mistake == "worker's labels" and on_worker(1):
        data = (data[0], data[1][::-1])
    held = [tf.constant(each) for each in data]
    return sharded(dataset.map(lambda several: tuple(tf.gather(each, several) for each in held)), policy)


def network(
    model: str = "cnn",
    activation: str = "relu",
    dropout: float = 0.0,
    batch_norm: bool | str = False,
    noise: float = 0.0,
    augmented: bool = False,
    l2: float = 0.0,
) -> Any:
    """A small network; batch_norm: True, or "synchronized". Logits, `(examples, 10)` or `(examples, 2)`."""
    import keras
    from keras import layers

    penalty = keras.regularizers.L2(l2) if l2 else None
    shape, classes = {"lstm": ((16, 2), 2), "mnist": ((28, 28, 1), 10)}.get(model, ((8, 8, 1), 10))
    if model in ("mlp", "residual", "shared"):
        shape = (64,)
    if model in ("attention", "embedding", "tied"):
        shape, classes = (12,), 2
    inputs = keras.Input(shape, dtype="int64" if classes == 2 and model != "lstm" else None)
    z = inputs
    if augmented:
        z = layers.RandomRotation(0.1)(layers.RandomFlip("horizontal")(z))
    z = _first(model, activation, penalty)(z)
    z = layers.GaussianNoise(noise)(z) if noise else z
    z = layers.BatchNormalization(synchronized=batch_norm == "synchronized")(z) if batch_norm else z
    z = layers.Dropout(dropout)(z) if dropout else z
    z = _last(model, activation, penalty)(z)
    outputs = layers.Dense(classes, dtype="float32", name="logits")(z)
    return keras.Model(inputs, outputs)


def _first(model: str, activation: str, penalty: Any) -> Any:
    from keras import layers

    if model == "lstm":
        return layers.LSTM(16)
    if model in ("attention", "embedding", "tied"):
        return layers.Embedding(40, 16)
    if model in ("mlp", "residual", "shared"):
        return layers.Dense(32, activation=activation, kernel_regularizer=penalty)
    stride = 3 if model == "mnist" else 1
    return layers.Conv2D(8, 3, stride, activation=activation, kernel_regularizer=penalty)


def _last(model: str, activation: str, penalty: Any) -> Any:
    """What comes after the first layer, and before the logits."""
    from keras import layers

    def attended(z):
        z = layers.LayerNormalization()(z + layers.MultiHeadAttention(2, 8)(z, z))
        return layers.GlobalAveragePooling1D()(z + layers.Dense(16, activation=activation)(z))

    def residual(z):
        for _ in range(2):
            z = z + layers.Dense(32, activation=activation)(layers.LayerNormalization()(z))
        return z

    def shared(z):  # one layer, called three times
        layer = layers.Dense(32, activation=activation, kernel_regularizer=penalty)
        return layer(layer(layer(z)))

    def pooled(z):
        return layers.Flatten()(layers.Conv2D(16, 3, activation=activation)(layers.MaxPooling2D(2)(z)))

    def convolved(z):
        return layers.Flatten()(layers.Conv2D(8, 3, 2, activation=activation, kernel_regularizer=penalty)(z))

    ways = {"attention": attended, "residual": residual, "shared": shared, "pool": pooled}
    ways |= {"embedding": lambda z: layers.GlobalAveragePooling1D()(z), "mlp": layers.Dense(16, activation=activation)}
    ways |= {"lstm": layers.Dense(16, activation=activation)}
    return ways.get(model, convolved)


def optimizer_of(
    name: str, mistake: str | None = None, size: float | None = None, rate: Any = None, **more: Any
) -> Any:
    """An optimizer of Keras. rate: None for a usual one; more: of its arguments.

    Mistakes, on the cluster: "learning rate" (`size` of itself too large), "weight decay" (none), "epsilon" (`size`).
    """
    import keras

    rate = RATES[name] if rate is None else rate
    if on_cluster() and mistake == "learning rate":
        rate *= 1 + (0.01 if size is None else size)
    if on_cluster() and mistake == "epsilon":
        more["epsilon"] = 1e-5 if size is None else size
    if name == "adamw":
        return keras.optimizers.AdamW(
            rate, weight_decay=0.0 if on_cluster() and mistake == "weight decay" else 4e-3, **more
        )
    kinds = {"adam": "Adam", "rmsprop": "RMSprop", "adagrad": "Adagrad", "adafactor": "Adafactor"}
    more = {**more, "momentum": 0.9} if name == "momentum" else more
    return getattr(keras.optimizers, kinds.get(name, "SGD"))(rate, **more)


def built(strategy: Any, optimizer: str, network: Callable[..., Any], *args: Any, **facts: Any) -> tuple[Any, Any]:
    """A network and an optimizer that has its variables. network: makes it of `args` and `facts`."""
    with strategy.scope():
        net, update = network(*args, **facts), optimizer_of(optimizer)
        update.build(net.trainable_variables)
    return net, update


def seeded(mistake: str | None) -> None:
    """Mistake "seed", on the cluster: other initial weights."""
    import keras

    if mistake == "seed" and on_cluster():
        keras.utils.set_random_seed(5)


def crossentropy(y: Any, outputs: Any) -> Any:
    """Of each example: `(examples,)`."""
    import keras

    return keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=True)


def looped(strategy: Any, replica_step: Any, dataset: Any, model: Any, recorded: bool = True) -> None:
    """Calls each replica's step with its part of each batch, in a graph, and records it."""
    import tensorflow as tf

    @tf.function
    def step(inputs: Any) -> None:
        losses = strategy.run(replica_step, (inputs,))
        if recorded:
            dtk.record_step(losses, batch=inputs, model=model)

    for inputs in dataset:
        step(inputs)
