"""Each number in a lesson's sentences is in its code or its stored outputs, or follows from what is written here.

Outputs that nbval does not compare are left out: a number of theirs may be another one tomorrow.
"""

from __future__ import annotations

import inspect
import math
import re

import numpy as np
import pytest
from lessons import FOLDER, cells_of, tags

import dtk
from dtk.course.exercises import lab_5
from dtk.dataset_files import original_digits
from dtk.datasets import TEST_DIGITS

LESSONS = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
NUMBER = re.compile(r"(?<![\w-])\d[\d.,]*")
# Code (held by what runs), headings, addresses, pictures; sources, versions, names of lessons, numbers of a list.
LEFT_OUT = [
    re.compile(pattern, flags=re.DOTALL | re.MULTILINE)
    for pattern in (
        r"```.*?```|`[^`]*`|^#.*?$|\]\([^)]*\)|<[^>]+>|(?:^|,|;)\s*\d\. |\*\*Time\.\*\* \d+ minutes",
        r"(?:TensorFlow|Keras|CC BY|arXiv|keras#)\s?\d[\d.]*|(?:et\s+al\.|[(,*])\s?\(?(?:19|20)\d\d\b",
        r"\[\d\d\w*|\b(?:lessons?|of|from)\s+\d\d\b(?!,\d)",
    )
]
IN_WORDS = {"rtol=1e-4": "10000 "}  # 1 part in 10,000 is verify's
DIGITS = 1_797  # see test_the_digits_are_as_many_as_written_here
MNIST = 60_000  # images for training
HERE = {
    "DIGITS": DIGITS,
    "TEST_DIGITS": TEST_DIGITS,
    "MNIST": MNIST,
    "lab_5": lab_5,
    "math": math,
    "np": np,
    "default": lambda name: inspect.signature(dtk.estimator.EvalSpec).parameters[name].default,
}
# A number of a lesson's text, and what it has to come to. GIVEN: the text makes it up, for an exercise, or cites it.
GIVEN = "given"
LAST = "(DIGITS - TEST_DIGITS) % 128"
HALVES = {"1497": "DIGITS - TEST_DIGITS", "45": f"-(-({LAST}) // 2)", "44": f"({LAST}) // 2"}
WORKED_OUT = {
    "03_mirrored_strategy": {
        "1797": "DIGITS",
        "300": "TEST_DIGITS",
        "0..1": GIVEN,
        "34": "3 * ((DIGITS - TEST_DIGITS) // 128) + 1",
    },
    "04_keras_fit": {"1497": "DIGITS - TEST_DIGITS"},
    "05_custom_loop": {"0..1": GIVEN},  # what dtk said: tests/test_official_loop.py
    "06_estimator": {
        **HALVES,
        "120": "default('start_delay_secs')",
        "600": "default('throttle_secs')",
        "60000": "MNIST",
        "10000": GIVEN,
        "6400": "default('steps') * 64",
        "1.15": "math.log(10) * (MNIST % 64) / 64",
        "9": "10 - 1",
    },
    # 7 and 11 seconds: tests/test_documents.py holds them to the runs that were watched
    "07_fault_tolerance": {"7": GIVEN, "11": "33 // 3", "15": "11 + 4"},
    "08_measuring": {"100": "10 / 0.1"},
    "09_predicting": {"208": "2 * 99 * 0.05 + 2 * 100 * 99 / 100"},
    "10_batch_and_rate": {
        "0.94": "3 / 1000 / (8 / 2500)",
        "16": "512 / 32",
        "23": "(DIGITS - TEST_DIGITS) // 32 / ((DIGITS - TEST_DIGITS) // 512)",
    },
    "11_what_else": {"1.5": GIVEN},
    "12_beyond_one_machine": {"86": GIVEN, "101": GIVEN},  # seconds, as in docs/guide/clusters.md
    "13_inside_a_replica": {"64": "128 // 2"},
    "appendix_checkpoints": {"15": "11 + 4"},
    "appendix_estimator": {"9": "(1280 * (1 / 2) ** 4) ** 0.5"},
    "appendix_keras": {
        "1497": "DIGITS - TEST_DIGITS",
        "300": "TEST_DIGITS",
        "65504": "float(np.finfo(np.float16).max)",
        "32768": "2**15",
        "1.5": GIVEN,
        "2.0": "2 * 1.0",
        "3.0": "3 * 1.0",
        "70": GIVEN,
    },
    "lab_1_without_dtk": {"5": GIVEN},
    "lab_5_time_to_accuracy": {"1.5": "lab_5.LEAST"},
}


def made_by(name):
    """A lesson's code, folded solutions included, and the outputs that nbval compares, without , and _ in numbers."""
    cells = cells_of(name)
    code = [cell for cell in cells if cell.cell_type == "code"]
    outputs = [output for cell in code if "nbval-ignore-output" not in tags(cell) for output in cell.outputs]
    said = [[each.get("text"), each.get("evalue"), each.get("data", {}).get("text/plain")] for each in outputs]
    prose = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    folded = re.findall(r"```python\n(.*?)```", prose, re.DOTALL)
    made = "\n".join([*[cell.source for cell in code], *folded, *[text for texts in said for text in texts if text]])
    for words, number in IN_WORDS.items():
        made = made.replace(words, number)
    return re.sub(r"(?<=\d)[,_](?=\d)", "", made)


def numbers_of(text):
    """The numbers in the sentences of a Markdown cell."""
    for pattern in LEFT_OUT:
        text = pattern.sub(" ", text)
    return [found.rstrip(".,").replace(",", "") for found in NUMBER.findall(text)]


def not_held(name, made):
    """The numbers of a lesson's sentences that are not in `made`, a text."""
    numbers = {each for cell in cells_of(name) if cell.cell_type == "markdown" for each in numbers_of(cell.source)}
    return {number for number in numbers if not re.search(rf"(?<![\d.]){re.escape(number)}(?!\d)", made)}


@pytest.mark.parametrize("name", LESSONS)
def test_each_number_of_a_sentence_is_held(name):
    assert not_held(name, made_by(name)) == set(WORKED_OUT.get(name, ())), (
        "compute it in a cell, or write down here how"
    )


def test_the_digits_are_as_many_as_written_here():
    assert len(original_digits()[1]) == DIGITS


@pytest.mark.parametrize(
    "text", ["A step takes 731 ms.", "| 1,731 steps | a row |", "about 0.731 times", "731 %, as seen"]
)
def test_a_number_that_nothing_makes_is_found(text):
    (number,) = numbers_of(text)
    assert "731" in number
    assert numbers_of(f"`{text}`, lesson [04](04_keras_fit.ipynb), TensorFlow 2.21 (Smith et al. 2019)") == []


# dtk.estimator asks which TensorFlow is installed.
_OF_TENSORFLOW = {"06_estimator": pytest.mark.trains}


@pytest.mark.parametrize("name", [pytest.param(each, marks=_OF_TENSORFLOW.get(each, ())) for each in WORKED_OUT])
def test_what_is_worked_out_here_comes_to_that(name):
    for number, how in WORKED_OUT[name].items():
        if how != GIVEN:
            digits = len(number.partition(".")[2])
            assert round(float(eval(how, HERE)), digits) == float(number), f"{number} is not {how}"
