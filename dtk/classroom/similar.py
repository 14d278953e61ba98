"""Which students' answers are the same, however the names, comments and blanks in them differ.

An answer says little where it is as it was handed out, the lesson's own solution, short, or a good part of the class
has it: such are left out. Pure arithmetic on text.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

__all__ = ["fingerprint", "pairs"]

_SHORT = 20  # parts of a syntax tree: up to about a line
_COMMON = 4  # an answer that more than a quarter of the class has is a common one


def fingerprint(source: str) -> str:
    """The same for two texts that differ in names of their own, comments, docstrings and blanks alone.

    >>> fingerprint("def f(a):\\n    return a + 1  # more") == fingerprint("def g(x): return x+1")
    True
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return re.sub(r"\s+", "", re.sub(r"#.*", "", source))
    made = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    made += [node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)]
    made += [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    numbers = {name: f"_{number}" for number, name in enumerate(dict.fromkeys(made))}
    return ast.dump(_Renamed(numbers).visit(tree))


class _Renamed(ast.NodeTransformer):
    """Gives names that the text makes itself a number, and drops docstrings."""

    def __init__(self, numbers: Mapping[str, str]):
        self._numbers = numbers

    def visit(self, node: ast.AST) -> ast.AST:
        self.generic_visit(node)
        for field in ("id", "arg", "name"):
            name = getattr(node, field, None)
            if isinstance(name, str):
                setattr(node, field, self._numbers.get(name, name))
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [part for part in body if not _is_text(part)]  # type: ignore[attr-defined]
        return node


def _is_text(part: ast.AST) -> bool:
    return isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant) and isinstance(part.value.value, str)


def pairs(
    answers: Mapping[str, Mapping[str, str]], known: Iterable[str] = ()
) -> list[tuple[tuple[str, str], tuple[str, ...]]]:
    """Students with the same answers, most in common first.

    Args:
        answers: student -> question -> what they wrote.
        known: stubs and solutions.

    Returns:
        ((student, other), the questions in which their answers are the same) each.
    """
    dull = {fingerprint(source) for source in known}
    by_answer: dict[tuple[str, str], list[str]] = defaultdict(list)
    for student, mine in sorted(answers.items()):
        for question, source in sorted(mine.items()):
            mark = fingerprint(source)
            if mark not in dull and _size(source) > _SHORT:
                by_answer[question, mark].append(student)
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (question, _mark), students in sorted(by_answer.items()):
        if len(students) <= max(2, len(answers) // _COMMON):
            for one, other in itertools.combinations(students, 2):
                found[one, other].append(question)
    return [(pair, tuple(both)) for pair, both in sorted(found.items(), key=lambda each: (-len(each[1]), each[0]))]


def _size(source: str) -> int:
    try:
        return sum(1 for _ in ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError):
        return len(source) // 3
