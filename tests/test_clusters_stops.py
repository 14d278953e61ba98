"""Workers that stand somewhere: looked into beside each other, pulled from, held, caught up with."""

from __future__ import annotations

import re

import numpy as np
import pytest

import dtk
from dtk.errors import ClusterConfigError
from dtk.interactive import clusters
from dtk.interactive.clusters import CellFailed

pytestmark = [pytest.mark.trains, pytest.mark.slow]


@pytest.fixture
def at_the_prompt(monkeypatch, capsys):
    """What is typed at a debugger's prompts; what was shown after each, by what was typed, comes when it is called."""

    def typed(*lines):
        shown, rest = {}, iter([*lines, "q"])

        def ask(prompt):
            shown[typed.last] = capsys.readouterr().out.splitlines()
            typed.last = next(rest)
            return typed.last

        capsys.readouterr()
        typed.last = ""
        monkeypatch.setattr("builtins.input", ask)
        return shown

    return typed


def test_at_breakpoints_one_worker_is_asked_after_the_other(cluster, at_the_prompt):
    shown = at_the_prompt("p mine", "c", "p  mine", "c")
    cluster.cell("def f():\n    mine = me\n    breakpoint()\n    return total(mine)\nf()")
    one, other = (re.fullmatch(r"\[(worker \d)\] (\d)", shown[key][0]) for key in ("p mine", "p  mine"))
    assert {(one[1], one[2]), (other[1], other[2])} == {("worker 0", "0"), ("worker 1", "1")}
    with pytest.raises(CellFailed, match="worker 1 raised ZeroDivisionError"):
        cluster.cell("def g(k):\n    if me: late = 1 / 0\n    else: late = 1\n    return late\ng(3)")
    shown = at_the_prompt("p k")
    cluster.cell("%debug", workers=[1])
    assert shown["p k"] == ["[worker 1] 3"]


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


def test_two_replicas_of_one_worker(capsys, monkeypatch):
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
        cluster.cell("a = 1\nstrategy.run(share)\nlast = 1")
        assert "worker 0: held before a collective in line 2" in capsys.readouterr().out
        assert cluster.pull("a") == [1]
        cluster.step()  # both replicas' parts of one collective
        assert cluster.run("last") == [1]
        cluster.resume()


def test_a_cell_at_a_prompt_is_freed(cluster, monkeypatch):
    def leaves(prompt):
        raise LookupError(prompt)  # whatever the front end does

    monkeypatch.setattr("builtins.input", leaves)
    with pytest.raises(LookupError, match=r"\[worker 1\] \(Pdb\)"):
        cluster.cell("if me:\n    breakpoint()\n    x = 1\n    x = 2\ntotal(1)")
    assert "replicas are equal" in cluster.free()
