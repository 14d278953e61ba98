"""What every lesson must keep to: `python tools/lint_notebooks.py notebooks/*.ipynb` prints what does not, or nothing.

One function a rule: it takes a notebook and its file name and yields what is wrong, in sentences. `pytest --nbval`
compares a lesson's outputs; these rules see to it that the comparison means something and that the lesson reads well.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import nbformat
from heads import IS_BADGE, IS_SETUP, badge, place_of, setup_source, title_cell
from IPython.core.inputtransformer2 import TransformerManager
from nbval.plugin import find_comment_markers, find_metadata_tags

LINES, TRAINING_LINES = 12, 30
IGNORED_AT_MOST = 1 / 5  # of a lesson's code cells
CHECKS = 2
REASON = "ignored_because"  # in the cell's metadata, under "dtk"
WIDGET = "application/vnd.jupyter.widget-view+json"
PATH = re.compile(r"""(?:^|[\s"'(=\[,])(/[\w.+@-]+/[\w.+@-]+|[A-Z]:\\+\w+)""", flags=re.MULTILINE)
SAYS_NOTHING = re.compile(r"<Figure size [^>]*>|<[\w.]+ object[^>]*>|.{0,19}")
NAMELESS_PICTURE = re.compile(r"!\[\s*\]\(|<img(?![^>]*\balt=[\"'][^\"'])[^>]*>")
SOLUTION, REPORT = "### BEGIN SOLUTION", "dtk.report("
FOLDED = re.compile(r"<details>(?:(?!<details>).)*</details>\s*", flags=re.DOTALL)
WORDLESS = re.compile(r"^## (.+)\n*(?=[|#<]|```|- |\d+\. |!\[|\Z)", flags=re.MULTILINE)
FENCED = re.compile(r"```.*?```", flags=re.DOTALL)

Notebook = Any  # nbformat's NotebookNode has no types
Rule = Callable[[Notebook, str], Iterator[str]]


def _code(notebook: Notebook) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _named(cell: Any) -> str:
    """How a sentence calls a code cell: by its count and its first line."""
    return f"code cell {cell.execution_count} ({cell.source.strip().partition(chr(10))[0][:50]!r})"


def _read_by_nbval(cell: Any) -> dict[str, bool]:
    """What tags and comments such as `# NBVAL_SKIP` tell nbval of a cell, as nbval reads them."""
    return dict([*find_comment_markers(cell.source), *find_metadata_tags(cell.metadata)])


def _ignored(cell: Any) -> bool:
    return not _read_by_nbval(cell).get("check", True)


def _texts(output: Any) -> list[str]:
    """All that an output says in text, tracebacks and HTML included; pictures left out."""
    data = [text for kind, text in output.get("data", {}).items() if kind.startswith("text/")]
    return [output.get("text", ""), *output.get("traceback", ()), output.get("evalue", ""), *data]


def counts(notebook: Notebook, name: str) -> Iterator[str]:
    found = [cell.execution_count for cell in _code(notebook)]
    if found != list(range(1, len(found) + 1)):
        yield f"execution counts are {found}, not 1 to {len(found)}; run tools/notebooks.py"


def nothing_skipped(notebook: Notebook, name: str) -> Iterator[str]:
    for cell in _code(notebook):
        tags = [tag for tag in cell.metadata.get("tags", ()) if "skip" in tag.lower()]
        if tags or _read_by_nbval(cell).get("skip"):
            yield f"{_named(cell)} is skipped by {', '.join(tags) or 'a comment'}; every cell of a lesson is run"


def few_ignored(notebook: Notebook, name: str) -> Iterator[str]:
    cells = _code(notebook)
    ignored = sum(map(_ignored, cells))
    if ignored > IGNORED_AT_MOST * len(cells):
        yield f"{ignored} of {len(cells)} code cells have outputs that are not compared; at most a fifth may"


def ignored_for_a_reason(notebook: Notebook, name: str) -> Iterator[str]:
    for cell in _code(notebook):
        reason = str(cell.metadata.get("dtk", {}).get(REASON, ""))
        if _ignored(cell) and len(reason.split()) < 3:
            yield f"{_named(cell)} is not compared and does not say why: metadata, dtk, {REASON}"
        if reason and not _ignored(cell):
            yield f"{_named(cell)} has a reason not to be compared, and is compared; remove the reason"


def checks_compared(notebook: Notebook, name: str) -> Iterator[str]:
    checks = [cell for cell in _code(notebook) if "check" in cell.metadata.get("tags", ())]
    compared = [cell for cell in checks if cell.outputs and not _ignored(cell)]
    if len(compared) < CHECKS:
        yield f"{len(compared)} cells tagged `check` have an output that is compared; a lesson has {CHECKS} at least"


def something_passes(notebook: Notebook, name: str) -> Iterator[str]:
    outputs = [output for cell in _code(notebook) if not _ignored(cell) for output in cell.outputs]
    if not any("PASS" in text for output in outputs for text in _texts(output)):
        yield "no compared output holds a PASS: nothing is proved"


def no_semicolon(notebook: Notebook, name: str) -> Iterator[str]:
    for cell in _code(notebook):
        if re.sub(r"\s#.*$", "", cell.source.rstrip()).rstrip().endswith(";"):
            yield f"{_named(cell)} ends in a semicolon, which hides what it would show"


def no_absolute_path(notebook: Notebook, name: str) -> Iterator[str]:
    for cell in notebook.cells:
        outputs = [text for output in cell.get("outputs", ()) for text in _texts(output)]
        for where, texts in (("the source", [cell.source]), ("an output", outputs)):
            for path in {match[1] for text in texts for match in PATH.finditer(text)}:
                yield f"{where} of cell {cell.get('id')} names {path}, which is elsewhere on other machines"


def no_stderr(notebook: Notebook, name: str) -> Iterator[str]:
    for cell in _code(notebook):
        for output in cell.outputs:
            if output.output_type == "stream" and output.name == "stderr":
                yield f"{_named(cell)} writes to stderr, which nbval does not compare: {output.text.strip()[:60]!r}"


def badge_is_its_own(notebook: Notebook, name: str) -> Iterator[str]:
    title = title_cell(notebook)
    found = [match[0] for cell in notebook.cells for match in IS_BADGE.finditer(cell.source)]
    if title is None or found != [badge(name)] or badge(name) not in title.source:
        yield f"its badge does not open notebooks/{name}; run tools/notebooks.py --heads"


def setup_first(notebook: Notebook, name: str) -> Iterator[str]:
    cells = _code(notebook)
    if not cells or cells[0].source != setup_source() or cells[0].outputs:
        yield "its first code cell is not the lessons' set-up cell, without output; run tools/notebooks.py --heads"
    for cell in cells[1:]:
        if IS_SETUP in cell.source or re.search(r"^\s*[%!]\s*pip\b", cell.source, flags=re.MULTILINE):
            yield f"{_named(cell)} installs; only the set-up cell may"


def short_cells(notebook: Notebook, name: str) -> Iterator[str]:
    for cell in _code(notebook):
        lines, most = cell.source.strip("\n").count("\n") + 1, TRAINING_LINES if _trains(cell.source) else LINES
        if lines > most:
            yield f"{_named(cell)} has {lines} lines; at most {most}"


def _trains(source: str) -> bool:
    """Whether a cell defines a training function: one that takes or makes a strategy, or Estimator's model_fn."""
    tree = ast.parse(TransformerManager().transform_cell(source))
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        taken = {argument.arg for argument in function.args.args}
        calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
        makes = any(isinstance(called, ast.Attribute) and called.attr.endswith("Strategy") for called in calls)
        if makes or "strategy" in taken or {"features", "labels", "mode"} <= taken:
            return True
    return False


def solutions_apart(notebook: Notebook, name: str) -> Iterator[str]:
    for cell in notebook.cells:
        if cell.source.count(SOLUTION) > 1 or (SOLUTION in cell.source and not FOLDED.fullmatch(cell.source)):
            yield f"cell {cell.get('id')} has a solution and something else; a solution is folded, in a cell of its own"
    having = [SOLUTION in cell.source or "exercise" in cell.metadata.get("tags", ()) for cell in notebook.cells]
    if any(REPORT in cell.source and any(having[k:]) for k, cell in enumerate(notebook.cells)):
        yield "an exercise or a solution comes after dtk.report(); the report comes after the last one"


def sections_begin_with_words(notebook: Notebook, name: str) -> Iterator[str]:
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            for heading in WORDLESS.findall(FENCED.sub("```", cell.source)):
                yield f"the section {heading!r} begins without a sentence that says why it comes now"


def one_title(notebook: Notebook, name: str) -> Iterator[str]:
    texts = [FENCED.sub("", cell.source) for cell in notebook.cells if cell.cell_type == "markdown"]
    titles = [title for text in texts for title in re.findall(r"^# .*|<h1\b.*", text, flags=re.MULTILINE)]
    if len(titles) != 1 or not notebook.cells[0].source.startswith("# "):
        yield f"{len(titles)} headings of the first level; a lesson has one, in its first cell"


def pictures_in_words(notebook: Notebook, name: str) -> Iterator[str]:
    for cell in _code(notebook):
        for data in (output.get("data", {}) for output in cell.outputs):
            words = data.get("text/plain", "").strip()
            if any(kind.startswith("image/") for kind in data) and SAYS_NOTHING.fullmatch(words):
                yield f"{_named(cell)} shows a picture whose text form says nothing of it: {words!r}"
            html = data.get("text/html", "")
            if NAMELESS_PICTURE.search(html) or ("<svg" in html and not re.search("<title|aria-label=", html)):
                yield f"{_named(cell)} shows HTML with a picture that has no text alternative"
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and NAMELESS_PICTURE.search(FENCED.sub("", cell.source)):
            yield f"a picture in Markdown cell {cell.get('id')} has no text alternative: ![what it shows](address)"


def widgets_have_a_still(notebook: Notebook, name: str) -> Iterator[str]:
    for cell in _code(notebook):
        for data in (output.get("data", {}) for output in cell.outputs):
            if WIDGET in data and not any(kind == "text/html" or kind.startswith("image/") for kind in data):
                yield f"{_named(cell)} stores a widget without HTML or a picture of it: a page made of it shows nothing"


RULES: tuple[Rule, ...] = (
    counts,
    nothing_skipped,
    few_ignored,
    ignored_for_a_reason,
    checks_compared,
    something_passes,
    no_semicolon,
    no_absolute_path,
    no_stderr,
    badge_is_its_own,
    setup_first,
    short_cells,
    solutions_apart,
    sections_begin_with_words,
    one_title,
    pictures_in_words,
    widgets_have_a_still,
)


def lint(notebook: Notebook, name: str) -> list[str]:
    """All that is wrong with a lesson, by rule; name: the notebook's place in notebooks/, which its badge must have."""
    return [f"{rule.__name__}: {sentence}" for rule in RULES for sentence in rule(notebook, name)]


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0, or 1 where a lesson breaks a rule."""
    parser = argparse.ArgumentParser(description="Checks what every lesson must keep to.")
    parser.add_argument("paths", nargs="+", type=Path)
    wrong = 0
    for path in parser.parse_args(argv).paths:
        for sentence in lint(nbformat.read(path, as_version=4), place_of(path)):
            print(f"{path}: {sentence}")
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
