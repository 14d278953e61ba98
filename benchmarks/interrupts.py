"""Is the cell back soon after an interrupt, whatever the run is doing? 40 interrupts, in each of its phases.

    python benchmarks/interrupts.py [INTERRUPTS]

A run of two workers is sent SIGINT, as by the stop button, at a moment drawn at random from one of its phases, each in
turn: worker 0 has not begun, has begun, runs the function, trains, has finished while worker 1 goes on; and after the
run. Every fourth run starts its workers cold; those of the first phase have to start the warm parent. Afterwards: no
process of the run is left, and a next run works.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil

import dtk
from dtk.launch import warm

LIMIT = 3.0  # s
WITHIN = {"parent starts": 3.0, "starting": 0.1}  # s after a phase's begin up to which the interrupt comes
WHOLE = 0.3  # s, in the other phases
ORDER = ("parent starts", "starting", "running", "training", "finished", "after the run")


def train(strategy):
    import keras
    import numpy as np

    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    x, y = np.ones((64, 4), "float32"), np.ones((64, 1), "float32")
    model.fit(x, y, batch_size=32, epochs=20, verbose=0, callbacks=[dtk.Recorder()])
    time.sleep(0.0 if dtk.is_chief() else 0.5)


def phase(runs: Path, known: set[str]) -> str:
    """What worker 0 of the present run said last."""
    new = [path for path in runs.iterdir() if path.name not in known] if runs.exists() else []
    said = dtk.records.RunFolder(max(new), 2).worker(0).events if new else []
    states = [event.state for event in said if event.state in ORDER]
    return states[-1] if states else "parent starts"


def interrupt(number: int, chance: random.Random) -> tuple[str, str, float, int]:
    """(kind, phase, seconds until the cell was back, processes left)."""
    wanted = ORDER[number % len(ORDER)]
    kind = "new parent" if wanted == "parent starts" else "cold" if number % 4 == 1 else "warm"
    if kind == "new parent":
        for process in list(warm._parents.values()):
            process.close()
    runs = dtk.environment.scratch() / "runs"
    known = {path.name for path in runs.iterdir()} if runs.exists() else set()
    sent: dict[str, Any] = {}
    over = threading.Event()

    def send() -> None:
        while wanted == "after the run" or phase(runs, known) != wanted:
            if over.wait(0.005):
                break
        time.sleep(chance.uniform(0.0, WITHIN.get(wanted, WHOLE)))
        sent["phase"], sent["at"] = phase(runs, known), time.monotonic()
        os.kill(os.getpid(), signal.SIGINT)

    timer, back = threading.Thread(target=send), 0.0
    try:
        timer.start()
        dtk.run(train, start="cold" if kind == "cold" else "warm")
        back = time.monotonic()
        over.set()
        timer.join()
        time.sleep(0.1)  # the interrupt comes after the run
    except KeyboardInterrupt:
        back = back if over.is_set() else time.monotonic()
    timer.join()
    if "at" in sent and back < sent["at"]:
        return kind, "after the run", 0.0, _left()
    return kind, sent["phase"], back - sent["at"], _left()


def _left() -> int:
    """Workers, and what they started, that are there 3 s later: what writes into a worker's log."""
    deadline = time.monotonic() + LIMIT
    while True:
        below = psutil.Process().children(recursive=True)
        left = [each for each in below if os.path.realpath(f"/proc/{each.pid}/fd/1").endswith("/log.txt")]
        if not left or time.monotonic() > deadline:
            return len(left)
        time.sleep(0.05)


def main() -> None:
    os.environ["DTK_LIVE"] = "off"
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    chance = random.Random(4)
    dtk.run(os.getpid)
    results, worked = [], 0
    for number in range(count):
        results.append(interrupt(number, chance))
        worked += len(dtk.run(os.getpid).results) == 2
        kind, at, seconds, left = results[-1]
        print(f"{number} {kind}, in {at}: back after {seconds:.2f} s, {left} processes left", flush=True)
    late, left = sum(r[2] > LIMIT for r in results), sum(r[3] for r in results)
    print(f"\n{count} interrupts: {late} cells back later than {LIMIT:g} s, {left} processes left, ", end="")
    print(
        f"the next run worked {worked} times\n\n| in | interrupts | longest until the cell was back, s |\n|---|---|---|"
    )
    for at in ORDER:
        seconds = [r[2] for r in results if r[1] == at]
        print(f"| {at} | {len(seconds)} | {max(seconds, default=float('nan')):.2f} |")


if __name__ == "__main__":
    main()
