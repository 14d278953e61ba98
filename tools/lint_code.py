"""How long files, functions and rooms may get, how much they may ask for, and names of classes that are taken.

    python tools/lint_code.py dtk tests

ruff counts statements (PLR0915) and all parameters (PLR0913). What makes a function long to read is lines, without its
docstring; what makes a call hard to write is parameters that have no default. Prints what is over, or nothing.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

FILE_LINES, FUNCTION_LINES, REQUIRED = 500, 50, 7
# A ratchet: who makes a folder smaller lowers its number, and who adds to it removes as much elsewhere.
MOST = {"dtk": 29_734, "dtk/proof": 2_771, "tests": 29_718}
SLACK = 100  # lines below its number from which that has to be lowered

PUBLIC_TWICE = {"Cluster"}  # dtk.Cluster has workers; dtk.model.Cluster, which lessons use, is a prediction's network


def lint(text: str) -> Iterator[str]:
    """What is too long or asks for too much in a file's text, a sentence each that begins with the line."""
    lines = len(text.splitlines())
    if lines > FILE_LINES:
        yield f"{FILE_LINES + 1}: {lines} lines; at most {FILE_LINES}: one idea a file"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            where, code, required = f"{node.lineno}: `{node.name}`", _code_lines(node), _required(node.args)
            if code > FUNCTION_LINES:
                yield f"{where} has {code} lines without its docstring; at most {FUNCTION_LINES}"
            if required > REQUIRED:
                yield f"{where} has {required} parameters without defaults; at most {REQUIRED}"


def rooms(root: Path, limits: Mapping[str, int] = MOST) -> Iterator[str]:
    """Which folders have more lines than they may, or so many fewer that the limit is to be lowered."""
    for name, most in limits.items():
        lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in (root / name).rglob("*.py"))
        if lines > most:
            yield f"{name}: {lines} lines, {lines - most} more than tools/lint_code.py allows: remove as many"
        elif lines < most - SLACK:
            yield f"{name}: {lines} lines, {most - lines} below its limit: lower that in tools/lint_code.py"


def same_names(folder: Path) -> Iterator[str]:
    """Classes of a folder, at any depth, whose name another one has."""
    first: dict[str, str] = {}
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name not in PUBLIC_TWICE:
                place = f"{path}:{node.lineno}"
                if first.setdefault(node.name, place) != place:
                    yield f"{place}: a class `{node.name}` is in {first[node.name]}, too: name one of them otherwise"


def _code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    lines = (node.end_lineno or 0) - node.lineno + 1
    if ast.get_docstring(node) is None:
        return lines
    docstring = node.body[0]
    return lines - ((docstring.end_lineno or 0) - docstring.lineno + 1)


def _required(spec: ast.arguments) -> int:
    by_place = len(spec.posonlyargs) + len(spec.args) - len(spec.defaults)
    return by_place + sum(default is None for default in spec.kw_defaults)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0, or 1 where anything is over its limit."""
    parser = argparse.ArgumentParser(description="Checks lengths of files and functions, and counts of parameters.")
    parser.add_argument("roots", nargs="+", type=Path, help="files, or folders with Python files at any depth")
    wrong = 0
    for root in parser.parse_args(argv).roots:
        for path in [root] if root.is_file() else sorted(root.rglob("*.py")):
            for sentence in lint(path.read_text(encoding="utf-8")):
                print(f"{path}:{sentence}")
                wrong += 1
    root = Path(__file__).parent.parent
    for sentence in (*rooms(root), *same_names(root / "dtk")):
        print(sentence)
        wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
