"""Recommenders, and tables of numbers and strings with preprocessing layers."""

from __future__ import annotations

from typing import Any

from gallery import program
from gallery.made_up import slices, table
from gallery.slips import FITS, fitted, rate, scope


def _ratings() -> tuple[Any, Any, Any]:
    """Users, movies, and ratings from 0 to 1 by what the two have in common."""
    import numpy as np

    rng = np.random.default_rng(0)
    users, movies = rng.integers(0, 30, 256), rng.integers(0, 50, 256)
    tastes, kinds = rng.standard_normal((30, 3)), rng.standard_normal((50, 3))
    likes = (tastes[users] * kinds[movies]).sum(axis=1) + 0.3 * rng.standard_normal(256)
    return users, movies, (1 / (1 + np.exp(-likes))).astype("float32")


@program(kind="recommender", source="keras-io examples/keras_rs/basic_retrieval.py", slips=FITS)
def basic_retrieval(strategy: Any, slip: str | None = None) -> None:
    """Two towers, labels in a dictionary, and a compute_loss of its own whose loss object divides by the replicas."""
    import keras
    from keras import layers, ops

    class RetrievalModel(keras.Model):
        def __init__(self, users: int, candidates: int, width: int = 8) -> None:
            super().__init__()
            self.user_embedding = layers.Embedding(users, width)
            self.candidate_embedding = layers.Embedding(candidates, width)
            self.loss_fn = keras.losses.MeanSquaredError()

        def build(self, shape: Any) -> None:
            self.user_embedding.build(shape)
            self.candidate_embedding.build(shape)
            super().build(shape)

        def call(self, inputs: Any, training: bool = False) -> Any:
            return {"user_embeddings": self.user_embedding(inputs)}

        def compute_loss(self, x: Any, y: Any, y_pred: Any, sample_weight: Any, training: bool = True) -> Any:
            movies = self.candidate_embedding(y["movie_id"])
            scores = ops.sum(ops.multiply(y_pred["user_embeddings"], movies), axis=1, keepdims=True)
            return self.loss_fn(ops.expand_dims(y["rating"], -1), scores, sample_weight)

    users, movies, ratings = _ratings()
    with scope(strategy, slip):
        model = RetrievalModel(30, 50)
        model.compile(keras.optimizers.Adagrad(rate(0.1, strategy, slip)))
    fitted(model, slices(users, {"movie_id": movies, "rating": ratings}), 32, strategy, slip)


def _recommender_net(strategy: Any, slip: str | None, contracted: bool) -> None:
    import keras
    import numpy as np
    from keras import layers, ops

    class RecommenderNet(keras.Model):
        def __init__(self, users: int, movies: int, width: int) -> None:
            super().__init__()
            l2 = {"embeddings_initializer": "he_normal", "embeddings_regularizer": keras.regularizers.L2(1e-6)}
            self.user_embedding, self.user_bias = layers.Embedding(users, width, **l2), layers.Embedding(users, 1)
            self.movie_embedding, self.movie_bias = layers.Embedding(movies, width, **l2), layers.Embedding(movies, 1)

        def call(self, inputs: Any) -> Any:
            user, movie = self.user_embedding(inputs[:, 0]), self.movie_embedding(inputs[:, 1])
            dot = ops.tensordot(user, movie, 2) if contracted else ops.sum(user * movie, axis=1, keepdims=True)
            return ops.sigmoid(dot + self.user_bias(inputs[:, 0]) + self.movie_bias(inputs[:, 1]))

    users, movies, ratings = _ratings()
    with scope(strategy, slip):
        model = RecommenderNet(30, 50, 8)
        model.compile(keras.optimizers.Adam(rate(0.01, strategy, slip)), keras.losses.BinaryCrossentropy())
    fitted(model, slices(np.stack([users, movies], 1), ratings[:, None]), 32, strategy, slip)


MOVIES = "keras-io examples/structured_data/collaborative_filtering_movielens.py"


@program(kind="recommender", source=MOVIES, right="whole batch", reason="loss")
def collaborative_filtering(strategy: Any, slip: str | None = None) -> None:
    """tensordot over two axes is one number: the sum of all the batch's products, and a replica has half of them."""
    _recommender_net(strategy, slip, contracted=True)


@program(kind="recommender", source=f"{MOVIES}, a product for each pair", slips=FITS)
def collaborative_filtering_each(strategy: Any, slip: str | None = None) -> None:
    """Each pair's product is its own. The L2 penalty of the embeddings is divided by the replicas by Keras."""
    _recommender_net(strategy, slip, contracted=False)


@program(
    kind="tabular",
    source="keras-io examples/structured_data/structured_data_classification_from_scratch.py",
    slips=FITS,
)
def heart_disease(strategy: Any, slip: str | None = None) -> None:
    """Named inputs, numbers and strings: Normalization, IntegerLookup and StringLookup are adapted before training."""
    import keras
    import numpy as np
    from keras import layers

    columns, ill = table(192)
    numbers, whole, strings = ("age", "pressure"), ("sex", "pain"), ("thal",)
    codes = layers.StringLookup(output_mode="int")
    codes.adapt(np.array(columns["thal"]))
    with scope(strategy, slip):
        inputs, encoded = {}, []
        for name in numbers:
            inputs[name] = keras.Input((1,), name=name)
            normalizer = layers.Normalization()
            normalizer.adapt(columns[name][:, None])
            encoded.append(normalizer(inputs[name]))
        for name in whole:
            inputs[name] = keras.Input((1,), name=name, dtype="int64")
            lookup = layers.IntegerLookup(output_mode="multi_hot")
            lookup.adapt(columns[name][:, None])
            encoded.append(lookup(inputs[name]))
        for name in strings:  # looked up in the pipeline, as one device trained on
            inputs[name] = keras.Input((1,), name=name, dtype="int64")
            encoded.append(layers.Flatten()(layers.Embedding(codes.vocabulary_size(), 3)(inputs[name])))
        z = layers.Dense(32, activation="tanh")(layers.concatenate(encoded))
        model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(z))
        optimizer = keras.optimizers.Adam(rate(0.01, strategy, slip))
        model.compile(optimizer, "binary_crossentropy", metrics=["accuracy"])
    data = slices({name: values[:, None] for name, values in columns.items()}, ill[:, None])
    data = data.map(lambda row, label: ({**row, "thal": codes(row["thal"])}, label))
    fitted(model, data, 16, strategy, slip)


@program(kind="tabular", source="TensorFlow tutorial, structured_data/preprocessing_layers", slips=FITS)
def strings_in_the_model(strategy: Any, slip: str | None = None) -> None:
    """Strings reach the model itself, whose StringLookup and Discretization turn them into categories."""
    import keras
    from keras import layers

    columns, ill = table(192)
    with scope(strategy, slip):
        age, thal = keras.Input((1,), name="age"), keras.Input((1,), name="thal", dtype="string")
        lookup = layers.StringLookup(vocabulary=["normal", "fixed", "reversible"], output_mode="multi_hot")
        buckets = layers.Discretization([40, 50, 60, 70], output_mode="one_hot")
        z = layers.concatenate([lookup(thal), buckets(age), layers.Rescaling(0.02, -1.0)(age)])
        z = layers.Dense(16, activation="tanh")(z)
        model = keras.Model({"age": age, "thal": thal}, layers.Dense(1)(z))
        optimizer = keras.optimizers.Adam(rate(0.01, strategy, slip))
        model.compile(optimizer, keras.losses.BinaryCrossentropy(from_logits=True))
    data = slices({name: columns[name][:, None] for name in ("age", "thal")}, ill[:, None])
    fitted(model, data, 16, strategy, slip)


@program(kind="tabular", source="keras-io examples/structured_data/imbalanced_classification.py", slips=FITS)
def imbalanced_classes(strategy: Any, slip: str | None = None) -> None:
    """class_weight multiplies each example's loss; the mean is over examples, not over their weights."""
    import keras
    import numpy as np
    from keras import layers

    columns, _ = table(256)
    x = np.stack([columns[name] for name in ("age", "pressure", "sex", "pain")], 1).astype("float32")
    fraud = (x[:, 0] + x[:, 1] > np.quantile(x[:, 0] + x[:, 1], 0.9)).astype("float32")[:, None]
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    with scope(strategy, slip):
        model = keras.Sequential(
            [
                keras.Input((4,)),
                layers.Dense(32, activation="tanh"),
                layers.Dense(32, activation="softplus"),
                layers.Dense(1, activation="sigmoid"),
            ]
        )
        metrics = [keras.metrics.FalseNegatives(name="fn"), keras.metrics.Recall(name="recall")]
        model.compile(keras.optimizers.Adam(rate(0.01, strategy, slip)), "binary_crossentropy", metrics=metrics)
    weights = {0: 1 / (fraud == 0).sum(), 1: 1 / (fraud == 1).sum()}
    weights = {label: float(weight) * 100 for label, weight in weights.items()}
    fitted(model, slices(x, fraud), 32, strategy, slip, class_weight=weights)
