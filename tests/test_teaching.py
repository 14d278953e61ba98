"""The pages for teachers: lessons, cells, minutes, what comes before, sums and calculated numbers in them are true."""

from __future__ import annotations

import itertools
import re

import minutes
import nbformat
import pytest
from lessons import FOLDER, ORDER, cells_of

PAGES = FOLDER.parent / "docs" / "teaching"
LABS = sorted(path.stem for path in FOLDER.glob("lab_*.ipynb"))
ROW = re.compile(r"^\| (.+) \| `([\w.]+)` \| \*(.+)\* \| `([\w-]+)` \|$", flags=re.MULTILINE)
LINK = re.compile(r"\[(\w+)\]\(\.\./\.\./notebooks/\1\.ipynb\)")
X = "\N{MULTIPLICATION SIGN}"
ASKED = re.compile(r'dtk\.(?:ask|check)\(\s*"([\w.]+)"')


def page(name):
    return (PAGES / name).read_text(encoding="utf-8")


def sections(text):
    """By lesson, the part of a page below its heading."""
    return dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, flags=re.MULTILINE | re.DOTALL))


SECTIONS = {**sections(page("lessons.md")), **sections(page("labs.md"))}


def head(lesson):
    return cells_of(lesson)[0].source


def stated(lesson):
    return minutes.stated(nbformat.read(FOLDER / f"{lesson}.ipynb", as_version=4))


def before(lesson):
    """The lessons that a lesson's head asks for."""
    return set(
        re.findall(
            r"\[(\w+)\]\(\1\.ipynb\)", re.search(r"\*\*Before\.\*\*(.*?)\*\*Afterwards", head(lesson), re.DOTALL)[1]
        )
    )


def places(lesson):
    """By name of a question or a check: the heading above its cell, and the cell's id, in their order."""
    heading, found = "", {}
    for cell in cells_of(lesson):
        if cell.cell_type == "markdown":
            titles = re.findall(
                r"^#+ (.+)$", re.sub(r"```.*?```", "", cell.source, flags=re.DOTALL), flags=re.MULTILINE
            )
            heading = titles[-1].replace("`", "") if titles else heading
        else:
            found.update(dict.fromkeys(ASKED.findall(cell.source), (heading, cell.id)))
    return found


def test_each_lesson_and_lab_has_its_section_in_order():
    assert list(sections(page("lessons.md"))) == list(ORDER)
    assert list(sections(page("labs.md"))) == LABS


@pytest.mark.parametrize("lesson", [*ORDER, *LABS])
def test_a_section_has_the_heads_minutes_and_what_comes_before(lesson):
    first = SECTIONS[lesson].strip().splitlines()[0]
    linked, said = re.match(r"\[(\w+)\]\(\S+\), (\d+) minutes\. Before it: ", first).groups()
    assert (linked, int(said)) == (lesson, stated(lesson))
    assert set(LINK.findall(first)) - {lesson} == before(lesson)
    assert "**What for.** " in SECTIONS[lesson]


@pytest.mark.parametrize("lesson", [*ORDER, *LABS])
def test_each_question_and_check_is_named_with_its_heading_and_cell(lesson):
    rows = ROW.findall(SECTIONS[lesson])
    assert SECTIONS[lesson].count("\n| ") == len(rows) + 1, "a row is not written as the others"
    assert {name: (heading, cell) for _, name, heading, cell in rows} == places(lesson)
    assert [name for _, name, *_ in rows] == list(places(lesson))
    assert len({thought for thought, *_ in rows}) == len(rows)


@pytest.mark.parametrize("lesson", [*ORDER, *LABS])
def test_a_discussion_has_two_to_four_questions_with_what_a_good_answer_holds(lesson):
    talk = SECTIONS[lesson].partition("**To discuss.**")[2]
    asked = re.findall(r"^\d\. (.+?) \*A good answer:\* (.+)$", talk, flags=re.MULTILINE)
    assert 2 <= len(asked) <= 4
    assert len(asked) == len(re.findall(r"^\d\. ", talk, flags=re.MULTILINE))
    assert all("?" in question and len(answer) > 30 for question, answer in asked)


def test_the_plans_sums_are_the_lessons():
    count = 0
    for line in re.findall(r"^\| .+ \|$", page("plans.md"), flags=re.MULTILINE):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        for what, number in itertools.pairwise(cells):
            if number.isdigit() and LINK.search(what) and not what.startswith("slides of"):
                assert int(number) == sum(map(stated, LINK.findall(what))), line
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
        assert before(lesson) <= set(named[:at]), lesson
    if plan != "One afternoon":
        assert set(named) == {*ORDER, *LABS} - {"06_estimator"}, "06 is optional"


def test_the_hubs_numbers_follow_from_what_was_measured():
    measured = (PAGES.parent / "guide" / "shared_machines.md").read_text(encoding="utf-8")
    two, more = map(float, re.search(r"takes some ([\d.]+) GB, each further worker ([\d.]+) GB", measured).groups())
    runs, last = {"eight": 8}[re.search(r"(\w+) of eight runs", measured.lower())[1]], 80
    assert f"in 68 to {last} s" in measured
    text, each = page("hub.md"), last * 2 / runs
    assert f"{last} s {X} 2 cores / {runs} = {each:.0f} core-seconds" in text
    assert [int(number) for number in re.findall(rf"^\| .+ \| 30 {X} .+ \| (\d+) \|$", text, flags=re.MULTILINE)] == [
        round(30 * two),
        round(30 * (two + 2 * more)),
    ]
    rows = re.findall(r"^\| (\d+) \| (\d+) \|$", text, flags=re.MULTILINE)
    assert [int(seconds) for _, seconds in rows] == [round(30 * each / int(cores)) for cores, _ in rows]
    assert f"30 {X} 10 {X} 20 / (35 {X} 60) = {30 * 10 * each / (stated('04_keras_fit') * 60):.1f} cores" in text


def test_a_lesson_has_ten_runs_at_most():
    for lesson in ORDER:
        code = "\n".join(cell.source for cell in cells_of(lesson) if cell.cell_type == "code")
        assert len(re.findall(r"\bdtk\.(?:run|baseline)\(", code)) <= 10, lesson


def test_the_lessons_with_four_workers_are_those_that_the_hubs_page_names():
    names = [path.stem for path in sorted(FOLDER.glob("*.ipynb"))]
    many = [name for name in names if any("workers=4" in cell.source for cell in cells_of(name))]
    assert many == ["01_all_reduce", "lab_3_sharded_optimizer", "lab_4_another_all_reduce"]


def test_the_page_for_assistants_is_one_page_that_can_be_copied_to_another_place():
    text = (FOLDER / "AI_GUIDE.md").read_text(encoding="utf-8")
    assert len(text.split()) < 700
    assert re.findall(r"\]\((?!http)[^)]*\)", text) == [], "its links would lead elsewhere in a student's edition"
    assert all(word in text for word in ("dtk.check", "dtk.ask", "dtk.diagnose", "No made-up outputs", "No solution"))


def test_the_index_names_every_page_and_its_number_of_questions():
    index = page("README.md")
    pages = {path.name for path in PAGES.glob("*.md") if path.name.count(".") == 1}  # README.zh.md is its translation
    assert pages - {"README.md"} == set(re.findall(r"\]\((\w+\.md)\)", index))
    assert f"has {page('questions.gift').count('::[markdown]')} questions" in index
    assert {path.stem for path in FOLDER.glob("appendix_*.ipynb")} == set(LINK.findall(index))
