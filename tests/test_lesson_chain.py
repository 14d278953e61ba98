"""One way through the lessons: what each begins with, the link to the next, the glossary's words, public names."""

from __future__ import annotations

import ast
import importlib
import re

import pytest
from IPython.core.inputtransformer2 import TransformerManager
from lessons import FOLDER, ORDER, anchor, cells_of, head

import dtk

LESSONS = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
NEXT = re.compile(r"\*\*Next:\*\* \[(\w+)\]\((\w+)\.ipynb\)")
LINK = re.compile(r"\[([^\]]+)\]\(glossary\.md#([^)]*)\)")
GLOSSARY = (FOLDER / "glossary.md").read_text(encoding="utf-8")
WORDS = re.findall(r"^## (.+)$", GLOSSARY, flags=re.MULTILINE)


def prose(name):
    """The Markdown cells of a lesson, in their order."""
    return [cell.source for cell in cells_of(name) if cell.cell_type == "markdown"]


def test_all_lessons_of_the_chain_are_there():
    assert list(ORDER) == [name for name in LESSONS if name[0].isdigit()]


@pytest.mark.parametrize("name", LESSONS)
def test_each_link_to_the_glossary_leads_to_a_word(name):
    there = set(map(anchor, WORDS))
    linked = [LINK.findall(text) for text in prose(name)]
    assert {target for links in linked for _, target in links} <= there
    assert any(linked), "a lesson links to words of the glossary"


@pytest.mark.parametrize("name", LESSONS)
def test_a_head_says_minutes_what_to_know_and_what_for(name):
    minutes, before = head(name)
    for lesson in before:
        assert lesson in LESSONS
        assert not {name, lesson} <= set(ORDER) or ORDER.index(lesson) < ORDER.index(name), f"{lesson} comes later"
    pages = [(folder / "README.md").read_text(encoding="utf-8") for folder in (FOLDER.parent, FOLDER)]
    assert re.findall(rf"^\| \[{name}\]\(.*\| (\d+) \|$", "\n".join(pages), flags=re.MULTILINE) == [str(minutes)]


@pytest.mark.parametrize("name", ORDER)
def test_each_lesson_ends_in_one_link_to_the_next(name):
    links = NEXT.findall("".join(prose(name)))
    at = ORDER.index(name) + 1
    assert links == [(following, following) for following in ORDER[at : at + 1]]
    if links:
        assert NEXT.search(prose(name)[-1]), "it stands in the last Markdown cell"
    assert "**Back to**" not in "".join(prose(name))


def stored(name):
    """What the code cells of a lesson have put out, as text."""
    outputs = [output for cell in cells_of(name) if cell.cell_type == "code" for output in cell.outputs]
    return "\n".join(f"{output.get('text', '')} {output.get('data', {}).get('text/plain', '')}" for output in outputs)


@pytest.mark.parametrize("name", LESSONS)
def test_each_question_is_compared_with_a_run_in_a_later_cell(name):
    code = [cell.source for cell in cells_of(name) if cell.cell_type == "code"]
    asked = [
        (at, *found) for at, text in enumerate(code) for found in re.findall(r'(\w+) = dtk\.ask\(\s*"([^"]+)', text)
    ]
    assert "".join(code).count("dtk.ask(") == len(asked) >= (name in ORDER)
    for at, variable, question in asked:
        assert any(f"{variable}.came_out(" in text for text in code[at + 1 :]), question


@pytest.mark.parametrize("name", LESSONS)
def test_a_figure_shows_no_axes_beside_it(name):
    assert "<Axes" not in stored(name)


def code_of(name):
    """The code of a lesson: its cells, and the solutions in Markdown."""
    cells = [cell.source for cell in cells_of(name) if cell.cell_type == "code"]
    cells = [cell.partition("\n")[2] if cell.startswith("%%") else cell for cell in cells]
    return cells + [code for text in prose(name) for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]


def hidden(code):
    """What is not public in a piece of code: names of dtk that `__all__` has not, attributes that begin with _."""
    for node in ast.walk(ast.parse(TransformerManager().transform_cell(code))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "dtk":
            home = importlib.import_module(node.module)
            parts = node.module.split(".")[1:]
            if not set(parts) <= dtk._MODULES or len(parts) > 1:
                yield node.module
            yield from (alias.name for alias in node.names if alias.name not in home.__all__)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if re.match(r"dtk\.(?!(?:model|plot)$)", alias.name))
        if isinstance(node, ast.Attribute):
            if re.match(r"_[^_]", node.attr):
                yield node.attr
            of = ast.unparse(node.value)
            if of == "dtk" and node.attr not in dtk.__all__:
                yield f"dtk.{node.attr}"
            name = of.removeprefix("dtk.")
            if of != name and name in dtk._MODULES - {"estimator"}:  # that one has tf.estimator's
                public = getattr(dtk, name)
                if node.attr not in getattr(public, "__all__", dir(public)):
                    yield f"{of}.{node.attr}"


@pytest.mark.parametrize("name", LESSONS)
def test_cells_use_public_names_only(name):
    found = {what for code in code_of(name) for what in hidden(code)}
    assert found == set()
    assert ".folder." not in "".join(code_of(name)), "run.folder is dtk's own"
