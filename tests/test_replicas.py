"""Several replicas in each of several workers, as machines with several GPUs have them: equal to one device."""

from __future__ import annotations

import pytest

import dtk
from dtk.compat.feeds import Feed
from dtk.errors import ClusterConfigError, WorkerFailed

pytestmark = pytest.mark.trains


def data(batch):
    import numpy as np
    import tensorflow as tf

    draw = np.random.default_rng(0)
    arrays = draw.normal(size=(256, 8)).astype("f"), draw.normal(size=(256, 1)).astype("f")
    return tf.data.Dataset.from_tensor_slices(arrays).shuffle(256, seed=1).batch(batch).repeat()


def model(optimizer, **compiled):
    import keras

    made = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
    made.compile(optimizer, "mse", **compiled)
    return made


def fit(strategy, wrong=False):
    import keras
    import tensorflow as tf

    with strategy.scope():
        made = model(keras.optimizers.SGD(0.1, momentum=0.9))
        if wrong:
            made.compile("sgd", loss=lambda labels, outputs: tf.reduce_mean(tf.square(labels - outputs)))
    made.fit(data(32), steps_per_epoch=8, epochs=2, verbose=0, callbacks=[dtk.Recorder()])
    return strategy.num_replicas_in_sync


def apart(strategy):
    import tensorflow as tf

    fit(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]))


def test_four_replicas_in_two_workers_compute_what_one_device_does(capsys):
    """As loops of each kind do: test_record_step.py."""
    run = dtk.run(fit, workers=2, replicas=2)
    assert (run.results, run.mode) == ([4, 4], "cluster")
    assert run.records.groupby("worker").replica.unique().map(list).to_list() == [[0, 1], [2, 3]]
    assert (run.records.examples == 8).all()
    dtk.verify(run, dtk.baseline(fit))
    assert "mode=cluster workers=2 replicas=4 global_batch=32" in capsys.readouterr().out
    assert "4 replicas" in dtk.plot.processes(run).get_title("left")


@pytest.mark.slow
def test_a_mistake_is_off_by_all_replicas_and_not_by_the_workers():
    given = {"kwargs": {"wrong": True}}
    found = dtk.diagnose(dtk.run(fit, workers=2, replicas=2, **given), dtk.baseline(fit, **given))
    assert found.mistake == "local mean"
    assert "4 times, the number of replicas" in found.what


def test_two_workers_that_train_apart_are_told_so():
    with pytest.raises(WorkerFailed, match="so each of the 2 workers trains alone"):
        dtk.run(apart, workers=2, replicas=2)


def test_without_the_correction_a_cpu_is_one_replica():
    """When this fails, TensorFlow takes all logical CPUs; look whether compat.strategies.several can go."""

    def count():
        import tensorflow as tf

        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
        return tf.distribute.MultiWorkerMirroredStrategy().num_replicas_in_sync

    assert dtk.run(count, workers=2).results == [2, 2]


def test_too_many_are_refused():
    with pytest.raises(ClusterConfigError, match="replicas=17"):
        dtk.run(fit, workers=2, replicas=17)


def test_what_replicas_in_one_process_read_is_handed_out_again():
    def train(strategy):
        import tensorflow as tf

        data = strategy.experimental_distribute_dataset(tf.data.Dataset.range(11).batch(4))  # the last batch is short
        local = strategy.experimental_local_results
        one_step = tf.function(lambda iterator: tf.concat(local(next(iterator)), axis=0))

        @tf.function
        def one_pass(data):
            total = tf.TensorArray(tf.int64, 0, dynamic_size=True, infer_shape=False)
            for batch in data:
                total = total.write(total.size(), local(batch)[0]).write(total.size() + 1, local(batch)[1])
            return total.concat()

        whole, some, plain = Feed(data), Feed(iter(data)), list(range(11))
        steps = [(some, one_step, plain[k : k + 4]) for k in (0, 4, 8)]
        for feed, read, expected in [(whole, one_pass, plain), *steps]:
            feed.begins()
            assert read(feed.handed).numpy().tolist() == expected
            feed.replay(given := list(feed.given))
            assert read(feed.handed).numpy().tolist() == expected
            assert len(given) == -(-len(expected) // 4)
            feed.replay(None)

    dtk.run(train, workers=1, replicas=2)
