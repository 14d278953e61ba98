"""Each training function of the lessons, pasted into the program of docs/guide/without_dtk.md, trains as under dtk.run.

The program, its other endings and the commands come from the page. What a function returns, and the weights, are those
of `dtk.run` of the same function, to 1e-4.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from dataclasses import dataclass

import lanes
import numpy as np
import pytest
from by_hand import blocks, environment, finished, started_by_hand, weights
from lessons import FOLDER
from pasting import pasted, training_functions

import dtk

_, PROGRAM, TWO_REPLICAS = blocks("python")
HERE = "# Here: the lesson's functions.\n"
STRATEGY = "strategy = tf.distribute.MultiWorkerMirroredStrategy()\n"
CALL = "train(strategy)"
WORKER = 'worker = json.loads(os.environ["TF_CONFIG"])["task"]["index"]\n'
OF_DTK = (
    "from dtk import correct_keras, datasets, estimator\n",
    "correct_keras()\n",
    "    datasets=datasets,\n",
    "    estimator=estimator,\n",
)
TIMES = {"ends", "at", "seconds"}  # in what a function returns
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


@dataclass(frozen=True)
class Case:
    """A function of a lesson, and with which arguments; ending: which of the page's endings its program takes.

    tf_keras: with it, and nothing of dtk.
    """

    lesson: str
    function: str
    arguments: str = ""
    ending: str = "strategy"
    tf_keras: bool = False

    def __str__(self):
        return f"{self.lesson}-{re.sub('[^a-z_]+', ' ', f'{self.function} {self.arguments}').strip()[:40]}"

    @property
    def source(self):
        tree = ast.parse(f"{self.function}({self.arguments})")
        text = pasted(self.lesson, {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)})
        return text.replace("    import keras\n", "    from tensorflow import keras\n") if self.tf_keras else text

    @property
    def program(self):
        strategy = {"strategy": STRATEGY, "replicas": TWO_REPLICAS}.get(self.ending, "")
        given = ", ".join(filter(None, ["strategy" if strategy else "", self.arguments]))
        made = replaced(replaced(PROGRAM, STRATEGY, strategy), CALL, f"{self.function}({given})")
        for line in OF_DTK if self.tf_keras else ():
            made = replaced(made, line, "")
        made = replaced(made, WORKER, "worker = 0\n") if self.ending == "replicas" else made
        return replaced(made, HERE, f"{self.source}\n\n")  # the last: a function may hold lines of the page

    def run(self, folder, **how):
        """`dtk.run` of the same function, from a namespace that is like a notebook's; folder: for its cells.

        They need a file: without source AutoGraph leaves a loop over a dataset as it is, and its trace has no end.
        """
        cells = {"__name__": "__main__", "dtk": dtk}
        file = folder / "cells.py"
        file.write_text(self.source, encoding="utf-8")
        exec(compile(self.source, str(file), "exec"), cells)
        size = {"workers": 1, "replicas": 2} if self.ending == "replicas" else {"workers": 2}
        function, kwargs = eval(self.function, cells), eval(f"dict({self.arguments})", cells)
        return dtk.run(function, kwargs=kwargs, **size, **how)


def replaced(program, old, new):
    assert program.count(old) == 1, old
    return program.replace(old, new)


TRIALS = 'trials={"small": ("SGD", 64, 0.2, 2), "large": ("Adam", 128, 0.001, 0)}, epochs=3'
RACE = 'batch=32, rate=0.1, warm_up=5, data={"name": "mnist", "source": "embedded"}, target=2, most=640'
BROKEN = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
CASES = [
    Case("00_start_here", "train"),
    Case("02_loss_scaling", "train", "share_of=by_global_batch"),
    Case("02_loss_scaling", "train", "share_of=penalty_unscaled, steps=10"),
    Case("03_mirrored_strategy", "train", ending="replicas"),
    Case("03_mirrored_strategy", "train_normalised", "synchronized=True", "replicas"),
    Case("04_keras_fit", "train"),
    Case("05_custom_loop", "train"),
    Case("06_estimator", "one_step", ending="estimator"),
    Case("06_estimator", "in_a_loop"),
    Case("06_estimator", "train", "steps=20", "estimator"),
    Case("06_estimator", "train", "model_fn=published, rate=0.1, even=False, output=None, steps=20", "estimator"),
    Case("06_estimator", "train_with_fit", "checkpoint=CHECKPOINT, steps=10"),
    Case("07_fault_tolerance", "train", "save=backup"),
    Case("07_fault_tolerance", "loop"),
    Case("08_measuring", "train", "steps=10"),
    Case("08_measuring", "much", "steps=3"),
    Case("09_predicting", "train", "steps=10"),
    Case("09_predicting", "dense(1_000_000)", ending="own"),
    Case("10_batch_and_rate", "learn", TRIALS),
    Case("12_beyond_one_machine", "train"),
    Case("appendix_checkpoints", "train", "save=checkpoints"),
    Case("appendix_checkpoints", "train_or_go_on", "every=5"),
    Case("appendix_custom_loop", "train", "make=create_subclassed"),
    Case("appendix_custom_loop", "train", "make=create_subclassed, walk=whole_epoch"),
    Case("appendix_custom_loop", "train", "make=create_subclassed, walk=ten_steps"),
    Case("appendix_estimator", "train", 'communication="RING", steps=20', "estimator"),
    Case("appendix_estimator", "train_converted", ending="estimator"),
    Case("appendix_keras", "train"),
    Case("appendix_keras", "train_until", 'folder=__import__("pathlib").Path("made"), epochs=2', "replicas"),
    Case("appendix_keras", "update", 'how={"clipnorm": 1.0}', "replicas"),
    Case("appendix_keras", "train_mixed", 'policy="mixed_float16"'),
    Case("appendix_keras", "one_extreme", ending="replicas"),
    *[Case("lab_2_broken_functions", name, "global_batch=64, steps=6") for name in BROKEN],
    Case("lab_5_time_to_accuracy", "train", RACE),
]

RING = "dtk.ring works in a run only"
PART = "an exercise: what a solution may look like, for the check to call"
NOT_PASTED = {
    ("01_all_reduce", "greet"): RING,
    ("01_all_reduce", "sum_up"): RING,
    ("01_all_reduce", "shared_gradient"): RING,
    ("11_what_else", "train"): RING,
    ("lab_3_sharded_optimizer", "first_half"): RING,
    ("lab_3_sharded_optimizer", "train"): RING,
    ("lab_4_another_all_reduce", "greet"): RING,
    ("lab_4_another_all_reduce", "timed"): RING,
    ("lab_4_another_all_reduce", "summed"): RING,
    ("appendix_checkpoints", "evaluate"): "the evaluator's: trains nothing",
    ("appendix_keras", "apply_clipped"): PART,
}


def test_each_training_function_is_pasted_or_has_a_reason():
    defined = {(path.stem, name) for path in FOLDER.glob("*.ipynb") for name in training_functions(path.stem)}
    covered = {(case.lesson, name) for case in CASES for name in re.findall(r"^def (\w+)", case.source, re.MULTILINE)}
    assert len(defined) > 40
    assert defined - covered == set(NOT_PASTED)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_page_has_each_name_of_dtk_that_the_function_uses(case):
    (names,) = re.findall(r"^dtk = SimpleNamespace\(\n(.*?)^\)", PROGRAM, re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"\bdtk\.(\w+)", case.source)) <= set(re.findall(r"^    (\w+)=", names, re.MULTILINE))
    compile(case.program, "train.py", "exec")


def test_what_is_pasted_is_the_cells_own_text():
    for case in CASES:
        text = (FOLDER / f"{case.lesson}.ipynb").read_text(encoding="utf-8")
        for line in case.source.splitlines():
            assert json.dumps(line, ensure_ascii=False)[1:-1] in text, (str(case), line)


def printed_result(text):
    (line,) = re.findall(r"^returned (.*)$", text, re.MULTILINE)
    return json.loads(line)


def without_times(result):
    plain = json.loads(json.dumps(result, default=float))
    return {name: plain[name] for name in plain.keys() - TIMES} if isinstance(plain, dict) else plain


def compare(mine, dtks):
    """Raises AssertionError where two results differ; numbers to 1e-4."""
    assert type(mine) is type(dtks)
    if isinstance(mine, dict):
        assert mine.keys() == dtks.keys()
        for name in mine:
            compare(mine[name], dtks[name])
    elif isinstance(mine, list):
        assert len(mine) == len(dtks)
        for one, other in zip(mine, dtks, strict=True):
            compare(one, other)
    elif isinstance(mine, float):
        np.testing.assert_allclose(mine, dtks, **CLOSE)
    else:
        assert mine == dtks


READ = """
import sys
import numpy as np
import tensorflow as tf

for folder, file in zip(sys.argv[1::2], sys.argv[2::2]):
    saved = tf.train.load_checkpoint(folder)
    kinds = {name: kind for name, kind in saved.get_variable_to_dtype_map().items() if kind != tf.string}
    np.savez(file, *[saved.get_tensor(name) for name in sorted(kinds)], names=sorted(kinds))
"""


def checkpoints(folder, *places):
    """The variables of the last checkpoint in each of these places, with their names."""
    files = [folder / f"{number}.npz" for number in range(len(places))]
    pairs = [str(each) for place, file in zip(places, files, strict=True) for each in (place, file)]
    subprocess.run([sys.executable, "-c", READ, *pairs], env=environment(), check=True, capture_output=True)
    return [dict(np.load(file)) for file in files]


def same_checkpoints(folder, run):
    mine, dtks = checkpoints(folder, folder / "out" / "model", run.dir / "model")
    assert mine.pop("names").tolist() == dtks.pop("names").tolist()
    assert len(mine) > 1
    for name, values in mine.items():
        np.testing.assert_allclose(values, dtks[name], **CLOSE)


def same_weights(folder, run, processes):
    """What the processes have left, and what dtk has recorded; either both or none."""
    assert (folder / "out" / "weights.npz").exists() == bool(run.weights)
    if not run.weights:
        return
    held = weights(folder) if processes == 2 else [list(np.load(folder / "out" / "weights.npz").values())]
    for worker, mine in enumerate(held):
        final = run.folder.worker(worker).weights("final")
        assert [array.shape for array in mine] == [array.shape for array in final.arrays]
        for one, other in zip(mine, final.arrays, strict=True):
            np.testing.assert_allclose(one, other, **CLOSE)


def same(case, folder, logs, run):
    for log, result in zip(logs, run.results, strict=True):
        if case.ending == "estimator":  # what train_and_evaluate does not return, dtk.run supplies
            assert printed_result(log) is None
        else:
            compare(without_times(printed_result(log)), without_times(result))
    if case.ending == "estimator":
        same_checkpoints(folder, run)
    else:
        same_weights(folder, run, len(logs))


@pytest.fixture(scope="module")
def checkpoint():
    """Where lesson 06's function that reads Estimator's first weights finds them."""
    cells = {"__name__": "__main__", "dtk": dtk}
    exec(compile(pasted("06_estimator", {"train"}), "06", "exec"), cells)
    return str(dtk.baseline(cells["train"], kwargs={"steps": 1}).dir / "model" / "model.ckpt-0")


def given(case, request):
    if "CHECKPOINT" not in case.arguments:
        return case
    path = repr(request.getfixturevalue("checkpoint"))
    return Case(case.lesson, case.function, case.arguments.replace("CHECKPOINT", path), case.ending)


@pytest.mark.slow
@pytest.mark.trains
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_pasted_it_trains_as_under_dtk(case, tmp_path, request, monkeypatch):
    monkeypatch.chdir(tmp_path)
    case, by_hand = given(case, request), tmp_path / "by hand"
    by_hand.mkdir()
    if case.ending == "replicas":
        (by_hand / "train.py").write_text(case.program, encoding="utf-8")
        logs = [finished([sys.executable, "train.py"], by_hand)]
    else:
        legacy = {"TF_USE_LEGACY_KERAS": "1"} if case.ending == "estimator" and lanes.KERAS_3 else {}
        logs = started_by_hand(by_hand, case.program, **legacy)
    assert all("returned" in log for log in logs), logs
    same(case, by_hand, logs, case.run(by_hand))


@pytest.mark.slow
@pytest.mark.trains
def test_with_tf_keras_nothing_of_dtk_is_needed(tmp_path):
    case = Case("08_measuring", "much", "steps=3", tf_keras=True)
    assert not re.search(r"(from|import) dtk", case.program)
    logs = started_by_hand(tmp_path, case.program, TF_USE_LEGACY_KERAS="1")
    assert all("returned" in log for log in logs), logs
    same(case, tmp_path, logs, case.run(tmp_path, keras=2))


@pytest.mark.slow
@pytest.mark.trains
def test_another_seed_is_seen(tmp_path):
    case = Case("02_loss_scaling", "train", "share_of=by_global_batch, steps=5")
    program = replaced(case.program, "set_random_seed(0)", "set_random_seed(1)")
    logs = started_by_hand(tmp_path, program)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        same(case, tmp_path, logs, case.run(tmp_path))
