"""A lesson's stored text that is wrong makes `pytest --nbval` fail; the same lesson as it is stored passes.

Tried on the parts of lesson 01 that need no training: its own cells and outputs, run by the project's own settings.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import nbformat
import pytest
from lessons import FOLDER, cells_of
from nbformat.v4 import new_notebook

pytestmark = pytest.mark.trains

PARTS = (
    "import numpy",
    "zero = np.split",
    "def reduce_scatter",
    "def gradient_of",
    "def all_gather",
    'dtk.check("01.all_gather"',
    "def pass_round",
    "def gradient(",
    "from sklearn",
)
PROOF = "check 4 workers' sums vs NumPy: PASS (64 numbers, rtol=1e-12)\n"  # first of the proof's lines


def compared(cells):
    """The outputs in which a number is stored: (cell's place, output, key) each; pictures are compared as text."""
    for place, cell in enumerate(cells):
        for output in cell.outputs:
            data = output.get("data", output)
            for key in {"text", "evalue", "text/plain"} & set(data):
                if re.search(r"\d", data[key]):
                    yield place, data, key


def run_nbval(cells, folder):
    """pytest's exit status and the places of the cells that failed."""
    for name in ("conftest.py", "nbval_sanitize.cfg"):
        shutil.copy(FOLDER / name, folder)
    nbformat.write(new_notebook(cells=cells), folder / "lesson.ipynb")
    env = {**os.environ, "DTK_WARM": "0"}  # these workers import no TensorFlow: nothing is gained by importing it once
    command = [sys.executable, "-m", "pytest", "--nbval", "-q", "-rf", "-p", "no:cacheprovider", str(folder)]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=200)
    failed = re.findall(r"^FAILED lesson\.ipynb::Cell (\d+)", done.stdout, flags=re.MULTILINE)
    assert failed or done.returncode == 0, done.stdout
    return done.returncode, sorted(map(int, failed))


@pytest.fixture
def cells():
    """Lesson 01's first question, its ring on four numbers, its first exercise and its proof, with what these need."""
    return [cell for cell in cells_of("01_all_reduce") if cell.cell_type == "code" and cell.source.startswith(PARTS)]


@pytest.mark.slow  # pytest within pytest
def test_as_stored_it_passes(cells, tmp_path):
    assert run_nbval(cells, tmp_path) == (0, [])


@pytest.mark.slow  # pytest within pytest
def test_one_changed_pass_line_fails(cells, tmp_path):
    place, data, key = next(found for found in compared(cells) if found[1][found[2]].startswith(PROOF))
    data[key] = data[key].replace("PASS", "FAIL")
    assert run_nbval(cells, tmp_path) == (1, [place])


@pytest.mark.slow
def test_each_changed_number_fails(cells, tmp_path):
    """The last digit of every stored text one more: a sum, what an exercise's stub is told, the proof's tolerance."""
    places = set()
    for place, data, key in compared(cells):
        digit = re.search(r"\d(?=\D*\Z)", data[key])
        data[key] = f"{data[key][: digit.start()]}{(int(digit[0]) + 1) % 10}{data[key][digit.end() :]}"
        places.add(place)
    assert len(cells) == len(PARTS) > len(places) == 5
    assert run_nbval(cells, tmp_path) == (1, sorted(places))
