"""Clusters without dtk in which a worker is lost, or meets its peers in another collective: what each of them raises.

`dtk.baseline(texts, ...)` is a process that has imported TensorFlow and run no operation: workers are forked from it.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SECONDS = 100.0  # that the others get for saying something
LATE = 3  # the step in which it happens, if not in the first


def texts(body: str, how: str, victim: int, workers: int) -> list[list[Any] | None]:
    """[type, message, by_a_peer] of what each worker raised; None where it raised nothing within `SECONDS`.

    Without `how` it is over as soon as one has raised: the others would say that they lost it.
    """
    from dtk.launch.place import free_ports

    folder = Path.cwd() if not os.environ.get("TMPDIR") else Path(os.environ["TMPDIR"])
    ports = free_ports(workers)
    pids = [_forked(folder, body, how, victim, ports, worker) for worker in range(workers)]
    deadline, left = time.monotonic() + SECONDS, set(range(workers))
    while left and time.monotonic() < deadline:
        left -= {worker for worker in left if os.waitpid(pids[worker], os.WNOHANG)[0]}
        if left == {victim} or (not how and len(left) < workers):
            break
        time.sleep(0.05)
    for worker in left:
        os.kill(pids[worker], signal.SIGKILL)
        os.waitpid(pids[worker], 0)
    files = [folder / f"{worker}.json" for worker in range(workers)]
    return [json.loads(file.read_text()) if file.exists() else None for file in files]


def _forked(folder: Path, body: str, how: str, victim: int, ports: list[int], worker: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        _work(folder, body, how, victim, ports, worker)
    finally:
        os._exit(0)


def _work(folder: Path, body: str, how: str, victim: int, ports: list[int], worker: int) -> None:
    from dtk.compat import causes

    addresses = [f"127.0.0.1:{port}" for port in ports]
    os.environ["TF_CONFIG"] = json.dumps(
        {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": worker}}
    )
    (folder / f"{worker}.json").unlink(missing_ok=True)

    def odd(step: int) -> bool:
        """What happens to the victim in step `LATE`; true where it is to do something else than its peers."""
        late = 1 if body == "first" else LATE
        if worker == victim and step == late:
            time.sleep(0.3)  # the others are in the collective by then
            END.get(how, lambda _: None)(ports)
        return worker == victim and step >= late

    try:
        BODIES[body](odd)
        time.sleep(SECONDS)
    except BaseException as error:
        (folder / f"{worker}.json").write_text(json.dumps([*causes.message_of(error), causes.by_a_peer(error)]))


def cut_off(ports: list[int]) -> None:
    from dtk.worker.injecting import drop_all

    own = ports[json.loads(os.environ["TF_CONFIG"])["task"]["index"]]
    drop_all({port for port in ports if port != own}, own)


END: dict[str, Callable[[list[int]], object]] = {
    "killed": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "stopped": lambda _: os.kill(os.getpid(), signal.SIGSTOP),
    "cut off": cut_off,
}


# ---- what the workers do, step by step


def _strategy() -> Any:
    import tensorflow as tf

    return tf.distribute.MultiWorkerMirroredStrategy()


def _summed(strategy: Any, value: Callable[[], Any]) -> Callable[[], Any]:
    import tensorflow as tf

    def add() -> Any:
        return tf.distribute.get_replica_context().all_reduce("sum", value())

    return tf.function(lambda: strategy.run(add))


def in_a_function(odd: Callable[[int], bool]) -> None:
    import tensorflow as tf

    step = _summed(_strategy(), lambda: tf.ones([2]))
    for number in range(1, 20):
        odd(number)
        step()


def in_eager_mode(odd: Callable[[int], bool]) -> None:
    import tensorflow as tf

    strategy = _strategy()
    for number in range(1, 20):
        odd(number)
        strategy.reduce("SUM", tf.ones([2]), axis=None)


def in_fit(odd: Callable[[int], bool]) -> None:
    import numpy as np
    import tensorflow as tf
    from tensorflow import keras

    import dtk

    dtk.correct_keras()
    strategy = _strategy()

    class Odd(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            odd(batch + 1)

    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    data = tf.data.Dataset.from_tensors((np.ones((4, 4), "f"), np.ones((4, 1), "f"))).repeat().with_options(options)
    model.fit(data, steps_per_epoch=20, verbose=0, callbacks=[Odd()])


def unlike(mine: Callable[[Any], Any]) -> Callable[[Callable[[int], bool]], None]:
    """mine: what the victim does in place of a sum of two numbers."""

    def body(odd: Callable[[int], bool]) -> None:
        import tensorflow as tf

        strategy = _strategy()
        like, other = _summed(strategy, lambda: tf.ones([2])), mine(strategy)
        for number in range(1, 20):
            (other if odd(number) else like)()

    return body


def another_shape(strategy: Any) -> Callable[[], Any]:
    import tensorflow as tf

    return _summed(strategy, lambda: tf.ones([3]))


def another_type(strategy: Any) -> Callable[[], Any]:
    import tensorflow as tf

    return _summed(strategy, lambda: tf.ones([2], tf.int64))


def another_collective(strategy: Any) -> Callable[[], Any]:
    import tensorflow as tf

    def gather() -> Any:
        return tf.distribute.get_replica_context().all_gather(tf.ones([2]), axis=0)

    return tf.function(lambda: strategy.run(gather))


BODIES: dict[str, Callable[[Callable[[int], bool]], None]] = {
    "first": in_a_function,
    "function": in_a_function,
    "eager": in_eager_mode,
    "fit": in_fit,
    "another shape": unlike(another_shape),
    "another type": unlike(another_type),
    "another collective": unlike(another_collective),
}
UNLIKE = ("another shape", "another type", "another collective")
# (what the workers do, what happens to one of them, which one, workers)
ENDS = {
    f"worker {victim} of {workers} {how} ({body})": (body, how, victim, workers)
    for body, how, victim, workers in [
        *[("function", how, victim, 2) for how in END for victim in (0, 1)],
        *[("first", "killed", victim, 2) for victim in (0, 1)],
        *[("eager", "killed", victim, 2) for victim in (0, 1)],
        *[("fit", "killed", victim, 2) for victim in (0, 1)],
        ("function", "killed", 0, 3),
        ("function", "killed", 2, 3),
        ("function", "cut off", 2, 3),
    ]
}
