"""A cluster that stays, on other machines: the same cells, values, errors and repairs, and nothing is left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import dtk
from dtk.interactive import clusters
from dtk.interactive.cells import CellFailed

sys.path.insert(0, str(Path(__file__).parents[1]))

from staying import RECORDED, interrupt_after, opened
from waiting import wait_gone

pytestmark = [pytest.mark.slow, pytest.mark.trains, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
ENGINES = {"ray": "ray", "hosts": "network", "slurm": "slurm"}


@pytest.fixture(scope="module", params=ENGINES)
def place(request, tmp_path_factory):
    engine = request.getfixturevalue(ENGINES[request.param])
    if request.param == "ray":
        found = dtk.places.Ray()
    elif request.param == "hosts":
        found = dtk.places.Hosts(engine.commands, python=sys.executable)
    else:
        found = dtk.places.Slurm(partition="short", storage=str(tmp_path_factory.mktemp("storage")))
    yield found
    found.close()


@pytest.fixture(scope="module")
def open_cluster(place):
    with opened(on=place) as cluster:
        yield cluster


def test_what_they_print_and_what_they_give(cluster, capsys):
    cluster.cell("print('hello')\nprint('I am', me)\ntf.constant([1, 2])")
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "[worker 0-1] hello"
    assert {"[worker 0] I am 0", "[worker 1] I am 1"} < {*said}
    assert said[-1].startswith("[worker 0-1] <tf.Tensor")
    (one, two) = cluster.run("np.full(3_000_000, me)")
    assert (one.sum(), two.sum()) == (0, 3_000_000)
    left = cluster.run(
        "import os, dtk\nsorted(each for each in os.listdir(dtk.run_dir() / f'worker-{me}') if 'value' in each)"
    )
    assert left == [[], []], "what was handed over is removed there"


def test_much_output_comes_whole(cluster, capsys):
    cluster.run("for k in range(50_000): print('line', k, me)")
    said = capsys.readouterr().out
    for worker, folder in enumerate(cluster._session.started.folder.each):
        assert folder.log.count(f" {worker}\n") >= 50_000
        left = re.search(rf"\[worker {worker}\] \.\.\. ([\d,]+) further lines in ", said)
        assert int(left[1].replace(",", "")) + said.count(f"[worker {worker}] line") == 50_000


def test_functions_and_modules_beside_the_notebook_travel(cluster, tmp_path, monkeypatch):
    (tmp_path / "beside_a_cell.py").write_text("import neighbour\nnumber = neighbour.number")
    (tmp_path / "neighbour.py").write_text("number = 3")
    monkeypatch.syspath_prepend(tmp_path)

    def double(strategy):
        import neighbour

        return neighbour.number * strategy.num_replicas_in_sync

    assert cluster.run("import beside_a_cell\nbeside_a_cell.number") == [3, 3]
    assert cluster.run(double) == [6, 6]


def test_inspect_pull_and_sync(cluster):
    cluster.run("model.weights[0].value.values[0].assign_add(np.ones((4, 3)))", workers=[1])
    assert cluster.inspect().set_index("name").workers["model.weights[0]"] == "DIFFER"
    one, two = cluster.pull("model.weights[0]")
    np.testing.assert_allclose(one + 1, two, rtol=1e-6)
    said = cluster.sync("model", from_worker=1)
    assert re.fullmatch(r"4 variables from worker 1; replicas are equal \(\d+ variables compared\)", said)
    np.testing.assert_array_equal(*cluster.pull("model.weights[0]"))


def test_an_error_keeps_the_cluster_and_free_ends_the_wait(cluster):
    with pytest.raises(CellFailed) as error:
        cluster.run("if me: 1 / 0\ntotal(1)")
    assert str(error.value).startswith(
        "worker 1 raised ZeroDivisionError: division by zero, in line 1 (`if me: 1 / 0`)"
    )
    assert error.value.waits == {0: [1]}
    cluster.run("total(1)", workers=[1])
    with pytest.raises(CellFailed):
        cluster.run("if me: 1 / 0\ntotal(1)")
    assert "replicas are equal" in cluster.free()


def test_an_interrupt_stops_all(cluster):
    timer = interrupt_after(1.0)
    try:
        with pytest.raises(dtk.RunInterrupted, match="was interrupted: stopped .*; replicas are equal"):
            cluster.run("while True: total(1)")
    finally:
        timer.cancel()


def test_questions_and_a_debugger(cluster, capsys, monkeypatch):
    asked, answers = [], iter(["7", "p 40 + inner", "c"])
    monkeypatch.setattr("builtins.input", lambda prompt: asked.append(prompt) or next(answers))
    assert cluster.run("int(input('how many? '))", workers=[1]) == [7]
    cluster.cell("def f(inner):\n    breakpoint()\n    return inner\nf(2)", workers=[1])
    assert "[worker 1] 42" in capsys.readouterr().out.splitlines()
    assert [each.split()[:2] for each in asked] == [["[worker", "1]"]] * 3


def test_cells_are_held_and_stepped_through(cluster):
    cluster.pause()
    cluster.cell("a = total(1)\nb = total(2)")
    cluster.step()
    assert cluster.inspect().set_index("name").loc["a", "worker 1"] == "2.0"
    cluster.resume()
    assert cluster.run("a, b") == [(2.0, 4.0)] * 2


@pytest.mark.parametrize("worker", [0, 1], ids=["chief", "other"])
def test_a_killed_worker_is_replaced(cluster, worker):
    os.kill(cluster.run("import os\nos.getpid()")[worker], signal.SIGKILL)
    time.sleep(1)
    with pytest.raises(dtk.ClusterConfigError, match=f"worker {worker} has ended: cluster.restart"):
        cluster.run("1")
    said = cluster.restart(worker)
    assert f"worker {worker} is a new process" in said
    assert re.search(r"replicas are equal \(\d+ variables compared\)", said), said
    assert cluster.run("total(me)") == [1.0, 1.0]


def test_an_empty_cell_is_quick(cluster):
    seconds = []
    for _ in range(20):
        began = time.perf_counter()
        cluster.cell("pass")
        seconds.append(time.perf_counter() - began)
    print(f"an empty cell: {1000 * sorted(seconds)[10]:.1f} ms")
    assert sorted(seconds)[10] < 0.2


def test_servers_listen_on_the_address_of_tf_config_alone(cluster):
    code = (
        "import json, os, psutil\n"
        "own = json.loads(os.environ['TF_CONFIG'])['cluster']['worker'][me].rpartition(':')[0]\n"
        "listens = [each for each in psutil.net_connections('tcp') if each.status == psutil.CONN_LISTEN]\n"
        "{each.laddr[0].removeprefix('::ffff:') for each in listens if each.pid == os.getpid()} == {own}"
    )
    assert cluster.run(code) == [True, True]


def test_a_second_run_on_the_same_place_is_refused(cluster, place):
    with pytest.raises(dtk.ClusterConfigError, match="another run is under way on this place"):
        dtk.run(lambda: 1, workers=2, on=place)


# ---- sessions of their own


def test_a_session_is_proved_and_nothing_is_left(place, nothing_left):
    if clusters._open is not None:
        clusters._open.close()  # of the tests above
    with dtk.cluster(workers=2, on=place) as cluster:
        assert cluster.run("1 + 1") == [2, 2], "the same place, anew"
        cluster.run(RECORDED)
        cluster.run("train(5)")
        with pytest.raises(CellFailed, match="ZeroDivisionError"):
            cluster.run("late = 3\ntrain(2)\n1 / 0")
        first = cluster.so_far()
        cluster.run("train(late)")
        run, baseline = cluster.so_far(), cluster.baseline()
        (pid, _) = cluster.run("import os, dtk\nopen(dtk.run_dir() / 'saved.txt', 'w').write('by hand')\nos.getpid()")
    assert (first.records.step.max(), run.records.step.max()) == (7, 10)
    dtk.verify(first)
    dtk.verify(run, baseline)
    assert (cluster._session.started.folder.path / "saved.txt").read_text() == "by hand"
    assert wait_gone([pid]) == []


KERNEL = """
import sys, time
sys.path[:0] = [{root!r}]
import dtk
cluster = dtk.cluster(workers=2, on=dtk.places.{place})
cluster.cell("import time, tensorflow as tf; me = strategy.cluster_resolver.task_id")
agents = [lent.facts["pid"] for lent in cluster._session.started.site.lent]
cluster.cell("import os, subprocess; child = subprocess.Popen(['sleep', '300'], start_new_session=True)")
print("ready", *agents, *sum(cluster.run("os.getpid(), child.pid"), ()), flush=True)
{then}
time.sleep(300)
"""
STATES = {
    "idle": "",
    "waits": "cluster.cell(\"if me: time.sleep(300)\\nstrategy.reduce('sum', tf.constant(1.0), axis=None)\")",
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("engine", ["ray", "hosts"])
def test_nothing_is_left_of_a_kernel_that_is_killed(engine, state, request):
    there = request.getfixturevalue(ENGINES[engine])
    made = "Ray()" if engine == "ray" else f"Hosts({there.commands!r}, python=sys.executable)"
    code = KERNEL.format(root=str(ROOT), place=made, then=STATES[state])
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env={**os.environ}
    ) as kernel:
        line = next(line for line in kernel.stdout if line.startswith("ready"))
        pids = [int(pid) for pid in line.split()[1:]]
        assert len(pids) == 6
        if engine == "ray":  # which kills the agents with their driver: a cell's children in sessions of their own stay
            pids = [*pids[:2], *pids[2::2]]
        time.sleep(1)
        kernel.send_signal(signal.SIGKILL)
        kernel.wait(10)
        assert wait_gone(pids, 20) == []


def test_a_machine_that_dies_is_named_and_another_cluster_can_be_had(ray):
    place = dtk.places.Ray()
    with dtk.cluster(workers=2, on=place) as cluster:
        (_, raylet) = cluster.run("import os\nint(os.environ['RAY_RAYLET_PID'])")
        ray.kill(ray.node_of(raylet))
        with pytest.raises((CellFailed, dtk.ClusterConfigError), match="worker 1 on .* is lost with its machine"):
            cluster.run("import time\ntime.sleep(60)")
        cluster.free()
        with pytest.raises(dtk.ClusterConfigError, match=r"close\(\) this cluster: a new one takes other machines"):
            cluster.restart(1)
    ray.add()
    with dtk.cluster(workers=2, on=place) as cluster:
        assert cluster.run("strategy.num_replicas_in_sync") == [2, 2]
    place.close()
