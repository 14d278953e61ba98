"""Lab 1's last check, on made-up weights and on those that the lab's own processes leave; each mistake has its hint."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest
from lessons import FOLDER, cells_of, tags
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

import dtk
from dtk.course.exercise import CheckFailed, NotSolved

SHAPES = ((64, 32), (32,), (32, 10), (10,))


def weights(seed):
    draw = np.random.default_rng(seed)
    return [draw.normal(size=shape) for shape in SHAPES]


def leave(folder, chiefs, others, **more):
    """Writes what the two workers would have; None: that worker wrote nothing."""
    for place, arrays in ((folder, chiefs), (folder / "worker-1", others)):
        if arrays is not None:
            place.mkdir(parents=True, exist_ok=True)
            np.savez(place / "weights.npz", *arrays, **(more or {"replicas": 2}))


@pytest.fixture
def baseline():
    return SimpleNamespace(results=[weights(0)])


def test_equal_weights_pass_up_to_rounding(tmp_path, baseline, capsys):
    mine = [weight + 1e-7 for weight in weights(0)]
    leave(tmp_path, mine, weights(0))
    dtk.check("lab1.train", tmp_path, baseline)
    assert capsys.readouterr().out == "check lab1.train: PASS\n"


@pytest.mark.parametrize(
    ("chiefs", "others", "hint"),
    [
        (None, weights(0), "worker 0 has left no weights.npz"),
        (weights(0), None, "worker 1 has left no weights.npz"),
        (weights(0)[::-1], weights(0), "not the weights of this model"),
        (weights(0)[:2], weights(0)[:2], "not the weights of this model"),
        (weights(1), weights(0), "the workers hold different weights"),
        (weights(1), weights(1), "and not with one device"),
        ([np.zeros(shape) for shape in SHAPES], [np.zeros(shape) for shape in SHAPES], "and not with one device"),
    ],
)
def test_each_wrong_pair_gets_its_hint(tmp_path, baseline, chiefs, others, hint):
    leave(tmp_path, chiefs, others)
    with pytest.raises(CheckFailed, match=hint):
        dtk.check("lab1.train", tmp_path, baseline)


@pytest.mark.parametrize(
    ("more", "hint"), [({"replicas": 1}, "replicas=1: two workers"), ({"rate": 1}, "not the weights of this")]
)
def test_right_weights_of_two_that_trained_alone_do_not_pass(tmp_path, baseline, more, hint):
    leave(tmp_path, weights(0), weights(0), **more)
    with pytest.raises(CheckFailed, match=hint):
        dtk.check("lab1.train", tmp_path, baseline)


def test_who_says_nothing_of_replicas_is_asked(tmp_path, baseline):
    leave(tmp_path, weights(0), weights(0))
    for place in (tmp_path, tmp_path / "worker-1"):
        np.savez(place / "weights.npz", *weights(0))
    with pytest.raises(CheckFailed, match="how many replicas were there"):
        dtk.check("lab1.train", tmp_path, baseline)


@pytest.mark.parametrize("answer", [None, ..., "nowhere"])
def test_without_a_file_it_is_not_solved(tmp_path, baseline, answer, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotSolved):
        dtk.check("lab1.train", answer, baseline)


CELLS = cells_of("lab_1_without_dtk")
STUBS = [cell for cell in CELLS if "exercise" in tags(cell)]
SOLUTIONS = re.findall(
    r"<summary><b>Solution</b></summary>.*?```python\n(.*?)```", "\n".join(c.source for c in CELLS), re.S
)
RIGHT = SOLUTIONS[-1]
WRONG = {
    "the workers agree with each other": RIGHT.replace(
        "keras.utils.set_random_seed(0)", "keras.utils.set_random_seed(1)"
    ),
    "replicas=1": RIGHT.replace("tf.distribute.MultiWorkerMirroredStrategy()", "tf.distribute.get_strategy()").replace(
        "strategy.cluster_resolver.task_id",
        "__import__('json').loads(__import__('os').environ['TF_CONFIG'])['task']['index']",
    ),
    "worker 1 has left no": RIGHT.replace('Path("out") / f"worker-{worker}"', 'Path("out")'),
    "with one device": RIGHT.replace("digits(64), 64", "digits(32), 32"),
}


@pytest.mark.slow
@pytest.mark.trains
@pytest.mark.timeout(600)
def test_the_solved_lab_passes_and_wrong_programs_get_their_hint(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parent))
    monkeypatch.setenv("DTK_LIVE", "off")
    answers = {cell.id: answer for cell, answer in zip(STUBS, SOLUTIONS, strict=True)}
    kept = [
        cell
        for cell in CELLS
        if cell.cell_type == "code" and not {"lab1.fit", "fit.py"} & set(re.findall(r"lab1\.fit|fit\.py", cell.source))
    ]
    cells = [new_code_cell(answers.get(cell.id, cell.source)) for cell in kept]
    run, check = (
        next(cell.source for cell in kept if part in cell.source) for part in ('both("train.py")', "lab1.train")
    )
    for program in WRONG.values():
        cells += [new_code_cell(program), new_code_cell(run), new_code_cell(check)]
    notebook = new_notebook(cells=cells)
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=240, allow_errors=True, kernel_name="python3", resources=where).execute()
    outputs = [output for cell in notebook.cells for output in cell.outputs]
    passed = re.findall(r"check (lab1\.\w+): PASS", "".join(o.text for o in outputs if o.output_type == "stream"))
    assert passed == ["lab1.config", "lab1.environment", "lab1.place", "lab1.train"]
    failed = [output.evalue for output in outputs if output.output_type == "error"]
    assert len(failed) == len(WRONG), failed
    for hint, said in zip(WRONG, failed, strict=True):
        assert hint in said
