"""Workers that stay, cell by cell: real processes, which print, give values, and are looked into."""

from __future__ import annotations

import re

import numpy as np
import pytest
from waiting import wait_gone

import dtk
from dtk.errors import ClusterConfigError

pytestmark = pytest.mark.trains


def test_values_state_and_output_by_worker(cluster, capsys, monkeypatch):
    cluster.run("mine = 10 * me\nprint('like the other')\nprint('I am', me)")
    assert cluster.run("mine + 1") == [1, 11]
    assert cluster.run("mine", workers=[1]) == [10]
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "[worker 0-1] like the other"
    assert {"[worker 0] I am 0", "[worker 1] I am 1"} <= {*said}
    monkeypatch.setattr(dtk.environment, "live_mode", lambda: "widgets")
    assert cluster._repr_html_().count("waits for a cell") == 2


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
    (optimizer, _) = cluster.run("keras.optimizers.SGD()")  # the kernel would import Keras to have it
    assert "SGD" in repr(optimizer)


def test_seeds_are_those_of_a_run(cluster):
    one, two = cluster.run("np.random.RandomState(0).rand(2)")
    np.testing.assert_array_equal(one, two)
    assert cluster.run("float(x.sum())")[0] == cluster.run("float(x.sum())")[1]


def test_inspect_pull_and_sync(cluster):
    copy = "getattr(model.weights[0], '_value', model.weights[0]).values[0]"  # Keras 3 has it inside its own
    cluster.run(f"{copy}.assign_add(np.ones((4, 3)))", workers=[1])
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
    with pytest.raises(ClusterConfigError, match="outside of a cell no other worker takes part in an all-reduce"):
        cluster.pull("total(1)")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda cluster: cluster.run("1", workers=[5]), "worker=5: it takes a whole number from 0 to 1"),
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
    assert "line 3 (`1 / 0`)" in str(shell.run_cell("%%workers\nx = 1\n1 / 0").error_in_exec)
    assert str(shell.run_cell("%%workers\nx = 1\nx x").error_in_exec).startswith("line 3 (`x x`)")


# ---- the end


def test_nothing_is_left_of_a_closed_cluster(monkeypatch):
    from dtk.interactive import clusters

    monkeypatch.setattr(clusters, "_open", None)  # beside that of this file
    other = dtk.cluster(workers=1, replicas=2)
    pids = [other._session.started.source.started[peer.key] for peer in other._session.peers]
    assert other.run("strategy.num_replicas_in_sync") == [2]
    other.close()
    other.close()
    assert wait_gone(pids) == []
    with pytest.raises(ClusterConfigError, match="no cluster is open here: "):
        other.run("1")
