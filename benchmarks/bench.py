"""Figures measured side by side in one run; a table, and JSON in out/bench.json.

The machine may be shared and noisy: what is alternated is compared, medians of several rounds are quoted, and
what counts is ratios.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import tqdm
import workload

import dtk
from dtk.launch.place import free_ports, tf_configs

HERE = Path(__file__).parent


def cold() -> float:
    """(a) Seconds from starting two `python main.py` to the end of the first step on both."""
    began = time.monotonic()
    workers = []
    for config in tf_configs(free_ports(2)):
        env = {**os.environ, "TF_CONFIG": json.dumps(config)}
        command = [sys.executable, str(HERE / "main.py")]
        workers.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
    said = [worker.communicate()[0].split() for worker in workers]
    return max(float(words[-1]) for words in said) - began


def warm() -> float:
    """(b) Seconds from the call of dtk.run to the end of the first step on both workers."""
    began = time.monotonic()
    run = dtk.run(workload.train, workers=2, kwargs={"record": False})
    return max(ends[0] for ends in run.results) - began


ALONE = """
import sys, time
sys.path.insert(0, {here!r})
import keras, numpy, tensorflow as tf, tensorflow_datasets, workload
began = time.monotonic()
print(workload.train(tf.distribute.get_strategy(), record=False)[0] - began)
"""


def alone() -> float:
    """(c) Seconds to the end of the first step in one process that has everything imported."""
    command = [sys.executable, "-c", ALONE.format(here=str(HERE))]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return float(output.split()[-1])


def throughput(fn: Callable[..., list[float]], record: bool, steps: int = 300) -> float:
    """Examples/s of a two-worker run, over the median time between the ends of steps, the first 20 left out.

    Without recording the optimizer's updates are not counted either: what is compared is all that dtk adds to a step.
    """
    os.environ["DTK_UPDATES"] = "1" if record else "0"
    run = dtk.run(fn, workers=2, kwargs={"steps": steps, "record": record})
    ends = run.results[0][20:]
    return 128 / statistics.median(after - before for before, after in itertools.pairwise(ends))


def pss(workers: int, start: str) -> float:
    """MB of all processes of a run: the workers and the one that started them."""
    return dtk.run(workload.memory, workers=workers, start=start).results[0] / 1e6


def import_seconds() -> float:
    """Seconds that `import dtk` adds to an interpreter's start."""

    def once(code: str) -> float:
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.monotonic() - began

    return statistics.median(once("import dtk") - once("pass") for _ in range(7))


def measure(rounds: int) -> dict[str, float]:
    """All figures, alternating what is compared within each round."""
    dtk.run(workload.train, workers=2)  # the warm parent imports, the disk's cache fills
    measures: dict[str, Callable[[], float]] = {
        "cold": cold,
        "warm": warm,
        "alone": alone,
        "fit recorded": lambda: throughput(workload.train, True),
        "fit": lambda: throughput(workload.train, False),
        "loop recorded": lambda: throughput(workload.loop, True),
        "loop": lambda: throughput(workload.loop, False),
    }
    series: dict[str, list[float]] = {name: [] for name in measures}
    for _ in tqdm.trange(rounds, desc="rounds", disable=None):
        for name, measure_once in measures.items():
            series[name].append(measure_once())
    median = {name: statistics.median(values) for name, values in series.items()}

    def ratio(a: str, b: str) -> float:
        return statistics.median(x / y for x, y in zip(series[a], series[b], strict=True))

    one, three, fresh, fresh_two = pss(1, "warm"), pss(3, "warm"), pss(1, "cold"), pss(2, "cold")
    further, fresh_further = (three - one) / 2, fresh_two - fresh
    return {
        "first step, two cold python main.py (a), s": median["cold"],
        "first step, dtk.run warm (b), s": median["warm"],
        "first step, one process, all imported (c), s": median["alone"],
        "(a) / (b)": ratio("cold", "warm"),
        "(b) / (c)": ratio("warm", "alone"),
        "fit with dtk.Recorder, examples/s": median["fit recorded"],
        "fit without, examples/s": median["fit"],
        "fit with / without": ratio("fit recorded", "fit"),
        "loop with dtk.record_step, examples/s": median["loop recorded"],
        "loop without, examples/s": median["loop"],
        "loop with / without": ratio("loop recorded", "loop"),
        "PSS of a further warm worker, MB": further,
        "PSS of a further cold worker, MB": fresh_further,
        "warm / cold PSS": further / fresh_further,
        "import dtk, s": import_seconds(),
    }


TARGETS = {
    "(a) / (b)": "at least 7",
    "(b) / (c)": "at most 1.5",
    "fit with / without": "at least 0.97",
    "loop with / without": "at least 0.97",
    "warm / cold PSS": "at most 0.4",
    "import dtk, s": "at most 0.3",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("out/bench.json"))
    options = parser.parse_args()
    os.environ["DTK_LIVE"] = "off"
    figures = measure(options.rounds)
    for name, value in figures.items():
        print(f"{name:48} {value:10.3f}   {TARGETS.get(name, '')}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    facts = {"figures": figures, "rounds": options.rounds, "cores": dtk.environment.cores()}
    options.out.write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
