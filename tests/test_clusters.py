"""Workers that stay, cell by cell: real processes, which print, raise, wait, are interrupted, and go on."""

from __future__ import annotations

import os
import re
import signal
import threading
import time

import numpy as np
import pytest
from waiting import wait_gone

import dtk
from dtk.errors import ClusterConfigError, RunInterrupted
from dtk.interactive.failed import CellFailed
from dtk.process import owned

pytestmark = pytest.mark.trains

BEGIN = """
import time
import tensorflow as tf
me = strategy.cluster_resolver.task_id

def total(value):
    return float(strategy.reduce("sum", tf.constant(float(value)), axis=None))
"""
MODEL = """
import keras, numpy as np
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam(0.01)
x = np.random.rand(64, 4).astype("float32")
y = x.sum(1, keepdims=True)
data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((x, y)).batch(16).repeat())
batches = iter(data)

@tf.function
def step(batch):
    def one(batch):
        x, y = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(x) - y) ** 2) / 16
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss
    return strategy.reduce("sum", strategy.run(one, args=(batch,)), axis=None)

float(step(next(batches)))
"""


@pytest.fixture(scope="module")
def cluster():
    with dtk.cluster(workers=2) as cluster:
        cluster.run(BEGIN)
        cluster.run(MODEL)
        yield cluster


@pytest.fixture(autouse=True)
def usable_afterwards(request):
    """Whatever a test has done to the cluster, all workers can meet again, with equal replicas."""
    yield
    if "cluster" in request.fixturenames:
        cluster = request.getfixturevalue("cluster")
        cluster.free()
        assert cluster.run("total(1)") == [2.0, 2.0]
        cluster.sync()
        assert cluster.run("float(step(next(batches)))")[0] > 0


def later(seconds, do):
    thread = threading.Timer(seconds, do)
    thread.start()
    return thread


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def test_values_state_and_output_by_worker(cluster, capsys):
    cluster.run("mine = 10 * me\nprint('like the other')\nprint('I am', me)")
    assert cluster.run("mine + 1") == [1, 11]
    assert cluster.run("mine", workers=[1]) == [10]
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "[worker 0-1] like the other"
    assert {"[worker 0] I am 0", "[worker 1] I am 1"} <= {*said}


def test_a_function_gets_the_strategy_and_finds_the_workers_names(cluster):
    def count(strategy):
        return strategy.num_replicas_in_sync, me  # type: ignore[name-defined]  # noqa: F821

    count.__module__ = "__main__"  # as in a notebook
    assert cluster.run(count) == [(2, 0), (2, 1)]


def test_what_c_and_child_processes_print_is_shown_and_what_stays_is_named(cluster, capsys):
    (first, _) = cluster.run("tf.print('by TensorFlow')\n!echo by a shell\n(k for k in range(3))")
    said = capsys.readouterr().out
    assert "[worker 0-1] by TensorFlow\n" in said
    assert "[worker 0-1] by a shell\n" in said
    assert repr(first).startswith("<generator object <genexpr> at")


def test_seeds_are_those_of_a_run(cluster):
    one, two = cluster.run("np.random.RandomState(0).rand(2)")
    np.testing.assert_array_equal(one, two)
    assert cluster.run("float(x.sum())")[0] == cluster.run("float(x.sum())")[1]


def test_inspect_pull_and_sync(cluster):
    cluster.run("model.weights[0].value.values[0].assign_add(np.ones((4, 3)))", workers=[1])
    found = cluster.inspect().set_index("name")
    assert found.workers["model.weights[0]"] == "DIFFER"
    assert found.workers["model.weights[1]"] == "equal"
    assert found["shape"]["model.weights[0]"] == (4, 3)
    assert found.workers["me"] == "differ, as each has its own"
    one, two = cluster.pull("model.weights[0]")
    np.testing.assert_allclose(one + 1, two, rtol=1e-6)
    assert [*cluster.pull("model")[0]] == list(found.called[found.index.str.startswith("model.")])
    assert re.fullmatch(r"4 variables from worker 1; replicas are equal \(\d+ variables compared\)", sync(cluster))
    np.testing.assert_array_equal(*cluster.pull("model.weights[0]"))


def sync(cluster):
    return cluster.sync("model", from_worker=1)


def test_pull_takes_part_in_no_collective(cluster):
    with pytest.raises(ClusterConfigError, match=r"total\(1\): its value is made by all workers together"):
        cluster.pull("total(1)")


def test_an_error_on_all_is_said_once_and_the_cluster_goes_on(cluster):
    with pytest.raises(CellFailed) as error:
        cluster.run("value = 1\n1 / 0")
    assert str(error.value) == "workers 0-1 raised ZeroDivisionError: division by zero, in line 2 (`1 / 0`)"
    lines = error.value.tracebacks[1].splitlines()
    assert re.fullmatch(r'  File "<cell \d+>", line 2, in <module>', lines[1])
    assert lines[2].strip() == "1 / 0"
    assert cluster.run("value") == [1, 1]


ONE_SIDED = """
if me == 1:
    raise ValueError("no data")
result = float(strategy.reduce("sum", tf.constant(1.0), axis=None))
"""


def test_a_one_sided_error_says_who_waits_and_the_rest_can_be_run(cluster):
    with pytest.raises(CellFailed) as error:
        cluster.run(ONE_SIDED)
    rest = ONE_SIDED.splitlines()[-1]
    assert str(error.value) == (
        'worker 1 raised ValueError: no data, in line 3 (`raise ValueError("no data")`); worker 0 waits for worker 1 '
        f"in line 4 (`{rest}`); run the rest on the workers that are awaited, or cluster.free()"
    )
    assert error.value.waits == {0: [1]}
    with pytest.raises(ClusterConfigError, match=r"worker 0 is still in cell \d+, line 4 \(`result = "):
        cluster.run("1")
    cluster.run(rest, workers=[1])
    assert cluster.run("result") == [2.0, 2.0]


def test_a_one_sided_error_in_a_function_of_tensorflow_is_freed(cluster):
    with pytest.raises(CellFailed, match="worker 0 waits for worker 1 in line 4"):
        cluster.run(
            "for k in range(10):\n    if me == 1 and k == 3:\n        raise ValueError\n    step(next(batches))"
        )
    began = time.monotonic()
    said = cluster.free()
    assert time.monotonic() - began < 10
    # Adam has counted the step that worker 0 has begun.
    assert re.fullmatch(r"the collective that was .*; replicas differ in .*: cluster.sync\(\) gives all .*", said), said
    assert cluster.inspect().workers.eq("DIFFER").any()


@pytest.mark.parametrize(
    "code",
    ["if me == 0: total(1)", "if me == 1: total(1)", "with strategy.scope():\n    if me == 0: v = tf.Variable(1.0)"],
    ids=["chief", "other", "variable"],
)
def test_a_wait_for_an_idle_worker_is_named_within_a_second_and_freed(cluster, code):
    began = time.monotonic()
    with pytest.raises(CellFailed, match=r"^worker \d waits for worker \d in line \d"):
        cluster.run(code)
    assert time.monotonic() - began < 2  # by two looks, 0.25 s apart; the rest is this machine's other work
    assert "replicas are equal" in cluster.free()


def test_unlike_collectives_are_named_where_tensorflow_adds_them_up(cluster, capsys):
    assert cluster.run("if me:\n    y = total(1)\nelse:\n    y = total(10)\ny") == [11.0, 11.0]
    said = capsys.readouterr().out
    assert re.search(
        r"dtk: \[worker 0\] line 7 of cell 1 \(`return .*`\), called in line 4 \(`y = total\(10\)`\) and \[worker 1\] "
        r"line 7 of cell 1 \(`return .*`\), called in line 2 \(`y = total\(1\)`\) met in one collective",
        said,
    )


def test_unlike_shapes_are_named(cluster):
    with pytest.raises(CellFailed, match="the workers met in different collectives, with the shapes"):
        cluster.run("strategy.reduce('sum', tf.ones(1 + me), axis=None)")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            "while True: step(next(batches))",
            "stopped before the next all-reduce, so that no step is lost; replicas",
        ),
        ("time.sleep(60)", "stopped in the middle of its Python code; replicas are equal"),
        ("if me: time.sleep(60)\nelse: total(1)", "; replicas are equal"),
    ],
    ids=["in steps", "in Python", "one waits"],
)
def test_an_interrupt_ends_the_cell_and_says_how(cluster, code, words):
    timer = later(0.7, interrupt)
    try:
        with pytest.raises(RunInterrupted, match=r"^cell \d+ was interrupted: ") as error:
            cluster.run(code)
    finally:
        timer.cancel()
    assert words in str(error.value)


def test_input_is_asked_for_with_the_workers_name(cluster, monkeypatch):
    asked = []
    monkeypatch.setattr("builtins.input", lambda prompt: asked.append(prompt) or "7")
    assert cluster.run("int(input('how many? '))", workers=[1]) == [7]
    assert asked == ["[worker 1] how many? "]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda cluster: cluster.run("1", workers=[5]), "worker 5: the workers are 0 to 1"),
        (lambda cluster: cluster.run(3), "run(3): it takes code as a string, or a function"),
        (lambda cluster: dtk.cluster(), "a cluster of 2 workers is open, with "),
        (lambda cluster: cluster.sync("nothing"), "worker 0 has no nothing"),
    ],
    ids=["unknown worker", "no code", "two clusters", "unknown name"],
)
def test_bad_input_is_one_sentence_and_harms_nothing(cluster, call, words):
    with pytest.raises(ClusterConfigError) as error:
        call(cluster)
    assert str(error.value).startswith(words)


def test_magics(cluster, capsys):
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    dtk.load_ipython_extension(shell)
    shell.run_cell("%%workers\nprint('by magic')").raise_error()
    shell.run_cell("%%worker 1\nprint('alone')").raise_error()
    said = capsys.readouterr().out.splitlines()
    assert said == ["[worker 0-1] by magic", "[worker 1] alone"]


@pytest.mark.slow
def test_rich_output_is_folded(cluster, capsys):
    cluster.run("import pandas as pd\npd.DataFrame({'a': [1]})")
    assert capsys.readouterr().out.splitlines()[0] == "[worker 0-1]"
    cluster.run("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()")
    assert "[worker 0-1] <Figure size 640x480 with 1 Axes>" in capsys.readouterr().out


@pytest.mark.slow
def test_much_output_stops_nobody_and_stays_in_the_log(cluster, capsys):
    cluster.run("for k in range(200_000): print('line', k, me)")
    said = capsys.readouterr().out
    for worker, folder in enumerate(cluster._talk.started.folder.each):
        assert folder.log.count(f" {worker}\n") >= 200_000
        left = re.search(rf"\[worker {worker}\] \.\.\. ([\d,]+) further lines in ", said)
        assert int(left[1].replace(",", "")) + said.count(f"[worker {worker}] line") == 200_000


# ---- the end


def test_nothing_is_left_of_a_closed_cluster(monkeypatch):
    from dtk import clusters

    monkeypatch.setattr(clusters, "_open", None)  # beside that of this file
    other = dtk.cluster(workers=1, replicas=2)
    pids = [other._talk.started.site.source.started[peer.key] for peer in other._talk.peers]
    assert other.run("strategy.num_replicas_in_sync") == [2]
    other.close()
    other.close()
    assert wait_gone(pids) == []
    assert not [each for each in owned.processes() if each.pid in pids]
    with pytest.raises(ClusterConfigError, match=r"this cluster is closed: dtk\.cluster\(\) makes a new one"):
        other.run("1")


# ---- what `dtk.compat.collectives` is for


def test_the_counters_are_asked_at_each_call_of_a_function(cluster):
    """Where this fails, the gate does not see the collectives inside of a `tf.function` any more."""
    cluster.run("from dtk.compat import collectives\nbefore = sum(collectives.keys().values())\nstep(next(batches))")
    first, second = cluster.run("once = sum(collectives.keys().values())\nstep(next(batches))\nonce - before")
    assert first == second > 0
    assert cluster.run("sum(collectives.keys().values()) - once") == [first, second]


def test_after_an_abort_collectives_have_to_be_enabled(cluster):
    """Where this fails, TensorFlow goes on by itself, and `enable` can go."""
    cluster.run("from dtk.compat import collectives\ncollectives.abort('a test')")
    with pytest.raises(CellFailed, match="workers 0-1 raised AbortedError"):
        cluster.run("total(1)")
    assert cluster.run("total(1)") == [2.0, 2.0]  # the error has brought it about


def test_no_service_stands_between_a_worker_and_one_in_its_place(cluster):
    """Where the first of these fails, see `let_peers_come_back`: a replacement may be refused."""
    code = "from tensorflow.python.eager import context\ncontext.context().config.experimental.coordination_config.{}"
    assert cluster.run(code.format("service_type")) == ["", ""]
    assert cluster.run("strategy.extended._enable_check_health") == [False, False]
