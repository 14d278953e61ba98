"""What the guide shows of a program taken apart: the page's own lines, with a program that knows nothing of dtk."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell

import dtk
from dtk.interactive import clusters

pytestmark = [pytest.mark.trains, pytest.mark.slow]

PAGE = Path(__file__).parent.parent / "docs" / "guide" / "inside.md"
PROGRAM = '''
"""A program with a mistake: the third epoch reads a file that is not there."""
# %% data
import argparse
import keras
import numpy as np
import tensorflow as tf

flags = argparse.ArgumentParser()
flags.add_argument("--epochs", type=int, default=2)
epochs = flags.parse_args().epochs
draw = np.random.default_rng(0)
x, y = draw.normal(size=(64, 4)), draw.normal(size=(64, 1))
# %% model
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)])
    model.compile("adam", "mse")
# %% training
def begins(epoch, logs):
    if epoch == 2:
        open("schedule.txt")

if __name__ == "__main__":
    backup = keras.callbacks.BackupAndRestore("backup")
    schedule = keras.callbacks.LambdaCallback(on_epoch_begin=begins)
    history = model.fit(x, y, epochs=epochs, batch_size=16, verbose=0, callbacks=[backup, schedule]).history
    print("trained for", len(history["loss"]), "epochs")
'''


def blocks(section):
    """The Python blocks below a heading of the page."""
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


@pytest.fixture
def shell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(clusters, "_open", None)
    (tmp_path / "train.py").write_text(PROGRAM)
    shell = InteractiveShell()
    dtk.load_ipython_extension(shell)
    yield shell
    if "cluster" in shell.user_ns:
        shell.user_ns["cluster"].close()


def test_the_pages_lines(shell, capsys):
    shell.run_cell("import dtk\ncluster = dtk.cluster(workers=2)").raise_error()
    run, parts, failed, load, even = blocks("A program of your own, taken apart")
    shell.run_cell(run).raise_error()
    assert "[worker 0-1] trained for 2 epochs" in capsys.readouterr().out
    cluster = shell.user_ns["cluster"]
    shell.run_cell(parts).raise_error()
    assert cluster.run("x.shape, model.optimizer.built") == [((64, 4), False)] * 2  # made anew, not trained
    with pytest.raises(dtk.CellFailed, match="^workers 0-1 raised FileNotFoundError: ") as error:
        cluster.cell("%run train.py --epochs 3")
    inner, outer = 'line 22 of train.py (`open("schedule.txt")`)', "line 27 of train.py (`history = model.fit("
    assert f"in {inner}, called in {outer}" in str(error.value)
    assert cluster.run("epochs") == [3, 3]  # what it has made is there
    shutil.rmtree("backup")
    shell.run_cell(parts).raise_error()
    shell.run_cell(failed).raise_error()
    assert "FileNotFoundError" in capsys.readouterr().out
    shell.run_cell(load).raise_error()
    assert cluster.inspect().set_index("name").workers["model.weights[0]"] == "DIFFER"
    assert shell.run_cell(even).result.endswith("replicas are equal (14 variables compared)")
    one, two = cluster.pull("model")
    for name in one:
        np.testing.assert_array_equal(one[name], two[name])
    assert cluster.run("int(model.optimizer.iterations.numpy())") == [8, 8]
