"""The pages for teachers: lessons, questions, minutes, what comes before, and sums in them are true."""

from __future__ import annotations

import itertools
import re

import pytest
from lessons import FOLDER, ORDER, cells_of, head

PAGES = FOLDER.parent / "docs" / "teaching"
LABS = [*sorted(path.stem for path in FOLDER.glob("lab_*.ipynb")), "appendix_estimator"]
ROW = re.compile(r"^- `([\w.]+)`: (.+)$", flags=re.MULTILINE)
LINK = re.compile(r"\[(\w+)\]\(\.\./\.\./notebooks/\1\.ipynb\)")
ASKED = re.compile(r'dtk\.(?:ask|check)\(\s*"([\w.]+)"')


def page(name):
    return (PAGES / name).read_text(encoding="utf-8")


def sections(text):
    """By lesson, the part of a page below its heading."""
    return dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, flags=re.MULTILINE | re.DOTALL))


SECTIONS = {**sections(page("lessons.md")), **sections(page("labs.md"))}


def asked(lesson):
    """The names of its questions and checks, in their order."""
    code = "\n".join(cell.source for cell in cells_of(lesson) if cell.cell_type == "code")
    return list(dict.fromkeys(ASKED.findall(code)))


def test_each_lesson_and_lab_has_its_section_in_order():
    assert list(sections(page("lessons.md"))) == list(ORDER)
    assert list(sections(page("labs.md"))) == LABS


@pytest.mark.parametrize("lesson", [*ORDER, *LABS])
def test_a_section_has_the_heads_minutes_and_what_comes_before(lesson):
    first = SECTIONS[lesson].strip().splitlines()[0]
    linked, said = re.match(r"\[(\w+)\]\(\S+\), (\d+) minutes\. Before it: ", first).groups()
    minutes, before = head(lesson)
    assert (linked, int(said)) == (lesson, minutes)
    assert set(LINK.findall(first)) - {lesson} == {*before}
    assert "**What for.** " in SECTIONS[lesson]


@pytest.mark.parametrize("lesson", [*ORDER, *LABS])
def test_each_question_and_check_is_named(lesson):
    rows = ROW.findall(SECTIONS[lesson])
    assert SECTIONS[lesson].count("\n- ") == len(rows), "a row is not written as the others"
    assert [name for name, _ in rows] == asked(lesson)
    assert len({thought for _, thought in rows}) == len(rows)


def test_the_plans_sums_are_the_lessons():
    count = 0
    for line in re.findall(r"^\| .+ \|$", page("plans.md"), flags=re.MULTILINE):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        for what, number in itertools.pairwise(cells):
            if number.isdigit() and LINK.search(what) and not what.startswith("slides of"):
                assert int(number) == sum(head(lesson)[0] for lesson in LINK.findall(what)), line
                count += 1
    assert count > 15
    rows = re.findall(r"^\| .+ \| (\d+) \|$", page("plans.md").split("## A week")[0], flags=re.MULTILINE)
    (together,) = re.findall(r"^\| \*\*together\*\* \| (\d+) \|$", page("plans.md"), flags=re.MULTILINE)
    assert sum(map(int, rows)) == 2 * int(together)


@pytest.mark.parametrize("plan", ["One afternoon", "A week", "Half a semester"])
def test_in_a_plan_a_lesson_comes_after_what_it_needs(plan):
    text = re.search(rf"^## {plan}\n(.*?)(?=^## |\Z)", page("plans.md"), flags=re.MULTILINE | re.DOTALL)[1]
    named = [lesson for line in re.findall(r"^\| .+ \|$", text, flags=re.MULTILINE) for lesson in LINK.findall(line)]
    for at, lesson in enumerate(named):
        assert {*head(lesson)[1]} <= set(named[:at]), lesson
    if plan != "One afternoon":
        assert set(named) == {*ORDER, *LABS} - {"appendix_estimator"}, "which is optional"


def test_the_index_names_every_page_and_its_number_of_questions():
    index = page("README.md")
    pages = {path.name for path in PAGES.glob("*.md") if path.name.count(".") == 1}  # README.zh.md is its translation
    assert pages - {"README.md"} == set(re.findall(r"\]\((\w+\.md)\)", index))
    assert f"has {page('questions.gift').count('::[markdown]')} questions" in index
    assert {path.stem for path in FOLDER.glob("appendix_*.ipynb")} == set(LINK.findall(index))
