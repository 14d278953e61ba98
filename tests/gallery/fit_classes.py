"""Models and layers of one's own, and models of several inputs and outputs."""

from __future__ import annotations

from typing import Any

from gallery import program
from gallery.made_up import images, slices, tokens
from gallery.slips import FITS, SHARE, average, fitted, rate, scope


@program(kind="several inputs and outputs", source="keras-io guides/functional_api.py, ticket routing", slips=FITS)
def tickets(strategy: Any, slip: str | None = None) -> None:
    """Title, text and tags in; a priority and a department out, each with its loss, and weights between them."""
    import keras
    import numpy as np
    from keras import layers

    rng = np.random.default_rng(0)
    title, department = tokens(128, length=6, classes=4)
    body, _ = tokens(128, length=10, classes=4)
    tags = rng.integers(0, 2, (128, 5)).astype("float32")
    priority = ((title.mean(axis=1) + 5 * tags[:, 0]) > 20).astype("float32")[:, None]
    with scope(strategy, slip):
        inputs = {name: keras.Input((None,), name=name, dtype="int64") for name in ("title", "body")}
        inputs["tags"] = keras.Input((5,), name="tags")
        words = layers.Embedding(40, 8)  # shared by both texts
        read = [layers.LSTM(8)(words(inputs["title"])), layers.LSTM(6)(words(inputs["body"]))]
        z = layers.concatenate([*read, inputs["tags"]])
        outputs = {"priority": layers.Dense(1, name="priority")(z), "department": layers.Dense(4, name="department")(z)}
        model = keras.Model(inputs, outputs)
        losses = {
            "priority": keras.losses.BinaryCrossentropy(from_logits=True),
            "department": keras.losses.CategoricalCrossentropy(from_logits=True),
        }
        optimizer = keras.optimizers.RMSprop(rate(1e-3, strategy, slip))
        model.compile(optimizer, losses, loss_weights={"priority": 1.0, "department": 0.2})
    targets = {"priority": priority, "department": np.eye(4, dtype="float32")[department]}
    data = slices({"title": title, "body": body, "tags": tags}, targets)
    fitted(model, data, 16, strategy, slip)


def _regression(count: int = 256) -> tuple[Any, Any]:
    import numpy as np

    rng = np.random.default_rng(0)
    x = rng.standard_normal((count, 16)).astype("float32")
    return x, np.tanh(x @ rng.standard_normal((16, 1))).astype("float32")


@program(kind="custom model", source="keras-io guides/custom_train_step_in_tensorflow.py, low level", slips=FITS)
def custom_train_step(strategy: Any, slip: str | None = None) -> None:
    """Without compute_loss: a loss object in train_step, metrics of its own, sample weights."""
    import keras
    import numpy as np
    import tensorflow as tf
    from keras import layers

    class CustomModel(keras.Model):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            self.loss_tracker = keras.metrics.Mean(name="loss")
            self.mae_metric = keras.metrics.MeanAbsoluteError(name="mae")
            self.loss_fn = keras.losses.MeanSquaredError()

        def train_step(self, data: Any) -> Any:
            x, y, sample_weight = data
            with tf.GradientTape() as tape:
                y_pred = self(x, training=True)
                loss = self.loss_fn(y, y_pred, sample_weight=sample_weight)
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply(gradients, self.trainable_variables)
            self.loss_tracker.update_state(loss)
            self.mae_metric.update_state(y, y_pred, sample_weight=sample_weight)
            return {metric.name: metric.result() for metric in self.metrics}

        @property
        def metrics(self) -> Any:
            return [self.loss_tracker, self.mae_metric]

    x, y = _regression()
    weights = np.random.default_rng(1).random((256, 1)).astype("float32")
    with scope(strategy, slip):
        inputs = keras.Input((16,))
        model = CustomModel(inputs, layers.Dense(1)(layers.Dense(16, activation="tanh")(inputs)))
        model.compile(optimizer=keras.optimizers.Adam(rate(0.01, strategy, slip)))
    fitted(model, slices(x, y, weights), 32, strategy, slip)


@program(
    kind="custom model",
    source="TensorFlow tutorial, distribute/custom_training, as a train_step",
    slips=(*FITS, *SHARE),
)
def averaged_train_step(strategy: Any, slip: str | None = None) -> None:
    """The share of the mean over the global batch by compute_average_loss, as a loop of one's own has it."""
    import keras
    import tensorflow as tf
    from keras import layers

    class CustomModel(keras.Model):
        def train_step(self, data: Any) -> Any:
            x, y = data
            with tf.GradientTape() as tape:
                each = keras.losses.mean_squared_error(y, self(x, training=True))
                loss = average(each, 32, strategy, slip)
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            return {"loss": loss}

    x, y = _regression()
    with scope(strategy, slip):
        inputs = keras.Input((16,))
        model = CustomModel(inputs, layers.Dense(1)(layers.Dense(16, activation="tanh")(inputs)))
        model.compile(optimizer=keras.optimizers.SGD(rate(0.1, strategy, slip)))
    fitted(model, slices(x, y), 32, strategy, slip)


def _endpoint(strategy: Any, slip: str | None, by_object: bool) -> None:
    import keras
    import numpy as np
    from keras import layers, ops

    class LogisticEndpoint(layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.loss_fn = keras.losses.BinaryCrossentropy(from_logits=True)

        def call(self, logits: Any, targets: Any = None) -> Any:
            if targets is not None:
                if by_object:
                    self.add_loss(self.loss_fn(targets, logits))
                else:
                    self.add_loss(ops.mean(keras.losses.binary_crossentropy(targets, logits, from_logits=True)))
            return ops.sigmoid(logits)

    x, y = _regression()
    with scope(strategy, slip):
        inputs, targets = keras.Input((16,), name="inputs"), keras.Input((1,), name="targets")
        logits = layers.Dense(1)(layers.Dense(8, activation="tanh")(inputs))
        model = keras.Model({"inputs": inputs, "targets": targets}, LogisticEndpoint()(logits, targets))
        model.compile(keras.optimizers.SGD(rate(0.1, strategy, slip)))
    data = slices({"inputs": x, "targets": (y > 0).astype(np.float32)})
    fitted(model, data, 32, strategy, slip)


ENDPOINT = "keras-io examples/keras_recipes/endpoint_layer_pattern.py"


@program(kind="custom layer", source=ENDPOINT, right="divided twice", reason="loss")
def endpoint_layer(strategy: Any, slip: str | None = None) -> None:
    """The loss object divides by the replicas, and so does Keras with everything that add_loss gets."""
    _endpoint(strategy, slip, by_object=True)


@program(kind="custom layer", source=f"{ENDPOINT}, a plain mean", slips=FITS)
def endpoint_layer_mean(strategy: Any, slip: str | None = None) -> None:
    """A mean over the replica's examples goes to add_loss, and Keras divides it once."""
    _endpoint(strategy, slip, by_object=False)


@program(kind="custom layer", source="keras-io examples/keras_recipes/antirectifier.py, without Dropout", slips=FITS)
def antirectifier(strategy: Any, slip: str | None = None) -> None:
    """relu of both signs side by side: the kink is the point, and few steps enlarge little."""
    import keras
    from keras import layers, ops

    class Antirectifier(layers.Layer):
        def build(self, shape: Any) -> None:
            self.kernel = self.add_weight((shape[-1] * 2, shape[-1]), "he_normal", trainable=True)

        def call(self, inputs: Any) -> Any:
            inputs = inputs - ops.mean(inputs, axis=-1, keepdims=True)
            return ops.matmul(ops.concatenate([ops.relu(inputs), ops.relu(-inputs)], axis=-1), self.kernel)

    x, y = images(192)
    with scope(strategy, slip):
        inner = [layers.Dense(24), Antirectifier(), layers.Dense(24), Antirectifier(), layers.Dense(4)]
        model = keras.Sequential([keras.Input((144,)), *inner])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.RMSprop(rate(1e-3, strategy, slip)), loss)
    fitted(model, slices(x.reshape(192, -1), y), 32, strategy, slip)
