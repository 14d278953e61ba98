"""Workers that stand somewhere: looked into beside each other, pulled from, held, caught up with."""

from __future__ import annotations

import re

import numpy as np
import pytest
from waiting import wait_for

import dtk
from dtk.errors import ClusterConfigError
from dtk.interactive import clusters
from dtk.interactive.cells import CellFailed

pytestmark = [pytest.mark.trains, pytest.mark.slow]


@pytest.fixture
def at_the_prompt(monkeypatch, capsys):
    """What is typed at a debugger's prompts; what was shown after each, by what was typed, comes when it is called."""

    def typed(*lines, when=lambda: True):
        shown, rest = {}, iter([*lines, "q"])

        def ask(prompt):
            wait_for(when)
            shown[typed.last] = capsys.readouterr().out.splitlines()
            typed.last = next(rest)
            return typed.last

        capsys.readouterr()
        typed.last = ""
        monkeypatch.setattr("builtins.input", ask)
        return shown

    return typed


STEP = """
def stepper(k):
    loss = tf.constant([2.0 + me, 1.0])
    if me == 1:
        breakpoint()
    return total(loss[0])
value = stepper(7)
"""


def test_a_name_on_all_workers_while_one_is_at_a_breakpoint(cluster, at_the_prompt):
    lines = ["replicas loss", "replicas", "replicas k", "loss = [5]", "replicas loss ", "p loss", "replicas total(1)"]
    shown = at_the_prompt(*lines, "c", when=lambda: place(cluster, 0)[:2] == ["<cell 1>", 7])  # in its all-reduce
    cluster.cell(STEP)
    head, row, *stands = shown["replicas loss"]
    assert head.split() == ["name", "workers", "worker", "0", "worker", "1", "shape"]
    assert row.split()[:2] == ["loss", "differ,"]
    assert row.endswith("(2,)")
    assert stands == shown["replicas"]
    assert re.match(r"worker 0: line 7 of cell 1 \(`return float.*called in line 7 \(`value = stepper", stands[0])
    assert re.match(r"worker 1: line 6 \(`return total\(loss\[0\]\)`\), called in line 7", stands[1])
    assert shown["replicas k"][1].split() == ["k", "equal", "7", "7"]
    assert shown["replicas loss "][1].split()[:3] == ["loss", "differ,", "as"]
    assert "[5]" in shown["replicas loss "][1]  # as it was assigned at the prompt, also afterwards
    assert shown["p loss"] == ["[worker 1] [5]"]
    assert "in a cell names alone are read" in shown["replicas total(1)"][0]


WORKERS = ["worker 0", "worker 1"]


def place(cluster, worker):
    return cluster._session.peers[worker].ask("where")["place"]


def test_at_the_same_breakpoint_after_an_error_and_where_a_name_is_not(cluster, at_the_prompt):

    def both():
        return 4 in place(cluster, 0) and 4 in place(cluster, 1)

    rest = ["replicas mine", "c", "replicas  mine", "c"]
    shown = at_the_prompt(*rest, when=lambda: len(shown) > 1 or both())
    cluster.cell("def f():\n    mine = me\n    breakpoint()\n    return mine\nf()")
    assert shown["replicas mine"][1].split()[-2:] == ["0", "1"]
    assert all("line 4 (`return mine`)" in line for line in shown["replicas mine"][2:4])
    one, other = (re.match(r"\[(worker \d)\]", shown[key][0])[1] for key in ("", "c"))
    assert {one, other} == {*WORKERS}  # one after the other, and not by turns
    with pytest.raises(CellFailed, match="worker 1 raised ZeroDivisionError"):
        cluster.cell("def g(k):\n    if me: late = 1 / 0\n    else: late = 1\n    return late\ng(3)")
    shown = at_the_prompt("replicas k", "replicas model", "replicas nothing")
    cluster.cell("%debug", workers=[1])
    assert shown["replicas k"][1].split() == ["k", "only", "on", "1", "3"]
    assert shown["replicas k"][2] == "worker 0: in no cell"
    assert [line.split()[:2] for line in shown["replicas model"][1:5]] == [
        [f"model.weights[{k}]", "equal"] for k in range(4)
    ]
    assert shown["replicas nothing"][0] == "NameError: name 'nothing' is not defined"


def test_what_is_local_to_a_function_in_which_workers_are_held(cluster):
    cluster.pause()
    cluster.cell("def half(part):\n    twice = part * 2\n    return total(twice)\nhalved = half(me + 1)")
    found = cluster.inspect().set_index("name")
    assert [*found.index[:3]] == ["value in total()", "part in half()", "twice in half()"]
    assert found.workers["twice in half()"] == "differ, as each has its own"
    assert (found.loc["twice in half()", "worker 0"], found.loc["twice in half()", "worker 1"]) == ("2", "4")
    assert cluster.pull("twice") == [2, 4]
    cluster.resume()
    assert cluster.run("halved") == [6.0, 6.0]


GRADIENTS = """
own = [tf.constant([1.0 + me, 2.0])]
together = [strategy.reduce("sum", own[0], axis=None)]
"""


def test_gradients_are_pulled_before_and_after_an_all_reduce(cluster):
    cluster.pause()
    cluster.cell(GRADIENTS)
    np.testing.assert_array_equal(cluster.pull("own[0]"), [[1, 2], [2, 2]])
    assert [*cluster.pull("model", workers=[1])[0]] == [*cluster.inspect().query("kept == 'mirrored'").called[:4]]
    with pytest.raises(ClusterConfigError, match="worker 0: NameError: name 'together' is not defined"):
        cluster.pull("together[0]")
    with pytest.raises(ClusterConfigError, match=r"worker 0: own\[0\] \* 2: in a cell names alone are read"):
        cluster.pull("own[0] * 2")
    cluster.step()
    np.testing.assert_array_equal(cluster.pull("together[0]"), [[3, 4], [3, 4]])
    cluster.resume()
    assert cluster.inspect().set_index("name").workers["together[0]"] == "equal"


def test_one_looks_while_another_waits_for_what_cant_come(cluster):
    with pytest.raises(CellFailed, match="worker 0 waits for worker 1"):
        cluster.cell("seen = me\nif me == 0: total(1)")
    assert cluster.pull("seen") == [0, 1]
    cluster.cell("total(1)", workers=[1])


def test_unlike_lines_are_named_in_the_workers_order_when_one_steps(cluster, capsys):
    cluster.pause()
    cluster.cell("if me:\n    y = total(1)\nelse:\n    y = total(10)")
    held = capsys.readouterr().out.splitlines()
    assert [line[: len("dtk: worker 0: held")] for line in held] == [f"dtk: {worker}: held" for worker in WORKERS]
    cluster.resume()
    said = capsys.readouterr().out
    assert re.search(r"dtk: \[worker 0\] .*total\(10\)`\) and \[worker 1\] .*total\(1\)`\) met in one collective", said)
    assert said.rstrip().endswith("met in one collective: unless both are the same step, its result is a mix")


def test_who_catches_up_from_another_line_is_named(cluster, capsys):
    with pytest.raises(CellFailed, match="run the rest on the workers that are awaited"):
        cluster.cell("if me == 0: first = total(1)")
    cluster.cell("second = total(2)", workers=[1])
    (said,) = capsys.readouterr().out.splitlines()
    assert "[worker 0]" in said
    assert "called in line 1 (`second = total(2)`) met in one collective: unless both are the same step" in said


# ---- one worker with two replicas

REPLICAS = """
import tensorflow as tf
with strategy.scope():
    v = tf.Variable([1.0, 2.0])

def share():
    own = v * tf.cast(1 + tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)
    both = tf.distribute.get_replica_context().all_reduce("sum", own)
    return own, both

shares = strategy.run(tf.function(share))
alike = v.assign_add([1.0, 1.0])
texts = tf.constant(["a", "b"])
"""


def test_two_replicas_of_one_worker(at_the_prompt, capsys, monkeypatch):
    monkeypatch.setattr(clusters, "_open", None)  # beside that of this file
    with dtk.cluster(workers=1, replicas=2) as cluster:
        cluster.cell(REPLICAS)
        found = cluster.inspect().set_index("name")
        assert found.kind["shares[0]"] == "PerReplica"
        assert [len(each.split()) for each in found["worker 0"][["shares[0]", "shares[1]"]]] == [2, 2]
        assert dict(found.workers) == {
            "v": "equal",
            "shares[0]": "differ, as each has its own",
            "shares[1]": "equal",
            "alike": "equal",
            "texts": "equal",
        }
        assert found.kept["alike"] == "mirrored"
        np.testing.assert_array_equal(cluster.pull("shares[0]")[0], [[1, 2], [2, 4]])
        ((_, both),) = cluster.pull("shares")
        np.testing.assert_array_equal(both, [[3, 6], [3, 6]])
        cluster.pause()
        capsys.readouterr()
        cluster.cell("a = strategy.reduce('sum', shares[0], axis=None)\nstrategy.run(share)\nlast = 1")
        assert "worker 0: held before a collective in line 1" in capsys.readouterr().out
        assert "a" not in [*cluster.inspect().name]
        cluster.step()
        assert "worker 0: held before a collective in line 2" in capsys.readouterr().out
        assert [*cluster.inspect().name[:2]] == ["own in share()", "own in share(), replica 1"]
        np.testing.assert_array_equal(cluster.pull("own")[0], [2, 3])
        np.testing.assert_array_equal(cluster.pull("a")[0], [3, 6])
        cluster.step()  # both replicas' parts of one collective
        assert cluster.run("last") == [1]
        cluster.resume()
        shown = at_the_prompt("replicas own", "replicas v", "c", "c")
        cluster.cell("def mine():\n    own = v * 1.0\n    breakpoint()\n    return own\nstrategy.run(mine)")
        assert [len(shown[f"replicas {name}"]) for name in ("own", "v")] == [3, 3]  # head, row, where it is


def test_a_cell_at_a_prompt_is_freed(cluster, monkeypatch):
    def leaves(prompt):
        raise LookupError(prompt)  # whatever the front end does

    monkeypatch.setattr("builtins.input", leaves)
    with pytest.raises(LookupError, match=r"\[worker 1\] \(Pdb\)"):
        cluster.cell("if me:\n    breakpoint()\n    x = 1\n    x = 2\ntotal(1)")
    assert "replicas are equal" in cluster.free()
