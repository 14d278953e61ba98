"""The lesson's CNN with the moments of its steps noted by a callback of its own, so that recording can be left out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import dtk


def _batches(global_batch: int) -> Any:
    import tensorflow as tf

    (images, _), _ = dtk.datasets.load("mnist")
    scaled = images.map(lambda image, label: (tf.cast(image, tf.float32) / 255.0, label))
    return scaled.take(1280).cache().shuffle(1280, seed=1).repeat().batch(global_batch).prefetch(tf.data.AUTOTUNE)


def _model() -> Any:
    import keras

    return keras.Sequential(
        [
            keras.layers.Input((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="tanh"),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="tanh"),
            keras.layers.Dense(10),
        ]
    )


def times() -> tuple[float, float]:
    """`time.monotonic()`, and the processor time of this process, s."""
    return time.monotonic(), time.process_time()


def train(
    strategy: Any,
    steps: int = 3,
    record: bool = True,
    global_batch: int = 128,
    steps_per_execution: int = 1,
    policy: str = "float32",
    clock: Callable[[], Any] = time.monotonic,
) -> list[Any]:
    """Trains `steps` steps with fit; returns what the clock says at the end of each, or of each steps_per_execution.

    policy: Keras's, of the numbers that it computes with: "float32", or "mixed_bfloat16".
    """
    import keras

    class Clock(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            self.ends = []

        def on_train_batch_end(self, batch, logs=None):
            self.ends.append(clock())

    keras.mixed_precision.set_global_policy(policy)
    batches = _batches(global_batch)
    with strategy.scope():
        model = _model()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        optimizer = keras.optimizers.SGD(0.05)
        model.compile(optimizer, loss=loss, metrics=["accuracy"], steps_per_execution=steps_per_execution)
    noted = Clock()
    model.fit(batches, steps_per_epoch=steps, callbacks=[noted, *([dtk.Recorder()] if record else [])], verbose=0)
    return noted.ends


def train_with(bytes_per_pack: int = 0, implementation: str = "AUTO", **more: Any) -> list[Any]:
    """`train`, under a strategy with these communication options."""
    import tensorflow as tf

    named = tf.distribute.experimental.CommunicationImplementation[implementation]
    options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack, implementation=named)
    return train(tf.distribute.MultiWorkerMirroredStrategy(communication_options=options), **more)


def loop(strategy: Any, steps: int = 3, record: bool = True, global_batch: int = 128) -> list[float]:
    """The same training with a loop of its own; returns `time.monotonic()` at the end of each step."""
    import keras
    import tensorflow as tf

    with strategy.scope():
        model, optimizer = _model(), keras.optimizers.SGD(0.05)
    criterion = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def step(batch):
        images, labels = batch
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(criterion(labels, model(images)), global_batch_size=global_batch)
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    @tf.function
    def distributed(batch):
        losses = strategy.run(step, args=(batch,))
        if record:
            dtk.record_step(losses, batch=batch, model=model)
        return strategy.reduce("SUM", losses, axis=None)

    ends, batches = [], iter(strategy.experimental_distribute_dataset(_batches(global_batch)))
    for _ in range(steps):
        float(distributed(next(batches)))
        ends.append(time.monotonic())
    return ends


def memory(strategy: Any) -> int:
    """Trains, then the chief adds up the PSS (bytes) of every worker and of the process that forked them."""
    import psutil

    train(strategy, record=False)
    done, folder = dtk.run_dir() / "measured", dtk.environment.here()
    (dtk.run_dir() / f"trained-{folder.worker}").touch()
    if not dtk.is_chief():
        while not done.exists():
            time.sleep(0.01)
        return 0
    while len(list(dtk.run_dir().glob("trained-*"))) < folder.workers:
        time.sleep(0.01)
    parent = psutil.Process(os.getppid())
    family = [parent, *(p for p in parent.children() if p.name() != "resource_tracker")]
    total = sum(process.memory_full_info().pss for process in family)
    done.touch()
    return total
