"""Real worker processes, functions without TensorFlow: places, seeds, environment, output. Warm and cold alike."""

from __future__ import annotations

import json
import os
import platform
import random
import sys
import tempfile

import pytest
from starting import mostly_warm

import dtk
from dtk.launch import warm

pytestmark = pytest.mark.trains


def place():
    config = json.loads(os.environ["TF_CONFIG"])
    return config["task"], config["cluster"], os.getcwd(), dtk.is_chief(), str(dtk.run_dir())


def test_each_worker_knows_its_place(start, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = dtk.run(place, workers=3, start=start)
    assert [result[0]["index"] for result in run.results] == [0, 1, 2]
    assert len({json.dumps(result[1]) for result in run.results}) == 1, "one cluster, the same for all"
    assert [result[1]["worker"] for result in run.results] == [run.tf_config[0]["cluster"]["worker"]] * 3
    assert {result[2] for result in run.results} == {str(tmp_path)}
    assert [result[3] for result in run.results] == [True, False, False]
    assert {result[4] for result in run.results} == {str(run.dir)}
    assert run.dir.stat().st_mode & 0o777 == 0o700


def lone():
    return "TF_CONFIG" in os.environ, dtk.is_chief()


@mostly_warm
def test_a_baseline_has_no_tf_config(start):
    run = dtk.baseline(lone, start=start)
    assert (run.mode, run.workers, run.results) == ("single", 1, [(False, True)])
    versions = json.loads((run.dir / "versions.json").read_text())
    assert versions["Python"] == platform.python_version()
    assert {"tensorflow", "keras"} < {*versions}


def draws():
    import numpy

    return random.random(), float(numpy.random.rand())


@mostly_warm
def test_every_process_is_seeded_alike(start):
    cluster, again, other = (dtk.run(draws, start=start, seed=seed).results for seed in (1, 1, 2))
    assert cluster == again
    assert cluster[0] == cluster[1]
    assert cluster != other
    assert dtk.baseline(draws, seed=1, start=start).results == cluster[:1]


def variables():
    return {k: v for k, v in os.environ.items() if "proxy" in k.lower() or k.endswith("_THREADS")}


@mostly_warm
def test_proxies_stay_behind_and_cores_are_shared(start, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    seen = dtk.run(variables, start=start).results[0]
    assert not [name for name in seen if "proxy" in name.lower()]
    share = str(max(1, dtk.environment.cores() // 2))
    assert seen["TF_NUM_INTRAOP_THREADS"] == seen["TF_NUM_INTEROP_THREADS"] == seen["OMP_NUM_THREADS"] == share


@mostly_warm
def test_temporary_files_stay_in_the_runs_directory(start):
    run = dtk.run(tempfile.gettempdir, start=start)
    assert run.results == [str(worker.path / "tmp") for worker in run.folder.each]


def speak():
    print("from Python")
    os.write(1, b"from C, to fd 1\n")
    os.write(2, b"from C, to fd 2\n")
    print("no newline at the end", end="")


@mostly_warm
def test_all_output_reaches_the_log(start):
    for log in dtk.run(speak, start=start).logs:
        assert log.splitlines() == ["from Python", "from C, to fd 1", "from C, to fd 2", "no newline at the end"]


def flood():
    line = "x" * 99 + "\n"
    for _ in range(100_000):
        os.write(1, line.encode())


@mostly_warm
def test_a_flood_blocks_nobody_and_is_kept_whole(start):
    run = dtk.run(flood, start=start)
    assert [(worker.path / "log.txt").stat().st_size for worker in run.folder.each] == [10_000_000] * 2


def module_call():
    import beside

    return beside.answer()


def test_modules_beside_the_notebook_come_along(start, tmp_path, monkeypatch):
    (tmp_path / "beside.py").write_text("def answer():\n    return 42\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    assert dtk.run(module_call, start=start).results == [42, 42]


@mostly_warm
def test_closures_and_lambdas_travel(start):
    factor = 3
    assert dtk.run(lambda x: factor * x, args=(5,), start=start).results == [15, 15]


def test_a_builtin_that_tells_nothing_of_its_parameters():
    assert dtk.run(int, args=("7",)).results == [7, 7]


def test_the_warm_parent_can_be_switched_off(monkeypatch):
    started = []
    monkeypatch.setattr(warm, "_parents", {})
    monkeypatch.setattr(warm, "ParentProcess", started.append)
    monkeypatch.setattr(dtk.environment, "can_fork", lambda: True)
    monkeypatch.setenv("DTK_WARM", "0")
    dtk.warm()
    assert started == []
    monkeypatch.delenv("DTK_WARM")
    dtk.warm()
    assert started == [True]
