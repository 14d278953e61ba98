"""Measured on one and two workers, predicted for three and four, and then measured: within 20 %?

    python benchmarks/prediction.py [--rounds 3]

What is measured first: a step's seconds on one worker (each worker has one thread, as four will have), and all-reduces
of several sizes on one and two workers, fitted by latency and bandwidth. Three and four workers share the two cores, so
that the prediction stretches what they compute and what they send, which on one machine is the cores' work as well.
Everything comes in shuffled order, round by round; medians count. Exits with 1 where a prediction is off by over 20 %.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
from collections import defaultdict
from dataclasses import replace

import pandas as pd

import dtk
from dtk import environment
from dtk.cli import train
from dtk.launch import launch
from dtk.scaling.job import Cluster, Job, Link
from dtk.scaling.prediction import fit, predict
from dtk.scaling.timing import step_parts, throughput_of

BATCH = 32  # examples a replica
STEPS = 40
ALLOWED = 0.2


def batch_of(workers: int):
    def function(strategy):
        from dtk import cli

        cli.GLOBAL_BATCH = BATCH * workers
        return train(strategy, steps=STEPS, source="embedded")

    return function


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    os.environ.update(dict.fromkeys(launch.THREADS, "1"))
    os.environ["DTK_PIN"] = "0"  # four workers would keep to a core each, three can't; all counts are to be alike
    rates, computes, timings = defaultdict(list), [], []
    gradient = 0.0
    with environment.quiet():
        for number in range(rounds):
            for workers in random.Random(number).sample([1, 2, 3, 4], 4):
                run = dtk.run(batch_of(workers), workers=workers)
                rates[workers].append(throughput_of(run))
                if workers == 1:
                    computes.append(float(step_parts(run).period.median()))
                sizes = [mark[3] for worker in run.folder.each for mark in worker.lines("marks")]
                gradient = max([gradient, *sizes])
            timings.append(dtk.benchmark_allreduce([1, 2], [int(gradient // part) for part in (8, 4, 2, 1)], repeats=5))
    found = fit(pd.concat(timings)[["workers", "bytes", "seconds"]])
    cores = environment.cores()
    print(f"gradients of {gradient / 1e6:.1f} MB, {BATCH} examples a replica, {cores} cores; {found}")
    job = Job(per_example=statistics.median(computes) / BATCH, batch=BATCH, gradient_bytes=gradient)
    wrong = 0
    for workers in (2, 3, 4):
        stretched = max(1.0, workers / cores)
        link = Link("loopback", found.latency * stretched, found.bandwidth / stretched)
        slower = replace(job, per_example=job.per_example * stretched)
        said = float(predict(slower, Cluster(link), [workers]).throughput.iloc[0])
        measured = statistics.median(rates[workers])
        off = said / measured - 1
        wrong += workers > 2 and abs(off) > ALLOWED
        print(f"{workers} workers: predicted {said:,.0f}, measured {measured:,.0f} examples/s ({off:+.0%})")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
