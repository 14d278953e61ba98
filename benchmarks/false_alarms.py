"""How often `dtk.diagnose` cries wolf: correct training functions, drawn at random, on 1 to 4 workers or replicas.

`python benchmarks/false_alarms.py --runs 50` trains each of them in a cluster and on one device, and fails if one of
the pairs is diagnosed with anything.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from typing import Any

import tqdm

import dtk


def draw(chance: random.Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """What to train, and where. Batches divide by the number of replicas, which `fit` needs to match one device."""
    replicas = chance.randint(1, 4)
    where: dict[str, Any] = {"workers": replicas}
    if replicas > 1 and chance.random() < 0.3:
        where = {"workers": 1, "replicas": replicas}
    facts = {
        "loop": chance.random() < 0.5,
        "kind": chance.choice(["dense", "deep", "convolution"]),
        "optimizer": chance.choice(["SGD", "Momentum", "Adam"]),
        "rate": chance.choice([0.001, 0.003, 0.01]),
        "penalty": chance.choice([0.0, 1e-4, 1e-2]),
        "batch": replicas * chance.choice([4, 8, 16]),
        "steps": chance.randint(2, 12),
        "epochs": chance.randint(1, 3),
        "shuffled": chance.random() < 0.5,
    }
    return facts, {**where, "seed": chance.randint(0, 1000)}


def model_of(kind: str, penalty: float) -> Any:
    import keras

    regular: dict[str, Any] = {"kernel_regularizer": keras.regularizers.L2(penalty) if penalty else None}
    layers = {
        "dense": [keras.layers.Flatten()],
        "deep": [keras.layers.Flatten(), *(keras.layers.Dense(24, activation="tanh", **regular) for _ in range(3))],
        "convolution": [keras.layers.Conv2D(4, 3, strides=2, activation="tanh", **regular), keras.layers.Flatten()],
    }[kind]
    return keras.Sequential([keras.layers.Input((28, 28, 1)), *layers, keras.layers.Dense(10, **regular)])


def train(strategy: Any, facts: dict[str, Any]) -> None:
    """Correct in every respect, by fit or by a loop."""
    import keras
    import tensorflow as tf

    count, batch = facts["steps"] * facts["batch"], facts["batch"]
    (images, _), _ = dtk.datasets.load("mnist", source="embedded")
    data = images.map(lambda x, y: (tf.cast(x, tf.float32) / 255.0, y)).take(count)
    data = (data.shuffle(count, seed=5) if facts["shuffled"] else data).batch(batch)
    with strategy.scope():
        model = model_of(facts["kind"], facts["penalty"])
        chosen = {"SGD": {}, "Momentum": {"momentum": 0.9}, "Adam": {}}[facts["optimizer"]]
        kind = keras.optimizers.Adam if facts["optimizer"] == "Adam" else keras.optimizers.SGD
        optimizer = kind(facts["rate"], **chosen)
    if not facts["loop"]:
        model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.fit(data, epochs=facts["epochs"], callbacks=[dtk.Recorder()], verbose=0)
        return
    with strategy.scope():
        criterion = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
        optimizer.build(model.trainable_variables)

    def step(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(criterion(y, model(x, training=True)), global_batch_size=batch)
            if model.losses:
                loss += tf.nn.scale_regularization_loss(tf.add_n(model.losses))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def one(inputs, epoch):
        dtk.record_step(strategy.run(step, (inputs,)), batch=inputs, model=model, epoch=epoch)

    distributed = strategy.experimental_distribute_dataset(data)
    for epoch in range(facts["epochs"]):
        for inputs in distributed:
            one(inputs, tf.constant(epoch + 1))


def main() -> int:
    """Returns the number of false alarms."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ["DTK_LIVE"] = "off"
    chance, alarms = random.Random(options.seed), 0
    for _ in tqdm.trange(options.runs, disable=None):
        facts, where = draw(chance)
        run = dtk.run(train, args=(facts,), **where)
        diagnosis = dtk.diagnose(run, dtk.baseline(train, args=(facts,), seed=where["seed"], workers=run.workers))
        if diagnosis.mistake != "none" and not (run.workers * run.replicas == 1 and diagnosis.mistake == "arguments"):
            alarms += 1
            print(f"{where} {facts}: {diagnosis}")
    print(f"{alarms} false alarms in {options.runs} correct runs")
    return alarms


if __name__ == "__main__":
    sys.exit(min(1, main()))
