"""A directory that `dtk.export` writes: what is in it, and that it runs without this process."""

from __future__ import annotations

import math
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from by_hand import environment

import dtk
from dtk import cli
from dtk.launch.place import free_ports
from dtk.places.export import written
from dtk.runs import opened

STEPS = 6
RATES = {"sgd": 0.1}


_ = object()  # as IPython has one, beside a function's own


def first_of(pair=(2, 3)):
    first, _ = pair
    return first


def double(x):
    return 2 * x


def rows(count=STEPS):
    """What `train` reads."""
    return [double(k) for k in range(count)]


def train(strategy, epochs=1):
    import numpy as np
    import tensorflow as tf

    import dtk

    x = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    data = tf.data.Dataset.from_tensor_slices((x, x.sum(axis=1, keepdims=True))).repeat().batch(8).with_options(options)
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(8, activation="tanh"), tf.keras.layers.Dense(1)])
        model.compile(tf.keras.optimizers.SGD(RATES["sgd"]), "mse")
    model.fit(data, epochs=epochs, steps_per_epoch=len(rows()), verbose=0, callbacks=[dtk.Recorder()])
    return math.floor(len(rows()))


def made(by):
    def inner():
        return by

    return inner


def test_a_function_is_written_with_what_it_needs():
    found = written(train)
    assert found.reason == ""
    text = found.text()
    space = {}
    exec(compile(text.replace("import dtk\n", ""), "train.py", "exec"), space)
    assert space["rows"]() == rows()
    assert (space["STEPS"], space["RATES"]) == (STEPS, RATES)
    assert "import math" in found.imports


def test_a_captured_value_becomes_a_global():
    space = {}
    exec(written(made(7)).text(), space)
    assert space["inner"]() == 7


def test_a_functions_own_name_is_nothing_that_it_captures():
    found = written(first_of)
    assert (found.reason, found.values, list(found.functions)) == ("", {}, ["first_of"])


def test_bad_requests_write_nothing(tmp_path):
    for words, change in (
        ("it takes one of script, slurm, kubernetes", {"kind": "ssh"}),
        ("image=None: it is for kind='kubernetes'", {"kind": "kubernetes"}),
        ("image='x': it is for kind='kubernetes'", {"kind": "script", "image": "x"}),
        ("can't be called so", {"kind": "script", "args": (1, 2, 3)}),
    ):
        with pytest.raises(dtk.ClusterConfigError, match=words):
            dtk.export(**{"fn": train, "path": tmp_path / "out", **change})
        assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").touch()
    with pytest.raises(dtk.ClusterConfigError, match="is there already"):
        dtk.export(train, "script", tmp_path / "out")


@pytest.mark.trains
def test_what_each_kind_has(tmp_path):
    for kind, files in (
        ("script", {"start.sh"}),
        ("slurm", {"job.sbatch"}),
        ("kubernetes", {"job.yaml", "Dockerfile"}),
    ):
        image = "example.org/me/train:1" if kind == "kubernetes" else None
        made = dtk.export(train, kind, tmp_path / kind, workers=3, kwargs={"epochs": 2}, image=image)
        assert {path.name for path in made.iterdir()} == {"train.py", "job.json", "sources.json", "README.md", *files}
        text = (made / "train.py").read_text()
        assert text.endswith("    print(train(epochs=2, strategy=strategy))\n")
        compile(text, "train.py", "exec")
        assert "3" in "".join((made / name).read_text() for name in files)


def uses_a_neighbor():
    import neighbor

    return neighbor.answer()


def uses_a_namesake():
    import train

    return train.answer()


@pytest.mark.slow  # a program that imports TensorFlow anew
def test_modules_beside_the_notebook_lie_beside_the_program(tmp_path, monkeypatch):
    for name in ("neighbor", "train"):
        (tmp_path / f"{name}.py").write_text("def answer():\n    return 42\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    made = dtk.export(uses_a_neighbor, "script", tmp_path / "out")
    done = subprocess.run([sys.executable, made / "train.py"], cwd="/", capture_output=True, text=True, timeout=100)
    assert done.stdout == "42\n", done.stderr
    other = dtk.export(uses_a_namesake, "script", tmp_path / "other")
    assert (other / "modules" / "train.py").read_text() == (tmp_path / "train.py").read_text()
    assert not (other / "train.py").exists()
    assert "imports a module of yours that has the program's name, train.py" in (other / "README.md").read_text()


@pytest.mark.trains
def test_what_has_no_source_travels_as_a_pickle(tmp_path):
    found = dtk.export(made(Path("here")), "script", tmp_path / "out")
    assert {path.name for path in found.iterdir()} >= {"function.pkl", "start.sh"}
    assert "because inner captures by, a PosixPath" in (found / "README.md").read_text()


@pytest.mark.trains
def test_a_worker_without_an_engine_says_so(tmp_path, capsys, monkeypatch):
    found = dtk.export(train, "script", tmp_path / "out")
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert cli.main(["worker", str(found)]) == 1
    assert "neither TF_CONFIG nor SLURM_PROCID nor JOB_COMPLETION_INDEX is set" in capsys.readouterr().err


def free_port():
    """Of two in a row that are free: start.sh counts on from the first."""
    return next(str(port) for port in sorted(free_ports(50)) if _is_free(port + 1))


def _is_free(port):
    with socket.socket() as each:
        return each.connect_ex(("127.0.0.1", port)) != 0


def start(folder, **env):
    command = ["bash", str(folder / "start.sh")]
    return subprocess.run(command, env=environment(**env), capture_output=True, text=True, timeout=200)


@pytest.mark.trains
def test_the_script_is_the_same_training(tmp_path):
    done = start(dtk.export(train, "script", tmp_path / "out", record=True), PORT=free_port())
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines().count("6") == 2, "each worker prints what the function returns"
    run = opened(next((tmp_path / "out" / "runs").iterdir()))
    dtk.verify(run, dtk.baseline(train))


@pytest.mark.slow  # as long as the script above
def test_a_worker_that_fails_ends_the_others(tmp_path):
    def fails():
        import time

        import tensorflow as tf

        if tf.distribute.cluster_resolver.TFConfigClusterResolver().task_id == 1:
            raise SystemExit(7)
        time.sleep(100)

    done = start(dtk.export(fails, "script", tmp_path / "out"), PORT=free_port())
    assert done.returncode == 7
