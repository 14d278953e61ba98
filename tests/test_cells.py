"""Functions from the cells of a real Jupyter kernel whose own TensorFlow has already run an operation."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parent.parent


@pytest.fixture
def execute(tmp_path, monkeypatch):
    """Runs cells in a fresh kernel in tmp_path; returns the notebook with its outputs."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("DTK_LIVE", "off")

    def run(*cells, allow_errors=False):
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
        place = {"metadata": {"path": str(tmp_path)}}
        NotebookClient(
            notebook, timeout=120, allow_errors=allow_errors, kernel_name="python3", resources=place
        ).execute()
        return notebook

    return run


def text_of(cell):
    return "".join(output.get("text", "") for output in cell.outputs if output.output_type == "stream")


HELPERS = """
import tensorflow as tf
import dtk
one = tf.constant(1.0)  # the kernel's TensorFlow is in use: a fork of the kernel could not train any more

class Scale:
    factor = 10
    def __call__(self, x):
        return self.factor * x
"""

SUM_CELL = """
scale = Scale()

@tf.function
def total(data):
    s = tf.constant(0)
    for x in data:                 # AutoGraph must see this line to turn it into a graph's loop
        if x % 2 == 0:             # and this one
            s += x
    return s

def train():
    import beside
    return beside.plus_one(scale(int(total(tf.data.Dataset.range(5).map(lambda x: tf.cast(x, tf.int32))))))
"""


@pytest.mark.slow
def test_autograph_helpers_classes_and_modules_come_along(execute, tmp_path):
    (tmp_path / "beside.py").write_text("def plus_one(x):\n    return x + 1\n")
    notebook = execute(HELPERS, SUM_CELL, "print(dtk.run(train, workers=2).results)")
    assert text_of(notebook.cells[-1]) == "[61, 61]\n"


@pytest.mark.trains
def test_a_traceback_shows_the_cells_lines(execute):
    cell = "def broken():\n    shares = [1, 2]\n    return shares[7]   # the learner's own line\n"
    notebook = execute("import dtk", cell, "dtk.run(broken)", allow_errors=True)
    (error,) = notebook.cells[-1].outputs
    assert (error.ename, error.evalue) == ("WorkerFailed", "worker 0 raised IndexError: list index out of range")
    shown = "\n".join(error.traceback)
    assert "  Cell In[2], line 3, in broken\n    return shares[7]   # the learner's own line" in shown
    assert "dtk/launch" not in shown


@pytest.mark.slow  # a kernel of its own
def test_edited_cells_and_source_are_the_ones_that_run(execute):
    first = "def answer():\n    return 1\n"
    second = "def answer():\n    return 2\n"
    ask = "print(dtk.run(answer, workers=1).results)"
    notebook = execute("import dtk", first, ask, second, ask)
    assert [text_of(notebook.cells[i]) for i in (2, 4)] == ["[1]\n", "[2]\n"]


@pytest.mark.slow
def test_a_captured_strategy_is_named(execute):
    cell = """
strategy = tf.distribute.MirroredStrategy(["CPU:0"])
data = tf.data.Dataset.range(3)
def train():
    with strategy.scope():
        return 1
def feed():
    return [x for x in data]
for fn in (train, feed):
    try:
        dtk.run(fn)
    except dtk.NotShippable as error:
        print(error)
"""
    notebook = execute(HELPERS, cell)
    said = [line for line in text_of(notebook.cells[-1]).splitlines() if not line.startswith("INFO:tensorflow")]
    assert said == [
        "`strategy` (MirroredStrategy) is captured by `train`; create it inside",
        "`data` (RangeDataset) is captured by `feed`; create it inside",
    ]


@pytest.mark.slow
def test_cells_of_a_cluster_have_the_numbers_of_their_prompts(execute):
    cells = ["import dtk\ncluster = dtk.cluster(workers=1)", "def zero():\n    0", "%%workers\n\nf = lambda: 1 / 0"]
    asks = ["cluster.run(zero)", "%%workers\nf()", "cluster.run('f()')", "cluster.baseline()"]
    *_cells, first, second, baseline = execute(*cells, *asks, allow_errors=True).cells
    for cell in first, second:
        shown = "\n".join(cell.outputs[0].traceback)
        assert "  Cell In[3], line 3, in <lambda>" in shown
        assert "in line 3 of In [3] (`f = lambda: 1 / 0`)" in shown.replace("\n", " ")
    assert "Cell In[5], line 2, in <" in "\n".join(first.outputs[0].traceback)
    assert '  File "<a string in In [6]>", line 1' in shown
    assert "without In [4]: functions" in text_of(baseline)
