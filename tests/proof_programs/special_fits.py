"""Keras fit in other ways: several fits and models, rates that change, train_on_batch, a compute_loss of one's own."""

from __future__ import annotations

import dtk
from proof_programs import REPLICAS, add, add_wrong
from proof_programs.parts import BATCH, arrays, batches, crossentropy, network, on_cluster, optimizer_of


def compiled(strategy, model="cnn", optimizer="adam", rate=None, **facts):
    import keras

    with strategy.scope():
        built = network(model, **facts)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        built.compile(optimizer_of(optimizer, rate=rate), loss, metrics=["accuracy"])
    return built


def scheduled(strategy, steps=300, kind="exponential", optimizer="adam", **facts):
    """A schedule that the optimizer asks at each step."""
    import keras

    schedules = keras.optimizers.schedules
    rate = {
        "exponential": schedules.ExponentialDecay(5e-3, decay_steps=20, decay_rate=0.9),
        "staircase": schedules.ExponentialDecay(5e-3, decay_steps=20, decay_rate=0.9, staircase=True),
        "cosine": schedules.CosineDecay(1e-4, decay_steps=steps, warmup_target=5e-3, warmup_steps=steps // 10),
        "steps": schedules.PiecewiseConstantDecay([steps // 3, steps // 2], [5e-3, 2e-3, 1e-3]),
    }[kind]
    model = compiled(strategy, optimizer=optimizer, rate=rate, **facts)
    model.fit(batches(arrays("cnn"), steps), verbose=0, callbacks=[dtk.Recorder()])


def by_callback(strategy, steps=300, kind="scheduler", epochs=6, unknown=False, **facts):
    """Callbacks that change the rate between epochs, or end the training, with validation.

    unknown: how many batches an epoch has.
    """
    import keras

    model = compiled(strategy, **facts)
    x, y = arrays("cnn")
    ways = {
        "scheduler": [keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.7)],
        "plateau": [keras.callbacks.ReduceLROnPlateau(monitor="val_loss", patience=1, factor=0.5, min_delta=0.3)],
        "stopping": [keras.callbacks.EarlyStopping(monitor="val_loss", patience=2, restore_best_weights=True)],
    }
    data = batches((x[:768], y[:768]), max(1, steps // epochs))
    data = data.filter(lambda *_: True) if unknown else data
    held_out = batches((x[768:], y[768:]), 4)
    callbacks = [*ways[kind], dtk.Recorder()]
    model.fit(data, epochs=epochs, validation_data=held_out, verbose=0, callbacks=callbacks)


def unbuilt(strategy, steps=300):
    """An RNN that its first batch builds, trained by fit alone."""
    import keras

    with strategy.scope():
        words, last = keras.layers.Embedding(40, 16, mask_zero=True), keras.layers.Dense(2)
        model = keras.Sequential([words, keras.layers.GRU(16), last])
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(batches(arrays("embedding"), steps), verbose=0)


def denoised(strategy, steps=300):
    """A train_step that draws by tf.random.normal, and whose layers are built when it calls them first."""
    import keras
    import tensorflow as tf

    class Denoiser(keras.Model):
        def __init__(self):
            super().__init__()
            self.net = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(8)])

        def call(self, x):
            return self.net(x)

        def train_step(self, data):
            noise = tf.random.normal(tf.shape(data))
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((noise - self.net(data + noise, training=True)) ** 2)
                scaled = loss / tf.distribute.get_strategy().num_replicas_in_sync
            weights = self.net.trainable_weights
            self.optimizer.apply_gradients(zip(tape.gradient(scaled, weights), weights, strict=True))
            return {"loss": loss}

    with strategy.scope():
        model = Denoiser()
        model.compile(optimizer=optimizer_of("adam"))
    pixels = batches(arrays("mlp"), steps).map(lambda x, y: x[:, :8])
    model.fit(pixels, verbose=0, callbacks=[dtk.Recorder()])


def two_fits(strategy, steps=300, mistake=None, again=True, shuffled=False, **facts):
    """Half of the steps in each fit; again: compiled anew between them, with a lower rate; shuffled: batches are.

    Mistakes in the second: "gradient" (2 % too large, on the cluster), "summed" (each replica's loss is multiplied by
    the replicas), "rate" (1 % too large, on the cluster).
    """
    import keras

    n = strategy.num_replicas_in_sync

    class Own(keras.Model):
        factor = 1.0

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            return self.factor * super().compute_loss(x, y, y_pred, sample_weight, training)

    with strategy.scope():
        built = network("cnn", **facts)
        model = Own(built.inputs[0], built.outputs[0])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer_of("sgd"), loss)

    def data(count):
        made = batches(arrays("cnn"), count)
        return made.shuffle(count, seed=7) if shuffled else made

    model.fit(data(steps // 2), verbose=0, callbacks=[dtk.Recorder()])
    if mistake == "gradient" and on_cluster():
        model.factor = 1.02
    if mistake == "summed":
        model.factor = float(n)
    if again or mistake:
        with strategy.scope():
            rate = 0.02 * (1.01 if mistake == "rate" and on_cluster() else 1.0)
            model.compile(optimizer_of("sgd", rate=rate), loss)
    model.fit(data(steps - steps // 2), verbose=0, callbacks=[dtk.Recorder()])


def two_models(strategy, steps=300, turns=1, **facts):
    """Two networks, each by its own fit; turns: how often they take turns."""
    models = [compiled(strategy, "mlp", "adam", **facts), compiled(strategy, "cnn", "momentum", **facts)]
    for _turn in range(turns):
        for name, model in zip(("mlp", "cnn"), models, strict=True):
            data = batches(arrays(name), steps // (2 * turns))
            model.fit(data, verbose=0, callbacks=[dtk.Recorder()])


def tied(strategy, steps=300, **facts):
    """Words in, words out, by the same matrix: its gradient is sparse on one way and dense on the other."""
    import keras
    from keras import layers

    class Tied(keras.Model):
        def __init__(self):
            super().__init__()
            self.words, self.middle = layers.Embedding(40, 16), layers.Dense(16, activation="relu")
            self.drop = layers.Dropout(facts.get("dropout", 0.0))

        def call(self, ids):
            z = self.drop(self.middle(self.words(ids)))
            return keras.ops.matmul(z, keras.ops.transpose(self.words.embeddings))

    ids, _labels = arrays("tied")
    with strategy.scope():
        model = Tied()
        model.compile(optimizer_of("adam"), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(batches((ids[:, :-1], ids[:, 1:]), steps), verbose=0, callbacks=[dtk.Recorder()])


def by_batches(strategy, steps=300, whole=False, **facts):
    """`train_on_batch`. whole: every replica trains on the whole batch, and the mean of equal gradients is taken."""
    place = dtk.environment.here()
    model = compiled(strategy, **facts)
    own = BATCH // place.workers if place.mode == "cluster" and not whole else BATCH
    first = place.worker * own if place.mode == "cluster" and not whole else 0
    for x, y in batches(arrays("cnn"), steps):
        model.train_on_batch(x[first : first + own], y[first : first + own])


def by_loss(strategy, steps=300, mistake=None, optimizer="adam", **facts):
    """A compute_loss that divides by hand, by the global batch. Mistakes: see `share` in reduced.py."""
    import keras

    from proof_programs.reduced import share

    n = strategy.num_replicas_in_sync

    class Own(keras.Model):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            return share(crossentropy(y, y_pred), self, n, mistake)

    with strategy.scope():
        built = network(**facts)
        model = Own(built.inputs[0], built.outputs[0])
        model.compile(optimizer_of(optimizer), metrics=[])
    model.fit(batches(arrays("cnn"), steps), verbose=0, callbacks=[dtk.Recorder()])


for kind in ("exponential", "staircase", "cosine", "steps"):
    add(f"schedule {kind}", scheduled, kind=kind, behind=True)
for kind in ("scheduler", "plateau", "stopping"):
    add(f"callback {kind}", by_callback, kind=kind, behind=True)
add("callback scheduler, data of unknown size", by_callback, unknown=True)
add("dropout, callback plateau", by_callback, REPLICAS, kind="plateau", dropout=0.4)
add("train_step, drawn by operation", denoised, REPLICAS)
add("rnn, built by its first batch", unbuilt)
add("two fits", two_fits, behind=True)
add("two fits, compiled once", two_fits, again=False)
add("two fits, dropout, shuffled", two_fits, REPLICAS, shuffled=True, dropout=0.4)
add("two models", two_models)
add("two models by turns", two_models, turns=3)
add("tied embedding", tied)
add("train_on_batch, own part", by_batches)
add("train_on_batch, whole batch", by_batches, whole=True)
add("compute_loss", by_loss, behind=True)

LATE = {"late": True, "replicas": False}
SECOND = "only the second fit is wrong: "
add_wrong(
    "second fit, gradient",
    two_fits,
    SECOND + "all gradients are 2 % too large on the cluster",
    LATE,
    mistake="gradient",
)
add_wrong(
    "second fit, rate", two_fits, SECOND + "the learning rate is 1 % too large on the cluster", LATE, mistake="rate"
)
add_wrong(
    "second fit, times n", two_fits, SECOND + "the loss is multiplied by the replicas", {"late": True}, mistake="summed"
)
