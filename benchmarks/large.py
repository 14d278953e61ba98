"""Large runs: a million records read and drawn, and what the live view costs beside eight busy workers.

    python benchmarks/large.py

Prints seconds, and the share of a core. Exits with 1 where reading takes over 2 s, a figure over 1 s, or the live view
over 2 % of a core, as long as the machine is not busy with other things (the medians of three say). `--live` does the
live view alone.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import dtk
from dtk.records import Journal, Record, RunFolder
from dtk.records.events import Running, Training
from dtk.runs import Run
from dtk.watch.reader import Reader

ROWS, WORKERS = 1_000_000, 4
LIVE_WORKERS, RATE, SECONDS = 8, 100, 20  # records/s of each worker; s that the live view is watched
MOST = 0.02  # of a core
LIMITS = {"read": 2.0, "loss_scaling": 1.0, "throughput": 1.0, "timeline": 1.0, "step_time": 1.0}


def write(place: Path) -> Run:
    """A run of a million steps and replicas, with a spike somewhere, and marks for the last thousand steps."""
    folder = RunFolder(place, WORKERS)
    chance = np.random.default_rng(0)
    steps = ROWS // WORKERS
    for worker in folder.each:
        worker.path.mkdir(parents=True)
        losses = 0.5 + 0.01 * chance.random(steps)
        losses[steps // 3] = 9.0
        with (worker.path / "records.jsonl").open("w") as file:
            for step, loss in enumerate(losses, 1):
                file.write(json.dumps([worker.worker, step, 1, loss, 64, step * 0.01, step * 0.01 + 0.009, 1.0]) + "\n")
        with (worker.path / "marks.jsonl").open("w") as file:
            for step in range(steps - 1000, steps):
                file.write(json.dumps(["reduce", step * 0.01 + 0.005, step * 0.01 + 0.008, 1000]) + "\n")
        (worker.path / "events.jsonl").write_text("")
    return Run(folder, "cluster", 1, 0, [None] * WORKERS, steps * 0.01)


def seconds(call: Callable[[], object], times: int = 3) -> float:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def draw(name: str, run: Run) -> None:
    import matplotlib.pyplot as plt

    ax = getattr(dtk.plot, name)(run)
    with tempfile.TemporaryFile() as file:
        ax.figure.savefig(file)
    plt.close(ax.figure)


def write_live(place: Path) -> None:
    """What eight workers write, at their pace, in a step of Keras's `fit`: a record and five marks."""
    folder = RunFolder(place, LIVE_WORKERS)
    began = time.monotonic()
    journals = [Journal(worker) for worker in folder.each]
    for journal in journals:
        journal.event(Running(time.monotonic() - began))
        journal.event(Training(time.monotonic() - began, steps=RATE * SECONDS, epochs=1))
    for step in range(1, RATE * SECONDS + 1):
        time.sleep(max(0.0, began + step / RATE - time.monotonic()))
        now = time.monotonic() - began
        for worker, journal in enumerate(journals):
            journal.mark("reduce", now - 0.9 / RATE, now - 0.8 / RATE, 8)
            journal.mark("take", float("nan"), now - 0.8 / RATE, 0)
            journal.mark("reduce", now - (0.3 + 0.02 * worker) / RATE, now - 0.1 / RATE, 400_000)
            for _ in range(2):
                journal.mark("reduce", now - 0.1 / RATE, now - 0.05 / RATE, 4)
            journal.record([Record(worker, worker, step, 1, 0.3, 64, now - 1 / RATE, now)])


def sent() -> list[int]:
    """What widgets send from now on is made into signed messages, as in a kernel; returns their sizes, to come."""
    import ipywidgets
    from jupyter_client.session import Session

    session, sizes = Session(key=b"benchmark"), []

    def publish(comm, msg_type, data=None, metadata=None, buffers=None, **keys):
        message = session.msg(msg_type, {"data": data, "comm_id": comm.comm_id, **keys}, metadata=metadata)
        sizes.append(sum(map(len, session.serialize(message))))

    type(ipywidgets.HTML().comm).publish_msg = publish  # which does nothing where there is no kernel
    return sizes


def live_share(place: Path) -> tuple[float, float]:
    """The part of a core that the dashboard takes, ticked ten times a second as `dtk.run` does; kB/s that it sends."""
    sizes = sent()
    from dtk.live.dashboard import Dashboard

    writer = multiprocessing.get_context("spawn").Process(target=write_live, args=(place,))
    writer.start()
    view = Dashboard(Reader(RunFolder(place, LIVE_WORKERS)), 1, "benchmark")
    while not (place / f"worker-{LIVE_WORKERS - 1}" / "records.jsonl").exists():
        time.sleep(0.05)
    sizes.clear()
    began, used = time.monotonic(), time.process_time()
    while time.monotonic() - began < SECONDS - 1:
        view.update(["training"] * LIVE_WORKERS)
        time.sleep(0.1)
    taken = time.monotonic() - began
    share = (time.process_time() - used) / taken
    writer.join()
    assert view.follower.step > RATE, "it followed"
    return share, sum(sizes) / taken / 1e3


def main() -> int:
    import matplotlib

    matplotlib.use("Agg")
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="dtk-large-") as name:
        if sys.argv[1:] != ["--live"]:
            run = write(Path(name) / "run")
            found = {"read": seconds(lambda: run.folder.records)}  # `run.records` keeps what it has read
            found |= {name: seconds(lambda name=name: draw(name, run)) for name in list(LIMITS)[1:]}
        share, sending = live_share(Path(name) / "live")
    for what, taken in found.items():
        print(f"{what:14} {taken:6.2f} s of {ROWS:,} records (at most {LIMITS[what]:g})")
    print(
        f"live view      {share:6.1%} of a core, {LIVE_WORKERS} workers of {RATE} records/s each (at most {MOST:.0%}); "
        f"it sends {sending:.0f} kB/s"
    )
    return int(share > MOST or any(taken > LIMITS[what] for what, taken in found.items()))


if __name__ == "__main__":
    sys.exit(main())
