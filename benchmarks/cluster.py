"""What a cluster that stays costs: its start, an empty cell, a step against one in `dtk.run`, the gate, 1 GB of output.

`python benchmarks/cluster.py`; on an idle machine. Steps in a cell and in a run are timed in turns.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import time
from typing import Any

import dtk
from dtk.launch.warm import parent

STEPS, TURNS = 300, 5


def steps(strategy: Any) -> float:
    """Median seconds of a step of a small model under this strategy."""
    import statistics
    import time

    import keras
    import numpy as np
    import tensorflow as tf

    with strategy.scope():
        model = keras.Sequential([keras.Input((784,)), keras.layers.Dense(128, "relu"), keras.layers.Dense(10)])
        optimizer = keras.optimizers.SGD(0.01)
    x = np.random.rand(512, 784).astype("float32")
    y = np.random.randint(0, 10, 512)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(128).repeat()
    batches = iter(strategy.experimental_distribute_dataset(data))
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")

    @tf.function
    def step(batch):
        def one(batch):
            x, y = batch
            weights = model.trainable_variables
            with tf.GradientTape() as tape:
                loss = loss_of(y, model(x)) / 128
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
            return loss

        return strategy.run(one, args=(batch,))

    seconds = []
    for _ in range(STEPS):
        began = time.perf_counter()
        step(next(batches))
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[20:])


def started(workers: int) -> tuple[Any, float]:
    began = time.perf_counter()
    cluster = dtk.cluster(workers=workers)
    return cluster, time.perf_counter() - began


def empty(cluster: Any, times: int = 100) -> float:
    """Median seconds of an empty cell."""
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        cluster.cell("pass")
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


GATE = """
import time
from dtk.compat import collectives
from tensorflow.python.distribute.cross_device_utils import CollectiveKeys
plain = CollectiveKeys.get_instance_key.__closure__
own = next(cell.cell_contents for cell in plain if getattr(cell.cell_contents, "__name__", "") == "get_instance_key")
keys, seconds = strategy.extended._collective_keys, []
group, devices = next(iter(keys._instance_key_table.items()))
for call in (CollectiveKeys.get_instance_key, own):
    began = time.perf_counter()
    for _ in range(20_000):
        call(keys, group, next(iter(devices)))
    seconds.append((time.perf_counter() - began) / 20_000)
seconds
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=float, default=1.0, help="GB that two workers print together")
    asked = parser.parse_args()
    parent(fork=True).wait_ready(lambda: None)
    for workers in (8, 2):
        cluster, seconds = started(workers)
        with cluster:
            print(f"{workers} workers: started in {seconds:.2f} s, an empty cell takes {1000 * empty(cluster):.1f} ms")
    with dtk.cluster(workers=2) as cluster, dtk.environment.quiet():
        pairs = [(max(cluster.run(steps)), max(dtk.run(steps, workers=2).results)) for _ in range(TURNS)]
        inside, outside = (1000 * statistics.median(each) for each in zip(*pairs, strict=True))
        ratio = statistics.median(one / other for one, other in pairs)
        print(f"a step: {inside:.2f} ms in a cell, {outside:.2f} ms in dtk.run, {ratio:.3f} times as long")
        with contextlib.redirect_stdout(io.StringIO()):
            with_gate, without = cluster.run(GATE)[0]
        print(f"the gate: {1e6 * (with_gate - without):.1f} microseconds a collective")
        lines = int(asked.output * 1e9 / 2 / 1000)
        began = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            cluster.cell(f"for k in range({lines}): print(f'{{k:0>999}}')")
        seconds, folder = time.perf_counter() - began, cluster._session.started.folder
        sizes = [(each.path / "log.txt").stat().st_size / 1e9 for each in folder.each]
        kept = all(each.log_end(1)[-1].endswith(f"{lines - 1}") for each in folder.each)
        last = "there" if kept else "NOT THERE"
        print(f"output: {sum(sizes):.2f} GB in the logs after {seconds:.1f} s, the last line is {last}")


if __name__ == "__main__":
    main()
