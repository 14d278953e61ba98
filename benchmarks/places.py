"""What it costs that workers are on other machines: steps through agents beside localhost's, and an agent's time.

    python benchmarks/places.py [--rounds 3] [--steps 600] [--on hosts|ray]

Workers, agents and engine are all on this machine, so that only what lies between differs. A round runs the same
function in turn; what is printed are medians over the rounds, of ratios within each.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

import psutil

import dtk


def train(strategy, steps):
    import numpy as np
    import tensorflow as tf

    import dtk

    x = np.random.default_rng(0).normal(size=(64, 32)).astype("float32")
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    data = tf.data.Dataset.from_tensors((x, x.sum(axis=1, keepdims=True))).repeat().with_options(options)
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(64, activation="tanh"), tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(data, steps_per_epoch=steps, verbose=0, callbacks=[dtk.Recorder()])


def step_ms(run):
    """Milliseconds a step: the median over the steps of the chief, from one's end to the next one's."""
    ended = run.records[run.records.worker == 0].sort_values("step").ended
    return 1000 * float(ended.diff().iloc[len(ended) // 4 :].median())


def agents():
    """The agents that this process started by a command, and their processor seconds."""
    found = [each for each in psutil.Process().children() if "agent" in each.cmdline()]
    return {each.pid: sum(each.cpu_times()[:2]) for each in found}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--on", choices=("hosts", "ray"), default="hosts")
    options = parser.parse_args()
    hosts = {"127.0.0.1": "env", "localhost": "env"}
    place = dtk.places.Hosts(hosts, python=sys.executable) if options.on == "hosts" else dtk.places.Ray()
    kwargs = {"steps": options.steps}
    with dtk.environment.quiet():
        for on in (None, place):
            dtk.run(train, on=on, kwargs={"steps": 5})  # imports, and whatever is made once
        ratios, firsts, busy = [], [], []
        for _ in range(options.rounds):
            here = dtk.run(train, kwargs=kwargs)
            before, began = agents(), time.monotonic()
            there = dtk.run(train, on=place, kwargs=kwargs)
            seconds, after = time.monotonic() - began, agents()
            ratios.append(step_ms(there) / step_ms(here))
            firsts.append(there.first_step_seconds / here.first_step_seconds)
            busy += [(after[pid] - before[pid]) / seconds for pid in after if pid in before]
            print(f"{step_ms(here):.2f} ms a step here, {step_ms(there):.2f} through agents", flush=True)
    place.close()
    print(f"a step: {statistics.median(ratios):.3f} of localhost's; to the first: {statistics.median(firsts):.2f}")
    if busy:
        print(f"an agent took {100 * statistics.median(busy):.1f} % of a core")


if __name__ == "__main__":
    main()
