"""What happens in a worker, for `look_alikes.py`: one function that trains, and what one worker does that is odd.

`train` runs in every worker; what begins with "slow" is so from the first step on.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import dtk

STEPS = 40
OWN = os.environ.setdefault(
    "LOOK_ALIKES", f"look-alikes-{os.getpid()}"
)  # workers have that of the process that started
MEMORY = Path("/sys/fs/cgroup/memory", OWN)  # cgroup version 1; version 2 has memory.max
QUOTA = Path("/sys/fs/cgroup/cpu", OWN)  # with a tenth of a core
FREEZE = "while kill -STOP {0}; do sleep 0.2; kill -CONT {0}; sleep 0.05; done 2> /dev/null"
_MUTEX = 64  # bytes, more than a pthread_mutex_t has
_kept: list[object] = []


def odd(how: str, strategy, long: float) -> None:
    """What happens to the worker that was drawn, at its step."""
    if how in ("SIGKILL", "SIGTERM", "SIGSTOP"):
        os.kill(os.getpid(), signal.Signals[how])
    elif how == "raises":
        raise ValueError("bad label 7")
    elif how == "disk full":
        Path("/dev/full").write_text("a checkpoint")
    elif how == "input()":
        input("go on? ")
    elif how == "sys.exit":
        sys.exit(3)
    elif how == "os._exit":
        os._exit(4)
    elif how == "a collective more":
        summed(strategy, 2)
    elif how in _BY_NAME:
        _BY_NAME[how]()
    elif how in _FOR_LONG:
        _FOR_LONG[how](long)


def fill_the_memory() -> None:
    (MEMORY / "cgroup.procs").write_text(str(os.getpid()))
    held = [bytearray(b"1" * 50_000_000) for _ in range(60)]
    raise AssertionError(f"{len(held)} pieces of memory fitted")


def killed_beside() -> None:
    """By somebody, just after the system has killed another process for want of memory."""
    hungry = "import sys, os; open(sys.argv[1], 'w').write(str(os.getpid())); held = b'1' * 2_000_000_000"
    subprocess.run([sys.executable, "-c", hungry, MEMORY / "cgroup.procs"])
    os.kill(os.getpid(), signal.SIGKILL)


def lock_twice() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def hang_in_a_library() -> None:
    """In C, with Python's own lock in hand, so that no other thread of Python runs either."""
    library, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(_MUTEX)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)


def compute(seconds: float) -> None:
    """In Python for the first half, in TensorFlow for the second."""
    import tensorflow as tf

    until = time.monotonic() + seconds
    while time.monotonic() < until - seconds / 2:
        sum(range(10_000))
    with tf.init_scope():  # also where it is called while a graph is traced
        tf.function(busy)(tf.constant(seconds / 2, tf.float64))


def busy(seconds: float):
    """A loop of a graph that computes for so long."""
    import tensorflow as tf

    until = tf.timestamp() + seconds
    state = tf.zeros([128, 128])
    return tf.while_loop(lambda _: tf.timestamp() < until, lambda x: [tf.matmul(x, x)], [state])


def write_slowly(seconds: float) -> None:
    """A checkpoint on a slow disk: a megabyte at a time."""
    with (dtk.run_dir() / "weights").open("wb", buffering=0) as file:
        for _ in range(int(seconds * 4)):
            file.write(bytes(1 << 20))
            os.fsync(file.fileno())
            time.sleep(0.25)


_BY_NAME: dict[str, Callable[[], object]] = {
    "killed for want of memory": fill_the_memory,
    "SIGKILL, and another process is killed for want of memory": killed_beside,
    "SIGSEGV in a library": lambda: ctypes.string_at(0),
    "SIGABRT in a library": lambda: ctypes.CDLL(None).abort(),
    "sleeps in Python": lambda: time.sleep(600),
    "waits for a lock": lock_twice,
    "hangs in a library that holds Python's lock": hang_in_a_library,
    "reads a pipe that nobody writes": lambda: os.read(os.pipe()[0], 1),
}
_FOR_LONG: dict[str, Callable[[float], object]] = {
    "computes for long": compute,
    "writes a large checkpoint to a slow disk": write_slowly,
}


def summed(strategy, length):
    import tensorflow as tf

    add = tf.function(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.ones([length])))
    return strategy.run(add)


def begin_slow(how: str) -> None:
    """What makes this worker slow from now on, from outside of it."""
    if how == "slow: its core is shared with three busy processes":
        mine = os.sched_getaffinity(0)
        spin = [sys.executable, "-c", "while True: pass"]
        _kept.extend(subprocess.Popen(spin, preexec_fn=lambda: os.sched_setaffinity(0, mine)) for _ in range(3))
    if how == "slow: a tenth of a core is left to it (throttled)":
        (QUOTA / "cgroup.procs").write_text(str(os.getpid()))
    if how == "slow: frozen for 0.2 of each 0.25 s":
        _kept.append(subprocess.Popen(["bash", "-c", FREEZE.format(os.getpid())]))
    if how == "slow: collects garbage in every step":
        held: list[object] = []
        for _ in range(1_500_000):
            held = [held]
        _kept.append(held)


def slowly(how: str) -> None:
    """What a slow worker does in each step."""
    if how == "slow: sleeps in every step":
        time.sleep(0.2)
    if how == "slow: collects garbage in every step":
        gc.collect()


def read_slowly(step: int) -> None:
    """From a disk that gives a megabyte in 0.3 s."""
    path = dtk.run_dir() / "examples"
    if not step:
        path.write_bytes(bytes(8 << 20))
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.seek((step % 8) << 20)
        file.read(1 << 20)
    time.sleep(0.3)


@dataclass(frozen=True)
class Happening:
    """What happens (how), to which worker, at which step of how many. long: seconds. lid: a file that is made then."""

    how: str
    victim: int
    at: int
    long: float
    steps: int = STEPS
    lid: str = ""

    @property
    def mine(self) -> bool:
        return dtk.environment.here().worker == self.victim

    @property
    def heavy(self) -> bool:
        """Whether a step has to compute for some time, for a slow worker to be slow."""
        return self.how.startswith(("slow", "skewed"))


def train(strategy, case: Happening) -> None:
    import tensorflow as tf

    mine, at = case.mine, case.at
    if case.how == "one worker starts late" and mine:
        time.sleep(case.long / 2)
        compute(case.long / 2)
    model = model_of(strategy, case)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    shapes = (tf.TensorSpec((None, 4)), tf.TensorSpec((None, 1)))
    data = tf.data.Dataset.from_generator(lambda: examples(case), output_signature=shapes).with_options(options)
    if mine:
        begin_slow(case.how)
    less = {"steps_per_epoch": at if mine else case.steps} if case.how == "fewer steps than the other" else {}
    try:
        model.fit(data, verbose=0, callbacks=[dtk.Recorder(), callback(strategy, case)], **less)
    finally:
        for each in _kept:
            if isinstance(each, subprocess.Popen):
                each.kill()
    if case.how == "an evaluation on one worker after the training" and mine:
        compute(case.long)


def examples(case: Happening):
    """This worker's batches, each of two steps, as `fit` cuts it in two; the numbers say in which one to be long."""
    import numpy as np

    size = 256 if case.heavy else 16
    if case.how.startswith("skewed") and case.mine:
        size *= 8
    for k in range(case.steps // 2):
        due = k == case.at // 2
        if case.how == "a pipeline that stands still" and case.mine and due:
            time.sleep(600)
        if case.how == "slow: a slow disk in the input pipeline" and case.mine:
            read_slowly(k)
        x = np.ones((size, 4), "f")
        if due and (case.mine or case.at % 2):
            x[0] = 9.0
        yield x, np.ones((size, 1), "f")


def model_of(strategy, case: Happening):
    import keras
    import tensorflow as tf

    class Between(keras.layers.Layer):
        def call(self, x):
            if case.how == "a first step that is traced for long" and _kept == ["fit"]:
                _kept.append("traced")
                compute(case.long)
            if case.how == "a very long step":
                late = tf.cond(tf.reduce_max(x) > 5, lambda: busy(case.long)[0], lambda: tf.zeros([128, 128]))
                return x + 0 * tf.stop_gradient(late[0, 0])
            return x

    with strategy.scope():
        hidden = [keras.layers.Dense(512 if case.heavy else 8, "tanh") for _ in range(1 + case.heavy)]
        model = keras.Sequential([keras.layers.Input((4,)), Between(), *hidden, keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    return model


def callback(strategy, case: Happening):
    import keras

    class Odd(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            _kept.append("fit")

        def on_train_batch_end(self, batch, logs=None):
            step = batch + 1
            if step == case.at and case.mine:
                odd(case.how, strategy, case.long)
            if step == case.at and case.how == "an all-reduce of another shape":
                summed(strategy, 3 if case.mine else 2)
            if case.mine:
                slowly(case.how)
            if case.how == "steps without processor time, one longer than the limit":
                time.sleep(2.5 if step == case.steps - 2 else 1.0)
            if case.lid and step >= case.at:
                Path(case.lid).touch()  # the lid closes now
                time.sleep(0.3)

    return Odd()
