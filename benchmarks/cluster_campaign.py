"""A cluster that stays under random mishaps: is it usable afterwards, by which repair, after how many seconds?

`python benchmarks/cluster_campaign.py --trials 300 --seed 0` opens a cluster of 2, 3 or 4 workers, lets ten mishaps
happen to it, one after another, and opens the next. A mishap comes in a loop of one's own or in `fit`: an error on one
worker, an error on all, an interrupt, unlike shapes in one all-reduce, a worker that leaves out a step, a variable that
one worker alone makes, a killed worker (also the chief). Afterwards an all-reduce must meet, and what dtk says of the
replicas is compared with digests that are taken here. A line a mishap; `--only SEED` plays one cluster again. Fails if
a cluster is not usable, if what dtk says of the replicas is not so, or if a process is left.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import re
import signal
import statistics
import sys
import threading
import time
from collections import defaultdict
from typing import Any, NamedTuple

import psutil

import dtk

MISHAPS = ("error on one", "error on all", "interrupt", "unlike shapes", "step left out", "lone variable", "kill")
EACH = 10  # mishaps that a cluster lives through

BEGIN = """
import os, time
import keras, numpy as np, tensorflow as tf
me = strategy.cluster_resolver.task_id

def total():
    return float(strategy.reduce("sum", tf.constant(1.0), axis=None))

with strategy.scope():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam(0.01)
    fitted = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    fitted.compile("adam", "mse")
x = np.random.rand(240, 8).astype("float32")
y = x.sum(1, keepdims=True)
data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((x, y)).batch(24).repeat())
batches = iter(data)

@tf.function
def step(batch):
    def one(batch):
        x, y = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(x) - y) ** 2) / 24
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss
    return strategy.reduce("sum", strategy.run(one, args=(batch,)), axis=None)

class At(keras.callbacks.Callback):
    def __init__(self, number, do):
        super().__init__()
        self.number, self.do = number, do

    def on_train_batch_begin(self, batch, logs=None):
        if batch == self.number:
            self.do()

def train(kind, number, do):
    if kind == "fit":
        fitted.fit(x, y, batch_size=24, epochs=1, verbose=0, callbacks=[At(number, do)])
    else:
        for k in range(10):
            if k == number:
                do()
            step(next(batches))

def fail():
    raise ValueError("a mishap")

def die():
    os.kill(os.getpid(), 9)

train("loop", -1, None)
train("fit", -1, None)
"""


class Trial(NamedTuple):
    """seconds: from the moment at which the kernel could act again, or the interrupt came, to the next all-reduce."""

    seed: int
    workers: int
    kind: str
    mishap: str
    how: str
    seconds: float
    verdict: str


def cell(mishap: str, kind: str, worker: int, number: int) -> str:
    """The code that has a mishap on a worker before a step."""
    one = f"if me == {worker}:\n    {{}}\nelse:\n    {{}}"
    plain = f"train({kind!r}, -1, None)"
    return {
        "error on one": one.format(f"train({kind!r}, {number}, fail)", plain),
        "error on all": f"train({kind!r}, {number}, fail)",
        "interrupt": f"while True: {plain}" if number % 3 else f"if me == {worker}: time.sleep(60)\n{plain}",
        "unlike shapes": f"strategy.reduce('sum', tf.ones(1 + (me == {worker})), axis=None)",
        "step left out": f"if me != {worker}: {plain}",
        "lone variable": f"with strategy.scope():\n    if me == {worker}: lone = tf.Variable(1.0)",
        "kill": one.format(f"train({kind!r}, {number}, die)", plain),
    }[mishap]


def trial(cluster: Any, rng: random.Random, seed: int) -> Trial:
    mishap, kind = rng.choice(MISHAPS), rng.choice(("loop", "fit"))
    code = cell(mishap, kind, rng.randrange(cluster.workers), rng.randrange(10))
    timer = threading.Timer(rng.uniform(0.05, 1.5), lambda: os.kill(os.getpid(), signal.SIGINT))
    began, said = time.monotonic(), ""
    if mishap == "interrupt":
        timer.start()
    try:
        cluster.cell(code)
        began = time.monotonic()
    except dtk.RunInterrupted as error:
        said, began = str(error), began + timer.interval
    except dtk.CellFailed as error:
        began, said = time.monotonic(), str(error)
    how = "went through" if not said else "named"
    said += "; " + cluster.free()
    for worker in map(int, re.findall(r"cluster\.restart\(worker=(\d+)\)", said)):
        said += "; " + cluster.restart(worker)
    usable = cluster.run("total()") == [float(cluster.workers)] * cluster.workers
    seconds = time.monotonic() - began
    for words, name in (
        ("new process", "process"),
        ("aborted", "abort"),
        ("Python", "python"),
        ("stopped before", "gate"),
    ):
        if words in said:
            how = name
            break
    return Trial(seed, cluster.workers, kind, mishap, how, seconds, verdict(cluster, usable))


def verdict(cluster: Any, usable: bool) -> str:
    """What dtk says of the replicas, compared with digests taken here; replicas are equal again afterwards."""
    if not usable:
        return "NOT USABLE"
    said_equal = "replicas are equal" in cluster.free()
    held = [cluster.pull(name) for name in ("model", "fitted", "optimizer", "fitted.optimizer")]
    equal = all(len({digest(values) for values in each}) == 1 for each in held)
    if said_equal != equal:
        return f"SAID {'EQUAL' if said_equal else 'DIFFERENT'}, IS NOT"
    if not equal and "replicas are equal" not in cluster.sync():
        return "NOT SYNCED"
    return "equal" if equal else "said to differ"


def digest(values: dict[str, Any]) -> str:
    joined = b"".join(name.encode() + array.tobytes() for name, array in sorted(values.items()))
    return hashlib.sha256(joined).hexdigest()


def play(seed: int, mishaps: int) -> list[Trial]:
    """One cluster, and what happens to it; the same for the same seed, up to the moments of interrupts."""
    rng = random.Random(seed)
    found: list[Trial] = []
    with dtk.environment.quiet(), dtk.cluster(workers=rng.choice((2, 3, 4))) as cluster:
        cluster.cell(BEGIN)
        for _ in range(mishaps):
            done = trial(cluster, rng, seed)
            found.append(done)
            print(
                f"seed {seed}: {done.workers} workers, {done.kind}, {done.mishap}: {done.how}, {done.seconds:.2f} s, "
                f"{done.verdict}",
                file=sys.stderr,
                flush=True,
            )
    return found


def left() -> list[int]:
    """Workers of closed clusters that still run."""
    time.sleep(0.2)
    below = psutil.Process().children(recursive=True)
    return [each.pid for each in below if os.path.realpath(f"/proc/{each.pid}/fd/1").endswith("/log.txt")]


def table(trials: list[Trial]) -> str:
    rows = defaultdict(list)
    for each in trials:
        rows[each.mishap, each.how].append(each)
    lines = [
        "| mishap | repair | times | seconds until usable, median | worst | said to differ |",
        "|---|---|---|---|---|---|",
    ]
    for (mishap, how), those in sorted(rows.items()):
        seconds = [each.seconds for each in those]
        differ = sum(each.verdict == "said to differ" for each in those)
        middle = statistics.median(seconds)
        lines.append(f"| {mishap} | {how} | {len(those)} | {middle:.2f} | {max(seconds):.2f} | {differ} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="the seed of one cluster")
    asked = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    seeds = range(asked.seed, asked.seed + -(-asked.trials // EACH)) if asked.only is None else [asked.only]
    trials: list[Trial] = []
    wrong: list[str] = []
    for seed in seeds:
        try:
            trials += play(seed, min(EACH, asked.trials))
        except Exception as error:
            wrong.append(f"seed {seed}: {type(error).__name__}: {error}")
        if pids := left():
            wrong.append(f"seed {seed}: processes are left: {pids}")
    wrong += [f"seed {each.seed}: {each}" for each in trials if each.verdict[:1].isupper()]
    print(table(trials))
    if trials:
        seconds = [each.seconds for each in trials]
        middle, worst = statistics.median(seconds), max(seconds)
        print(f"\n{len(trials)} mishaps, {len(wrong)} wrong; usable after {middle:.2f} s, worst {worst:.2f} s")
    for words in wrong:
        print(f"{words} (python benchmarks/cluster_campaign.py --only {words.partition(':')[0].split()[-1]})")
    return 1 if wrong or not trials else 0


if __name__ == "__main__":
    raise SystemExit(main())
