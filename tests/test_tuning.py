"""How much of a tensor goes into a message, and who spins: what is set, and when it is not."""

from __future__ import annotations

import subprocess
import sys

import pytest
from starting import mostly_warm

import dtk
from dtk.compat import tuning


def message_bytes(strategy):
    import tensorflow as tf

    config = tf.__internal__.eager_context.get_config().experimental
    return config.recv_buf_max_chunk, config.disable_thread_spinning


@pytest.mark.trains
@mostly_warm
def test_tensorflow_gets_the_size_of_messages(start):
    alone = dtk.environment.cores() // 2 <= 1
    assert dtk.run(message_bytes, workers=2, start=start).results == [(tuning.MESSAGE_BYTES, alone)] * 2


@pytest.mark.trains
def test_threads_may_spin_where_a_worker_has_several(monkeypatch):
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "2")
    assert dtk.run(message_bytes, workers=1).results == [(tuning.MESSAGE_BYTES, False)]


@pytest.mark.slow
def test_another_size_of_messages(monkeypatch):
    monkeypatch.setenv("DTK_MESSAGE_BYTES", "4096")
    assert [size for size, _ in dtk.run(message_bytes, workers=2).results] == [4096] * 2
    monkeypatch.setenv("DTK_MESSAGE_BYTES", "4 MB")
    with pytest.raises(dtk.WorkerFailed, match="DTK_MESSAGE_BYTES=4 MB: it takes bytes, or 0"):
        dtk.run(message_bytes, workers=2)


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
