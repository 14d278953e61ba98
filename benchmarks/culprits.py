"""Is the worker that failed first named, and how soon? 100 runs on real clusters of 2, and a table.

    python benchmarks/culprits.py [TRIALS]

One worker fails in one of six ways at one of five places; which worker, way and place goes round with the trial. The
worker writes down the moment before it does; the kernel notes when `dtk.run` has raised. Both read one clock.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable

import dtk

STEPS = 6
WORDS = {
    "raise": "raised ValueError: bad label 7",
    "exit": "called sys.exit(3) before it had finished",
    "os._exit": "ended itself with exit code 4 (os._exit?)",
    "SIGKILL": "was killed by SIGKILL; the kernel's log or the memory limit may say why",
    "SIGSEGV": "was killed by SIGSEGV; the last Python lines before it are in its log",
    "memory": "raised MemoryError",
}
PLACES = ("start", "building", "collective", "callback", "end")


def die(how: str) -> None:
    """Ends this process, or raises; notes the moment before."""
    place = dtk.environment.here()
    assert place is not None
    (place.run.path / "died").write_text(str(time.monotonic()))
    if how == "raise":
        raise ValueError("bad label 7")
    if how == "exit":
        sys.exit(3)
    if how == "os._exit":
        os._exit(4)
    if how == "memory":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, resource.RLIM_INFINITY))  # less than TensorFlow has mapped
        bytearray(1 << 29)
    os.kill(os.getpid(), signal.Signals[how])


def inside_a_collective(how: str) -> None:
    """Called by the victim while its peer is in the all-reduce of a step; by signals, the victim is in it as well."""
    if how in ("os._exit", "SIGKILL", "SIGSEGV"):
        threading.Timer(0.3, die, (how,)).start()
    else:
        time.sleep(0.3)
        die(how)


def train(strategy, victim, how, where):
    import keras
    import numpy as np
    import tensorflow as tf

    mine = dtk.environment.here().worker == victim
    if mine and where == "start":
        die(how)

    class Fails(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 2 and where == "callback" and mine:
                die(how)
            if batch == 2 and where == "collective":
                inside_a_collective(how) if mine else None
                # By signals the peer comes late, so that the victim is in the collective when it dies.
                time.sleep(0 if mine or how in ("raise", "exit", "memory") else 1.0)

    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
        if mine and where == "building":
            die(how)
        model.compile("sgd", "mse")
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    data = tf.data.Dataset.from_tensor_slices(
        (np.ones((16 * STEPS, 4), "float32"), np.ones((16 * STEPS, 1), "float32"))
    )
    model.fit(data.batch(16).with_options(options), verbose=0, callbacks=[dtk.Recorder(), Fails()])
    if mine and where == "end":
        die(how)


def trial(number: int) -> tuple[str, str, bool, float, str]:
    """(how, where, named rightly, seconds from the death to the raise, what was said)."""
    ways = list(WORDS)
    how, where = ways[number % len(ways)], PLACES[number // len(ways) % len(PLACES)]
    victim = (number // (len(ways) * len(PLACES)) + number) % 2
    try:
        dtk.run(train, kwargs={"victim": victim, "how": how, "where": where})
    except dtk.WorkerFailed as error:
        seen = time.monotonic()
        died = float((error.folder.path / "died").read_text()) if error.folder else float("nan")
        right = error.worker == victim and str(error) == f"worker {victim} {WORDS[how]}"
        return how, where, right, seen - died, f"victim {victim}: {error}"
    except dtk.DtkError as error:
        return how, where, False, float("nan"), f"victim {victim}: {type(error).__name__}: {error}"
    return how, where, False, float("nan"), f"victim {victim}: nothing was raised"


def table(results: list[tuple[str, str, bool, float, str]], cell: Callable[[list[tuple[bool, float]]], str]) -> str:
    lines = ["| | " + " | ".join(PLACES) + " |", "|---" * (len(PLACES) + 1) + "|"]
    for how in WORDS:
        cells = [cell([(r[2], r[3]) for r in results if r[:2] == (how, place)]) for place in PLACES]
        lines.append(f"| {how} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    os.environ["DTK_LIVE"] = "off"
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    dtk.run(os.getpid)  # the warm parent
    results = []
    for number in range(trials):
        results.append(trial(number))
        how, where, right, seconds, said = results[-1]
        print(number, how, where, "named" if right else "NOT NAMED", f"{seconds:.2f} s", said, flush=True)
    named, late = sum(r[2] for r in results), sum(not r[3] <= 1.0 for r in results)
    print(f"\nnamed rightly in {named} of {trials}; later than 1 s after the death in {late}\n")
    print(table(results, lambda found: f"{sum(ok for ok, _ in found)}/{len(found)}"))
    print("\nlongest time from the death to the error, s\n")
    print(table(results, lambda found: f"{max((s for _, s in found), default=float('nan')):.2f}"))


if __name__ == "__main__":
    main()
