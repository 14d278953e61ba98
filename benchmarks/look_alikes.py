"""Is a fault told from its look-alikes, and is a healthy run left alone? Rows: what happens; columns: what dtk says.

    python benchmarks/look_alikes.py [--trials 5] [--seed 0] [--only "killed"] [--out FILE]

Each trial trains on two workers, one of which, drawn, does something odd at a step that is drawn. A line with its seed
is printed for each: `--seed S --trials 1 --only ROW` plays it again. Exits 1 where a name is wrong or a healthy run is
ended. Times are short, so that a trial takes some 15 s: a run is ended after 6 s without progress, not 60.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import dtk

STALL, LONG, STEPS = 6.0, 14.0, 40
MEMORY = Path("/sys/fs/cgroup/memory/dtk-look-alikes")  # cgroup version 1; version 2 has memory.max
Said = dtk.WorkerFailed | dtk.WorkerStalled | None


def odd(how: str, strategy) -> None:
    """What happens to the worker that was drawn, at its step."""
    if how == "killed for want of memory":
        (MEMORY / "cgroup.procs").write_text(str(os.getpid()))
        held = [bytearray(b"1" * 50_000_000) for _ in range(60)]
        raise AssertionError(f"{len(held)} pieces of memory fitted")
    if how == "raises":
        raise ValueError("bad label 7")
    if how == "disk full":
        Path("/dev/full").write_text("a checkpoint")
    if how == "input()":
        input("go on? ")
    if how == "sys.exit":
        sys.exit(3)
    if how == "os._exit":
        os._exit(4)
    if how in ("SIGKILL", "SIGSEGV", "SIGTERM", "SIGSTOP"):
        os.kill(os.getpid(), signal.Signals[how])
    if how == "sleeps in Python":
        time.sleep(600)
    if how == "waits for a lock":
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    if how == "reads a pipe that nobody writes":
        os.read(os.pipe()[0], 1)
    if how == "a collective more":
        summed(strategy, 2)
    if how == "computes for long":
        until = time.monotonic() + LONG
        while time.monotonic() < until:
            sum(range(10_000))
    if how == "writes a large checkpoint to a slow disk":
        with (dtk.run_dir() / "weights").open("wb", buffering=0) as file:
            for _ in range(int(LONG * 4)):
                file.write(bytes(1 << 20))
                os.fsync(file.fileno())
                time.sleep(0.25)


def summed(strategy, length):
    import tensorflow as tf

    add = tf.function(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.ones([length])))
    return strategy.run(add)


def train(strategy, how, victim, at):
    import keras
    import numpy as np
    import tensorflow as tf

    mine = dtk.environment.here().worker == victim

    class Odd(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch + 1 == at and mine:
                odd(how, strategy)
            if batch + 1 == at and how == "an all-reduce of another shape":
                summed(strategy, 3 if mine else 2)
            if how == "slower in every step" and mine:
                time.sleep(0.2)

    class Traces(keras.layers.Layer):
        def call(self, x):
            if how == "a first step that is traced for long":
                odd("computes for long", strategy)
            return x

    def examples():
        for k in range(STEPS):
            if how == "a pipeline that stands still" and mine and k == at:
                time.sleep(600)
            yield np.ones((16, 4), "f"), np.ones((16, 1), "f")

    if how == "one worker starts late" and mine:
        time.sleep(STALL - 2)
        odd("computes for long", strategy)
    with strategy.scope():
        model = keras.Sequential(
            [keras.layers.Input((4,)), Traces(), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)]
        )
        model.compile("sgd", "mse")
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    shapes = (tf.TensorSpec((None, 4)), tf.TensorSpec((None, 1)))
    data = tf.data.Dataset.from_generator(examples, output_signature=shapes).with_options(options)
    model.fit(data, verbose=0, callbacks=[dtk.Recorder(), Odd()])
    if how == "an evaluation on one worker after the training" and mine:
        odd("computes for long", strategy)


@dataclass(frozen=True)
class Row:
    """what: what happens. right: whether what was said of it is so; None is nothing. healthy: silence is right."""

    what: str
    right: Callable[[Said, int], bool]
    healthy: bool = False


def failed(words: str, code: int | None = None) -> Callable[[Said, int], bool]:
    def right(said: Said, victim: int) -> bool:
        found = isinstance(said, dtk.WorkerFailed) and said.worker == victim and words in str(said)
        return found and (code is None or said.exitcode == code)

    return right


def stalled(reason: str) -> Callable[[Said, int], bool]:
    def right(said: Said, victim: int) -> bool:
        return isinstance(said, dtk.WorkerStalled) and said.reason == reason and said.waits == {1 - victim: [victim]}

    return right


def order(said: Said, victim: int) -> bool:
    """Nobody is the culprit of two orders: what is to be said is that there are two."""
    alike = isinstance(said, dtk.WorkerStalled) and said.reason in ("order", "unknown")
    return alike or (isinstance(said, dtk.WorkerFailed) and "different collectives" in str(said))


def somebody_killed(said: Said, victim: int) -> bool:
    return failed("was killed by SIGKILL", -9)(said, victim) and "want of memory" not in str(said)


def nothing(said: Said, victim: int) -> bool:
    return said is None


ROWS = (
    Row("raises", failed("raised ValueError: bad label 7", 1)),
    Row("killed for want of memory", failed("for want of memory", -9)),
    Row("SIGKILL", somebody_killed),
    Row("SIGSEGV", failed("crashed with SIGSEGV", -11)),
    Row("sys.exit", failed("called sys.exit(3)", 3)),
    Row("os._exit", failed("ended itself with exit code 4", 4)),
    Row("disk full", failed("No space left on device", 1)),
    Row("input()", failed("raised EOFError", 1)),
    Row("SIGSTOP", stalled("stopped")),
    Row("sleeps in Python", stalled("silent")),
    Row("waits for a lock", stalled("silent")),
    Row("reads a pipe that nobody writes", stalled("silent")),
    Row("a pipeline that stands still", stalled("silent")),
    Row("a collective more", order),
    Row("an all-reduce of another shape", order),
    Row("SIGTERM", nothing, healthy=True),  # TensorFlow takes it for the notice of a preemption, and goes on
    Row("slower in every step", nothing, healthy=True),
    Row("computes for long", nothing, healthy=True),
    Row("a first step that is traced for long", nothing, healthy=True),
    Row("one worker starts late", nothing, healthy=True),
    Row("writes a large checkpoint to a slow disk", nothing, healthy=True),
    Row("an evaluation on one worker after the training", nothing, healthy=True),
    Row("this process and its workers sleep", nothing, healthy=True),
)


@contextlib.contextmanager
def asleep(how: str):
    """All of it stands still for a while, as on a laptop whose lid is closed; a process outside wakes it."""
    if how != "this process and its workers sleep":
        yield
        return
    script = f"sleep 6; kill -STOP -- $@; sleep {LONG}; kill -CONT -- $@"

    def close() -> None:
        time.sleep(3)
        import psutil

        below = [str(each.pid) for each in psutil.Process().children(recursive=True)]
        os.spawnvp(os.P_NOWAIT, "setsid", ["setsid", "bash", "-c", script, "lid", str(os.getpid()), *below])

    thread = threading.Thread(target=close)
    thread.start()
    yield
    thread.join()


def trial(row: Row, seed: int) -> tuple[str, str]:
    """("right", "wrong name", "missed" or "false alarm", what was said)."""
    draw = random.Random(f"{row.what} {seed}")
    victim, at = draw.randrange(2), draw.randrange(2, STEPS - 5)
    said: Said = None
    try:
        with asleep(row.what):
            dtk.run(train, args=(row.what, victim, at), stall_timeout=STALL, timeout=120)
    except (dtk.WorkerFailed, dtk.WorkerStalled) as error:
        said = error
    words = str(said) if said else "nothing"
    if row.right(said, victim):
        return "right", words
    return "false alarm" if row.healthy else "missed" if said is None else "wrong name", words


def table(found: dict[str, list[tuple[str, str]]]) -> str:
    lines = ["| what happens to one of two workers | right | wrong name | missed | false alarm | what is said |"]
    lines.append("|---" * 6 + "|")
    for what, each in found.items():
        counts = collections.Counter(kind for kind, _ in each)
        ((words, _),) = collections.Counter(said for _, said in each).most_common(1)
        cells = [f"{counts['right']}/{len(each)}", *(counts[kind] for kind in ("wrong name", "missed", "false alarm"))]
        lines.append(f"| {what} | {' | '.join(map(str, cells))} | {words.replace('|', '/')} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    os.environ["DTK_LIVE"] = "off"
    with contextlib.suppress(OSError):
        MEMORY.mkdir(exist_ok=True)
        (MEMORY / "memory.limit_in_bytes").write_text("900000000")
    found: dict[str, list[tuple[str, str]]] = {}
    for seed in range(options.seed, options.seed + options.trials):
        for row in ROWS:
            if options.only and options.only != row.what:
                continue
            if row.what == "killed for want of memory" and not MEMORY.exists():
                continue
            kind, words = trial(row, seed)
            found.setdefault(row.what, []).append((kind, words))
            print(f"seed {seed}, {row.what}: {kind}: {words}", flush=True)
    print(f"\n{table(found)}")
    if options.out:
        options.out.write_text(table(found) + "\n")
    with contextlib.suppress(OSError):
        MEMORY.rmdir()
    return int(any(kind != "right" for each in found.values() for kind, _ in each))


if __name__ == "__main__":
    sys.exit(main())
