"""Lessons read cell by cell, for tests that run a part of one: the cells that it rests on come along."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager

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
    "06_estimator",
    "07_fault_tolerance",
    "08_measuring",
    "09_predicting",
    "10_batch_and_rate",
    "11_what_else",
    "12_beyond_one_machine",
    "13_inside_a_replica",
)


def anchor(title: str) -> str:
    """GitHub's and Jupyter's address of a Markdown heading."""
    return re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "]", title)).lower().replace(" ", "-")


def cells_of(lesson: str) -> list[Any]:
    """All cells of a lesson, by its name without ending."""
    return nbformat.read(FOLDER / f"{lesson}.ipynb", as_version=4).cells


def tags(cell: Any) -> set[str]:
    return set(cell.metadata.get("tags", ()))


def names(source: str, context: type[ast.expr_context]) -> set[str]:
    """Names that a cell's code reads (ast.Load), or gives a value for other cells to read (ast.Store)."""
    tree = ast.parse(TransformerManager().transform_cell(source))
    if context is ast.Load:
        return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, context)}
    return _given(tree)


def _given(node: ast.AST) -> set[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}  # what is named inside stays inside
    if isinstance(node, ast.alias):
        return {(node.asname or node.name).split(".")[0]}
    if isinstance(node, ast.Name):
        return {node.id} if isinstance(node.ctx, ast.Store) else set()
    return set().union(*map(_given, ast.iter_child_nodes(node)))


def needed(cells: list[Any], chosen: Callable[[Any], bool], also: set[str] = frozenset()) -> list[Any]:
    """The code cells that are chosen and those on which they, or the names in `also`, rest, in their order.

    Whole lessons would be trained again for a few numbers.
    """
    wanted, kept = set(also), []
    for cell in reversed([cell for cell in cells if cell.cell_type == "code"]):
        if chosen(cell) or names(cell.source, ast.Store) & wanted:
            wanted |= names(cell.source, ast.Load)
            kept.append(cell)
    return kept[::-1]


def hint(name: str, answer: Any, *objects: Any) -> str:
    """What `dtk.check` answers to a wrong answer."""
    with pytest.raises(CheckFailed) as failed:
        dtk.check(name, answer, *objects)
    return failed.value.remedy


def passes(capsys: pytest.CaptureFixture[str], name: str, answer: Any, *objects: Any) -> bool:
    dtk.check(name, answer, *objects)
    return capsys.readouterr().out.endswith(f"check {name}: PASS\n")
