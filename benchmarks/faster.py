"""What makes workers faster, on the lesson's CNN: each switch against dtk's defaults, side by side.

    python benchmarks/faster.py --rounds 3

One table of ratios: of examples/s, and of examples in a second of processor time. In each round every configuration
runs once, in shuffled order; a ratio is that of one round, and the median of the rounds is quoted with the lowest and
the highest. "TensorFlow's defaults" are the same
training started as the official tutorial does it: `python main.py` for each worker, with TF_CONFIG and nothing else.

Where other programs use the machine's cores, more threads get a larger share of them, and the comparison is none. So
the share of the cores that others take is looked at before and after each run, and the table says how many of the runs
were undisturbed; `--patience` waits for quiet ones.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import tqdm
import workload

import dtk
from dtk.launch import request
from dtk.launch.place import free_ports, tf_configs
from dtk.runs import carry_out
from dtk.studies.study import measured_job

HERE = Path(__file__).parent
BATCH = 128
BUSY = 0.2  # of all cores: an idle machine's share, with what a kernel and an editor do
LEFT_OUT = 8  # ends of steps: tracing, and what the first steps allocate

PROCESS = {"pinned": "DTK_PIN", "message_bytes": "DTK_MESSAGE_BYTES"}
SWITCHES: dict[str, dict[str, Any]] = {
    "TensorFlow's threads": {"threads": 0},
    "2 threads each": {"threads": 2},
    "not pinned": {"pinned": False},
    "TensorFlow's messages": {"message_bytes": 0},
    "packs of 1 MB": {"bytes_per_pack": 1 << 20},
    "packs of 4 MB": {"bytes_per_pack": 1 << 22},
    "RING": {"implementation": "RING"},
    "5 steps per execution": {"steps_per_execution": 5},
    "global batch 512": {"global_batch": 512},
    "mixed_bfloat16": {"policy": "mixed_bfloat16"},
}

# Compared with four workers too.
OF_FOUR = ("TensorFlow's threads", "not pinned", "TensorFlow's messages", "packs of 1 MB")


class Figures(NamedTuple):
    """Examples/s, and examples in a second of the workers' processor time."""

    rate: float
    per_cpu: float


def figures(workers: list[list[tuple[float, float]]], batch: int, each: int = 1) -> Figures:
    """From `workload.times` at the ends of steps, by worker; each: steps between two of them.

    The rate is by the step that a tenth of the steps are faster than: the median is of steps that other programs
    disturbed, where there are others. They don't disturb the processor time, which is all that counts where workers
    outnumber the cores.
    """
    kept = [ends[max(1, LEFT_OUT // each) :] for ends in workers]
    periods = sorted(after[0] - before[0] for before, after in itertools.pairwise(kept[0]))
    busy = sum((ends[-1][1] - ends[0][1]) / (len(ends) - 1) for ends in kept)
    return Figures(batch * each / periods[len(periods) // 10], batch * each / busy)


def by_tensorflow(workers: int, steps: int) -> Figures:
    """The figures of `python main.py`, started by hand."""
    started = []
    for config in tf_configs(free_ports(workers)):
        env = {**os.environ, "TF_CONFIG": json.dumps(config)}
        command = [sys.executable, str(HERE / "main.py"), str(steps)]
        started.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
    said = [worker.communicate(timeout=600)[0] for worker in started]
    if any(worker.returncode for worker in started):
        raise RuntimeError(f"main.py ended with {[worker.returncode for worker in started]}")
    return figures([json.loads(text.splitlines()[-1]) for text in said], BATCH)


def by_dtk(workers: int, steps: int, settings: dict[str, Any]) -> Figures:
    """The figures under dtk's defaults, but for what the switch changes."""
    own = {"steps": steps, "record": False, "clock": workload.times, "global_batch": BATCH, **settings}
    batch, threads = own["global_batch"], own.pop("threads", max(1, dtk.environment.cores() // workers))
    train = workload.train_with if {"bytes_per_pack", "implementation"} & own.keys() else workload.train
    process = {variable: str(int(own.pop(name))) for name, variable in PROCESS.items() if name in own}
    job = measured_job(request.pack(train, (), own), workers, threads)
    job = replace(job, env={**job.env, **process})
    request.check_memory(workers, job.fork)
    return figures(carry_out(job, time.monotonic()).results, batch, own.get("steps_per_execution", 1))


def others() -> float:
    """The share of the cores that is in use while nothing of ours is."""
    return psutil.cpu_percent(0.4) / 100


def in_quiet(run: Callable[[], Figures], until: float) -> tuple[Figures, bool]:
    """The run's figure and whether it was undisturbed; tried again until `time.monotonic()` is `until`."""
    while True:
        while (before := others()) > BUSY and time.monotonic() < until:
            time.sleep(0.2)
        figure = run()
        quiet = max(before, others()) <= BUSY
        if quiet or time.monotonic() > until:
            return figure, quiet


def measure(
    chosen: dict[str, Any], rounds: int, steps: int, most: int, patience: float
) -> tuple[dict[str, list[Figures]], int]:
    """The figures by configuration, in the order of the rounds, and how many of all runs were undisturbed.

    patience: seconds a run may wait for quiet, and be made again.
    """
    todo: dict[str, Callable[[], Figures]] = {}
    for workers in (2, 4)[: 1 + (most >= 4)]:
        todo[f"{workers}: TensorFlow's defaults"] = partial(by_tensorflow, workers, steps)
        todo[f"{workers}: dtk's defaults"] = partial(by_dtk, workers, steps, {})
    for name, settings in chosen.items():
        todo[f"2: {name}"] = partial(by_dtk, 2, steps, settings)
    for name in OF_FOUR if most >= 4 else ():
        if name in chosen:
            todo[f"4: {name}"] = partial(by_dtk, 4, steps, chosen[name])
    dtk.run(workload.train, workers=2)  # the warm parent imports, the disk's cache fills
    series: dict[str, list[Figures]] = {name: [] for name in todo}
    undisturbed = 0
    for number in tqdm.trange(rounds, desc="rounds", disable=None):
        order = list(todo)
        random.Random(number).shuffle(order)
        for name in order:
            began = time.monotonic()
            figure, quiet = in_quiet(todo[name], began + patience)
            series[name].append(figure)
            undisturbed += quiet
            note = "" if quiet else "  disturbed"
            print(
                f"  round {number + 1}  {name:32} {figure.rate:8.0f} {figure.per_cpu:8.0f}{note}",
                file=sys.stderr,
                flush=True,
            )
    return series, undisturbed


def table(series: dict[str, list[Figures]]) -> list[tuple[Any, ...]]:
    """Rows: configuration, what it is compared with, then of the rate and of per_cpu: median ratio, lowest, highest."""
    rows = []
    for name, values in series.items():
        against = "TensorFlow's defaults" if name.endswith("dtk's defaults") else "dtk's defaults"
        if name.endswith("TensorFlow's defaults"):
            continue
        base = series[f"{name[0]}: {against}"]
        found: list[float] = []
        for k in range(2):
            ratios = [value[k] / other[k] for value, other in zip(values, base, strict=True)]
            found += [statistics.median(ratios), min(ratios), max(ratios)]
        rows.append((name, against, *found))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--workers", type=int, default=4, choices=(2, 4), help="the most workers")
    parser.add_argument("--patience", type=float, default=0.0, help="seconds that a run may wait for a quiet machine")
    parser.add_argument("--only", nargs="*", default=[], help="names of switches; by default all")
    parser.add_argument("--out", type=Path, default=Path("out/faster.json"))
    options = parser.parse_args()
    os.environ["DTK_LIVE"] = "off"
    chosen = {name: SWITCHES[name] for name in options.only or SWITCHES}
    series, undisturbed = measure(chosen, options.rounds, options.steps, options.workers, options.patience)
    rows = table(series)
    three = f"{'median':>7} {'lowest':>7} {'highest':>7}"
    print(f"{'workers: configuration':32} {'against':22} {'examples/s':>23}   {'examples a CPU second':>23}")
    print(f"{'':55} {three}   {three}")
    for name, against, *ratios in rows:
        shown = [f"{ratio:7.2f}" for ratio in ratios]
        print(f"{name:32} {against:22} {' '.join(shown[:3])}   {' '.join(shown[3:])}")
    total = sum(map(len, series.values()))
    print(f"{undisturbed} of {total} runs undisturbed: others took at most {BUSY:.0%} of the cores before and after")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    facts = {"examples_per_second": series, "rows": rows, "cores": dtk.environment.cores()}
    options.out.write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
