"""The programs of `keras_releases.py`: each computes a number, or a few, under a strategy, and states the right one.

A program makes its model in the strategy's scope, trains on global batches of four examples or fewer, and returns what
each copy of a weight holds, or what Keras reports. The weight w starts as 1 and the examples are `X`, so that the
right number can be computed by hand; one device computes it as well. `standalone` makes a file of a program, and it is
this file that each release runs: nothing here needs an annotation, and `keras` and `tf` are what the file imports.
"""

# ruff: noqa: B905  (a program is as people write it)

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

X = np.array([[1], [2], [3], [6]], "float32")


class Program(NamedTuple):
    """right: by Keras's major version. loop: a loop of one's own; otherwise `fit`, `evaluate` or `predict`."""

    what: str
    right: dict[int, list[float]]
    loop: bool
    function: Callable[[Any], list[list[float]]]


PROGRAMS: dict[str, Program] = {}


def program(what: str, right: list[float], keras_2: list[float] | None = None) -> Callable[[Any], Any]:
    """Decorates a program. right: what each copy has to be. keras_2: where Keras 2 defines another number."""

    def keep(function: Any) -> Any:
        loops = "loop(strategy" in (source := inspect.getsource(function)) or "masks(" in source
        PROGRAMS[function.__name__] = Program(what, {2: keras_2 or right, 3: right}, loops, function)
        return function

    return keep


def standalone(name: str, package: str = "keras", setting: str = "mirrored") -> str:
    """The program as a file of its own, which prints the right numbers and those that it finds.

    setting: "one" device, "mirrored" (two replicas in one process) or "workers" (two processes).
    """
    body = inspect.getsource(PROGRAMS[name].function)
    body = body[body.index("def ") :].replace(f"def {name}(", "def program(", 1)
    used: list[str] = []
    for text in map(inspect.getsource, (masks, loop, descend_scaled, descend, compiled, guide, linear, copies)):
        if re.search(rf"\b{text.split('(')[0].removeprefix('def ')}\b", body + "".join(used)):
            used.insert(0, text)
    chosen = "import keras" if package == "keras" else f"import {package} as keras"
    if setting == "workers":
        chosen = f"import json, os, sys\n{chosen}"
    data = f"X = np.array({X.astype(int).tolist()}, 'float32')\n"
    right = PROGRAMS[name].right[3 if package == "keras" else 2]
    ends = [_SCOPES[setting], _END.format(right=right)]
    return "\n".join([f"import numpy as np\nimport tensorflow as tf\n{chosen}\n", data, *used, body, *ends])


_SCOPES = {
    "one": "strategy = tf.distribute.get_strategy()",
    "mirrored": """\
cpu, two = tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])""",
    "workers": """\
index, port = int(sys.argv[1]), int(os.environ.get("PORT", 29870))  # run it twice at once, with 0 and with 1
cluster = {"worker": [f"localhost:{port}", f"localhost:{port + 1}"]}
os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
strategy = tf.distribute.MultiWorkerMirroredStrategy()""",
}
_END = """found = program(strategy)
print("right:", {right}, "in each of:", found)
"""


# ---- what several programs share: each file has those that it uses


def copies(variable):
    value = getattr(variable, "_value", variable)  # of Keras 3's variables
    return [copy.numpy().ravel().tolist() for copy in getattr(value, "values", [value])]


def linear(*layers, **options):
    options = {"units": 1, "use_bias": False, "kernel_initializer": "ones", **options}
    return keras.Sequential([keras.Input((1,)), keras.layers.Dense(**options), *layers])


def compiled(strategy, make=linear, rate=0.01, **options):
    with strategy.scope():
        model = make()
        model.compile(keras.optimizers.SGD(rate), **{"loss": "mse", **options})
    return model


def descend(model, optimizer, x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(x, training=True)) / 4
    weights = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))


def descend_scaled(model, optimizer, x):
    weights, keras_2 = model.trainable_variables, hasattr(optimizer, "get_scaled_loss")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(x, training=True)) / 4
        loss = optimizer.get_scaled_loss(loss) if keras_2 else optimizer.scale_loss(loss)
    gradients = tape.gradient(loss, weights)
    gradients = optimizer.get_unscaled_gradients(gradients) if keras_2 else gradients
    optimizer.apply_gradients(zip(gradients, weights))


def guide():
    class Own(keras.Model):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(y=y, y_pred=self(x, training=True))
            weights = self.trainable_variables
            self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
            for metric in self.metrics:
                metric.update_state(loss)  # there is no other than "loss"
            return {metric.name: metric.result() for metric in self.metrics}

    inputs = keras.Input((1,))
    return Own(inputs, keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")(inputs))


def masks(strategy, layer):
    def differing(x):
        kept = layer(tf.ones((64,)), training=True) / 2
        return tf.math.count_nonzero(tf.distribute.get_replica_context().all_reduce("SUM", kept) == 1)

    differ = strategy.experimental_local_results(loop(strategy, differing)[0])[0]
    return 2.0 if differ > 0 or strategy.num_replicas_in_sync == 1 else 1.0


def loop(strategy, step, x=X):
    data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(x).batch(4))
    function = tf.function(lambda part: strategy.run(step, args=(part,)), autograph=False)
    return [function(part) for part in data]


# ---- a loop of one's own: the loss is the mean of w X, whose gradient is 3


@program("gradients are summed", [0.7])
def gradient_sum(strategy):
    with strategy.scope():
        model, optimizer = linear(), keras.optimizers.SGD(0.1)
        optimizer.build(model.trainable_variables)
    loop(strategy, lambda x: descend(model, optimizer, x))
    return copies(model.trainable_variables[0])


@program("differences of the copies of a weight", [0.0])
def equal_weights(strategy):
    with strategy.scope():
        model, optimizer = linear(kernel_initializer="glorot_uniform"), keras.optimizers.SGD(0.1)
        optimizer.build(model.trainable_variables)
    loop(strategy, lambda x: descend(model, optimizer, x))

    def difference(x):
        replica, w = tf.distribute.get_replica_context(), tf.reshape(model(tf.ones((1, 1))), ())
        return replica.all_reduce("SUM", abs(w - replica.all_reduce("MEAN", w)))

    return [[float(strategy.experimental_local_results(loop(strategy, difference)[0])[0])]]


@program("momentum, built in the first step", [0.7])
def first_step(strategy):
    with strategy.scope():
        model, optimizer = linear(), keras.optimizers.SGD(0.1, momentum=0.9)
    loop(strategy, lambda x: descend(model, optimizer, x))
    return copies(model.trainable_variables[0])


@program("clipnorm", [0.9])
def clipnorm(strategy):
    with strategy.scope():
        model, optimizer = linear(), keras.optimizers.SGD(0.1, clipnorm=1.0)
        optimizer.build(model.trainable_variables)
    loop(strategy, lambda x: descend(model, optimizer, x))
    return copies(model.trainable_variables[0])


@program("global_clipnorm", [0.9])
def global_clipnorm(strategy):
    with strategy.scope():
        model, optimizer = linear(), keras.optimizers.SGD(0.1, global_clipnorm=1.0)
        optimizer.build(model.trainable_variables)
    loop(strategy, lambda x: descend(model, optimizer, x))
    return copies(model.trainable_variables[0])


@program("AdamW on an embedding, tokens twice", [0.89, 0.89, 0.99])
def adamw_embedding(strategy):
    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Embedding(3, 1, "ones")])
        optimizer = keras.optimizers.AdamW(0.1, weight_decay=0.1)
        optimizer.build(model.trainable_variables)
    loop(strategy, lambda x: descend(model, optimizer, x), np.array([[0], [0], [1], [1]]))
    return copies(model.trainable_variables[0])


@program("gradient_accumulation_steps", [0.7])
def accumulation(strategy):
    with strategy.scope():
        model, optimizer = linear(), keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
        optimizer.build(model.trainable_variables)
    loop(strategy, lambda x: descend(model, optimizer, x), np.concatenate([X, X]))
    return copies(model.trainable_variables[0])


@program("use_ema: the weights' average", [0.55], keras_2=[0.625])
def ema(strategy):
    with strategy.scope():
        model, optimizer = linear(), keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5)
        optimizer.build(model.trainable_variables)
    loop(strategy, lambda x: descend(model, optimizer, x), np.concatenate([X, X]))
    optimizer.finalize_variable_values(model.trainable_variables)
    return copies(model.trainable_variables[0])


@program("ema_overwrite_frequency", [0.55], keras_2=[0.625])
def ema_overwrite(strategy):
    with strategy.scope():
        average = {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 2}
        model, optimizer = linear(), keras.optimizers.SGD(0.1, **average)
        optimizer.build(model.trainable_variables)
    loop(strategy, lambda x: descend(model, optimizer, x), np.concatenate([X, X]))
    return copies(model.trainable_variables[0])


@program("loss scale, finite gradients", [0.7])
def loss_scale(strategy):
    with strategy.scope():
        model, inner = linear(), keras.optimizers.SGD(0.1)
        optimizer = keras.mixed_precision.LossScaleOptimizer(inner, initial_scale=4.0)
        optimizer.build(model.trainable_variables)
    loop(strategy, lambda x: descend_scaled(model, optimizer, x))
    return copies(model.trainable_variables[0])


@program("loss scale, one infinite gradient", [1.0])
def loss_scale_infinite(strategy):
    with strategy.scope():
        model, inner = linear(), keras.optimizers.SGD(0.1)
        optimizer = keras.mixed_precision.LossScaleOptimizer(inner, initial_scale=4.0)
        optimizer.build(model.trainable_variables)
    x = np.array([[1], [2], [3], [np.inf]], "float32")
    loop(strategy, lambda x: descend_scaled(model, optimizer, x), x)
    return copies(model.trainable_variables[0])


@program("batch norm: moving mean", [1.5])
def batch_norm(strategy):
    with strategy.scope():
        layer = keras.layers.BatchNormalization(momentum=0.5)
        layer.build((None, 1))
    loop(strategy, lambda x: layer(x, training=True))
    return [layer.get_weights()[2].tolist()]


@program("synchronized batch norm", [3.9989, 1.5, 2.25])
def sync_batch_norm(strategy):
    with strategy.scope():
        layer = keras.layers.BatchNormalization(momentum=0.5, synchronized=True)
        layer.build((None, 1))

    def step(x):
        squares = tf.reduce_sum(layer(x, training=True) ** 2)
        return tf.distribute.get_replica_context().all_reduce("SUM", squares)

    squares = float(strategy.experimental_local_results(loop(strategy, step)[0])[0])
    return [[squares, *layer.get_weights()[2].tolist(), *layer.get_weights()[3].tolist()]]


@program("Dropout: number of masks", [2.0])
def dropout(strategy):
    with strategy.scope():
        layer = keras.layers.Dropout(0.5)
    return [[masks(strategy, layer)]]


@program("Dropout with a seed: number of masks", [2.0])
def dropout_seed(strategy):
    with strategy.scope():
        layer = keras.layers.Dropout(0.5, seed=1)
    return [[masks(strategy, layer)]]


@program("a metric of a loop", [3.0])
def metric(strategy):
    with strategy.scope():
        mean = keras.metrics.Mean()
    loop(strategy, lambda x: [mean.update_state(x), None][1])
    return [[float(mean.result())]]


@program("a loss object", [0.75])
def loss_object(strategy):
    with strategy.scope():
        model, optimizer, loss = linear(), keras.optimizers.SGD(0.01), keras.losses.MeanSquaredError()
        optimizer.build(model.trainable_variables)

    def step(x):
        with tf.GradientTape() as tape:
            value = loss(tf.zeros_like(x), model(x))
        optimizer.apply_gradients(zip(tape.gradient(value, model.trainable_variables), model.trainable_variables))

    loop(strategy, step)
    return copies(model.trainable_variables[0])


# ---- fit, evaluate and predict: the loss is the mean of (w X)^2, which is 12.5, and its gradient is 25


@program("plain labels", [0.75])
def plain(strategy):
    model = compiled(strategy)
    model.fit(X, 0 * X, batch_size=4, shuffle=False, verbose=0)
    return copies(model.trainable_variables[0])


@program("labels and outputs of shape (batch,)", [0.75])
def flat_labels(strategy):
    model = compiled(strategy, lambda: linear(keras.layers.Reshape(())))
    model.fit(X, 0 * X[:, 0], batch_size=4, shuffle=False, verbose=0)
    return copies(model.trainable_variables[0])


@program("sparse labels of shape (batch,)", [0.25, -0.25])
def sparse_labels(strategy):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model = compiled(strategy, lambda: linear(units=2, kernel_initializer="zeros"), rate=1.0, loss=loss)
    model.fit(X, np.array([0, 1, 1, 0]), batch_size=4, shuffle=False, verbose=0)
    return copies(model.trainable_variables[0])


@program("sample weights", [0.815])
def sample_weights(strategy):
    model, weights = compiled(strategy), np.array([1, 0, 0, 1], "float32")
    model.fit(X, 0 * X, sample_weight=weights, batch_size=4, shuffle=False, verbose=0)
    return copies(model.trainable_variables[0])


@program("a penalty on the weight", [0.74])
def penalty(strategy):
    model = compiled(strategy, lambda: linear(kernel_regularizer=keras.regularizers.L2(0.5)))
    model.fit(X, 0 * X, batch_size=4, shuffle=False, verbose=0)
    return copies(model.trainable_variables[0])


@program("the reported loss", [12.5])
def reported_loss(strategy):
    history = compiled(strategy).fit(X, 0 * X, batch_size=4, shuffle=False, verbose=0).history
    return [history["loss"]]


@program("the reported accuracy", [0.75])
def accuracy(strategy):
    model, y = compiled(strategy, metrics=["accuracy"]), np.array([[1], [1], [0], [1]], "float32")
    return [model.fit(X, y, batch_size=4, shuffle=False, verbose=0).history["accuracy"]]


@program("a last batch of 2 + 1 examples", [0.68])
def uneven(strategy):
    model, x = compiled(strategy), np.concatenate([X, X[:3]])
    model.fit(x, 0 * x, batch_size=4, shuffle=False, verbose=0)
    return copies(model.trainable_variables[0])


@program("a last batch of 1 + 0 examples", [0.735])
def one_example(strategy):
    model, x = compiled(strategy), np.concatenate([X, X[:1]])
    model.fit(x, 0 * x, batch_size=4, shuffle=False, verbose=0)
    return copies(model.trainable_variables[0])


@program("a first batch of 2 + 1 examples", [0.9067])
def uneven_first(strategy):
    model = compiled(strategy)
    model.fit(X[:3], 0 * X[:3], batch_size=4, shuffle=False, verbose=0)
    return copies(model.trainable_variables[0])


@program("a mask that leaves 3 + 1 entries", [0.75])
def mask(strategy):
    def make():
        dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
        return keras.Sequential([keras.Input((2, 1)), keras.layers.Masking(0.0), dense])

    model, x = compiled(strategy, make), np.array([[1, 2], [3, 0], [6, 0], [0, 0]], "float32")[..., None]
    model.fit(x, 0 * x, batch_size=4, shuffle=False, verbose=0)
    return copies(model.trainable_variables[0])


@program("steps_per_execution", [0.5625])
def steps_per_execution(strategy):
    model, x = compiled(strategy, steps_per_execution=2), np.concatenate([X, X])
    model.fit(x, 0 * x, batch_size=4, shuffle=False, verbose=0)
    return copies(model.trainable_variables[0])


@program("train_step as in Keras's guide", [0.75])
def train_step(strategy):
    model = compiled(strategy, guide)
    model.fit(X, 0 * X, batch_size=4, shuffle=False, verbose=0)
    return copies(model.trainable_variables[0])


@program("the loss that it reports", [12.5])
def train_step_loss(strategy):
    history = compiled(strategy, guide).fit(X, 0 * X, batch_size=4, shuffle=False, verbose=0).history
    return [history["loss"]]


@program("evaluate on 4 + 1 examples: loss, absolute error", [19.8, 3.8])
def evaluate(strategy):
    x = np.concatenate([X, [[7]]]).astype("float32")
    model = compiled(strategy, metrics=["mae"])
    return [[float(value) for value in model.evaluate(x, 0 * x, batch_size=4, verbose=0)]]


@program("predict on 4 + 1 examples", [1.0, 2.0, 3.0, 6.0, 7.0])
def predict(strategy):
    x = np.concatenate([X, [[7]]]).astype("float32")
    return [compiled(strategy).predict(x, batch_size=4, verbose=0).ravel().tolist()]
