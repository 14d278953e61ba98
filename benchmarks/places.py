"""What it costs that workers are on other machines: a step beside localhost's and beside workers started by hand.

    python benchmarks/places.py [--rounds 5] [--steps 400] [--on hosts|slurm|ray]

Workers, agents and engine are all on this machine, so that only what lies between differs. A round runs the same
function in each way in turn; what is printed are medians over the rounds, of ratios within each. A way that is called
recorded has a `dtk.Recorder`, and its records come back while it runs; the others have no marks (DTK_MARKS=0), as
`dtk run` has none without --record.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

import dtk

from programs import two_by_hand  # isort: skip  (before tests/cluster, which has a module of that name)

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "cluster"))

import ray_here
import slurm_here


def train(strategy, steps, recorded):
    """Seconds of a step: the median from one's end to the next one's."""
    import time

    import numpy as np
    import tensorflow as tf

    import dtk

    draw = np.random.default_rng(0)
    images, labels = draw.random((64, 28, 28, 1), "f"), draw.integers(0, 10, 64)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    data = tf.data.Dataset.from_tensors((images, labels)).repeat().with_options(options)
    layers = tf.keras.layers
    with strategy.scope():
        model = tf.keras.Sequential([layers.Conv2D(16, 3, activation="relu"), layers.Flatten(), layers.Dense(10)])
        model.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    ends = []
    seen = tf.keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: ends.append(time.perf_counter()))
    model.fit(data, steps_per_epoch=steps, verbose=0, callbacks=[seen, *([dtk.Recorder()] if recorded else [])])
    return float(np.median(np.diff(ends[len(ends) // 4 :])))


def by_hand(steps):
    """The same two processes, started as `programs.py` starts them: milliseconds of a step."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "step.json")
        two_by_hand([sys.executable, __file__, "--steps", str(steps), "--worker", str(out)], stderr=subprocess.DEVNULL)
        return 1000 * json.loads(out.read_text())


def worker(steps, out):
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    dtk.correct_keras()
    found = train(strategy, steps, recorded=False)
    if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0:
        out.write_text(json.dumps(found))


def processor_seconds(of):
    """By process id: this one's, and the agents' that it started by a command."""
    found = [each for each in of.children() if "agent" in each.cmdline()]
    return {each.pid: sum(each.cpu_times()[:2]) for each in (of, *found)}


@contextlib.contextmanager
def place(name):
    """Two machines of that kind: agents and engines with an address of this machine's own, so that no bridge counts."""
    if name == "hosts":
        found = dtk.places.Hosts({"127.0.0.1": "env", "localhost": "env"}, python=sys.executable)
    else:
        found = dtk.places.Slurm() if name == "slurm" else dtk.places.Ray()
    with contextlib.ExitStack() as given_back:
        if name != "hosts":
            folder = Path(given_back.enter_context(tempfile.TemporaryDirectory()))
            engine = slurm_here.Slurm(folder) if name == "slurm" else ray_here.Ray(folder, 2)
            given_back.enter_context(engine)
        given_back.callback(found.close)
        yield found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--on", choices=("hosts", "slurm", "ray"), default="hosts")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.steps, options.worker)
        return
    me = psutil.Process()
    ways = {"by hand": [], "localhost": [], "there": [], "localhost, recorded": [], "there, recorded": []}
    firsts, busy, kernel, sizes = [], [], [], []
    with place(options.on) as there, dtk.environment.quiet():
        for on in (None, there):
            dtk.run(train, on=on, args=(5, False))  # imports, and whatever is made once
        for _ in range(options.rounds):
            ways["by hand"].append(by_hand(options.steps))
            for recorded, more in ((False, ""), (True, ", recorded")):
                os.environ["DTK_MARKS"] = str(int(recorded))
                first = {}
                for name, on in (("localhost", None), ("there", there)):
                    before, began = processor_seconds(me), time.monotonic()
                    run = dtk.run(train, on=on, args=(options.steps, recorded))
                    seconds, after = time.monotonic() - began, processor_seconds(me)
                    ways[name + more].append(1000 * run.results[0])
                    first[name] = run.first_step_seconds
                    spent = {pid: (after[pid] - before[pid]) / seconds for pid in after if pid in before}
                    if recorded:
                        kernel.append((name, spent.pop(me.pid)))
                        sizes.append(sum(path.stat().st_size for path in run.dir.rglob("*.jsonl")) / seconds)
                        busy += spent.values() if name == "there" else ()
                if recorded:
                    firsts.append(first["there"] / first["localhost"])
            print(", ".join(f"{name} {found[-1]:.2f} ms" for name, found in ways.items()), flush=True)
    for a, b in (("there", "by hand"), ("there", "localhost"), ("there, recorded", "localhost, recorded")):
        ratio = statistics.median(x / y for x, y in zip(ways[a], ways[b], strict=True))
        print(f"a step, {a} / {b}: {ratio:.3f}")
    print(f"to the first step, there / localhost: {statistics.median(firsts):.2f}")
    for name in ("localhost", "there"):
        share = statistics.median(each for which, each in kernel if which == name)
        print(f"this process, {name}, recorded: {100 * share:.1f} % of a core")
    print(f"records: {statistics.median(sizes) / 1000:.0f} kB/s")
    if busy:
        print(f"an agent, recorded: {100 * statistics.median(busy):.1f} % of a core")


if __name__ == "__main__":
    main()
