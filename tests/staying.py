"""A cluster that stays, for several test files: what its first cells are, and that it is usable after each test."""

from __future__ import annotations

import contextlib
import os
import signal
import threading

import dtk

BEGIN = """
import time
import tensorflow as tf
me = strategy.cluster_resolver.task_id

def total(value):
    return float(strategy.reduce("sum", tf.constant(float(value)), axis=None))
"""
# After x, y, model and optimizer: batches of 16, and a step's shares of the loss.
LOSSES = """
data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((x, y)).batch(16).repeat())
batches = iter(data)

@tf.function
def losses(batch):
    def one(batch):
        x, y = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(x) - y) ** 2) / 16
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss
    return strategy.run(one, args=(batch,))
"""
MODEL = (
    """
import keras, numpy as np
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam(0.01)
x = np.random.rand(64, 4).astype("float32")
y = x.sum(1, keepdims=True)
"""
    + LOSSES
    + """
@tf.function
def step(batch):
    return strategy.reduce("sum", losses(batch), axis=None)

float(step(next(batches)))
"""
)
# Training that is recorded, for sessions that are proved.
RECORDED = (
    """
import dtk, tensorflow as tf, keras, numpy as np
x = np.random.rand(64, 4).astype("float32")
y = x.sum(1, keepdims=True)
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(0.01)
"""
    + LOSSES
    + """
def train(steps):
    for _ in range(steps):
        batch = next(batches)
        dtk.record_step(losses(batch), batch=batch, model=model)
"""
)


@contextlib.contextmanager
def opened(**options):
    """A cluster of two workers, after its first cells."""
    with dtk.cluster(workers=2, **options) as cluster:
        cluster.run(BEGIN)
        cluster.run(MODEL)
        yield cluster


def usable(cluster):
    """Whatever a test has done to it, all workers can meet again, with equal replicas."""
    cluster.free()
    assert cluster.run("total(1)") == [2.0, 2.0]
    cluster.sync()
    assert cluster.run("float(step(next(batches)))")[0] > 0


def interrupt_after(seconds):
    """A timer that interrupts this process as Ctrl+C does; to be canceled."""
    timer = threading.Timer(seconds, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    return timer
