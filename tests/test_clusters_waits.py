"""Errors, waits and interrupts in workers that stay: named, freed, and the cluster goes on."""

from __future__ import annotations

import re
import time

import pytest
from staying import interrupt_after

from dtk.errors import ClusterConfigError, RunInterrupted
from dtk.interactive.clusters import CellFailed

pytestmark = pytest.mark.trains


def test_an_error_on_all_is_said_once_and_the_cluster_goes_on(cluster):
    with pytest.raises(CellFailed) as error:
        cluster.run("value = 1\n1 / 0")
    assert str(error.value) == "workers 0-1 raised ZeroDivisionError: division by zero, in line 2 (`1 / 0`)"
    lines = error.value.tracebacks[1].splitlines()
    assert re.fullmatch(r'  File "<cell \d+>", line 2, in <(module|cell line: 0)>', lines[1])  # the second: IPython 8
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


@pytest.mark.slow
def test_a_one_sided_error_in_a_function_of_tensorflow_is_freed(cluster):
    with pytest.raises(CellFailed, match="worker 0 waits for worker 1 in line 4"):
        cluster.run(
            "for k in range(10):\n    if me == 1 and k == 3:\n        raise ValueError\n    step(next(batches))"
        )
    began = time.monotonic()
    said = cluster.free()
    assert time.monotonic() - began < 10
    # Adam has counted the step that worker 0 has begun.
    assert re.fullmatch(
        r"the collectives that were .* aborted, .*; replicas differ in .*: cluster.sync\(\) gives all .*", said
    ), said
    assert cluster.inspect().workers.eq("DIFFER").any()


@pytest.mark.slow
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
    assert re.search(r"dtk: \[worker \d\] line 7 of cell 1 .* met in one collective", said)
    assert "called in line 4 (`y = total(10)`)" in said
    assert "called in line 2 (`y = total(1)`)" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("while True: step(next(batches))", "stopped before the next all-reduce, so that no step is lost; replicas"),
        ("time.sleep(60)", "stopped in the middle of its Python code; replicas are equal"),
        ("if me: time.sleep(60)\nelse: total(1)", "; replicas are equal"),
    ],
    ids=["in steps", "in Python", "one waits"],
)
@pytest.mark.filterwarnings("ignore:.*unclosed file")  # interrupted between an `open` and its `with`
def test_an_interrupt_ends_the_cell_and_says_how(cluster, code, words):
    timer = interrupt_after(0.7)
    try:
        with pytest.raises(RunInterrupted, match=r"^cell \d+ was interrupted: ") as error:
            cluster.run(code)
    finally:
        timer.cancel()
    assert words in str(error.value)


# ---- what `dtk.compat.collectives` is for


def test_the_counters_are_asked_at_each_call_of_a_function(cluster):
    """Where this fails, the gate does not see the collectives inside of a `tf.function` any more."""
    cluster.run("from dtk.compat import collectives\nbefore = sum(collectives.keys().values())\nstep(next(batches))")
    first, second = cluster.run("once = sum(collectives.keys().values())\nstep(next(batches))\nonce - before")
    assert first == second > 0
    assert cluster.run("sum(collectives.keys().values()) - once") == [first, second]


@pytest.mark.slow
def test_after_an_abort_collectives_have_to_be_enabled(cluster):
    """Where this fails, TensorFlow goes on by itself, and `enable` can go."""
    cluster.run("from dtk.compat import collectives\ncollectives.abort('a test')")
    with pytest.raises(CellFailed, match="workers 0-1 raised AbortedError"):
        cluster.run("total(1)")
    assert cluster.run("total(1)") == [2.0, 2.0]  # the error has brought it about


@pytest.mark.slow
def test_no_service_stands_between_a_worker_and_one_in_its_place(cluster):
    """Where the first of these fails, see `let_peers_come_back`: a replacement may be refused."""
    code = "from tensorflow.python.eager import context\ncontext.context().config.experimental.coordination_config.{}"
    assert cluster.run(code.format("service_type")) == ["", ""]
    assert cluster.run("strategy.extended._enable_check_health") == [False, False]
