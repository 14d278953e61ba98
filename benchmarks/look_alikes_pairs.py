"""The rows of `look_alikes.py` in which a run computes something else than its baseline: what does `dtk.diagnose` say?

Each mistake of docs/explanation/diagnosis.md is made in `tests/test_mistakes.py`, and in many programs by
`benchmarks/confusion.py`; here are those that look like each other, in models, batches and steps that are drawn.
"""

from __future__ import annotations

import functools
import json
import random
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from look_alikes_runs import Trial

import dtk
from dtk.runs import opened

DIFFERS = "the run and its baseline differ"
VERSION = "nothing differs but the version: the baseline is one of TensorFlow"
STEPS = 12


@dataclass(frozen=True)
class Facts:
    """What is trained. change: what this run does otherwise, on worker `victim` or at step `at` where that is said."""

    change: str
    victim: int
    at: int
    width: int
    batch: int
    optimizer: str
    epochs: int
    shuffled: bool = False

    @property
    def mine(self) -> bool:
        return dtk.environment.here().worker == self.victim


def learn(strategy, facts: Facts) -> None:
    import keras

    with strategy.scope():
        layers = [keras.layers.Dense(facts.width, "tanh"), keras.layers.Dense(4)]
        model = keras.Sequential([keras.layers.Input((8,)), *layers])
        momentum = 0.9 if facts.optimizer == "Momentum" else 0.0
        adam = facts.optimizer == "Adam"
        optimizer = keras.optimizers.Adam(0.01) if adam else keras.optimizers.SGD(0.02, momentum)
        model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    if facts.change == "other weights at the start":
        model.set_weights([1.1 * weight for weight in model.get_weights()])
    if facts.change == "other weights on one worker" and facts.mine:
        for weight in model.trainable_variables:
            weight.assign(1.1 * weight + 0.01)
    if facts.change == "an optimizer's state from another training":
        with strategy.scope():
            optimizer.build(model.trainable_variables)
        optimizer.iterations.assign(100)
        for slot in optimizer.variables[2:]:  # behind the count and the rate
            slot.assign(0 * slot + 0.02)
    model.fit(data(facts), epochs=facts.epochs, verbose=0, callbacks=[dtk.Recorder()])


def data(facts: Facts):
    import numpy as np
    import tensorflow as tf

    count = facts.batch * STEPS
    other = facts.change == "other data" or (facts.change == "other data on one worker" and facts.mine)
    draw = np.random.default_rng(int(other))
    x, y = draw.normal(size=(count, 8)).astype("f"), np.random.default_rng(2).integers(0, 4, count)
    every = facts.change == "NaN in every worker's examples"
    if every or (facts.change == "NaN in one worker's examples" and facts.mine):
        x[(facts.at - 1) * facts.batch : facts.at * facts.batch] = np.nan
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    dataset = tf.data.Dataset.from_tensor_slices((x, y))
    if facts.shuffled:
        dataset = dataset.shuffle(
            count, seed=6 if facts.change == "another seed of the shuffle on one worker" and facts.mine else 5
        )
    return dataset.batch(facts.batch).with_options(options)


@dataclass(frozen=True)
class Pair:
    """what: what differs. right: the mistakes that it is; one of them is to be named, or be among the suspects.

    words: what the sentence has to hold as well. start: further arguments of `dtk.run`. both: the baseline does it too.
    python: another interpreter, which makes the baseline.
    """

    what: str
    right: tuple[str, ...]
    words: Callable[[Facts], str] = lambda facts: ""
    start: Callable[[Facts], Mapping[str, Any]] = lambda facts: {}
    both: bool = False
    optimizers: tuple[str, ...] = ("SGD", "Momentum", "Adam")
    python: str = ""
    group: str = field(default=DIFFERS, init=False)
    needs: None = field(default=None, init=False)

    @property
    def healthy(self) -> bool:
        return self.right == ("none",)

    def trial(self, seed: int) -> Trial:
        draw = random.Random(f"{self.what} {seed}")
        facts = Facts(
            self.what,
            victim=draw.randrange(2),
            at=draw.randrange(2, STEPS),
            width=draw.choice((8, 16, 32)),
            batch=draw.choice((16, 32, 64)),
            optimizer=draw.choice(self.optimizers),
            epochs=draw.choice((1, 2)),
            shuffled="shuffle" in self.what or self.healthy,
        )
        run = dtk.run(learn, args=(facts,), **self.start(facts))
        right = facts if self.both else replace(facts, change="")
        baseline = by_another(self.python, right) if self.python else dtk.baseline(learn, args=(right,))
        found = dtk.diagnose(run, baseline)
        said = f"{found.mistake}: {found}"
        return Trial(self._kind(found, self.words(facts)), said, asdict(facts))

    def _kind(self, found: dtk.proof.diagnose.Diagnosis, words: str) -> str:
        named = {found.mistake} if found.mistake != "unknown" else {*found.also}
        if named & {*self.right} and words in str(found):
            return "right"
        if self.python and "made with other versions" in str(found):
            return "right"
        if self.healthy:
            return "false alarm"
        vague = found.mistake in ("unknown", "none") or named & {*self.right}
        return "missed" if vague else "wrong name"


def on_one(facts: Facts) -> str:
    return f"on replica {facts.victim} alone"


PAIRS = (
    Pair("nothing differs", ("none",)),
    Pair("NaN in one replica's memory", ("not finite",), on_one, lambda facts: {"faults": nan(facts, facts.victim)}),
    Pair(
        "NaN in every replica's memory",
        ("not finite",),
        lambda facts: "on each",
        lambda facts: {"faults": nan(facts, 0, 1)},
    ),
    Pair("NaN in one worker's examples", ("not finite",), on_one),
    Pair("NaN in every worker's examples", ("not finite",), lambda facts: "in both", both=True),
    Pair("other data", ("other data",)),
    Pair("other data on one worker", ("other data",)),
    Pair("another seed", ("start",), start=lambda facts: {"seed": facts.at}),
    Pair("another seed of the shuffle on one worker", ("worker order",)),
    Pair("other weights at the start", ("start",)),
    Pair("other weights on one worker", ("start",)),
    Pair("an optimizer's state from another training", ("start",), optimizers=("Momentum", "Adam")),
)


def other_version(python: str) -> Pair:
    """Right is silence, or to name the versions: a seed need not give the same order in both."""
    code = "from importlib.metadata import version; print(version('tensorflow'))"
    found = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    return Pair(f"{VERSION} {found}", ("none",), python=python)


@functools.cache
def _server(python: str) -> subprocess.Popen[str]:
    """Makes baselines as long as this process lasts, so that one import of TensorFlow does for all of them."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    return subprocess.Popen([python, __file__], **pipes)


def by_another(python: str, facts: Facts) -> dtk.Run:
    server = _server(python)
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps(asdict(facts)) + "\n")
    for line in server.stdout:
        if line.startswith("baseline "):
            return opened(line.removeprefix("baseline ").strip())
    raise RuntimeError(f"{python} made no baseline")


def serve() -> None:
    for line in sys.stdin:
        print("baseline", dtk.baseline(learn, args=(Facts(**json.loads(line)),)).dir, flush=True)


def nan(facts: Facts, *workers: int) -> list[dtk.faults.Fault]:
    return [dtk.faults.nan(worker, facts.at) for worker in workers]


if __name__ == "__main__":
    serve()
