"""`kill -9` of a real Jupyter kernel in each phase of a run: what is left 3 s later.

`python benchmarks/kernel_kills.py --trials 30` starts as many kernels, one after the other, each with a run of two
workers of which each has three child processes of its own: one in its process group, one in a session of its own,
and one that was left by its parent and is deaf to SIGTERM. It prints a table and fails if a single process is left.
What is left is found by a mark in the environment that the trial gives its kernel, not by dtk's own list.
With `--cluster`, the kernel has a cluster that stays, in the states that its cells can bring about.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from jupyter_client.manager import KernelManager

import dtk

ROOT = Path(__file__).parent.parent
SECONDS = 3.0  # after which nothing may be left
TRIAL, PLACE = "KERNEL_KILLS_TRIAL", "KERNEL_KILLS_PLACE"
PHASES = ("importing", "starting", "waiting", "building", "collective", "training", "ending", "idle")
# The states of a cluster that stays: the cell, and whether the kernel itself says that it is reached, or both workers.
_REDUCE = "strategy.reduce('sum', tf.constant(1.0), axis=None)"
CELLS = {
    "between cells": ("pass", True),
    "in a cell": ("kernel_kills.say_and_sleep('in a cell')", False),
    "in an all-reduce": (f"kernel_kills.reached('in an all-reduce')\nif me: time.sleep(300)\n{_REDUCE}", False),
    "held before an all-reduce": (_REDUCE, True),
    "after an error on one": (f"if me: raise ValueError('so it is')\n{_REDUCE}", True),
    "at a breakpoint": ("kernel_kills.reached('at a breakpoint')\nif me: breakpoint()\n" + _REDUCE, False),
    "in another's place": ("if me: os.kill(os.getpid(), 9)", True),
}

_DEAF = "import os, signal, time; signal.signal(15, signal.SIG_IGN); signal.signal(1, signal.SIG_IGN); "
_SLEEP = _DEAF + "time.sleep(300)"
_SESSION = _DEAF + "os.setsid(); time.sleep(300)"
_ORPHAN = _DEAF + "os.setsid()\nif os.fork() == 0: time.sleep(300)"


class Outcome(NamedTuple):
    """Processes that ran at the kill, those left 3 s later, and seconds until the last was gone (NaN: it stayed)."""

    phase: str
    start: str
    before: int
    left: int
    seconds: float


def reached(name: str) -> None:
    """Tells the trial that this process has come so far."""
    (Path(os.environ[PLACE]) / f"{name}-{os.getpid()}").touch()


def have_children() -> None:
    for code in (_SLEEP, _SESSION):
        subprocess.Popen([sys.executable, "-c", code])
    subprocess.run([sys.executable, "-c", _ORPHAN], check=True)


def stay(phase: str) -> Any:
    """Goes as far as the phase, says so, and stays there."""
    have_children()
    chief = dtk.is_chief()
    if phase == "starting":
        return say_and_sleep(phase)
    if phase in ("ending", "idle"):
        reached(phase)
        return None if chief or phase == "idle" else time.sleep(300)
    if phase == "waiting" and not chief:
        return say_and_sleep(phase)  # the other waits for it in the constructor of its strategy
    if phase == "waiting":
        reached(phase)
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    if phase == "training":
        return _train(strategy)
    if phase == "collective" and not chief:
        return say_and_sleep(phase)

    @tf.function
    def total() -> Any:
        if phase == "building":
            say_and_sleep(phase)
        value = strategy.run(lambda: tf.constant(1.0))
        return strategy.reduce("sum", value, axis=None)

    reached(phase) if phase == "collective" else None
    return float(total())


def say_and_sleep(phase: str) -> None:
    reached(phase)
    time.sleep(300)


def stay_in_cells(state: str, start: str) -> None:
    """Opens a cluster in this kernel, and brings it into the state."""
    cluster = dtk.cluster(workers=2, start=start)
    begin = "import os, time, kernel_kills, tensorflow as tf; me = strategy.cluster_resolver.task_id"
    cluster.cell(f"{begin}; kernel_kills.have_children()")
    code, by_kernel = CELLS[state]
    if state.startswith("held"):
        cluster.pause()
    with contextlib.suppress(dtk.CellFailed):
        cluster.cell(code)
    if by_kernel:
        reached(state)
    if state == "in another's place":
        cluster.restart(worker=1)


def _train(strategy: Any) -> None:
    import keras
    import numpy as np
    import tensorflow as tf

    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    data = tf.data.Dataset.from_tensor_slices((np.ones((64, 4), "float32"), np.ones((64, 1), "float32"))).repeat()
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA

    def tenth(batch: int, logs: Any) -> None:
        if batch == 10:
            reached("training")

    model.fit(
        data.batch(8).with_options(options),
        steps_per_epoch=10**7,
        callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=tenth)],
        verbose=0,
    )


def carriers(trial: str) -> set[int]:
    """Processes that have this trial's mark in their environment, zombies not counted."""
    found = set()
    for process in psutil.process_iter():
        try:
            if process.environ().get(TRIAL) == trial and process.status() != psutil.STATUS_ZOMBIE:
                found.add(process.pid)
        except psutil.Error:
            pass  # gone, or another user's
    return found


def wait(condition: Any, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the phase was not reached")
        time.sleep(0.01)


@contextmanager
def kernel(trial: str, place: str) -> Iterator[tuple[KernelManager, Any]]:
    """A Jupyter kernel of its own with a client, its temporary files in `place`; afterwards it is gone."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "benchmarks")])
    env = {**os.environ, TRIAL: trial, PLACE: place, "TMPDIR": place, "PYTHONPATH": path, "DTK_LIVE": "off"}
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(env=env, cwd=place)
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=120)
        yield manager, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()


def begin(client: Any, phase: str, start: str, place: str) -> None:
    """Has the kernel begin a run, and returns when it is in the phase."""
    call = f"dtk.run(kernel_kills.stay, args=({phase!r},), start={start!r}, stall_timeout=None)"
    if phase == "importing":
        call = f"kernel_kills.reached('importing'); {call}"
    need, name = (1, phase) if phase == "importing" else (2, phase)
    if phase == "idle":
        need, name = 1, "returned"
    if phase in CELLS:
        need = 1 if CELLS[phase][1] else 2
        call = f"kernel_kills.stay_in_cells({phase!r}, {start!r})"
    client.execute(f"import dtk, kernel_kills; {call}; kernel_kills.reached('returned')")
    wait(lambda: len(list(Path(place).glob(f"{name}-*"))) >= need)
    # Into the phase: a parent imports for seconds, a collective begins a moment after its worker has said so.
    time.sleep(random.uniform(0.05, 2.0 if phase == "importing" and start == "warm" else 0.4))


def count_left(trial: str, known: set[int]) -> tuple[int, float]:
    """Processes left after SECONDS, and when the last of them was gone."""
    began, gone = time.monotonic(), float("nan")
    while time.monotonic() - began < SECONDS:
        left = carriers(trial) | {pid for pid in known if _runs(pid)}
        if left:
            gone = float("nan")
        elif gone != gone:
            gone = time.monotonic() - began
        time.sleep(0.02)
    left = carriers(trial) | {pid for pid in known if _runs(pid)}
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return len(left), float("nan") if left else gone


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def trial(phase: str, start: str) -> Outcome:
    """Kills one kernel in one phase."""
    name = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place, kernel(name, place) as (manager, client):
        begin(client, phase, start, place)
        pid = manager.provisioner.pid
        family = carriers(name) | {child.pid for child in psutil.Process(pid).children(recursive=True)}
        os.kill(pid, signal.SIGKILL)
        left, seconds = count_left(name, family - {pid})
    return Outcome(phase, start, len(family) - 1, left, seconds)


def main() -> int:
    """Returns the number of processes that were left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cluster", action="store_true", help="a cluster that stays, in place of a run")
    options = parser.parse_args()
    random.seed(options.seed)
    phases = tuple(CELLS) if options.cluster else PHASES
    ways = ("warm", "cold") if dtk.environment.can_fork() else ("cold",)
    cases = itertools.islice(itertools.cycle(itertools.product(phases, ways)), options.trials)
    outcomes = []
    for phase, start in cases:
        outcomes.append(trial(phase, start))
        print(*outcomes[-1], file=sys.stderr, flush=True)
    print("| phase | trials | processes at the kill | left after 3 s | last one gone after, at most |")
    print("|---|---|---|---|---|")
    for phase in phases:
        rows = [outcome for outcome in outcomes if outcome.phase == phase]
        if rows:
            before, left = sum(row.before for row in rows), sum(row.left for row in rows)
            print(f"| {phase} | {len(rows)} | {before} | {left} | {max(row.seconds for row in rows):.2f} s |")
    left = sum(outcome.left for outcome in outcomes)
    print(f"{left} processes left after {len(outcomes)} kills")
    return left


if __name__ == "__main__":
    sys.exit(min(1, main()))
