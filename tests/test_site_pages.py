"""What the site is made of, without Sphinx: links of files as links of pages, notebooks as pages, the pages' order."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import lessons
import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))

from building import lessons as as_pages  # noqa: E402
from building import links, pages, places  # noqa: E402

LESSON, CHINESE = "notebooks/02_loss_scaling.ipynb", "notebooks/zh/02_loss_scaling.ipynb"
HOME = "https://github.com/dtk-toolkit/dtk"


@pytest.mark.parametrize(
    ("file", "target", "address"),
    [
        (LESSON, "glossary.md#replica", "glossary.md#replica"),
        (LESSON, "../docs/guide/use.md", "../guide/use.md"),
        (LESSON, "../docs/README.md", "../documentation.md"),
        (CHINESE, "../../docs/guide/use.md", "site:../../guide/use.html"),
        (CHINESE, "../../docs/guide/use.md#how", "site-part:../../guide/use.html#how"),
        ("README.md", "notebooks/00_start_here.ipynb", "lessons/00_start_here.ipynb"),
        ("README.zh.md", "notebooks/zh/README.md", "lessons/index.md"),
        ("README.md", "LICENSE", f"{HOME}/blob/main/LICENSE"),
        ("docs/README.md", "../tests", f"{HOME}/tree/main/tests"),
        ("docs/teaching/README.md", "questions.gift", "site:questions.gift"),
        ("README.md", "docs/demo.png", "/docs/demo.png"),
    ],
)
def test_a_link_between_files_is_one_between_pages(file, target, address):
    assert links.address(target, file) == address


def test_a_link_to_what_is_not_there_stops_the_build():
    with pytest.raises(ValueError, match=r"README\.md: a link leads to docs/gone, which is not there"):
        links.address("docs/gone", "README.md")


def test_each_page_of_documentation_and_each_lesson_is_a_page():
    paths = [path for path in ROOT.glob("docs/*/*.md") if path.parent.name != "upstream"]
    paths += [path for path in ROOT.glob("notebooks/**/*") if path.suffix in (".md", ".ipynb")]
    files = {path.relative_to(ROOT).as_posix() for path in paths}
    known = {file for tree in places.trees() for file in places.pages(tree)}
    assert files <= known
    for tree in places.trees():
        assert len(set(places.pages(tree).values())) == len(places.pages(tree)), "two files are one page"


@pytest.mark.parametrize("path", sorted(ROOT.glob("notebooks/**/*.ipynb")), ids=lambda path: path.name)
def test_each_picture_has_its_words(path):
    """myst-nb has one text a cell, so no cell of a page has two pictures."""
    file = path.relative_to(ROOT).as_posix()
    for cell in as_pages.as_page(file, places.tree_of(file)).cells:
        (*drawn,) = (output for output in cell.get("outputs", ()) if "image/png" in output.get("data", {}))
        words = [cell.metadata.mystnb.image.alt] if "mystnb" in cell.metadata else []
        assert words == [output.metadata["image/png"].alt for output in drawn]
        assert all(len(each) > 20 and "<Figure" not in each for each in words)


def test_the_navigation_has_every_lesson_in_its_order(tmp_path):
    for tree in places.trees():
        pages.write(tree, tmp_path / tree, tmp_path / "static" / tree)
        text = (tmp_path / tree / "lessons" / "index.md").read_text(encoding="utf-8")
        listed = re.findall(r"^\d\d .+ <(\w+)>$", text, flags=re.MULTILINE)
        assert listed == list(lessons.ORDER)
    home = (tmp_path / "en" / "index.md").read_text(encoding="utf-8")
    folders = "guide/index\nreference/index\nexplanation/index\nevidence/index\n"
    assert f"Lessons <lessons/index>\n{folders}Teaching <teaching/index>" in home
    assert "<lessons/index>\n使用指南 <guide/index>\n" in (tmp_path / "zh" / "index.md").read_text(encoding="utf-8")
    english, chinese = ((tmp_path / tree / "guide" / "index.md").read_text(encoding="utf-8") for tree in ("en", "zh"))
    named = re.search(r"```\{toctree\}\n:hidden:\n\n(.*?)\n```", english, flags=re.DOTALL)
    translated = {f"{name}.zh" for name in re.findall(r"\]\((\w+)\.md\)", chinese)}
    assert {*named[1].split(), *translated} == {path.stem for path in (ROOT / "docs" / "guide").glob("*.md")}
    handed_out = tmp_path / "static" / "zh" / "lessons" / "02_loss_scaling.ipynb"
    assert handed_out.read_bytes() == (ROOT / CHINESE).read_bytes()


def test_what_the_site_is_built_with_is_pinned():
    requirements = pytest.importorskip("packaging.requirements", reason="packaging comes with pytest")
    lines = (ROOT / "constraints" / "docs.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for stated in map(requirements.Requirement, project["optional-dependencies"]["docs"]):
        assert stated.specifier.contains(pins[stated.name]), stated
    assert {"pytest", "pytest-timeout", "playwright"} < set(pins)
    assert "tensorflow" not in pins
