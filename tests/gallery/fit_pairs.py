"""Pairs and triplets: siamese networks, contrastive losses, retrieval."""

from __future__ import annotations

from typing import Any

from gallery import program
from gallery.made_up import images, slices
from gallery.slips import FITS, fitted, rate, scope


def _embedding(keras: Any, width: int = 8) -> Any:
    """A tower: an image to a vector."""
    layers = [keras.Input((12, 12, 1)), keras.layers.Conv2D(4, 5, activation="tanh"), keras.layers.AveragePooling2D(2)]
    return keras.Sequential([*layers, keras.layers.Flatten(), keras.layers.Dense(width, activation="tanh")])


def _siamese(strategy: Any, slip: str | None, vector: bool) -> None:
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
    fitted(model, slices(pairs, different), 16, strategy, slip)


SIAMESE = "keras-io examples/vision/siamese_contrastive.py, without BatchNormalization"


@program(kind="siamese", source=SIAMESE, right="local mean", reason="loss")
def siamese_contrastive(strategy: Any, slip: str | None = None) -> None:
    """The loss function takes the mean itself, and Keras does not divide what is one number already."""
    _siamese(strategy, slip, vector=False)


@program(kind="siamese", source=f"{SIAMESE}, a loss for each pair", slips=FITS)
def siamese_contrastive_each(strategy: Any, slip: str | None = None) -> None:
    """The loss function returns each pair's, and Keras takes the mean and divides it by the replicas."""
    _siamese(strategy, slip, vector=True)


@program(
    kind="recommender",
    source="TensorFlow Recommenders, quickstart (tasks.Retrieval)",
    right="whole batch",
    reason="loss",
)
def retrieval_in_batch(strategy: Any, slip: str | None = None) -> None:
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
    fitted(model, slices({"user": user, "movie": movie}), 32, strategy, slip)
