"""What the tests run on each place: the same functions, untouched."""

from __future__ import annotations

import threading
import time

import dtk
from dtk.environment import scratch


def digits(steps=12):
    """A small convolution network, by Keras's fit, on handwritten digits."""
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    (train, _), _ = dtk.datasets.load("mnist", source="embedded")
    data = train.map(lambda image, label: (tf.cast(image, tf.float32) / 255, label)).batch(64).repeat()
    with strategy.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Conv2D(8, 3, activation="relu"),
                tf.keras.layers.MaxPooling2D(),
                tf.keras.layers.Flatten(),
                tf.keras.layers.Dense(10),
            ]
        )
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", loss, metrics=["accuracy"])
    history = model.fit(data, steps_per_epoch=steps, verbose=0, callbacks=[dtk.Recorder()])
    if dtk.is_chief():
        (dtk.run_dir() / "saved.txt").write_text("by the chief")
    return history.history["loss"]


def long(steps=1200):
    """All-reduces, one every 50 ms."""
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    @tf.function
    def step():
        return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(1.0)))

    step()
    print("began", flush=True)
    for _ in range(steps):
        step()
        time.sleep(0.05)


def raises():
    import tensorflow as tf

    tf.distribute.MultiWorkerMirroredStrategy()
    if not dtk.is_chief():
        raise ValueError("no such thing")
    time.sleep(60)


# ---- for the tests themselves


def when_it_runs(do):
    """Calls `do` in a thread as soon as the next run's steps have begun; its end is waited for by `join`."""
    before = {*(scratch() / "runs").glob("*")}

    def wait():
        until = time.monotonic() + 60
        while time.monotonic() < until:
            runs = sorted({*(scratch() / "runs").glob("*")} - before, key=lambda path: path.name)
            newest = [path / "worker-1" / "log.txt" for path in runs[-1:]]
            if newest and newest[0].exists() and "began" in newest[0].read_text():
                time.sleep(0.5)
                return do()
            time.sleep(0.05)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread
