"""Lessons read cell by cell, for tests that run a part of one: the cells that it rests on come along."""

from __future__ import annotations

import configparser
import functools
import math
import re
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest

import dtk
from dtk.course.exercise import CheckFailed

FOLDER = Path(__file__).parent.parent / "notebooks"

# The chain of lessons; each but the last ends in a link to the next.
ORDER = (
    "00_start_here",
    "01_all_reduce",
    "02_loss_scaling",
    "03_mirrored_strategy",
    "04_keras_fit",
    "05_custom_loop",
    "06_without_dtk",
    "07_fault_tolerance",
    "08_measuring",
    "09_predicting",
    "10_batch_and_rate",
    "11_what_else",
    "12_beyond_one_machine",
    "13_inside_a_replica",
    "14_modern_training",
)


def anchor(title: str) -> str:
    """GitHub's and Jupyter's address of a Markdown heading."""
    return re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "]", title)).lower().replace(" ", "-")


HEAD = re.compile(r"\*\*Time\.\*\* (\d+) minutes\. \*\*Before\.\*\* (.+?) \*\*Afterwards you can\*\* .+")


def head(lesson: str) -> tuple[int, list[str]]:
    """The minutes that a lesson's head says, and the lessons that it asks for."""
    ((minutes, before),) = HEAD.findall(" ".join(cells_of(lesson)[0].source.split()))
    return int(minutes), re.findall(r"\]\((\w+)\.ipynb\)", before)


@functools.cache
def cells_of(lesson: str) -> list[Any]:
    """All cells of a lesson, by its name without ending."""
    return nbformat.read(FOLDER / f"{lesson}.ipynb", as_version=4).cells


def functions_of(lesson: str, *starts: str) -> dict[str, Any]:
    """What those code cells of a lesson define that begin with one of `starts`, as a notebook's cells do."""
    names = {"__name__": "__main__", "np": np, "math": math, "dtk": dtk}
    for cell in cells_of(lesson):
        if cell.source.startswith(starts):
            exec(compile(cell.source, f"<{cell.id}>", "exec"), names)
    return names


def compared(text: str) -> str:
    """A text as nbval compares it, with what differs between two runs replaced."""
    rules = configparser.RawConfigParser()
    rules.read(FOLDER / "nbval_sanitize.cfg", encoding="utf-8")
    for name in rules.sections():
        text = re.sub(rules[name]["regex"], rules[name]["replace"], text)
    return text


def tags(cell: Any) -> set[str]:
    return set(cell.metadata.get("tags", ()))


def hint(name: str, answer: Any, *objects: Any) -> str:
    """What `dtk.check` answers to a wrong answer."""
    with pytest.raises(CheckFailed) as failed:
        dtk.check(name, answer, *objects)
    return failed.value.remedy


def passes(capsys: pytest.CaptureFixture[str], name: str, answer: Any, *objects: Any) -> bool:
    dtk.check(name, answer, *objects)
    return capsys.readouterr().out.endswith(f"check {name}: PASS\n")
