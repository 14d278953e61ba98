"""README, CONTRIBUTING and docs/: each link, path, room, test and row that they name is there."""

from __future__ import annotations

import importlib
import itertools
import re
from pathlib import Path

import lessons
import pytest
from gallery import all_programs

import dtk
from dtk.compat import keras3

ROOT = Path(__file__).parent.parent
MARKDOWN = [path for names in ("*", "benchmarks/*", "docs/**/*", "notebooks/**/*") for path in ROOT.glob(f"{names}.md")]
NOW = [path for path in MARKDOWN if path.name != "CHANGELOG.md"]  # pages about what is there now
REFERENCE = ROOT / "docs" / "reference"
MADE_UP = (
    "CONTRIBUTING.md",
    "dtk/course/exercises/lesson_NN.py",
    "dtk/places/NAME.py",
    "dtk/view/NAME.py",
    "tests/cluster/test_NAME.py",
)
CODE = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests").rglob("test_*.py")))
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def anchors(path):
    """GitHub's addresses of a page's headings."""
    found: list[str] = []
    for title in re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE):
        plain = lessons.anchor(title)
        found.append(f"{plain}-{found.count(plain)}" if plain in found else plain)
    return found


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_link_to_a_file_leads_somewhere(path):
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if not link.startswith(("http://", "https://")):
            file, _, anchor = link.partition("#")
            target = (path.parent / file).resolve() if file else path
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link
    for name in re.findall(r"\bdocs/[\w/]+\.md\b", text):
        assert (ROOT / name).exists(), name


def test_every_path_to_the_docs_in_the_code_is_there():
    code = [path for room in ("dtk", "tests", "benchmarks", "tools") for path in (ROOT / room).rglob("*.py")]
    texts = [path.read_text(encoding="utf-8") for path in code]
    named = {name for text in texts for name in re.findall(r"\bdocs/[\w/]+\.md\b", text)}
    told = [path.read_text(encoding="utf-8") for path in (ROOT / "dtk").rglob("*.py")]
    pages = {name for text in told for name in re.findall(r"""\bpage\(["']([^"']+)["']\)""", text)}
    assert len(named) > 5
    assert len(pages) >= 2
    named |= {f"docs/{page}" for page in pages}  # `dtk.errors.page`
    assert {name for name in named if not (ROOT / name).exists()} == set()


def test_the_index_of_the_docs_links_to_every_page():
    index, upstream = ((ROOT / "docs" / name).read_text("utf-8") for name in ("README.md", "upstream/README.md"))
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    pages = {page for page in pages if not page.startswith("reference/")} - {"README.md"} | {"reference/README.md"}
    assert pages == set(re.findall(r"\]\((\w[\w/.]*\.md)\)", index + upstream.replace("](", "](upstream/")))


def test_contributing_has_the_rooms_in_the_order_that_lint_holds():
    rows = re.findall(r"^\| ((?:`\w+/?`(?:, )?)+) \|", CONTRIBUTING, flags=re.MULTILINE)
    listed = [{name.rstrip("/") for name in re.findall(r"`([^`]+)`", row)} for row in rows]
    layers = re.search(
        r"^layers = \[\n(.*?)^\]", (ROOT / "pyproject.toml").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    assert layers is not None
    floors = [set(re.findall(r"\w+", line)) for line in layers[1].splitlines()]
    floor_of = {room: number for number, floor in enumerate(floors) for room in floor - {"__main__"}} | {"__init__": 0}
    assert sorted(room for row in listed for room in row) == sorted(floor_of)
    for above, below in itertools.pairwise(listed):
        assert max(map(floor_of.get, above)) < min(map(floor_of.get, below)), f"{above} and {below}"


@pytest.mark.parametrize("path", NOW, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_files_that_a_page_names_are_there(path):
    text = path.read_text(encoding="utf-8")
    roots = {"dtk": ROOT, "tests": ROOT, "tools": ROOT, "benchmarks": ROOT, "constraints": ROOT}
    short = dict.fromkeys(("launch", "worker", "watch"), ROOT / "dtk") if path.name == MADE_UP[0] else {}
    homes = {**roots, **short}
    for room, rest in re.findall(rf"(?<![\w/.])({'|'.join(homes)})/([\w/.]+\.(?:py|txt))\b", text):
        assert (homes[room] / room / rest).exists() or f"{room}/{rest}" in MADE_UP[1:], f"{room}/{rest}"
    there = {path.name for room in ("dtk", "tests", "tools", "benchmarks") for path in (ROOT / room).rglob("*.py")}
    others = {"train.py", "nbgrader_config.py"}  # the learner's own, and nbgrader's
    assert set(re.findall(r"`(\w+\.py)`", text)) <= there | others


@pytest.mark.parametrize("path", NOW, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_tests_that_a_page_names_are_there(path):
    for name in re.findall(r"(?<!def )\b(test_\w+)\b(?!\.)", path.read_text(encoding="utf-8")):
        assert f"def {name}(" in CODE, name


def test_lessons_and_documents_import_nothing_but_what_is_public():
    pages = [*NOW, *ROOT.glob("notebooks/*.ipynb")]
    text = "".join(path.read_text(encoding="utf-8") for path in pages if path.parent != REFERENCE)
    found = set(re.findall(r"(?:from|import) (dtk[\w.]*)", text))
    assert {"dtk", "dtk.model"} <= found <= {"dtk", *(f"dtk.{name}" for name in dtk._MODULES)}
    used = set(re.findall(r"\bdtk\.([A-Za-z]\w*)(?=\()", text))
    assert len(used) > 15
    assert used <= set(dtk.__all__)


def test_each_correction_of_keras_has_a_row():
    page = (ROOT / "docs" / "explanation" / "compat.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+?) (?:\([^|]*\) )?\|", page, flags=re.MULTILINE)
    missing = sorted({*keras3._CORRECTIONS} - set(rows))
    assert not missing, f"docs/explanation/compat.md, under Corrections, has no row for: {', '.join(missing)}"


def test_the_seconds_of_lesson_07_are_those_of_the_runs_that_were_watched():
    page = (ROOT / "docs" / "evidence" / "fault_tolerance.md").read_text(encoding="utf-8")
    table = "".join(cell.source for cell in lessons.cells_of("07_fault_tolerance"))
    said = re.search(r"^\| killed \| worker 0 [^|]*?(\d+) to (\d+) s,.*\n\|[^|]*\| the same \|", table, re.MULTILINE)
    killed = re.search(r"^\| worker 1 killed \| worker 0 raises after ([\d.]+) and ([\d.]+) s", page, re.MULTILINE)
    raised = re.search(r"^\| exception on worker 1, .* raises after ([\d.]+) s", page, re.MULTILINE)
    measured = sorted(map(float, [*killed.groups(), raised[1]]))
    assert list(map(int, said.groups())) == [int(measured[0]), -int(-measured[-1] // 1)]


def test_the_page_of_the_gallery_has_its_programs(monkeypatch):
    """After a program has come or changed: `python benchmarks/confusion.py --docs docs/evidence/gallery.md`."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    confusion = importlib.import_module("confusion")
    page = ROOT / "docs" / "evidence" / "gallery.md"
    assert confusion.programs_table(all_programs()) in page.read_text(encoding="utf-8")
