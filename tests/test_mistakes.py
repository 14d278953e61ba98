"""Each mistake of the table, made for real by Keras fit and by a loop of one's own, and recognized."""

from __future__ import annotations

import time
from typing import Any

import pytest
from training import digits

import dtk
from dtk.proof.mistakes import MISTAKES

BATCH, COUNT = 32, 192
RIGHT = {"loss": "right"}


def per_example(model, x, y, training=True):
    from tensorflow import keras

    return keras.losses.sparse_categorical_crossentropy(y, model(x, training=training), from_logits=True)


def share(loss, each, model, n):
    """A replica's share of the global loss, by the way that `loss` names. each: `(examples, ...)`."""
    import tensorflow as tf
    from tensorflow import keras

    count = tf.cast(tf.shape(each)[0], tf.float32)
    ways = {
        "right": lambda: tf.nn.compute_average_loss(each, global_batch_size=BATCH),
        "local mean": lambda: tf.reduce_mean(each),
        "divided twice": lambda: tf.nn.compute_average_loss(each, global_batch_size=BATCH) / n,
        "not divided": lambda: tf.reduce_sum(each),
        "mean over batch": lambda: tf.reduce_mean(each) / BATCH,
        "penalty": lambda: tf.nn.compute_average_loss(each, global_batch_size=BATCH) + 0.01 * penalty(model),
        "divided term": lambda: share("right", each, model, n) + share("divided twice", each**2, model, n),
        "a term": lambda: share("right", each, model, n) - 0.3 * tf.reduce_mean(tf.sqrt(each)),
        "own count": lambda: tf.nn.compute_average_loss(each),
        "actual count": lambda: tf.reduce_sum(each) / (count * n),
        "log 0": lambda: tf.nn.compute_average_loss(tf.math.log(each * 0), global_batch_size=BATCH),
        # A loss object of Keras 3 with its default reduction: a mean over the local batch, divided by N as well.
        "loss object": lambda: keras.losses.MeanAbsoluteError()(tf.zeros_like(each[:, None]), each[:, None]) / BATCH,
        "divided labels": lambda: tf.reduce_sum(each) / BATCH / 64,
        "label mean": lambda: tf.reduce_mean(each) / n,
        "whole batch": lambda: tf.reduce_logsumexp(each) / n,
    }
    return ways[loss]()


def penalty(model):
    import tensorflow as tf

    return tf.add_n([tf.reduce_sum(w**2) for w in model.trainable_variables if len(w.shape) > 1])


def slowly(x, y):
    """A map whose calls take now longer, now shorter."""
    import numpy as np
    import tensorflow as tf

    def wait(value):
        time.sleep(float(np.random.default_rng().random()) * 4e-3)
        return value

    values = tf.numpy_function(wait, [x], tf.float32)
    values.set_shape(x.shape)
    return values, y


def data(strategy, batch=BATCH, count=COUNT, start=0, order=None, images=False, policy="DATA"):
    import tensorflow as tf

    x, y = digits(count, start)
    y = x.reshape(-1, 8, 8) if images else y
    dataset = tf.data.Dataset.from_tensor_slices((x, y))
    options = tf.data.Options()
    if order == "worker":
        dataset = dataset.shuffle(count, seed=dtk.environment.here().worker)
    if order == "random":
        # Followed by `batch` at once, tf.data fuses the two into one operation, which keeps the order.
        dataset = dataset.map(slowly, num_parallel_calls=8, deterministic=False).prefetch(8)
        options.threading.private_threadpool_size = 8  # with the one thread of a worker's share there is one order
    if order == "augmented":  # each worker reads its own part, and changes it by what it draws
        place, policy = dtk.environment.here(), "OFF"
        dataset = dataset.shard(place.workers, place.worker)
        dataset = dataset.map(lambda x, y: (x + tf.random.uniform(x.shape, maxval=0.1), y))
    if order == "unseeded":
        noise = tf.random.Generator.from_non_deterministic_state().uniform((), maxval=0.1)
        dataset = dataset.map(lambda x, y: (x + noise, y))
    options.experimental_distribute.auto_shard_policy = getattr(tf.data.experimental.AutoShardPolicy, policy)
    return dataset.batch(batch).with_options(options)


def model_of(images=False, scaled=1.0, dropout=0.0):
    from tensorflow import keras

    layers = [keras.layers.Input((64,)), keras.layers.Dense(16, activation="tanh")]
    layers += [keras.layers.Dropout(dropout)] if dropout else []
    layers += [keras.layers.Dense(64), keras.layers.Reshape((8, 8))] if images else [keras.layers.Dense(10)]
    model = keras.Sequential(layers)
    model.set_weights([weight * scaled for weight in model.get_weights()])
    return model


def pixel_loss(y, outputs, dummy):
    """`(examples, 8, 8)` with a dummy axis, `(examples, 8)` without: a pointwise loss averages the last axis."""
    from tensorflow import keras

    y, outputs = (y[..., None], outputs[..., None]) if dummy else (y, outputs)
    return keras.losses.MeanSquaredError(reduction="none")(y, outputs)


def by_fit(strategy, loss="keras", rate=0.05, record=True, scope=True, images=False, dummy=True, arrays=False, **facts):
    import contextlib

    from tensorflow import keras

    n = strategy.num_replicas_in_sync

    class Own(keras.Model):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            if images:
                return share(loss, pixel_loss(y, y_pred, dummy), self, n)
            each = keras.losses.sparse_categorical_crossentropy(y, y_pred, from_logits=True)
            return share(loss, each, self, n)

    with strategy.scope() if scope else contextlib.nullcontext():
        model = model_of(images, facts.pop("scaled", 1.0), facts.pop("dropout", 0.0))
        model = model if loss == "keras" else Own(model.inputs, model.outputs)
        clip = {"global_clipnorm": 0.1} if facts.pop("clipped", False) else {}
        criterion = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(rate, **clip), criterion, **facts.pop("calls", {}))
    callbacks = [dtk.Recorder()] if record else []
    epochs = facts.pop("epochs", 1)
    batch = facts.pop("batch", BATCH)
    if facts.get("order") == "augmented":  # fit counts its steps by the dataset that it distributes itself
        dataset = strategy.distribute_datasets_from_function(lambda context: data(strategy, batch // n, **facts))
    else:
        dataset = data(strategy, batch, images=images, **facts)
    # Arrays are shuffled by fit, in an order that depends on what has drawn before.
    given = {"x": digits(COUNT)[0], "y": digits(COUNT)[1], "batch_size": batch} if arrays else {"x": dataset}
    model.fit(**given, epochs=epochs, verbose=0, callbacks=callbacks)


def by_loop(strategy, loss="right", rate=0.05, record="shares", images=False, dummy=True, **facts):
    import tensorflow as tf
    from tensorflow import keras

    n, clipped = strategy.num_replicas_in_sync, facts.pop("clipped", False)
    with strategy.scope():
        model = model_of(images, facts.pop("scaled", 1.0))
        optimizer = keras.optimizers.SGD(rate)
        optimizer.build(model.trainable_variables)

    def step(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            each = pixel_loss(y, model(x, training=True), dummy) if images else per_example(model, x, y)
            value = share(loss, each, model, n)
        gradients = tape.gradient(value, model.trainable_variables)
        gradients = tf.clip_by_global_norm(gradients, 0.1)[0] if clipped else gradients
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return value

    @tf.function
    def train(batch, epoch):
        losses = strategy.run(step, (batch,))
        if record == "reduced":
            losses = strategy.reduce("SUM", losses, axis=None)
        if record:
            dtk.record_step(losses, batch=batch, model=model, epoch=epoch)

    epochs = facts.pop("epochs", 1)
    batch = facts.pop("batch", BATCH)
    if facts.get("policy") == "none":
        facts["policy"] = "OFF"
        dataset = strategy.distribute_datasets_from_function(lambda context: data(strategy, batch // n, **facts))
    else:
        dataset = strategy.experimental_distribute_dataset(data(strategy, batch, images=images, **facts))
    for number in range(epochs):
        for inputs in dataset:
            train(inputs, tf.constant(number + 1))


def without_strategy(strategy):
    """Each worker trains on its own shard, and no gradient leaves it."""
    import tensorflow as tf
    from tensorflow import keras

    n, model = strategy.num_replicas_in_sync, model_of()
    optimizer = keras.optimizers.SGD(0.05)

    @tf.function
    def train(x, y):
        with tf.GradientTape() as tape:
            value = share("right", per_example(model, x, y), model, n)
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return value

    optimizer.build(model.trainable_variables)
    for x, y in data(strategy):
        k = dtk.environment.here().worker
        part = slice(k * BATCH // n, (k + 1) * BATCH // n)
        dtk.record_step(train(x[part], y[part]), batch=(x[part], y[part]), model=model)


def both(run: dict[str, Any], baseline: dict[str, Any] | None = None, **start: Any) -> dict[str, Any]:
    """The mistake made by fit and by a loop with the same arguments; baseline None: the run's own."""
    facts = {"baseline": run if baseline is None else baseline, "run": run, "start": start}
    return {"fit": {"train": by_fit, **facts}, "loop": {"train": by_loop, **facts}}


def one(train: Any, run: dict[str, Any], baseline: dict[str, Any] | None = None, **start: Any) -> dict[str, Any]:
    return {"train": train, "run": run, "baseline": run if baseline is None else baseline, "start": start}


MIRRORED = {"workers": 1, "replicas": 2}
PIXELS = {"loss": "label mean", "images": True}
FIXTURES: dict[str, dict[str, dict[str, Any]]] = {
    "not in scope": {"fit": one(by_fit, {"scope": False}), "loop": one(without_strategy, {})},
    "sharding off": {"fit": one(by_fit, {"policy": "OFF"}), "loop": one(by_loop, {"policy": "none"})},
    "global batch": both({"batch": 2 * BATCH}, {}),
    "steps": both({"epochs": 2}, {"epochs": 1}),
    "start": {"fit": one(by_fit, {}, seed=1), "loop": one(by_loop, {"scaled": 1.1}, {})},
    "worker order": both({"order": "worker", "epochs": 2}),
    "order": both({"order": "random", "epochs": 2}, {"epochs": 2}, **MIRRORED),
    "other data": both({"start": 300, "epochs": 2}, {"epochs": 2}, **MIRRORED),
    "not finite": both({"loss": "log 0"}),
    "reduced value": {"loop": one(by_loop, {"record": "reduced"}, {})},
    "local mean": both({"loss": "local mean"})
    | {"shuffled": one(by_fit, {"loss": "local mean", "arrays": True, "dropout": 0.2})},
    "divided twice": both({"loss": "divided twice"}) | {"term": one(by_fit, {"loss": "divided term"})},
    "not divided": both({"loss": "not divided"}, RIGHT),
    "sum over batch size": {
        "fit": one(by_fit, {"loss": "mean over batch"}, RIGHT),
        "loop": one(by_loop, {"loss": "loss object"}, RIGHT),
    },
    "label axes": both({"loss": "divided labels", "images": True, "dummy": False}, PIXELS),
    "short batch": both({"loss": "right", "count": COUNT + 10}, {"loss": "actual count", "count": COUNT + 10}),
    "uneven batch": {
        "fit": one(by_fit, {"count": COUNT + 5}),
        "two steps a call": one(by_fit, {"count": COUNT - 27, "calls": {"steps_per_execution": 2}}),
        "loop": one(by_loop, {"loss": "own count", "count": COUNT + 5}),
    },
    "regularisation": both({"loss": "penalty"})
    | {"term": one(by_fit, {"loss": "a term"}), "calls": one(by_loop, {"loss": "a term", "record": ""})},
    "whole batch": both({"loss": "whole batch"}),
    "clipping": both({"clipped": True}),
    "augmentation": both({"order": "augmented"}),
    "not reproducible": both({"order": "unseeded"}),
    "learning rate": both({"rate": 0.2}, {"rate": 0.1}),
}
MADE = [(key, kind) for key, kinds in FIXTURES.items() for kind in kinds]
BASELINES: dict[str, dtk.Run] = {}


def baseline_of(train, facts, seed=0):
    """Made once: many mistakes have the same right baseline."""
    key = f"{train.__name__} {facts} {seed}"
    if key not in BASELINES:
        BASELINES[key] = dtk.baseline(train, kwargs=facts, seed=seed)
    return BASELINES[key]


def pair(facts):
    """The run and its baseline; `start` goes to dtk.run, which has two workers unless it says otherwise."""
    run = dtk.run(facts["train"], kwargs=facts["run"], **{"workers": 2, **facts["start"]})
    return run, baseline_of(facts["train"], facts["baseline"])


@pytest.mark.slow  # trained for real; test_diagnose*.py has them in made-up numbers
@pytest.mark.parametrize(("key", "kind"), MADE)
def test_the_mistake_is_recognized(key, kind, capsys):
    run, baseline = pair(FIXTURES[key][kind])
    capsys.readouterr()
    diagnosis = dtk.diagnose(run, baseline)
    print(f"[{key} by {kind}] {diagnosis}\n  {diagnosis.evidence}")
    assert diagnosis.mistake == key, str(diagnosis)
    assert MISTAKES[key].remedy in str(diagnosis)


def by_calls(strategy, given):
    """A loop of which no step is recorded; given: what each worker's calls are given."""
    import keras
    import tensorflow as tf

    x, y = tf.random.Generator.from_seed(1).normal((512, 8)), tf.range(512)

    def make(context):
        worker, workers = context.input_pipeline_id, context.num_input_pipelines
        labels = tf.roll(y, int(given == "other labels on one worker" and worker == 1), 0)
        dataset = tf.data.Dataset.from_tensor_slices((x, labels % 3))
        if given == "a whole batch each":
            return dataset.batch(64).repeat(2).shard(workers, worker)
        if given == "a part, shuffled":
            dataset, workers = dataset.shard(workers, worker).shuffle(512, seed=1), 1
        dataset = dataset.batch(64 // context.num_replicas_in_sync)
        return dataset if given == "the same" else dataset.shard(workers, worker % workers)

    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(3)])
        optimizer = keras.optimizers.Adam(0.01)
        losses_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def replica_step(x, y, weights):
        with tf.GradientTape() as tape:
            losses = losses_of(y, model(x)) * tf.reduce_mean(weights)
            mean = tf.reduce_mean(losses) if weights.shape[0] == 5 else tf.nn.compute_average_loss(losses, None, 64)
        gradients = tape.gradient(mean, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    @tf.function
    def one(weights, batch):
        strategy.run(replica_step, args=(*batch, weights))

    for batch in strategy.distribute_datasets_from_function(make):
        one(tf.ones([5 if given == "a vector" else 1]), batch)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "mistake", "also"),
    [
        ("the same", "sharding off", ()),
        ("a whole batch each", "global batch", ()),
        ("other labels on one worker", "unknown", ("worker order", "order", "other data")),
        ("a part, shuffled", "none", ()),
        ("a vector", "local mean", ()),
    ],
)
def test_of_calls_what_they_were_given_tells(given, mistake, also):
    run, baseline = pair({"train": by_calls, "run": {"given": given}, "baseline": {"given": given}, "start": {}})
    diagnosis = dtk.diagnose(run, baseline)
    assert (diagnosis.mistake, diagnosis.also) == (mistake, also), str(diagnosis)


def test_there_is_a_fixture_for_each_mistake():
    # tests/proof_programs has what is made on one worker alone, or by larger programs; tests/test_verify.py, records.
    by_fits_and_loops = {"one worker", "one worker's loss", "own mean", "python data", "sparse gradient", "not summed"}
    by_settings = {"file sharding", "optimizer on a copy", "gradient scale", "settings", "reduction", "set by hand"}
    by_larger = {"records", "replica gradient", "scaled twice", "unrecorded", "other draws"}
    odd = {*MISTAKES} ^ {*FIXTURES, *by_fits_and_loops, *by_settings, *by_larger}
    assert not odd, f"tests/test_mistakes.py: FIXTURES must make each mistake that is not made elsewhere: {sorted(odd)}"
