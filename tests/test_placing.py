"""Which cores a worker keeps to, and how much of a tensor goes into a message: what is set, and when it is not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from starting import mostly_warm

import dtk
from dtk import limits
from dtk.compat import tuning


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """machine(count, speeds={core: kHz}): cores of a made-up machine, without quotas."""
    monkeypatch.delenv("CPU_LIMIT", raising=False)
    monkeypatch.setattr(limits, "OWN_GROUPS", tmp_path / "none")
    monkeypatch.setattr(limits, "CPUS", tmp_path)

    def make(count, speeds=None):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(count)), raising=False)
        for core, speed in (speeds or {}).items():
            path = tmp_path / f"cpu{core}" / "cpufreq"
            path.mkdir(parents=True)
            (path / "cpuinfo_max_freq").write_text(f"{speed}\n")

    return make


def shares(count):
    return [limits.own_core(index, count) for index in range(count)]


@pytest.mark.parametrize(
    ("cores", "processes", "expected"),
    [
        (2, 4, [0, 0, 1, 1]),
        (2, 6, [0, 0, 0, 1, 1, 1]),
        (1, 2, [0, 0]),
        (2, 1, [None]),
        (2, 2, [None] * 2),  # a core each: they may move away from other programs
        (4, 2, [None] * 2),
        (2, 3, [None] * 3),  # can't be divided evenly
    ],
)
def test_processes_that_outnumber_the_cores_keep_to_one_each(machine, cores, processes, expected):
    machine(cores)
    assert shares(processes) == expected


def test_where_cores_differ_in_speed_the_system_decides(machine):
    machine(2, {0: 4_000_000, 1: 2_000_000})
    assert shares(4) == [None] * 4


def test_a_quota_leaves_the_choice_to_the_system(machine, monkeypatch):
    machine(64)
    monkeypatch.setenv("CPU_LIMIT", "2")
    assert shares(4) == [None] * 4
    assert shares(128) == [None] * 128


def test_an_evaluator_keeps_to_no_core(machine):
    machine(2)
    assert limits.own_core(4, 4) is None


def test_without_affinity_the_system_decides(machine, monkeypatch):
    machine(2)
    monkeypatch.delattr(os, "sched_getaffinity")
    assert shares(4) == [None] * 4


def kept_to():
    import threading

    seen = []
    thread = threading.Thread(target=lambda: seen.append(sorted(os.sched_getaffinity(0))))
    thread.start()
    thread.join()
    return sorted(os.sched_getaffinity(0)), seen[0]


MANY = 2 * dtk.environment.cores()
needs_even = pytest.mark.skipif(
    None in shares(MANY) or MANY > 16,
    reason="the workers can't be divided among the cores here: a quota, or unequal ones",
)


@pytest.mark.trains
@needs_even
@mostly_warm
def test_workers_keep_to_their_core_and_so_do_their_threads(start):
    ours = sorted(os.sched_getaffinity(0))
    found = dtk.run(kept_to, workers=MANY, start=start).results
    assert found == [([core],) * 2 for core in shares(MANY)]
    assert dtk.run(kept_to, workers=1, start=start).results == [(ours, ours)]
    assert sorted(os.sched_getaffinity(0)) == ours


@pytest.mark.trains
@needs_even
@pytest.mark.parametrize(("name", "value"), [("DTK_PIN", "0"), ("TF_NUM_INTRAOP_THREADS", "7")])
def test_it_can_be_switched_off_and_does_not_fight_more_threads(name, value, monkeypatch):
    monkeypatch.setenv(name, value)
    whole = sorted(os.sched_getaffinity(0))
    assert dtk.run(kept_to, workers=MANY).results == [(whole, whole)] * MANY


def message_bytes(strategy):
    import tensorflow as tf

    config = tf.__internal__.eager_context.get_config().experimental
    return config.recv_buf_max_chunk, config.disable_thread_spinning


@pytest.mark.trains
@mostly_warm
def test_tensorflow_gets_the_size_of_messages(start):
    alone = dtk.environment.cores() // 2 <= 1
    assert dtk.run(message_bytes, workers=2, start=start).results == [(tuning.MESSAGE_BYTES, alone)] * 2


PUBLIC_WAY = """
import tensorflow as tf
wanted = tf.compat.v1.ConfigProto()
wanted.experimental.recv_buf_max_chunk = 4096
tf.compat.v1.enable_eager_execution(config=wanted)
print(tf.__internal__.eager_context.get_config().experimental.recv_buf_max_chunk)
"""


@pytest.mark.slow
def test_the_public_way_still_does_nothing():
    """When this fails, dtk/compat/tuning.py can go that way, and leave TensorFlow's context alone."""
    done = subprocess.run([sys.executable, "-c", PUBLIC_WAY], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0"]


def sum_of(strategy):
    import numpy as np
    import tensorflow as tf

    ours = np.random.default_rng(int(dtk.is_chief())).normal(size=300_001).astype("float32")

    @tf.function
    def summed(values):
        def add(part):
            return tf.distribute.get_replica_context().all_reduce("SUM", tf.identity(part))

        return strategy.run(add, args=(values,))

    return summed(ours).numpy()


@pytest.mark.trains
def test_the_sums_are_the_same_to_the_bit(monkeypatch):
    small = dtk.run(sum_of, workers=2).results
    monkeypatch.setenv("DTK_MESSAGE_BYTES", "0")
    whole = dtk.run(sum_of, workers=2).results
    assert [each.tobytes() for each in small] == [each.tobytes() for each in whole]
