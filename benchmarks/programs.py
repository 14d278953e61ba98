"""What `dtk run` costs a program, against the same two processes started by hand: to the first step, and a step.

    python benchmarks/programs.py --rounds 5

Both ways in turn, on the same ports' kind of cluster; prints the medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from dtk.launch.launch import THREADS
from dtk.launch.place import free_ports, tf_configs
from dtk.launch.warm import MALLOC

GRPC = ("TF_GRPC_WORKER_CACHE_THREADS", "TF_GRPC_WORKER_CACHE_QUEUES")  # set where a worker has one thread
PROGRAM = """
import json, os, sys, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf
import tf_keras as keras

strategy = tf.distribute.MultiWorkerMirroredStrategy()
draw = np.random.default_rng(0)
data = tf.data.Dataset.from_tensor_slices((draw.random((512, 28, 28, 1), "f"), draw.integers(0, 10, 512)))
with strategy.scope():
    layers = [keras.layers.Conv2D(16, 3, activation="relu"), keras.layers.Flatten(), keras.layers.Dense(10)]
    model = keras.Sequential([keras.layers.Input((28, 28, 1)), *layers])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
ends = []
seen = keras.callbacks.LambdaCallback(on_train_batch_end=lambda *_: ends.append(time.time()))
model.fit(data.repeat().batch(64), steps_per_epoch=200, verbose=0, callbacks=[seen])
if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0:
    steps = np.diff(ends[20:])
    open(sys.argv[1], "w").write(json.dumps([ends[0] - float(sys.argv[2]), float(np.median(steps))]))
"""


def two_by_hand(command: list[str], **run: Any) -> None:
    """Two processes with a TF_CONFIG each, and what dtk sets for a worker: numbers of threads, gRPC's too, and malloc.

    Without these settings they are slower, and what dtk itself costs would not show. run: further arguments of Popen.
    """
    share = str(max(1, len(os.sched_getaffinity(0)) // 2))
    settings = {**MALLOC, **dict.fromkeys((*THREADS, *GRPC * (share == "1")), share)}
    workers = [
        subprocess.Popen(command, env={**os.environ, "TF_CONFIG": json.dumps(config), **settings}, **run)
        for config in tf_configs(free_ports(2))
    ]
    for worker in workers:
        worker.wait()


def by_hand(program: Path, out: Path) -> None:
    two_by_hand([sys.executable, str(program), str(out), str(time.time())])


def by_dtk(program: Path, out: Path) -> None:
    """`dtk run`, from the start of its own process."""
    command = [sys.executable, "-m", "dtk", "run", str(program), "--keras", "2", "--", str(out), str(time.time())]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--rounds", type=int, default=5)
    rounds = given.parse_args().rounds
    ways = {"by hand": by_hand, "dtk run": by_dtk}
    found: dict[str, list[list[float]]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as folder:
        program, out = Path(folder, "train.py"), Path(folder, "out.json")
        program.write_text(PROGRAM)
        for k in range(rounds):
            for name, way in list(ways.items())[:: 1 if k % 2 else -1]:
                way(program, out)
                found[name].append(json.loads(out.read_text()))
                print(name, *(f"{value:.4f}" for value in found[name][-1]), flush=True)
    (first, step), (first_dtk, step_dtk) = (
        [statistics.median(column) for column in zip(*found[name], strict=True)] for name in ways
    )
    print(f"to the first step: {first:.2f} s by hand, {first_dtk:.2f} s by dtk run, {first_dtk - first:+.2f} s")
    print(f"a step: {1000 * step:.2f} ms by hand, {1000 * step_dtk:.2f} ms by dtk run, ratio {step_dtk / step:.3f}")


if __name__ == "__main__":
    main()
