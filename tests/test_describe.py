"""`dtk.environment.describe()`: what it says of a kernel and of each kind of worker."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

import dtk
from dtk import environment, limits
from dtk.environment import Here
from dtk.records import RunFolder


@pytest.fixture(autouse=True)
def kernel(monkeypatch):
    """Two cores, a kernel that may fork, and none of the variables that decide otherwise."""
    monkeypatch.setattr(limits, "cores", lambda: limits.Limit(2, "CPU_LIMIT"))
    monkeypatch.setattr(environment, "can_fork", lambda: True)
    for name in ("DTK_WARM", "DTK_COLAB"):
        monkeypatch.delenv(name, raising=False)
    yield
    environment.enter(None)


def test_its_lines_are_facts_with_their_names(monkeypatch):
    found = {"Python": "3.11.9", "tensorflow": "2.21.0", "keras": None, "dtk": "0.1.0"}
    monkeypatch.setattr(environment, "versions", lambda *packages: found)
    assert repr(dtk.environment.describe()).splitlines() == [
        "mode        kernel, workers start warm",
        "cores       2, by CPU_LIMIT",
        "Python      3.11.9",
        "tensorflow  2.21.0",
        "keras       not installed",
        "dtk         0.1.0",
    ]


@pytest.mark.parametrize(
    ("variable", "value", "mode"),
    [
        ("DTK_WARM", "1", "kernel, workers start warm"),
        ("DTK_WARM", "0", "kernel, workers start cold"),
        ("DTK_COLAB", "1", "kernel on Colab, one worker stands in for several"),
    ],
)
def test_what_a_kernel_starts(monkeypatch, variable, value, mode):
    monkeypatch.setenv(variable, value)
    assert dtk.environment.describe().mode == mode


@pytest.mark.parametrize(
    ("place", "mode"),
    [
        ({"worker": 1, "workers": 2, "mode": "cluster"}, "cluster, worker 1 of 2, counted from 0"),
        ({"worker": 0, "workers": 2, "mode": "apart"}, "apart, worker 0 of 2, counted from 0"),
        ({"worker": 2, "workers": 2, "mode": "cluster", "role": "evaluator"}, "cluster, evaluator beside 2 workers"),
        ({"worker": 0, "workers": 1, "mode": "mirrored", "replicas": 3}, "mirrored, one process, replicas: 3"),
        ({"worker": 0, "workers": 1, "mode": "single"}, "single, one process, replicas: 1"),
    ],
)
def test_what_a_worker_is(tmp_path, place, mode):
    environment.enter(Here(RunFolder(tmp_path, place["workers"]), **{"replicas": 1, "clock": 0.0, **place}))
    assert dtk.environment.describe().mode == mode


def test_the_versions_are_those_that_are_installed():
    found = dtk.environment.describe().versions
    assert list(found) == ["Python", "tensorflow", "keras", "dtk"]
    assert found["Python"] == platform.python_version()
    assert environment.versions("no-such-package-of-dtk")["no-such-package-of-dtk"] is None
    assert environment.versions("pytest")["pytest"] == pytest.__version__
    assert environment.versions("dtk")["dtk"] == dtk.__version__, "also where dtk is a folder and was not installed"


def test_no_tensorflow_is_imported_for_it():
    code = "import sys, dtk; print(dtk.environment.describe()); assert not {'tensorflow', 'keras'} & {*sys.modules}"
    unblocked = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # `pytest --fast` blocks
    root = os.path.dirname(os.path.dirname(dtk.__file__))
    done = subprocess.run([sys.executable, "-c", code], env={**unblocked, "PYTHONPATH": root}, capture_output=True)
    assert done.returncode == 0, done.stderr
