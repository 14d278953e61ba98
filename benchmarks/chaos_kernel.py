"""A kernel of `benchmarks/chaos.py`: does one run for each line that it is given, and says what came of it.

Lines of JSON come by stdin and go by stdout; what runs print goes to stderr. An interrupt ends the run that it finds,
as in a notebook; one that comes too late ends nothing.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import culprits
import psutil
from endurance import footprint

import dtk

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

STEPS = 10


def train(order: dict[str, Any]) -> list[int]:
    """Trains for STEPS steps; the worker that is meant comes to harm before one of them."""
    here = dtk.environment.here()
    first = here.run.attempt == 1

    def harm(step: int) -> None:
        if here.worker == order["victim"] and step == order["step"] and (first or order["again"]):
            come_to(order["what"])
        time.sleep(0.02)

    if order["train"] == "keras":
        fit(harm)
    else:
        import faking

        faking.in_step(STEPS, then=harm)
    return [here.worker, STEPS]


def come_to(what: str) -> None:
    if what == "sleeps":
        time.sleep(600)
    elif what in (*culprits.WORDS, "SIGSTOP"):
        culprits.die(what)


def fit(harm: Any) -> None:
    import keras
    import numpy as np
    import tensorflow as tf

    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    ones = np.ones((24 * STEPS, 4), "float32"), np.ones((24 * STEPS, 1), "float32")
    data = tf.data.Dataset.from_tensor_slices(ones).batch(24).with_options(options)
    after = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: harm(batch + 1))
    model.fit(data, verbose=0, callbacks=[dtk.Recorder(), after])


def written() -> float:
    """MB that this kernel and what is below it have written to and share with nobody.

    Not all that they alone have in memory: TensorFlow's files count there as soon as no other program has them.
    """
    me = psutil.Process()
    maps = [each for process in [me, *me.children(recursive=True)] for each in process.memory_maps()]
    return sum(each.private_dirty for each in maps) / 1e6


def listening() -> int:
    """Ports on which a process of this kernel listens."""
    count = 0
    for process in psutil.Process().children(recursive=True):
        try:
            count += sum(each.status == psutil.CONN_LISTEN for each in process.net_connections("inet"))
        except psutil.Error:
            pass  # gone in this moment
    return count


def one(order: dict[str, Any], start: str) -> dict[str, Any]:
    """What came of a run."""
    try:
        run = dtk.run(
            train,
            args=(order,),
            workers=order["workers"],
            restarts=order["restarts"],
            start=start,
            stall_timeout=6.0,
            timeout=150.0,
        )
        return {"outcome": "Run", "results": run.results, "failed": [each.failed for each in run.attempts]}
    except (dtk.DtkError, dtk.RunInterrupted) as error:
        told = {name: getattr(error, name, None) for name in ("worker", "exitcode", "reason")}
        waits = {whom for each in getattr(error, "waits", {}).values() for whom in each}
        return {"outcome": type(error).__name__, "said": str(error), "waits": sorted(waits), **told}


def main() -> None:
    start = sys.argv[1]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    running = False

    def interrupt(number: int, frame: Any) -> None:
        if running:
            raise KeyboardInterrupt

    def answer(**told: Any) -> None:
        print(json.dumps(told), file=answers, flush=True)

    def another() -> None:
        """One more run, of which nothing but its end is wanted, and what this kernel has after it."""
        said = ""
        try:
            dtk.run(os.getpid, start=start)
        except dtk.DtkError as error:
            said = str(error)
        answer(**{**footprint()._asdict(), "memory": written()}, said=said, ports=listening())

    signal.signal(signal.SIGINT, interrupt)
    another()
    for line in sys.stdin:
        order: dict[str, Any] = json.loads(line)
        if order["what"] == "another":
            another()
            continue
        told: dict[str, Any] = {}
        try:
            running = True
            told = one(order, start)
            running = False
        except KeyboardInterrupt:
            running = False
            told = told or {"outcome": "KeyboardInterrupt"}
        answer(**told, ended=time.monotonic())
