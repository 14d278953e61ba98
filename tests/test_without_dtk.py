"""Training functions of lessons, pasted into the program of docs/guide/without_dtk.md, train as under dtk.run.

The program, its other endings and the commands come from the page. What a function returns, and the weights, are those
of `dtk.run` of the same function, to 1e-4.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
import sys
from dataclasses import dataclass

import lanes
import numpy as np
import pytest
from by_hand import blocks, environment, finished, started_by_hand, weights
from IPython.core.inputtransformer2 import TransformerManager
from lessons import cells_of

import dtk


@functools.cache
def _pieces(lesson):
    """{name: (place, source, names that it reads)} of a lesson's functions, classes and imports; the last of a name."""
    found = {}
    for cell in cells_of(lesson):
        if cell.cell_type == "code" and not cell.source.startswith("%%"):
            source = TransformerManager().transform_cell(cell.source)
            for node in ast.parse(source).body:
                lines = source.splitlines(keepends=True)[node.lineno - 1 : node.end_lineno]
                named = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
                own = {each.id for each in named if isinstance(each.ctx, ast.Store)}  # as a local variable `train`
                reads = {each.id for each in named} - own
                for name in _given(node):
                    found[name] = (len(found), "".join(lines).rstrip("\n") + "\n", reads)
    return found


def _given(node):
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names} - {"dtk"}
    return set()


def pasted(lesson, names):
    """The source of these functions of a lesson, and of the functions and imports that they rest on."""
    there = _pieces(lesson)
    wanted = names & set(there)
    while more := set().union(*(there[name][2] for name in wanted)) & set(there) - wanted:
        wanted |= more
    assert wanted, (lesson, names)
    return "\n\n".join(source for _, source in sorted({there[name][:2] for name in wanted}))


_, PROGRAM, TWO_REPLICAS = blocks("python")
HERE = "# Here: the lesson's functions.\n"
STRATEGY = "strategy = tf.distribute.MultiWorkerMirroredStrategy()\n"
CALL = "train(strategy)"
WORKER = 'worker = json.loads(os.environ["TF_CONFIG"])["task"]["index"]\n'
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


@dataclass(frozen=True)
class Case:
    """A function of a lesson, and with which arguments; ending: which of the page's endings its program takes."""

    lesson: str
    function: str
    arguments: str = ""
    ending: str = "strategy"

    def __str__(self):
        return f"{self.lesson}-{re.sub('[^a-z_]+', ' ', f'{self.function} {self.arguments}').strip()[:40]}"

    @property
    def source(self):
        tree = ast.parse(f"{self.function}({self.arguments})")
        return pasted(self.lesson, {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)})

    @property
    def program(self):
        strategy = {"strategy": STRATEGY, "replicas": TWO_REPLICAS}.get(self.ending, "")
        given = ", ".join(filter(None, ["strategy" if strategy else "", self.arguments]))
        made = replaced(replaced(PROGRAM, STRATEGY, strategy), CALL, f"{self.function}({given})")
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


CASES = [
    Case("00_start_here", "train"),
    Case("03_mirrored_strategy", "train", ending="replicas"),
    Case("05_custom_loop", "train"),
    Case("appendix_estimator", "train", "steps=20", "estimator"),
    Case("09_predicting", "dense(1_000_000)", ending="own"),
    Case("appendix_checkpoints", "train", "save=checkpoints"),
    Case("appendix_keras", "train_mixed", 'policy="mixed_float16"'),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_page_has_each_name_of_dtk_that_the_function_uses(case):
    (names,) = re.findall(r"^dtk = SimpleNamespace\(\n(.*?)^\)", PROGRAM, re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"\bdtk\.(\w+)", case.source)) <= set(re.findall(r"^    (\w+)=", names, re.MULTILINE))
    compile(case.program, "train.py", "exec")


def printed_result(text):
    (line,) = re.findall(r"^returned (.*)$", text, re.MULTILINE)
    return json.loads(line)


def compare(mine, dtks):
    """Raises AssertionError where two results differ; numbers to 1e-4."""
    assert type(mine) is type(dtks)
    if isinstance(mine, list):
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
        final = run.folder.worker(worker).weights
        assert [array.shape for array in mine] == [array.shape for array in final.arrays]
        for one, other in zip(mine, final.arrays, strict=True):
            np.testing.assert_allclose(one, other, **CLOSE)


def same(case, folder, logs, run):
    for log, result in zip(logs, run.results, strict=True):
        if case.ending == "estimator":  # what train_and_evaluate does not return, dtk.run supplies
            assert printed_result(log) is None
        else:
            compare(printed_result(log), json.loads(json.dumps(result, default=float)))
    if case.ending == "estimator":
        same_checkpoints(folder, run)
    else:
        same_weights(folder, run, len(logs))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_pasted_it_trains_as_under_dtk(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    by_hand = tmp_path / "by hand"
    by_hand.mkdir()
    if case.ending == "replicas":
        (by_hand / "train.py").write_text(case.program, encoding="utf-8")
        logs = [finished([sys.executable, "train.py"], by_hand)]
    else:
        legacy = {"TF_USE_LEGACY_KERAS": "1"} if case.ending == "estimator" and lanes.KERAS_3 else {}
        logs = started_by_hand(by_hand, case.program, **legacy)
    assert all("returned" in log for log in logs), logs
    same(case, by_hand, logs, case.run(by_hand))
