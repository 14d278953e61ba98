"""What the proof of each step costs: recording states against not recording them, and followers against plain runs.

    python benchmarks/proof_costs.py [--repeats 3] [--out out/proof_costs.json]

Trains the lessons' CNN, a model of ten million parameters and a GAN, each with two workers, with and without states,
on one device and with a follower, and as two replicas in one process and with a follower, in turn. A time is that from
the first step's end to the last one's, or, as "whole", the seconds that one waits, start and end included; a ratio is
the median over the repeats of two times that were taken beside each other. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import proof_programs

import dtk


def large(strategy: Any, steps: int = 60) -> None:
    """A network of 10.5 million parameters, Adam."""
    import keras
    import numpy as np
    import tensorflow as tf

    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(64 * steps, 256)).astype("float32"), draw.integers(0, 10, 64 * steps)
    with strategy.scope():
        hidden = [keras.layers.Dense(2048, activation="relu") for _ in range(3)]
        model = keras.Sequential([keras.layers.Input((256,)), *hidden, keras.layers.Dense(10)])
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(64)
    model.fit(data, callbacks=[dtk.Recorder()], verbose=0)


def programs() -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    right = proof_programs.right()
    named = {"CNN of the lessons": "mnist 28x28 adam", "GAN": "gan loop"}
    found = {name: (right[key].train, {**right[key].kwargs, "steps": 300}) for name, key in named.items()}
    return {**found, "10 million parameters": (large, {"steps": 300})}


def seconds(run: Any) -> float:
    """From the end of the first step to that of the last."""
    ends = run.records.groupby("step").ended.max()
    return float(ends.iloc[-1] - ends.iloc[0])


def trained(states: bool, **start: Any) -> Any:
    os.environ["DTK_STATES"] = "1" if states else "0"
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return dtk.run(**start)


def waited(make: Callable[[], Any]) -> tuple[Any, float]:
    """What it returns, and the seconds until then."""
    began = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return make(), time.perf_counter() - began


def measured(fn: Callable[..., Any], kwargs: dict[str, Any]) -> dict[str, float]:
    """One round."""
    given = {"fn": fn, "kwargs": kwargs}
    plain, recorded = trained(False, workers=2, **given), trained(True, workers=2, **given)
    alone, alone_s = waited(lambda: dtk.baseline(fn, kwargs=kwargs))
    together, together_s = waited(lambda: trained(False, workers=1, replicas=2, **given))
    (follower, lines), follower_s = waited(lambda: recorded.followed(recorded, 1))
    (several, _), several_s = waited(lambda: recorded.followed(recorded, 2))
    return {
        "recording": seconds(recorded) / seconds(plain),
        "one device": seconds(follower) / seconds(alone),
        "one device, whole": follower_s / alone_s,
        "replicas": seconds(several) / seconds(together),
        "replicas, whole": several_s / together_s,
        "megabytes": (recorded.folder.worker(0).path / "states.bin").stat().st_size / 1e6,
        "steps followed": sum(line.get("kind") == "update" for line in lines),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("out/proof_costs.json"))
    options = parser.parse_args()
    found = {}
    for name, (fn, kwargs) in programs().items():
        rounds = [measured(fn, kwargs) for _ in range(options.repeats)]
        found[name] = {key: [each[key] for each in rounds] for key in rounds[0]}
        shown = ", ".join(
            f"{key} {median(values):.3g} ({min(values):.3g} to {max(values):.3g})"
            for key, values in found[name].items()
        )
        print(f"{name}: {shown}", flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
