"""Training functions of the lessons, byte for byte, with what they call: for programs that hold them pasted."""

from __future__ import annotations

import ast
import functools

from IPython.core.inputtransformer2 import TransformerManager
from lessons import cells_of

__all__ = ["pasted"]


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
