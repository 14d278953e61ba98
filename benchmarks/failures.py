"""Is the worker that failed named, with its host, and is nothing left behind on any? On each place; a table.

    python benchmarks/failures.py --on hosts|slurm|ray [--rounds 10] [--seed 0] [--only "link cut"]

Two hosts with addresses, names and files of their own (namespaces: root), with an engine on them. Each round breaks
one of them, at a step that is drawn, and which is drawn, too. After it, nothing that dtk started or wrote may be on
any host: on the broken one as well, where the link is cut and stays so. Exits 1 where a round went wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from places_here import HERE, HOSTS, Here, other_tensorflow, reason_to_skip

import dtk

STEPS = 30  # the latest at which something happens
TIMEOUT = 150.0
LEFT_SECONDS = {True: 200.0, False: 40.0}  # for what is left behind to go; True: on a host that can't be reached

# What is said of host k, {it}, and of the other.
RIGHT = {
    "worker raises": r"^worker \d on {it} raised ValueError: bad label 7$",
    "worker is killed": r"^worker \d on {it} was killed by SIGKILL",
    "node killed": r"^worker \d on {it} (is lost with its machine|has not been heard of)",
    "link cut": r"^worker \d on {it} has not been heard of for .* the network to it is cut$"
    r"|^(?=.*{it}\b)worker \d on .* can't reach worker \d on .*: the network between them is cut$",
    "no data": r"^worker \d on {it} raised DatasetUnavailable: mnist is not in the cache of {it}",
    "other TensorFlow": r"^worker \d on {it}: tensorflow 2.0.0 there, .* on {other}; install the same on every m",
    "port blocked": r"^(?=.*{it}\b)(?=.*{other}\b)worker 0 on .* can't reach worker 1 on .*, a port that is open",
}
WARM = ("worker raises", "worker is killed", "no data", "port blocked")  # after which a place is used again


def train(strategy, host, step, how, noted):
    """Trains; on `host`, something happens at `step`. noted: a directory that is the same on each host."""
    import os
    import signal
    import socket
    import time

    import keras
    import numpy as np
    import tensorflow as tf

    import dtk

    class Fails(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            time.sleep(0.02)
            if batch != step or socket.gethostname() != host:
                return
            with open(f"{noted}/part", "w") as file:
                file.write(str(time.monotonic()))
            os.replace(f"{noted}/part", f"{noted}/moment")
            if how == "worker raises":
                raise ValueError("bad label 7")
            if how == "worker is killed":
                os.kill(os.getpid(), signal.SIGKILL)

    if how == "no data":
        dtk.datasets.load("mnist")
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    data = tf.data.Dataset.from_tensors((np.ones((16, 4), "float32"), np.ones((16, 1), "float32"))).repeat()
    data, steps = data.with_options(options), 20 if how == "nothing" else 4000
    model.fit(data, steps_per_epoch=steps, verbose=0, callbacks=[dtk.Recorder(), Fails()])


@dataclass
class Round:
    """seconds: from the moment of the failure, or the call where it was there before, until it was said."""

    failure: str
    verdict: str  # "right", "wrong" or "missed"
    seconds: float
    said: str
    left: list[str]


@contextlib.contextmanager
def broken(here: Here, failure: str, k: int, noted: Path) -> Iterator[None]:
    """Host k, before a run begins there or from the moment on that is noted."""
    other = 3 - k
    if failure == "no data":
        cache, empty = os.environ["TFDS_DATA_DIR"], here.folder / "empty"
        empty.mkdir(exist_ok=True)
        here.network.cover(k, cache, empty)
        yield
        here.network.uncover(k, cache)
    elif failure == "other TensorFlow":
        said, by = other_tensorflow(here.folder)
        here.network.cover(k, said, by)
        yield
        here.network.uncover(k, said)
    elif failure == "port blocked":
        here.network.block(k, other)
        yield
        here.network.unblock(k, other)
    elif failure in ("node killed", "link cut"):
        do = here.network.kill if failure == "node killed" else here.network.cut
        thread = threading.Thread(target=_when_noted, args=(noted, lambda: do(k)))
        thread.start()
        yield
        thread.join()
    else:
        yield


def _when_noted(noted: Path, do: Callable[[], None]) -> None:
    until = time.monotonic() + TIMEOUT
    while not (noted / "moment").exists() and time.monotonic() < until:
        time.sleep(0.01)
    (noted / "moment").write_text(str(time.monotonic()))
    do()


def one_round(here: Here, place: dtk.places.Hosts, failure: str, rng: random.Random) -> Round:
    k, step = rng.choice(HOSTS), rng.randint(1, STEPS)
    stays = failure == "link cut" and rng.random() < 0.2
    print(f"{failure}: n{k}, step {step}{', for good' * stays}", flush=True)
    noted = here.folder / f"noted-{time.monotonic_ns()}"
    noted.mkdir()
    before = here.left()
    kwargs = {"host": f"n{k}", "step": step, "how": failure, "noted": str(noted)}
    said, moment = "", time.monotonic()
    with broken(here, failure, k, noted):
        try:
            dtk.run(train, workers=2, on=place, timeout=TIMEOUT, kwargs=kwargs)
        except dtk.DtkError as error:
            said = str(error)
        seen = time.monotonic()
    if (noted / "moment").exists():
        moment = float((noted / "moment").read_text())
    right = RIGHT[failure].format(it=re.escape(here.called(k)), other=re.escape(here.called(3 - k)))
    verdict = "right" if re.search(right, said) else "wrong" if re.search(r"worker \d on", said) else "missed"
    if failure not in WARM:
        left = _after(here, place, failure, k, stays)
    else:
        left = _gone(lambda: {what: words for what, words in here.left().items() if what not in before})
    return Round(failure, verdict, seen - moment, said, left)


def _after(here: Here, place: dtk.places.Hosts, failure: str, k: int, stays: bool) -> list[str]:
    """What is left when the place is closed; the host is repaired. That runs go well there, the next one shows."""
    place.close()
    left: list[str] = []
    if failure == "link cut":
        if stays:
            left = _gone(lambda: here.ours(k), away=True)
        here.network.join(k)
        left += _gone(lambda: here.ours(k))  # before the engine is started again there
    if failure in ("node killed", "link cut"):
        here.repair(k)
    # Files of an agent that died with its host, or that Slurm has killed, stay until there is one again.
    dead = f"n{k}: " if failure in ("node killed", "link cut") else "none"
    left += _gone(lambda: {what: words for what, words in here.left().items() if not what.startswith(dead)})
    left += [f"{what} after another run there" for what in here.left() if what in here.stale]
    here.stale = {what for what in here.left() if what.startswith(dead)}
    return left


def run_nothing(place: dtk.places.Hosts) -> None:
    kwargs = {"host": "", "step": 0, "how": "nothing", "noted": ""}
    dtk.run(train, workers=2, on=place, timeout=TIMEOUT, kwargs=kwargs)


def _gone(left: Callable[[], dict[str, str]], away: bool = False) -> list[str]:
    """What has not gone in time. away: from a host that can't be reached."""
    until = time.monotonic() + LEFT_SECONDS[away]
    while (found := left()) and time.monotonic() < until:
        time.sleep(0.5)
    return [f"{what} {words}" for what, words in found.items()]


def table(rounds: list[Round]) -> str:
    lines = [
        "| failure | rounds | named right | wrong name | missed | left behind | seconds until said: median, worst |",
        "|---|---|---|---|---|---|---|",
    ]
    for failure in RIGHT:
        mine = [each for each in rounds if each.failure == failure]
        if mine:
            counts = [sum(each.verdict == word for each in mine) for word in ("right", "wrong", "missed")]
            took = [each.seconds for each in mine]
            cells = [len(mine), *counts, sum(bool(each.left) for each in mine)]
            seconds = f"{statistics.median(took):.1f}, {max(took):.1f}"
            lines.append(f"| {failure} | " + " | ".join(map(str, cells)) + f" | {seconds} |")
    return "\n".join(lines)


def campaign(here: Here, failures: list[str], rounds: int, seed: int) -> list[Round]:
    found: list[Round] = []
    for failure in failures:
        place = here.place()
        if failure in WARM:
            run_nothing(place)
        for number in range(rounds):
            found.append(one_round(here, place, failure, random.Random(f"{seed}-{failure}-{number}")))
            last = found[-1]
            print(f"  round {number}: {last.verdict}, {last.seconds:.1f} s: {last.said}", flush=True)
            for line in last.left:
                print(f"  LEFT {line}", flush=True)
        if failure not in WARM:
            run_nothing(place)
        place.close()
        left = _gone(here.left)
        found[-1].left += left
        here.stale.clear()
        print("".join(f"  LEFT at the end: {line}\n" for line in left), end="", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--on", choices=list(HERE), default="hosts")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=list(RIGHT), action="append", help="one failure; may be given several times")
    options = parser.parse_args()
    why = reason_to_skip(options.on)
    if why:
        print(f"no {options.on} here: {why}")
        return 1
    failures = options.only or list(RIGHT)
    if "no data" in failures and not Path(os.environ.get("TFDS_DATA_DIR", ""), "mnist").exists():
        print("no MNIST in TFDS_DATA_DIR: what happens on a host without it is left out")
        failures.remove("no data")
    print(f"on {options.on}, seed {options.seed}", flush=True)
    with dtk.environment.quiet(), contextlib.ExitStack() as stack:
        rounds = campaign(HERE[options.on](stack), failures, options.rounds, options.seed)
    print(f"\n{table(rounds)}")
    return 0 if all(each.verdict == "right" and not each.left for each in rounds) else 1


if __name__ == "__main__":
    sys.exit(main())
