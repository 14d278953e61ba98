"""On Colab: the GPU is the worker's, not the kernel's, and what a cell showed last stays."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path

import nbformat
import pytest
from fabricate import fabricate
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

import dtk
from dtk.live.dashboard import Dashboard
from dtk.watch.reader import Reader
from dtk.worker import worker

ROOT = Path(__file__).parent.parent
STANDINS = str(ROOT / "tests" / "standins")


@pytest.fixture
def colab(monkeypatch):
    monkeypatch.setenv("DTK_COLAB", "1")


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
    monkeypatch.setattr(worker.subprocess, "run", lambda *a, **k: subprocess.CompletedProcess(a, 0, told))
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
