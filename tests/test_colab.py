"""On Colab: one worker stands in for several, and says so; its lessons are in test_lane_lessons.py."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path

import nbformat
import pytest
from fabricate import fabricate
from faking import steps_of
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook
from training import BATCH, batches, classifier

import dtk
from dtk import environment, faults
from dtk.environment import Here
from dtk.launch import request
from dtk.live.dashboard import Dashboard
from dtk.records import RunFolder
from dtk.watch.reader import Reader
from dtk.worker import worker

ROOT = Path(__file__).parent.parent
STANDINS = str(ROOT / "tests" / "standins")


@pytest.fixture
def colab(monkeypatch):
    monkeypatch.setenv("DTK_COLAB", "1")


def with_strategy(strategy):
    return strategy.num_replicas_in_sync


def without():
    import json

    return len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])


def with_ring():
    return dtk.ring().workers


# ---- what is Colab


def test_colab_is_a_kernel_where_its_package_is(monkeypatch, tmp_path):
    monkeypatch.delenv("DTK_COLAB", raising=False)
    monkeypatch.setattr(environment, "in_notebook", lambda: True)
    assert not environment.on_colab(), "google.colab is not here"
    monkeypatch.syspath_prepend(STANDINS)
    assert environment.on_colab()
    monkeypatch.setenv("DTK_COLAB", "0")
    assert not environment.on_colab()
    monkeypatch.delenv("DTK_COLAB")
    monkeypatch.setattr(environment, "in_notebook", lambda: False)
    assert not environment.on_colab(), "a program that a cell starts"


def test_a_worker_is_not_on_colab(colab, tmp_path):
    environment.enter(Here(RunFolder(tmp_path, 1), 0, 1, 1, "cluster", 0.0))
    try:
        assert not environment.on_colab()
    finally:
        environment.enter(None)


# ---- what is started


@pytest.mark.parametrize(
    ("fn", "workers", "beside", "started", "said"),
    [
        (with_strategy, 2, False, (1, 2, 1), "1 worker with 2 replicas instead of 2 workers"),
        (with_strategy, 3, False, (1, 3, 1), "1 worker with 3 replicas instead of 3 workers"),
        (with_strategy, 2, True, (1, 1, 2), "1 worker with 1 replica (an evaluator is asked for, or"),
        (without, 2, False, (1, 1, 2), "or the function takes no `strategy`) instead of"),
        (with_strategy, 1, False, (1, 1, 1), None),
        (with_ring, 3, False, (3, 1, 3), None),
    ],
)
def test_one_worker_stands_in_for_several(colab, fn, workers, beside, started, said):
    plan = request.layout(fn, workers, 1, (), beside, False)
    assert (plan.workers, plan.replicas, plan.share) == started
    assert [said in line and "force=True" in line for line in plan.said] == [True] * (said is not None)


def test_nothing_changes_elsewhere_or_by_force(monkeypatch, colab):
    wanted = request.Layout(2, 1, 2, (faults.kill(1, 3),))
    assert request.layout(with_strategy, 2, 1, wanted.faults, False, True) == wanted
    monkeypatch.setenv("DTK_COLAB", "0")
    assert request.layout(with_strategy, 2, 1, wanted.faults, False, False) == wanted


def test_faults_of_other_workers_come_to_the_one_there_is(colab):
    asked = (faults.slow(0, 0.1), faults.slow(1, 0.1), faults.kill(1, 20))
    plan = request.layout(with_strategy, 2, 1, asked, False, False)
    assert plan.faults == (faults.slow(0, 0.1), faults.kill(0, 20)), "the same fault twice comes once"
    assert plan.said[1:] == (
        "slow(worker=1, seconds_per_step=0.1) needs two workers; here it comes to worker 0",
        "kill(worker=1, step=20) needs two workers; here it comes to worker 0",
    )
    with pytest.raises(dtk.ClusterConfigError, match="a single worker has no network to lose"):
        request.layout(with_strategy, 2, 1, (faults.drop_network(1, 2),), False, False)


@pytest.mark.trains
def test_a_run_says_it_in_one_line_and_a_request_that_is_refused_does_not(colab, capsys):
    with pytest.raises(dtk.ClusterConfigError, match="worker 1 is the last"):
        dtk.run(without, workers=2, faults=[faults.kill(7, 1)], start="cold")
    assert capsys.readouterr().out == ""
    run = dtk.run(without, workers=2, start="cold")
    assert run.results == [1]
    assert len(run.tf_config) == run.workers == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if "Colab" in line]
    assert len(lines) == 1
    assert lines[0].startswith("dtk: on Colab, 1 worker with 1 replica")


@pytest.mark.trains
def test_a_fault_and_a_restart_of_the_one_worker(colab):
    run = dtk.run(lambda: steps_of(6), workers=2, faults=[faults.exception(worker=1, step=4)], restarts=1, start="cold")
    assert [attempt.steps for attempt in run.attempts] == [(1, 3), (1, 6)]
    assert run.attempts[0].failed == "worker 0 raised RuntimeError: injected by dtk.faults.exception"


def test_the_fault_lab_offers_the_worker_that_there_is(colab, monkeypatch):
    monkeypatch.setenv("DTK_LIVE", "off")
    assert "worker=0" in repr(dtk.plot.fault_lab(dtk.run, with_strategy, workers=2, steps=4))
    assert "worker=1" in repr(dtk.plot.fault_lab(dtk.run, with_strategy, workers=2, steps=4, force=True))


# ---- with TensorFlow


def train(strategy):
    import tensorflow as tf

    classifier(strategy).fit(batches(4 * BATCH), callbacks=[dtk.Recorder()], verbose=0)
    return [device.device_type for device in tf.config.list_logical_devices()]


@pytest.mark.trains
def test_shares_and_proofs_of_two_replicas_are_real(colab, capsys):
    run, baseline = dtk.run(train, workers=2), dtk.baseline(train)
    assert run.results == [["CPU", "CPU"]]
    assert (run.mode, run.workers, run.records.replica.nunique()) == ("mirrored", 1, 2)
    assert set(run.records.examples) == {BATCH // 2}
    assert list(run.records.groupby("step").loss.sum()) == pytest.approx(list(baseline.records.loss), rel=1e-4)
    capsys.readouterr()
    dtk.verify(run, baseline)
    assert capsys.readouterr().out.count("PASS") == 3


# ---- a GPU: none is here, so TensorFlow is told of one


def fake_tensorflow(gpus):
    made = {}
    config = types.SimpleNamespace(
        list_physical_devices=lambda kind: [f"{kind}:{k}" for k in range(1 if kind == "CPU" else gpus)],
        list_logical_devices=lambda kind: made.get(f"{kind}:0", [None] * gpus),
        LogicalDeviceConfiguration=lambda memory_limit=None: memory_limit,
        set_logical_device_configuration=made.__setitem__,
    )
    return types.SimpleNamespace(config=config), made


@pytest.mark.parametrize(
    ("gpus", "told", "limits", "names"),
    [
        (0, "", None, ["CPU:0", "CPU:1"]),
        (1, "15000\n", [6988, 6988], ["GPU:0", "GPU:1"]),
        (1, "none", [2048, 2048], ["GPU:0", "GPU:1"]),
        (1, "900\n", [512, 512], ["GPU:0", "GPU:1"]),
        (2, "15000\n15000\n", None, ["GPU:0", "GPU:1"]),
    ],
)
def test_replicas_share_the_gpu_that_there_is(monkeypatch, gpus, told, limits, names):
    tensorflow, made = fake_tensorflow(gpus)
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: subprocess.CompletedProcess(a, 0, told))
    worker.split(2)
    assert made["CPU:0"] == [None, None]
    assert made.get("GPU:0") == limits
    assert worker.of_replicas(2) == names


@pytest.mark.trains
def test_workers_see_the_gpu_and_take_of_it_what_they_need(colab, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("TF_FORCE_GPU_ALLOW_GROWTH", raising=False)
    read = lambda: [os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "TF_FORCE_GPU_ALLOW_GROWTH")]  # noqa: E731
    assert dtk.run(read, workers=2, start="cold").results == [["", "true"]]


# ---- in a notebook


def test_the_last_frame_stays_in_the_cell(colab, tmp_path, monkeypatch):
    folder = fabricate(tmp_path, workers=1).folder
    shown = []
    handle = types.SimpleNamespace(update=lambda bundle, raw: shown.append((bundle, raw)))
    monkeypatch.setattr("dtk.live.dashboard.display", lambda bundle, **how: handle)
    view = Dashboard(Reader(folder), 1, "1 worker with 2 replicas", "mirrored")
    view.close("finished in 1.0 s", finished=True)
    ((bundle, raw),) = shown
    assert raw
    assert set(bundle) == {"text/html", "text/plain"}, "no widget: nothing reaches it once its cell has ended"
    assert "finished after step 30" in bundle["text/html"]
    assert 'value="30" max="30"' in bundle["text/html"]
    assert "<summary>worker 0 (chief): what it printed</summary>" in bundle["text/html"]
    monkeypatch.setenv("DTK_COLAB", "0")
    Dashboard(Reader(folder), 1, "run", "mirrored").close("finished in 1.0 s", finished=True)
    assert any("widget" in kind for kind in shown[1][0]), "elsewhere the widget stays"


@pytest.mark.trains
def test_a_notebook_with_colabs_package(monkeypatch):
    """No DTK_COLAB: the kernel finds the package by itself, never imports TensorFlow, and shows the run's end."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), STANDINS]))
    monkeypatch.setenv("JUPYTER_PATH", os.path.join(sys.prefix, "share", "jupyter"))
    for name in ("DTK_LIVE", "DTK_COLAB", "CI"):
        monkeypatch.delenv(name, raising=False)
    sources = (
        "import os, sys, dtk\nfrom google.colab import output\noutput.enable_custom_widget_manager()",
        "run = dtk.run(lambda: print('hello') or os.getpid(), workers=2, start='cold')",
        "assert run.results != [os.getpid()]\nprint('tensorflow' in sys.modules, run)",
    )
    notebook = new_notebook(cells=[new_code_cell(source) for source in sources])
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    nbformat.validate(notebook)
    said, view = notebook.cells[1].outputs[0], notebook.cells[1].outputs[-1]
    assert said.text.startswith("dtk: on Colab, 1 worker with 1 replica")
    assert view.data["text/plain"].startswith("cluster of 1 worker: finished in")
    assert "widget" not in "".join(view.data)
    assert "finished in" in view.data["text/html"]
    assert "hello" in view.data["text/html"]
    last = "".join(output.text for output in notebook.cells[2].outputs)
    assert last == "False <Run mode=cluster workers=1 replicas=1 steps=0>\n"
