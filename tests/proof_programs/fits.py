"""Keras fit: networks and optimizers of every kind, and the small mistakes that a cluster alone makes."""

from __future__ import annotations

import dtk
from proof_programs import ONE_DEVICE, REFUSED, REPLICAS, add, add_wrong
from proof_programs.parts import BATCH, RATES, arrays, batches, network, on_cluster, on_worker, optimizer_of, seeded

OF_OPTIMIZER = ("use_ema", "clipnorm", "global_clipnorm", "gradient_accumulation_steps", "loss_scale_factor", "rate")


def rates_from(at, factor, who):
    """A callback that changes the rate before step `at`, where `who()` is true; from then on."""
    import keras

    class Rates(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch + 1 == at and who():
                self.model.optimizer.learning_rate.assign(self.model.optimizer.learning_rate * factor)

    return Rates()


def schedule_from(value, at, factor):
    """A schedule whose rate is `value`, and `factor` times that from step `at` on: no variable holds it."""
    import keras

    class Schedule(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            return value * keras.ops.where(step + 1 >= at, factor, 1.0)

    return Schedule()


def stepping(model, change):
    """The model with a train_step of its own, in which `change(gradients, iterations)` has the gradients."""
    import keras
    import tensorflow as tf

    class Own(keras.Model):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                outputs = self(x, training=True)
                loss = self.compute_loss(x, y, outputs)
            gradients = change(tape.gradient(loss, self.trainable_variables), self.optimizer.iterations)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            for metric in self.metrics:
                metric.update_state(loss) if metric.name == "loss" else metric.update_state(y, outputs)
            return {metric.name: metric.result() for metric in self.metrics}

    return Own(model.inputs[0], model.outputs[0])


def too_large(mistake, at, size, place=-2):
    """Mistakes "gradient" (of one kernel, on the cluster) and "gradient later" (from step `at` on): by `size`."""
    import tensorflow as tf

    def change(gradients, iterations):
        if on_cluster() and mistake in ("gradient", "gradient later"):
            wrong = mistake == "gradient" or iterations + 1 >= at
            factor = 1 + (0.02 if size is None else size) * tf.cast(wrong, tf.float32)
            gradients[place] *= factor
        return gradients

    return change


def by_fit(
    strategy,
    steps=300,
    model="cnn",
    optimizer="sgd",
    mistake=None,
    at=200,
    size=None,
    epochs=1,
    own_step=False,
    precision=None,
    per_execution=1,
    batch=BATCH,
    by_replicas=False,
    scaled_loss=False,
    weighted=None,
    eagerly=False,
    **facts,
):
    """Small mistakes: those of `batches`, `optimizer_of`, `seeded` and `too_large`; "later rate" (halved from step `at`
    on), "later schedule" (0.7 times), "worker's rate" and "worker's clipnorm" (worker 1's own).
    """
    import keras
    import numpy as np

    if precision:
        keras.mixed_precision.set_global_policy(precision)
    of_optimizer = {name: facts.pop(name) for name in OF_OPTIMIZER if name in facts}
    if mistake == "worker's clipnorm" and on_worker(1):
        of_optimizer["global_clipnorm"] = 0.1
    if mistake == "later schedule":
        of_optimizer["rate"] = schedule_from(RATES[optimizer], at, 0.7 if on_cluster() else 1.0)
    with strategy.scope():
        seeded(mistake)
        built = network(model, **facts)
        if own_step or mistake in ("gradient", "gradient later"):
            built = stepping(built, too_large(mistake, at, size))
        update = optimizer_of(optimizer, mistake, size, **of_optimizer)
        update = keras.optimizers.LossScaleOptimizer(update, 2.0**24) if scaled_loss else update  # which overflows
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        built.compile(update, loss, metrics=["accuracy"], steps_per_execution=per_execution, run_eagerly=eagerly)
    data = arrays(model)
    if weighted == "examples":
        data = (*data, np.linspace(0.1, 2.0, len(data[0])).astype("float32"))
    batch = batch * strategy.num_replicas_in_sync if by_replicas else batch
    rates = {"later rate": (at, 0.5, on_cluster), "worker's rate": (1, 0.9, lambda: on_worker(1))}
    callbacks = [rates_from(*rates[mistake])] if mistake in rates else []
    more = {"class_weight": {label: 1 + label / 10 for label in range(10)}} if weighted == "classes" else {}
    dataset = batches(data, steps // epochs, batch, mistake, at)
    built.fit(dataset, epochs=epochs, verbose=0, callbacks=[*callbacks, dtk.Recorder()], **more)


# The first table of PROOF.md; loops.py has its last two.
add("mlp relu sgd", by_fit, model="mlp", behind=True)
add("cnn relu sgd", by_fit, behind=True)
add("cnn relu momentum", by_fit, optimizer="momentum")
add("cnn relu adam", by_fit, optimizer="adam", behind=True)
add("cnn pooling sgd", by_fit, model="pool")
add("residual adamw", by_fit, model="residual", optimizer="adamw")
add("gelu rmsprop", by_fit, model="mlp", activation="gelu", optimizer="rmsprop")
add("lstm adam", by_fit, model="lstm", optimizer="adam")
add("attention adam", by_fit, model="attention", optimizer="adam")
add("cnn bfloat16", by_fit, precision="mixed_bfloat16")
add("mlp bfloat16, eagerly", by_fit, model="mlp", precision="mixed_bfloat16", eagerly=True)

add("mnist 28x28 adam", by_fit, model="mnist", optimizer="adam", epochs=2)
add("l2 penalty", by_fit, l2=1e-3, behind=True)
add("shared layer", by_fit, model="shared", optimizer="adam", l2=1e-3)
add("embedding adagrad", by_fit, model="embedding", optimizer="adagrad")
add("embedding adamw", by_fit, model="embedding", optimizer="adamw")
add("adafactor", by_fit, model="mlp", optimizer="adafactor")  # built within step 1 on one device
add("train_step", by_fit, optimizer="adam", own_step=True, behind=True)
add("steps_per_execution", by_fit, optimizer="adam", per_execution=5)
add("use_ema", by_fit, optimizer="adam", use_ema=True)
add("accumulation by keras", by_fit, REFUSED, optimizer="adam", gradient_accumulation_steps=4)
add("loss scale float16", by_fit, model="mlp", optimizer="adam", precision="mixed_float16")
add("loss scale optimizer", by_fit, model="mlp", scaled_loss=True, precision="mixed_float16")
add("class_weight", by_fit, optimizer="adam", weighted="classes")
add("sample_weight", by_fit, optimizer="adam", weighted="examples")
add("batch by replicas", by_fit, REPLICAS, batch=32, by_replicas=True, optimizer="adam")
add("dropout", by_fit, REPLICAS, dropout=0.4, optimizer="adam")
add("batch norm", by_fit, REPLICAS, batch_norm=True, optimizer="adam")
add("batch norm synchronized", by_fit, ONE_DEVICE, batch_norm="synchronized", optimizer="adam")
add("dropout and batch norm", by_fit, REPLICAS, batch_norm=True, dropout=0.4)
add("gaussian noise", by_fit, REPLICAS, noise=0.2)
add("augmentation layers", by_fit, REPLICAS, augmented=True, optimizer="adam")

ALONE = {"replicas": False}  # made on the cluster alone
LOGITS = {"replicas": False, "variables": ("logits/kernel",)}
SMALL = {
    "rate 1 % off": ("learning rate", {}, "settings: the learning rate is 1 % larger on the cluster"),
    "gradient 2 % too large": ("gradient", LOGITS, "one variable's update is 2 % too large on the cluster"),
    "weight decay missing": ("weight decay", ALONE, "settings: weight_decay is 0 on the cluster"),
    "epsilon": ("epsilon", ALONE, "settings: epsilon is 1e-5 on the cluster, 1e-7 by default"),
    "another seed": ("seed", ALONE, "the start: other initial weights on the cluster"),
}
for key, (mistake, facts, truth) in SMALL.items():
    for name in ("adamw",) if mistake == "weight decay" else ("adam",) if mistake == "epsilon" else ("sgd", "adam"):
        add_wrong(f"{key}, {name}", by_fit, truth, {**ALONE, **facts}, optimizer=name, mistake=mistake)
LATE = {
    "duplicated example": (200, "data: one example twice in this step, another not at all"),
    "later rate": (200, "settings: the learning rate is halved from this step on"),
    "later schedule": (200, "settings: a schedule's learning rate is 0.7 of itself from this step on"),
    "short batch": (150, "data: 60 examples in this step instead of 64"),
    "gradient later": (100, "one variable's update is 2 % too large from this step on"),
}
for key, (at, truth) in LATE.items():
    for name in ("sgd", "adam"):
        facts = LOGITS if key == "gradient later" else ALONE
        add_wrong(f"{key}, {name}", by_fit, truth, facts, optimizer=name, mistake=key, at=at)
add_wrong(
    "worker's rate", by_fit, "worker 1 has another learning rate: the replicas part", ALONE, mistake="worker's rate"
)
CLIPPED = (
    "worker 1 clips its part of the gradient, the others don't; the replicas agree, since Keras 3 clips before the sum"
)
add_wrong("worker's clipnorm", by_fit, CLIPPED, ALONE, mistake="worker's clipnorm")
EVERYWHERE = "every replica clips its own gradient before the sum, as Keras 3 does with any clipnorm"
add_wrong("clipnorm by keras", by_fit, EVERYWHERE, {"expected": None}, global_clipnorm=0.1)
