"""Small training functions drawn at random, and the judge of what `dtk` says of each.

A case is a spec, a dictionary that JSON can hold: what differs from PLAIN is what is special about it. So a failure is
replayed from its line in out/fuzz.jsonl: `replay` gives the command.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import shlex
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from fuzz_training import train

import dtk

PLAIN: dict[str, Any] = {
    "how": "fit",
    "inputs": "vector",
    "layers": ["dense"],
    "loss": "mse",
    "weighted": False,
    "batch": 8,
    "steps": 3,
    "tail": 0,  # examples of a last, shorter batch
    "epochs": 1,
    "shuffled": False,
    "frozen": False,  # the first layer
    "masked": False,  # tokens 0 are padding, and each other token has a label
    "models": "one",  # "two" one after the other, "both" in the same step of a loop
    "optimizer": "SGD",
    "rate": 0.05,
    "clip": None,
    "penalty": False,
    "share": "average",  # in a loop: by tf.nn.compute_average_loss, or by Keras's loss "object"
    "record": "graph",  # in a loop: inside of the tf.function, "outside" of it, or "nowhere"
    "extras": [],
}

VECTOR = ["dense", "relu", "norm", "batch norm", "sync batch norm", "dropout", "noise"]
SERIES = [*VECTOR, "conv", "lstm", "gru", "attention", "positions"]
SERIES += ["spatial dropout", "lstm dropout", "attention dropout"]
LOSSES = ["mse", "mae", "huber", "flat", "bce", "scce", "smooth", "cosine", "own", "sum"]
OPTIMIZERS = ["SGD", "momentum", "Adam", "AdamW", "RMSprop", "Nadam", "Adagrad"]
EXTRAS = ["ema", "schedule", "execution", "metrics", "validation", "eager"]
FIT_ONLY = {"execution", "metrics", "validation", "eager"}

ATOL = 1e-4  # how far weights may be apart that are said to be the same


def specs() -> Any:
    """A Hypothesis strategy of whole specs."""
    from hypothesis import strategies as st

    def layers(inputs: str) -> Any:
        return st.lists(st.sampled_from(VECTOR if inputs == "vector" else SERIES), min_size=1, max_size=3)

    def rest(facts: dict[str, Any]) -> Any:
        return layers(facts["inputs"]).map(lambda chosen: tidy({**facts, "layers": chosen}))

    often_plain = {name: st.sampled_from(values) for name, values in _CHOICES.items()}
    return st.fixed_dictionaries(
        {**often_plain, "extras": st.lists(st.sampled_from(EXTRAS), max_size=2, unique=True)}
    ).flatmap(rest)


_CHOICES: dict[str, list[Any]] = {
    "how": ["fit", "loop"],
    "inputs": ["vector", "series", "tokens", "dict", "tuple"],
    "loss": LOSSES,
    "weighted": [False, False, True],
    "batch": [8, 12, 2],
    "steps": [3, 2, 6],
    "tail": [0, 0, 0, 4, 5, 1],
    "epochs": [1, 1, 2],
    "shuffled": [False, True],
    "frozen": [False, False, False, True],
    "masked": [False, True],
    "models": ["one", "one", "one", "two", "both"],
    "optimizer": OPTIMIZERS,
    "rate": [0.05, 0.01, 0.2],
    "clip": [None] * 15 + ["clipnorm", "global_clipnorm", "clipvalue"],
    "penalty": [False, False, True],
    "share": ["average", "average", "object"],
    "record": ["graph", "graph", "outside", "nowhere"],
}


def tidy(spec: dict[str, Any]) -> dict[str, Any]:
    """Without what the rest of the spec leaves no place for, so that one case has one spec."""
    spec = {**PLAIN, **spec}
    spec["masked"] = spec["masked"] and spec["inputs"] == "tokens" and not spec["weighted"]
    if spec["masked"]:
        spec["loss"] = "scce"
    if spec["how"] == "fit":
        spec |= {"share": "average", "record": "graph"}
        spec["models"] = "two" if spec["models"] == "both" else spec["models"]
    else:
        spec["extras"] = [extra for extra in spec["extras"] if extra not in FIT_ONLY]
    if spec["tail"] >= spec["batch"]:
        spec["tail"] = 1
    # dtk refuses batch norm for a replica without an example, in one sentence.
    if spec["tail"] == 1 and any("batch norm" in layer for layer in spec["layers"]):
        spec["tail"] = 0
    # TensorFlow gives a worker without data batches of the static size 0, which Keras's recurrent cells can't be traced
    # with: a loop fails there, with TensorFlow's words.
    if spec["tail"] == 1 and spec["how"] == "loop" and {"lstm", "gru", "lstm dropout"} & {*spec["layers"]}:
        spec["tail"] = 0
    if spec["loss"] in ("own", "sum"):
        spec["share"] = "average"
    return {**spec, "extras": sorted(spec["extras"])}


def special(spec: dict[str, Any]) -> dict[str, Any]:
    """What of a spec is not as in PLAIN."""
    return {name: value for name, value in spec.items() if value != PLAIN[name]}


def replay(spec: dict[str, Any]) -> str:
    """The command that trains and judges this case again, from the repository's root."""
    return f"PYTHONPATH=tests .venv/bin/python -m fuzzing {shlex.quote(json.dumps(special(spec)))}"


def causes(spec: dict[str, Any]) -> set[str]:
    """Everything that may make the cluster wrong, by the keys of `dtk.diagnose`."""
    found = set()
    # A loop's own division by the whole batch is right however a batch is split.
    means = (spec["how"] == "fit" and spec["loss"] != "sum") or spec["share"] == "object"
    if spec["tail"] % 2 and means:
        found.add("uneven batch")
    # Each replica divides by its own number of tokens; with a mask Keras 3 computes the moments of each replica alone.
    if spec["masked"] and (means or "sync batch norm" in spec["layers"]):
        found |= {"own mean", "whole batch"}
    if "positions" in spec["layers"] and spec["optimizer"] != "SGD":
        found.add("sparse gradient")
    if spec["clip"]:
        found.add("clipping")
    return found


# --- the judge


class Verdict(NamedTuple):
    """verdict: "pass", "true" (a cause that is in the spec), "candidates" (unknown, the cause among `.also`), "open"
    (not decidable), or a defect: "FALSE PASS", "FALSE CAUSE", "NO CAUSE", "FAILED". said: by dtk. named: the key.
    """

    verdict: str
    said: str
    named: str = ""

    @property
    def is_defect(self) -> bool:
        return self.verdict.isupper()


def judge(spec: dict[str, Any]) -> Verdict:
    """Trains a case in a cluster of two and on one device, and judges what dtk says of the pair."""
    spec = {**PLAIN, **spec}
    try:
        run, baseline = dtk.run(train, kwargs={"spec": spec}, workers=2), dtk.baseline(train, kwargs={"spec": spec})
    except dtk.DtkError as error:
        return Verdict("FAILED", f"{type(error).__name__}: {error}")
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            dtk.verify(run, baseline)
    except dtk.VerificationError as error:
        if error.reason in ("not decidable", "not reproducible"):
            return Verdict("open", str(error))
        return _judge_failure(spec, run, baseline, error)
    return _judge_pass(spec, run, baseline)


def _judge_failure(spec: dict[str, Any], run: dtk.Run, baseline: dtk.Run, error: dtk.VerificationError) -> Verdict:
    found, true = dtk.diagnose(run, baseline), causes(spec)
    said = f"{error.reason} at step {error.step}; {found.mistake}, also {list(found.also)}: {found}"
    if found.mistake in true:
        return Verdict("true", said, found.mistake)
    if found.mistake == "unknown" and true & set(found.also):
        return Verdict("candidates", said, found.mistake)
    return Verdict("NO CAUSE" if found.mistake == "unknown" else "FALSE CAUSE", said, found.mistake)


def _judge_pass(spec: dict[str, Any], run: dtk.Run, baseline: dtk.Run) -> Verdict:
    """By the weights that the function returned: the workers' are the same, and one device's where a cause may act."""
    mine, other, single = (
        list(itertools.chain(*each)) for each in (run.results[0], run.results[1], baseline.results[0])
    )
    alike = all(np.array_equal(a, b) for a, b in zip(mine, other, strict=True))
    if not alike and "batch norm" not in spec["layers"]:  # whose statistics are each worker's own
        return Verdict("FALSE PASS", "verify passed, the two workers' weights differ")
    apart = max(float(np.max(np.abs(a - b), initial=0)) for a, b in zip(mine, single, strict=True))
    if causes(spec) and not apart <= ATOL:
        return Verdict("FALSE PASS", f"verify passed, a weight differs by {apart:.3g}")
    found = dtk.diagnose(run, baseline).mistake
    return Verdict("pass", "") if found == "none" else Verdict("FALSE CAUSE", f"verify passed; {found}", found)


def smallest(spec: dict[str, Any], defect: Verdict, runs: int = 16) -> dict[str, Any]:
    """The spec with as much as PLAIN has as still shows this defect; found in at most so many further runs."""
    seen = [spec]
    for _ in range(runs):
        plainer = next((each for each in _plainer(spec) if each not in seen), None)
        if plainer is None:
            break
        seen.append(plainer)
        again = judge(plainer)
        if (again.verdict, again.named) == (defect.verdict, defect.named):
            spec = plainer
    return spec


def _plainer(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name, value in special(spec).items():
        yield tidy({**spec, name: PLAIN[name]})
        if isinstance(value, list) and len(value) > 1:
            yield from (tidy({**spec, name: value[:i] + value[i + 1 :]}) for i in range(len(value)))


if __name__ == "__main__":
    print(*judge(json.loads(sys.argv[1])), sep=": ")
