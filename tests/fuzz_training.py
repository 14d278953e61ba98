"""A training function that does what a spec of `fuzzing` says. Runs in workers, so Keras is imported inside."""

from __future__ import annotations

from typing import Any

import numpy as np
from training import dealt

import dtk


def data_of(spec: dict[str, Any]) -> Any:
    """A tf.data.Dataset of (x, y) or (x, y, weight), in global batches."""
    chance, count = np.random.default_rng(3), spec["batch"] * spec["steps"] + spec["tail"]
    vector = chance.normal(size=(count, 5)).astype("float32")
    series = chance.normal(size=(count, 6, 4)).astype("float32")
    tokens = chance.integers(0, 20, (count, 6)).astype("int32")
    if spec["masked"]:
        tokens *= np.arange(6) < chance.integers(1, 7, (count, 1))
    x = {"vector": vector, "series": series, "tokens": tokens}
    x |= {"dict": {"a": vector, "b": series}, "tuple": (vector, series)}
    wide = np.tanh(vector[:, :2] + 0.1)
    classes = (np.abs(vector[:, 0]) * 2).astype("int32") % 3
    if spec["masked"]:
        classes = tokens % 3
    positive, one_hot = (wide[:, :1] > 0).astype("float32"), np.eye(3, dtype="float32")[classes]
    y = {"flat": wide[:, 0], "bce": positive, "scce": classes, "smooth": one_hot}
    parts = (x[spec["inputs"]], y.get(spec["loss"], wide))
    if spec["weighted"]:
        parts += (chance.uniform(0.5, 1.5, count).astype("float32"),)
    return dealt(parts, spec["batch"], 7 if spec["shuffled"] else None)


def positions() -> Any:
    """A layer that adds an embedding of each place, the same for every example."""
    import keras

    class Positions(keras.layers.Layer):  # type: ignore[misc]
        def build(self, shape: Any) -> None:
            self.supports_masking = True
            self.table = keras.layers.Embedding(shape[1], shape[2])

        def call(self, flow: Any) -> Any:
            return flow + self.table(keras.ops.arange(flow.shape[1]))[None]

    return Positions()


def layer_of(name: str, regular: Any) -> Any:
    import keras

    made = keras.layers
    return {
        "dense": lambda: made.Dense(6, "tanh", kernel_regularizer=regular),
        "relu": lambda: made.Dense(6, "relu", kernel_regularizer=regular),
        "norm": made.LayerNormalization,
        "batch norm": made.BatchNormalization,
        "sync batch norm": lambda: made.BatchNormalization(synchronized=True),
        "dropout": lambda: made.Dropout(0.3),
        "noise": lambda: made.GaussianNoise(0.3),
        "conv": lambda: made.Conv1D(4, 3, padding="same", activation="tanh", kernel_regularizer=regular),
        "lstm": lambda: made.LSTM(4, return_sequences=True),
        "gru": lambda: made.GRU(4, return_sequences=True),
        "attention": lambda: made.MultiHeadAttention(2, 3),
        "positions": positions,
        "spatial dropout": lambda: made.SpatialDropout1D(0.3),
        "lstm dropout": lambda: made.LSTM(4, return_sequences=True, dropout=0.3),
        "attention dropout": lambda: made.MultiHeadAttention(2, 3, dropout=0.3),
    }[name]()


def model_of(spec: dict[str, Any]) -> Any:
    import keras

    made = keras.layers
    regular = keras.regularizers.L2(0.01) if spec["penalty"] else None
    vector, series = made.Input((5,), name="a"), made.Input((6, 4), name="b")
    tokens = made.Input((6,), dtype="int32")
    given = {"vector": vector, "series": series, "tokens": tokens}
    given |= {"dict": {"a": vector, "b": series}, "tuple": (vector, series)}
    flow = {"vector": vector, "tokens": tokens}.get(spec["inputs"], series)
    layers = [layer_of(name, regular) for name in spec["layers"]]
    if spec["inputs"] == "tokens":
        flow = made.Embedding(20, 4, mask_zero=spec["masked"])(flow)
    layers[0].trainable = not spec["frozen"]
    for layer in layers:
        flow = layer(flow, flow) if isinstance(layer, made.MultiHeadAttention) else layer(flow)
    if spec["inputs"] != "vector" and not spec["masked"]:
        flow = made.GlobalAveragePooling1D()(flow)
    if spec["inputs"] in ("dict", "tuple"):
        flow = made.Concatenate()([flow, vector])
    units = {"flat": 1, "bce": 1, "scce": 3, "smooth": 3}.get(spec["loss"], 2)
    return keras.Model(given[spec["inputs"]], made.Dense(units)(flow))


def optimizer_of(spec: dict[str, Any]) -> Any:
    import keras

    facts: dict[str, Any] = {spec["clip"]: 0.05} if spec["clip"] else {}
    if spec["optimizer"] == "momentum":
        facts["momentum"] = 0.9
    if "ema" in spec["extras"]:
        facts["use_ema"] = True
    rate = spec["rate"]
    if "schedule" in spec["extras"]:
        rate = keras.optimizers.schedules.ExponentialDecay(rate, 2, 0.5)
    return getattr(keras.optimizers, {"momentum": "SGD"}.get(spec["optimizer"], spec["optimizer"]))(rate, **facts)


def own_loss(y: Any, predicted: Any) -> Any:
    """As people write them: a number an example, of no class of Keras's."""
    import tensorflow as tf

    return tf.reduce_mean(tf.sqrt(tf.square(y - predicted) + 0.1), axis=-1)


def loss_of(spec: dict[str, Any], **facts: Any) -> Any:
    import keras

    kinds = {
        "mae": keras.losses.MeanAbsoluteError,
        "huber": lambda **more: keras.losses.Huber(0.5, **more),
        "bce": lambda **more: keras.losses.BinaryCrossentropy(from_logits=True, **more),
        "scce": lambda **more: keras.losses.SparseCategoricalCrossentropy(from_logits=True, **more),
        "smooth": lambda **more: keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1, **more),
        "cosine": keras.losses.CosineSimilarity,
        "own": lambda **more: own_loss,
        "sum": lambda **more: keras.losses.MeanSquaredError(**{"reduction": "sum", **more}),
    }
    return kinds.get(spec["loss"], keras.losses.MeanSquaredError)(**facts)


def by_fit(strategy: Any, spec: dict[str, Any]) -> list[Any]:
    with strategy.scope():
        model = model_of(spec)
        model.compile(
            optimizer_of(spec),
            loss_of(spec),
            metrics=["accuracy" if spec["loss"] == "scce" else "mae"] if "metrics" in spec["extras"] else None,
            steps_per_execution=2 if "execution" in spec["extras"] else 1,
            run_eagerly="eager" in spec["extras"],
        )
    more = {"validation_data": data_of(spec)} if "validation" in spec["extras"] else {}
    model.fit(data_of(spec), epochs=spec["epochs"], callbacks=[dtk.Recorder()], verbose=0, **more)
    return [model]


def by_loop(strategy: Any, spec: dict[str, Any], count: int = 1) -> list[Any]:
    """Trains so many models in the same steps, each with an optimizer of its own."""
    import tensorflow as tf

    with strategy.scope():
        models = [model_of(spec) for _ in range(count)]
        optimizers = [optimizer_of(spec) for _ in models]
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.build(model.trainable_variables)
        criterion = loss_of(spec) if spec["share"] == "object" else loss_of(spec, reduction="none")

    def share_of(model: Any, x: Any, y: Any, weight: Any) -> Any:
        if spec["share"] == "object":
            loss = criterion(y, model(x, training=True), weight)
        else:
            each = criterion(y, model(x, training=True))
            each = each if weight is None else each * weight
            loss = tf.nn.compute_average_loss(each, global_batch_size=spec["batch"])
        return loss + tf.nn.scale_regularization_loss(tf.add_n(model.losses)) if model.losses else loss

    def step(x: Any, y: Any, weight: Any = None) -> Any:
        total = 0.0
        for model, optimizer in zip(models, optimizers, strict=True):
            with tf.GradientTape() as tape:
                loss = share_of(model, x, y, weight)
            trained = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, trained), trained, strict=True))
            total += loss
        return total

    @tf.function
    def one(batch: Any) -> Any:
        losses = strategy.run(step, batch)
        if spec["record"] == "graph":
            dtk.record_step(losses, batch=batch, model=models)
        return losses

    for _ in range(spec["epochs"]):
        for batch in strategy.experimental_distribute_dataset(data_of(spec)):
            losses = one(batch)
            if spec["record"] == "outside":
                dtk.record_step(losses, batch=batch, model=models)
    return models


def train(strategy: Any, spec: dict[str, Any]) -> list[list[np.ndarray]]:
    """Returns each model's weights, which the judge compares without asking dtk."""
    if spec["models"] == "both":
        models = by_loop(strategy, spec, count=2)
    else:
        one = by_fit if spec["how"] == "fit" else by_loop
        models = [model for _ in range(1 + (spec["models"] == "two")) for model in one(strategy, spec)]
    return [[np.asarray(weight) for weight in model.weights] for model in models]
