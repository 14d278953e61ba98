"""Workers that stand somewhere: looked into beside each other, pulled from, held, caught up with."""

from __future__ import annotations

import re

import numpy as np
import pytest
from waiting import wait_for

import dtk
from dtk.errors import ClusterConfigError
from dtk.interactive import clusters
from dtk.interactive.failed import CellFailed

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
    lines = ["replicas loss", "replicas", "replicas k", "loss = [5]", "replicas loss ", "p loss", "c"]
    shown = at_the_prompt(*lines, when=lambda: place(cluster, 0)[:2] == ["<cell 1>", 7])  # in its all-reduce
    cluster.cell(STEP)
    table = shown["replicas loss"]
    assert table[0].split() == ["value", "shape", "digest"]
    assert [line.split("  ")[0] for line in table[1:3]] == WORKERS
    assert [re.split("  +", line)[1:3] for line in table[1:3]] == [["[2.0, 1.0]", "(2,)"], ["[3.0, 1.0]", "(2,)"]]
    assert [line.endswith("in stepper()") for line in table[1:3]] == [True, True]
    assert table[3] == "loss differs"
    assert table[4:] == shown["replicas"]
    assert re.match(r"worker 0: line 7 of cell 1 \(`return float.*called in line 7 \(`value = stepper", table[4])
    assert re.match(r"worker 1: line 6 \(`return total\(loss\[0\]\)`\), called in line 7", table[5])
    assert shown["replicas k"][3] == "k is equal on all replicas"
    assert re.split("  +", shown["replicas loss "][2])[1] == "[5]"  # as it was assigned at the prompt, also afterwards
    assert shown["p loss"] == ["[worker 1] [5]"]


WORKERS = ["worker 0", "worker 1"]


def place(cluster, worker):
    return cluster._talk.peers[worker].ask("where")["place"]


def test_at_the_same_breakpoint_after_an_error_and_where_a_name_is_not(cluster, at_the_prompt):

    def both():
        return 4 in place(cluster, 0) and 4 in place(cluster, 1)

    rest = ["replicas mine", "c", "replicas  mine", "c"]
    shown = at_the_prompt(*rest, when=lambda: len(shown) > 1 or both())
    cluster.cell("def f():\n    mine = me\n    breakpoint()\n    return mine\nf()")
    assert [line.split("  ")[:2] for line in shown["replicas mine"][1:3]] == [["worker 0", "0"], ["worker 1", "1"]]
    assert all("line 4 (`return mine`)" in line for line in shown["replicas mine"][4:])
    one, other = (re.match(r"\[(worker \d)\]", shown[key][0])[1] for key in ("", "c"))
    assert {one, other} == {*WORKERS}  # one after the other, and not by turns
    with pytest.raises(CellFailed, match="worker 1 raised ZeroDivisionError"):
        cluster.cell("def g(k):\n    if me: late = 1 / 0\n    else: late = 1\n    return late\ng(3)")
    shown = at_the_prompt("replicas k", "replicas model.weights[0]", "replicas model", "replicas total(1)")
    cluster.cell("%debug", workers=[1])
    assert [line.split() for line in shown["replicas k"][1:3]] == [
        ["worker", "0", "no", "k", "here"],
        ["worker", "1", "3", "in", "g()"],
    ]
    assert shown["replicas k"][3] == "k is on worker 1 only"
    assert shown["replicas k"][4] == "worker 0: in no cell"
    assert "mean " in shown["replicas model.weights[0]"][1]
    assert [line.split()[0] for line in shown["replicas model"][1:5]] == [f"model.weights[{k}]" for k in range(4)]
    assert shown["replicas total(1)"][0].startswith("total(1): more than a name")


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
    with pytest.raises(ClusterConfigError, match=r"worker 0: no together here; while a worker is in a cell, names"):
        cluster.pull("together[0]")
    with pytest.raises(ClusterConfigError, match=r"own\[0\] \* 2: more than a name"):
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
    assert said.rstrip().endswith("met in one collective: what it gave is made of unlike parts")


def test_who_catches_up_from_another_line_is_not_said_to_be_wrong(cluster, capsys):
    with pytest.raises(CellFailed, match="run the rest on the workers that are awaited"):
        cluster.cell("if me == 0: first = total(1)")
    cluster.cell("second = total(2)", workers=[1])
    (said,) = capsys.readouterr().out.splitlines()
    assert "[worker 0]" in said
    assert "called in line 1 (`second = total(2)`) met in one collective: " in said
    assert said.endswith(
        "right if worker 1 ran the rest of the same step; if not, what it gave is made of unlike parts"
    )


def test_who_is_sent_another_cell_without_being_awaited_is(cluster, capsys):
    cluster.pause()
    cluster.cell("first = total(1)", workers=[0])
    cluster.cell("second = total(2)", workers=[1])
    capsys.readouterr()
    cluster.resume()
    assert capsys.readouterr().out.rstrip().endswith("met in one collective: what it gave is made of unlike parts")


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
        np.testing.assert_array_equal(cluster.pull("own")[0], [[2, 3], [4, 6]])
        np.testing.assert_array_equal(cluster.pull("a")[0], [3, 6])
        cluster.step()  # both replicas' parts of one collective
        assert cluster.run("last") == [1]
        cluster.resume()
        shown = at_the_prompt("replicas own", "replicas v", "c", "c")
        cluster.cell("def mine():\n    own = v * 1.0\n    breakpoint()\n    return own\nstrategy.run(mine)")
        assert [line.split("  ")[0] for line in shown["replicas own"][1:2]] == ["worker 0, replica 0"]
        assert [line.split("  ")[0] for line in shown["replicas v"][1:3]] == [
            "worker 0, replica 0",
            "worker 0, replica 1",
        ]


def test_a_cell_at_a_prompt_is_freed(cluster, monkeypatch):
    def leaves(prompt):
        raise LookupError(prompt)  # whatever the front end does

    monkeypatch.setattr("builtins.input", leaves)
    with pytest.raises(LookupError, match=r"\[worker 1\] \(Pdb\)"):
        cluster.cell("if me:\n    breakpoint()\n    x = 1\n    x = 2\ntotal(1)")
    assert "replicas are equal" in cluster.free()
