"""The map of the tutorials: lessons and headings that it names are there."""

from __future__ import annotations

import re

import pytest
from lessons import FOLDER, cells_of

MAP = (FOLDER / "README.md").read_text(encoding="utf-8")
LINES = re.findall(r"^\| (?!section )(.+) \|$", MAP, flags=re.MULTILINE)
ROWS = [[cell.strip() for cell in line.split("|")] for line in LINES]
SECTIONS = [row for row in ROWS if len(row) > 3]  # a lab or an appendix has three


PLACE = r"\[\w+\]\((\w+)\.ipynb\):((?:,? \*[^*]+\*)*)"


def named(rows):
    """(lesson, heading) of each place that these rows name: [lesson](lesson.ipynb): *heading*, *heading*."""
    places = [place for row in rows for cell in row for place in re.findall(PLACE, cell)]
    return [(lesson, heading) for lesson, text in places for heading in re.findall(r"\*([^*]+)\*", text)]


NAMED = named(SECTIONS)


def headings(lesson):
    text = "\n".join(cell.source for cell in cells_of(lesson) if cell.cell_type == "markdown")
    return {title.replace("`", "") for title in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)}


@pytest.mark.parametrize(("lesson", "heading"), sorted(set(NAMED)), ids=lambda value: re.sub(r"\W+", "_", value))
def test_each_heading_of_the_map_is_in_its_lesson(lesson, heading):
    assert heading.replace("`", "") in headings(lesson)


def test_each_link_names_its_lesson():
    links = re.findall(r"\[(\w+)\]\((\w+)\.ipynb\)", MAP)
    assert len(links) > 50
    for words, file in links:
        assert words == file
        assert (FOLDER / f"{file}.ipynb").exists(), file
    assert len(NAMED) > 60
