"""Each page of the site as it is written: links, anchors, pictures, languages, what a lesson has. No browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markup import read

ROOT = Path(__file__).parent.parent.parent
NOTEBOOKS = sorted(ROOT.glob("notebooks/**/*.ipynb"))


@pytest.fixture(scope="module")
def pages(site):
    found = {file.relative_to(site).as_posix(): file for file in sorted(site.rglob("*.html"))}
    assert len(found) > 100
    # The theme leaves its macros there.
    return {name: file for name, file in found.items() if "_static" not in file.relative_to(site).parts}


def lesson(site, notebook):
    """A notebook's page."""
    tree = notebook.parent.relative_to(ROOT / "notebooks")
    return site / tree / "lessons" / f"{notebook.stem}.html"


def test_each_link_leads_to_a_page_and_each_anchor_to_a_place(site, pages, reports):
    wrong, inside, outside = [], 0, set()
    for name, file in pages.items():
        for link in [*read(file).links, *read(file).loaded]:
            parts = urlsplit(link)
            if parts.scheme:
                outside |= {link} if parts.scheme != "data" else set()
                continue
            inside += 1
            to = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            to = to / "index.html" if to.is_dir() else to
            if not to.is_file():
                wrong.append(f"{name}: {link}")
            elif parts.fragment and to.suffix == ".html" and unquote(parts.fragment) not in read(to).anchors:
                wrong.append(f"{name}: {link}, no such place there")
    said = f"{len(pages)} pages, {inside} links inside, {len(outside)} addresses outside\n"
    (reports / "links.txt").write_text(said + "\n".join([*wrong, *sorted(outside)]) + "\n", encoding="utf-8")
    assert not wrong
    assert inside > 1000


def test_no_page_loads_anything_from_elsewhere(pages):
    loaded = {address for file in pages.values() for address in read(file).loaded}
    assert not [address for address in loaded if urlsplit(address).scheme not in ("", "data")]


def test_every_picture_has_words(pages):
    assert not {name: read(file).without_words for name, file in pages.items() if read(file).without_words}
    assert sum(read(file).pictures for file in pages.values()) > 90


def test_tags_are_closed_in_their_order_and_anchors_are_there_once(pages):
    assert not {name: read(file).out_of_order for name, file in pages.items() if read(file).out_of_order}
    for name, file in pages.items():
        anchors = read(file).anchors
        assert len(anchors) == len(set(anchors)), (name, {one for one in anchors if anchors.count(one) > 1})


def test_a_page_says_its_language_and_leads_to_the_other(site, pages):
    for name, file in pages.items():
        is_chinese = name.startswith("zh/")
        assert read(file).language == ("zh-CN" if is_chinese else "en"), name
        twin = site / (name.removeprefix("zh/") if is_chinese else f"zh/{name}")
        links = {(file.parent / unquote(urlsplit(link).path)).resolve() for link in read(file).links}
        if twin.is_file():
            assert twin.resolve() in links, name
        elif not is_chinese:
            assert "本页只有英文。" in "".join(read(file).text), name
            assert (site / "zh" / "index.html").resolve() in links


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_lesson_has_its_stored_outputs_and_its_buttons(site, notebook):
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    page = read(lesson(site, notebook))
    text = re.sub(r"\s+", "", "".join(page.text))
    for cell in cells:
        for output in cell.get("outputs", ()):
            said = "".join(output.get("text", "")) or "".join(output.get("traceback", ()))
            assert re.sub(r"\s+|\x1b\[[0-9;]*m", "", said) in text, said[:200]
    drawn = [output for cell in cells for output in cell.get("outputs", ()) if "image/png" in output.get("data", {})]
    attached = [name for cell in cells for name in cell.get("attachments", ())]
    assert page.pictures == len(drawn) + len(attached)
    assert "<Axes" not in text
    assert "<Figure:" not in text

    assert (lesson(site, notebook).parent / notebook.name).read_bytes() == notebook.read_bytes()
    assert notebook.name in page.links
    (colab,) = {link for link in page.links if link.startswith("https://colab.research.google.com/")}
    assert colab.endswith(f"/{notebook.relative_to(ROOT).as_posix()}")
    assert colab in "".join(cells[0]["source"]), "the badge's address"


def test_solutions_are_folded(site):
    notebook = next(path for path in NOTEBOOKS if path.name == "00_start_here.ipynb")
    html = lesson(site, notebook).read_text(encoding="utf-8")
    folded = re.findall(r"<details>\s*<summary><b>Solution</b></summary>(.*?)</details>", html, flags=re.DOTALL)
    source = "".join("".join(cell["source"]) for cell in json.loads(notebook.read_text("utf-8"))["cells"])
    assert len(folded) == source.count("<details>") > 3
    assert all("<" in part for part in folded)
    assert "### BEGIN SOLUTION" not in html
