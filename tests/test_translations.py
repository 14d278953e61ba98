"""The lessons in other languages: the same code, every text translated, and from the English as it stands now."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import nbformat
import pytest
import translations
from lessons import compared

ROOT = Path(__file__).parent.parent
LESSONS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LANGUAGES = sorted(file.parent for file in (ROOT / "notebooks").glob("*/glossary.md"))
PAIRS = [(lesson, folder / lesson.name) for folder in LANGUAGES for lesson in LESSONS]
each = pytest.mark.parametrize(("english", "other"), PAIRS, ids=[f"{b.parent.name}-{a.stem}" for a, b in PAIRS])
FENCED = re.compile(r"```.*?```", flags=re.DOTALL)
LINK = re.compile(r"\]\((?!https://colab)([^)]*)\)")  # but the badge's, which a test of the lint looks at
MARKED = re.compile(r"^(#+ |\||\d\.|- )", flags=re.MULTILINE)  # headings, rows, items


@functools.cache
def cells(path: Path, kind: str):
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == kind]


def test_nothing_lacks_and_nothing_is_older_than_the_english(capsys):
    assert (translations.main(["--check"]), capsys.readouterr().out) == (0, ""), "then translations.py --done FILE"


@each
def test_the_code_is_the_same_to_the_byte(english: Path, other: Path):
    ours, theirs = cells(english, "code"), cells(other, "code")
    assert [cell.source for cell in ours] == [cell.source for cell in theirs]
    assert [cell.get("metadata") for cell in ours] == [cell.get("metadata") for cell in theirs]


@pytest.mark.parametrize(("page", "to"), [item for item in translations.PAGES.items() if "/guide/" in item[0]])
def test_a_page_has_the_commands_headings_and_rows_of_the_english(page: str, to: str):
    for folder in LANGUAGES:
        ours, theirs = ((ROOT / name).read_text(encoding="utf-8") for name in (page, to.format(folder.name)))
        assert FENCED.findall(ours) == FENCED.findall(theirs)
        assert MARKED.findall(ours) == MARKED.findall(theirs)


@each
def test_a_text_has_what_the_english_has(english: Path, other: Path):
    for ours, theirs in zip(cells(english, "markdown"), cells(other, "markdown"), strict=True):
        assert ours.id == theirs.id
        assert FENCED.findall(ours.source) == FENCED.findall(theirs.source)
        assert len(re.findall(r"^#+ ", ours.source, re.M)) == len(re.findall(r"^#+ ", theirs.source, re.M))
        told = theirs.source.replace("](../../", "](../").replace(f".{other.parent.name}.md)", ".md)")
        assert sorted(LINK.findall(ours.source)) == sorted(LINK.findall(told))
        assert re.search(r"[\u4e00-\u9fff]", theirs.source)


def said(cell) -> list[str]:
    """The lines of what a cell put out, with what differs between two runs replaced as nbval replaces it."""
    outputs = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs]
    text = "\n".join([*outputs, *(line for output in cell.outputs for line in output.get("traceback", ()))])
    return compared(text).splitlines()


def _closed(text: str) -> str:
    """A table's columns are as wide as their words, and a long sentence is broken where the words before it end."""
    return " ".join(text.split())


@each
def test_what_the_lessons_own_code_prints_is_the_same(english: Path, other: Path):
    """A line is the English one, or dtk's own, in the other language; a figure's headline may be the lesson's own."""
    for ours, theirs in zip(cells(english, "code"), cells(other, "code"), strict=True):
        assert [output.output_type for output in ours.outputs] == [output.output_type for output in theirs.outputs]
        if "nbval-ignore-output" not in ours.metadata.get("tags", ()):
            whole = _closed("\n".join(said(ours)))
            lines = [_closed(line) for line in said(theirs) if not re.search(r"[\u4e00-\u9fff]", line)]
            assert [line for line in lines if line not in whole] == [], theirs.id
