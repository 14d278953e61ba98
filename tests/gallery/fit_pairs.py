"""Pairs and triplets: siamese networks, contrastive losses, retrieval."""

from __future__ import annotations

from typing import Any

import dtk
from gallery import program
from gallery.made_up import images, slices
from gallery.slips import DATA, batches, rate, scope

SLIPS = (*DATA, "not in scope", "learning rate")


def _embedding(keras: Any, width: int = 8) -> Any:
    """A tower: an image to a vector."""
    layers = [keras.Input((12, 12, 1)), keras.layers.Conv2D(4, 5, activation="tanh"), keras.layers.AveragePooling2D(2)]
    return keras.Sequential([*layers, keras.layers.Flatten(), keras.layers.Dense(width, activation="tanh")])


def _siamese(strategy: Any, slip: str | None, vector: bool) -> Any:
    import keras
    import numpy as np
    from keras import layers, ops

    def euclidean_distance(vectors: Any) -> Any:
        squares = ops.sum(ops.square(vectors[0] - vectors[1]), axis=1, keepdims=True)
        return ops.sqrt(ops.maximum(squares, keras.backend.epsilon()))

    def contrastive_loss(margin: float) -> Any:
        def loss(y_true: Any, y_pred: Any) -> Any:
            terms = (1 - y_true) * ops.square(y_pred) + y_true * ops.square(ops.maximum(margin - y_pred, 0))
            return terms if vector else ops.mean(terms)

        return loss

    x, y = images(256, classes=2)
    pairs, different = (x[:128], x[128:]), (y[:128] != y[128:]).astype(np.float32)[:, None]
    with scope(strategy, slip):
        tower = _embedding(keras)
        first, second = keras.Input((12, 12, 1)), keras.Input((12, 12, 1))
        distance = layers.Lambda(euclidean_distance, output_shape=(1,))([tower(first), tower(second)])
        model = keras.Model([first, second], layers.Dense(1, activation="sigmoid")(distance))
        model.compile(keras.optimizers.RMSprop(rate(1e-3, strategy, slip)), contrastive_loss(1.0))
    model.fit(batches(slices(pairs, different), 16, strategy, slip), callbacks=[dtk.Recorder()], verbose=0)
    return model.get_weights()


SIAMESE = "keras-io examples/vision/siamese_contrastive.py, without BatchNormalization"


@program(kind="siamese", source=SIAMESE, right="local mean", reason="loss")
def siamese_contrastive(strategy: Any, slip: str | None = None) -> Any:
    """The loss function takes the mean itself, and Keras does not divide what is one number already."""
    return _siamese(strategy, slip, vector=False)


@program(kind="siamese", source=f"{SIAMESE}, a loss for each pair", slips=SLIPS)
def siamese_contrastive_each(strategy: Any, slip: str | None = None) -> Any:
    """The loss function returns each pair's, and Keras takes the mean and divides it by the replicas."""
    return _siamese(strategy, slip, vector=True)


@program(kind="siamese", source="keras-io examples/vision/siamese_network.py", slips=SLIPS)
def siamese_triplets(strategy: Any, slip: str | None = None) -> Any:
    """Its own train_step: the loss is a vector, so its gradient is that of a sum, which replicas make up together."""
    import keras
    import numpy as np
    import tensorflow as tf
    from keras import layers

    class DistanceLayer(layers.Layer):
        def call(self, anchor: Any, positive: Any, negative: Any) -> Any:
            return tuple(tf.reduce_sum(tf.square(anchor - other), -1) for other in (positive, negative))

    class SiameseModel(keras.Model):
        def __init__(self, network: Any, margin: float = 0.5) -> None:
            super().__init__()
            self.network, self.margin = network, margin
            self.tracker = keras.metrics.Mean(name="loss")

        def call(self, inputs: Any) -> Any:
            return self.network(inputs)

        def train_step(self, data: Any) -> Any:
            with tf.GradientTape() as tape:
                near, far = self.network(data)
                loss = tf.maximum(near - far + self.margin, 0.0)
            gradients = tape.gradient(loss, self.network.trainable_weights)
            self.optimizer.apply_gradients(zip(gradients, self.network.trainable_weights, strict=True))
            self.tracker.update_state(loss)
            return {"loss": self.tracker.result()}

        @property
        def metrics(self) -> Any:
            return [self.tracker]

    x, y = images(256)
    rng = np.random.default_rng(0)
    positive = [rng.choice(np.flatnonzero(y == label)) for label in y[:128]]
    negative = [rng.choice(np.flatnonzero(y != label)) for label in y[:128]]
    with scope(strategy, slip):
        tower = _embedding(keras)
        inputs = [keras.Input((12, 12, 1), name=name) for name in ("anchor", "positive", "negative")]
        model = SiameseModel(keras.Model(inputs, DistanceLayer()(*map(tower, inputs))))
        model.compile(keras.optimizers.Adam(rate(1e-4, strategy, slip)))
    data = slices({"anchor": x[:128], "positive": x[positive], "negative": x[negative]})
    model.fit(batches(data, 16, strategy, slip), callbacks=[dtk.Recorder()], verbose=0)
    return model.get_weights()


@program(kind="contrastive", source="keras-io examples/vision/metric_learning.py", right="whole batch", reason="loss")
def metric_learning(strategy: Any, slip: str | None = None) -> Any:
    """Each anchor is told from the other positives of its batch, and a replica has only half of them."""
    import keras
    import numpy as np
    import tensorflow as tf
    from keras import layers

    class EmbeddingModel(keras.Model):
        def __init__(self, encoder: Any) -> None:
            super().__init__()
            self.encoder = encoder
            self.loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

        def call(self, pairs: Any) -> Any:
            return self.encoder(pairs["anchor"]), self.encoder(pairs["positive"])

        def train_step(self, pairs: Any) -> Any:
            with tf.GradientTape() as tape:
                similarities = tf.einsum("ae,pe->ap", *self(pairs, training=True)) / 0.2
                loss = self.loss_of(tf.range(tf.shape(similarities)[0]), similarities)
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            return {"loss": loss}

    x, y = images(128, channels=3, classes=16)
    order = np.concatenate([np.random.default_rng(step).permutation(16) for step in range(6)])
    anchors = np.array([np.flatnonzero(y == label)[0] for label in order])
    positives = np.array([np.flatnonzero(y == label)[-1] for label in order])
    with scope(strategy, slip):
        inputs = keras.Input((12, 12, 3))
        z = layers.Conv2D(8, 3, strides=2, activation="gelu")(inputs)
        z = layers.Conv2D(16, 3, strides=2, activation="gelu")(z)
        z = layers.Dense(8)(layers.GlobalAveragePooling2D()(z))
        model = EmbeddingModel(keras.Model(inputs, layers.UnitNormalization()(z)))
        model.compile(keras.optimizers.Adam(rate(1e-3, strategy, slip)))
    data = batches(slices({"anchor": x[anchors], "positive": x[positives]}), 16, strategy, slip)
    model.fit(data, callbacks=[dtk.Recorder()], verbose=0)
    return model.get_weights()


@program(kind="contrastive", source="keras-io examples/nlp/nl_image_search.py", right="whole batch", reason="loss")
def dual_encoder(strategy: Any, slip: str | None = None) -> Any:
    """As CLIP: targets are softmaxes over the batch's captions and images. Its compute_loss is a vector's mean, too."""
    import keras
    import tensorflow as tf
    from keras import layers, ops

    class DualEncoder(keras.Model):
        def __init__(self, text: Any, image: Any, temperature: float = 0.05) -> None:
            super().__init__()
            self.text, self.image, self.temperature = text, image, temperature

        def call(self, features: Any, training: bool = False) -> Any:
            return self.text(features["caption"]), self.image(features["image"])

        def loss_of(self, captions: Any, pictures: Any) -> Any:
            logits = ops.matmul(captions, ops.transpose(pictures)) / self.temperature
            alike = ops.matmul(pictures, ops.transpose(pictures)), ops.matmul(captions, ops.transpose(captions))
            targets = ops.softmax((alike[0] + alike[1]) / (2 * self.temperature))
            losses = [
                keras.losses.categorical_crossentropy(targets, logits, from_logits=True),
                keras.losses.categorical_crossentropy(ops.transpose(targets), ops.transpose(logits), from_logits=True),
            ]
            return (losses[0] + losses[1]) / 2

        def train_step(self, features: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = self.loss_of(*self(features, training=True))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            return {"loss": tf.reduce_mean(loss)}

    def projection(width: int, z: Any) -> Any:
        projected = layers.Dense(width)(z)
        return layers.LayerNormalization()(layers.Add()([projected, layers.Dense(width)(ops.gelu(projected))]))

    x, y = images(96, classes=6)
    with scope(strategy, slip):
        caption, picture = keras.Input((3,), dtype="int64"), keras.Input((12, 12, 1))
        words = layers.GlobalAveragePooling1D()(layers.Embedding(20, 8)(caption))
        text = keras.Model(caption, projection(8, words))
        image = keras.Model(picture, projection(8, layers.Flatten()(picture)))
        model = DualEncoder(text, image)
        model.compile(keras.optimizers.AdamW(rate(1e-3, strategy, slip), weight_decay=1e-3))
    captions = (y[:, None] * 3 + [[1, 2, 3]]) % 20
    data = batches(slices({"image": x, "caption": captions}), 16, strategy, slip)
    model.fit(data, callbacks=[dtk.Recorder()], verbose=0)
    return model.get_weights()


@program(
    kind="recommender",
    source="TensorFlow Recommenders, quickstart (tasks.Retrieval)",
    right="whole batch",
    reason="loss",
)
def retrieval_in_batch(strategy: Any, slip: str | None = None) -> Any:
    """The other movies of the batch are each user's wrong answers: 32 on one device, 16 on a replica."""
    import keras
    import numpy as np
    from keras import layers, ops

    class Retrieval(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.users, self.movies = layers.Embedding(20, 8), layers.Embedding(40, 8)
            self.softmax = keras.losses.CategoricalCrossentropy(from_logits=True, reduction="sum")

        def call(self, inputs: Any) -> Any:
            return self.users(inputs["user"]), self.movies(inputs["movie"])

        def compute_loss(self, x: Any, y: Any, y_pred: Any, sample_weight: Any, training: bool = True) -> Any:
            scores = ops.matmul(y_pred[0], ops.transpose(y_pred[1]))
            return self.softmax(ops.eye(ops.shape(scores)[0]), scores)

    rng = np.random.default_rng(0)
    user = rng.integers(0, 20, 256)
    movie = (user * 2 + rng.integers(0, 6, 256)) % 40
    with scope(strategy, slip):
        model = Retrieval()
        model.compile(keras.optimizers.Adagrad(rate(0.1, strategy, slip)))
    data = batches(slices({"user": user, "movie": movie}), 32, strategy, slip)
    model.fit(data, callbacks=[dtk.Recorder()], verbose=0)
    return model.get_weights()
