"""Real TensorFlow clusters without Keras: what dtk does around the strategy, and how such a run ends."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time

import pytest
from waiting import wait_for

import dtk
from dtk.environment import scratch
from dtk.launch import warm
from dtk.records import events, facts

pytestmark = pytest.mark.trains


def add_up(strategy):
    import tensorflow as tf

    with strategy.scope():
        one = tf.Variable(1.0)
    total = strategy.reduce("SUM", strategy.run(tf.function(lambda by: one * by), (1.0,)), axis=None)
    return type(strategy).__name__, strategy.num_replicas_in_sync, total


def test_a_parameter_named_strategy_is_filled():
    assert dtk.run(add_up, workers=2).results == [("CollectiveAllReduceStrategy", 2, 2.0)] * 2
    run = dtk.run(add_up, workers=1, replicas=3)
    assert run.results == [("MirroredStrategy", 3, 3.0)]
    assert [each.draws for each in facts.events(run, events.Called)] == [[]], "strategy.run has called a copy of it"
    assert dtk.baseline(add_up).results == [("_DefaultDistributionStrategy", 1, 1.0)]


def add_up_cold():
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    return float(strategy.reduce("SUM", strategy.run(lambda: tf.constant(1.0)), axis=None))


def in_the_middle(steps, strategy, epochs=1, *, name="run"):
    return steps, strategy.num_replicas_in_sync, epochs, name


@pytest.mark.parametrize(
    ("args", "kwargs", "result"),
    [
        ((3,), {}, (3, 1, 1, "run")),
        ((3, 2), {"name": "long"}, (3, 1, 2, "long")),
        ((), {"steps": 4, "epochs": 5}, (4, 1, 5, "run")),
    ],
)
def test_arguments_are_those_that_the_learner_gives_without_the_strategy(args, kwargs, result):
    assert dtk.baseline(in_the_middle, args=args, kwargs=kwargs).results == [result]
    assert dtk.baseline(lambda strategy, steps: steps, args=(3,)).results == [3]


def test_an_unchanged_function_of_no_arguments_cold(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # gRPC would hang on it
    assert dtk.run(add_up_cold, workers=2, start="cold", timeout=90).results == [2.0, 2.0]


def test_a_taken_port_means_new_ports_for_the_whole_cluster(monkeypatch):
    free = warm.free_ports
    asked = []
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()

        def once_taken(count):
            asked.append(count)
            return free(count) if len(asked) > 1 else [free(1)[0], taken.getsockname()[1]]

        monkeypatch.setattr(warm, "free_ports", once_taken)
        run = dtk.run(add_up_cold, workers=2)
    assert run.results == [2.0, 2.0]
    assert asked == [2, 2]
    assert (run.dir / "port-taken-1-1" / "worker-1" / "log.txt").exists(), "the failed attempt's logs are kept"


def wait_for_a_peer(in_a_collective):
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy() if in_a_collective else None
    if not dtk.is_chief():
        (dtk.run_dir() / "here").touch()
        time.sleep(60)
    strategy = strategy or tf.distribute.MultiWorkerMirroredStrategy()
    strategy.reduce("SUM", tf.constant(1.0), axis=None)


@pytest.mark.parametrize("in_a_collective", [False, True])
def test_an_interrupt_ends_what_ignores_signals(in_a_collective):
    before, left = set(scratch().glob("runs/*")), {}

    def interrupt():
        wait_for(lambda: any((path / "here").exists() for path in set(scratch().glob("runs/*")) - before))
        time.sleep(0.5)  # let the other worker get to where it waits
        left["at"] = time.monotonic()
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        dtk.run(wait_for_a_peer, args=(in_a_collective,))
    assert time.monotonic() - left["at"] < 3.0
    thread.join()
    assert dtk.run(add_up, workers=1).results[0][1] == 1


def first_weights():
    import keras

    drawn = keras.random.uniform((3,)) if hasattr(keras, "random") else keras.initializers.RandomUniform()((3,))
    return keras.layers.Dense(3).build((None, 2)) or drawn.numpy().tolist()


def test_keras_is_seeded_alike():
    one, two = dtk.run(first_weights, workers=2, seed=5).results
    assert one == two == dtk.baseline(first_weights, seed=5).results[0]
    assert one != dtk.baseline(first_weights, seed=6).results[0]
