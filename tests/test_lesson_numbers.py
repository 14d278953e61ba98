"""Each number in a lesson's sentences is in its code or its stored outputs, but for those that are listed here.

Outputs that nbval does not compare are left out: a number of theirs may be another one tomorrow.
"""

from __future__ import annotations

import re

import pytest
from lessons import FOLDER, cells_of, tags

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
# Numbers of a lesson's sentences that its cells don't make: counts of data, defaults, sums, others' measurements.
ELSEWHERE = {
    "03_mirrored_strategy": "1000 0..1",
    "05_custom_loop": "0..1",
    "appendix_estimator": "45 44 120 600 60000 10000 6400 1.15 9",
    "07_fault_tolerance": "7 11 15",
    "08_measuring": "100",
    "09_predicting": "208",
    "10_batch_and_rate": "0.94 18",
    "11_what_else": "1.5",
    "12_beyond_one_machine": "86 101",
    "13_inside_a_replica": "64",
    "14_modern_training": "2023 2024",
    "appendix_checkpoints": "15",
    "appendix_estimator_files": "9",
    "appendix_keras": "1000 65504 32768 1.5 2.0 3.0 70",
    "06_without_dtk": "5",
    "lab_5_time_to_accuracy": "1.5 4000",
    "lab_6_your_own_ddp": "18 30",
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


@pytest.mark.parametrize("name", LESSONS)
def test_each_number_of_a_sentence_is_held(name):
    made = made_by(name)
    numbers = {each for cell in cells_of(name) if cell.cell_type == "markdown" for each in numbers_of(cell.source)}
    not_held = {number for number in numbers if not re.search(rf"(?<![\d.]){re.escape(number)}(?!\d)", made)}
    assert not_held == set(ELSEWHERE.get(name, "").split()), "compute it in a cell"
