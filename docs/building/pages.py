"""The files of a tree, as Sphinx is to read them: links made the site's, and the pages in their order."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import nbformat
from translations import PAGES

from building.lessons import as_page, title
from building.links import PICTURES, address, is_handed_out, rewritten
from building.places import ENGLISH, ROOT, SECTIONS, pages

_PICTURE = re.compile(
    r'<picture>.*?srcset="(?P<dark>[^"]+)".*?src="(?P<light>[^"]+)".*?alt="(?P<alt>[^"]*)".*?</picture>', re.DOTALL
)
_OTHER_LANGUAGE = re.compile(r"^(\[[^\]]+\]\(README[^)]*\) · \S+|\S+ · \[[^\]]+\]\(README[^)]*\))\n", re.MULTILINE)
_STAMP = re.compile(r"^<!--.*?-->\n")
_ANCHOR = re.compile(r'^<a id="([^"]+)"></a>$', re.MULTILINE)
_BLOCK = re.compile(r"^\*\*\[(\w+)\]\((\w+)/\)\*\*: (.*?)(?=^\*\*|\Z)", re.DOTALL | re.MULTILINE)  # of docs/README.md
_SAID = {
    "en": {"lessons": "Lessons", "teaching": "Teaching", "labs": "Labs", "appendices": "Appendices", "more": "More"},
    "zh": {
        "lessons": "课程",
        "guide": "使用指南",
        "teaching": "教学",
        "labs": "实验",
        "appendices": "附录",
        "more": "其他",
    },
}


def write(language: str, source: Path, static: Path) -> None:
    """Writes the pages of a language under `source`, and what is handed out as it is under `static`."""
    texts = dict(_texts(language))
    for page, text in texts.items():
        to = source / f"{page}.md"
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(text + _contents(page, texts, language), encoding="utf-8")
    for name, page in pages(language).items():
        if name.endswith(".ipynb"):
            to = source / f"{page}.ipynb"
            to.write_text(nbformat.writes(as_page(name, language)), encoding="utf-8")
            _copy(ROOT / name, static / f"{page}.ipynb")
    for picture in (each for each in (ROOT / "docs").rglob("*.*") if each.suffix in PICTURES):
        _copy(picture, source / picture.relative_to(ROOT))
    for file in (ROOT / "docs").rglob("*.*"):
        if file.is_file() and is_handed_out(file.relative_to(ROOT).as_posix()):
            _copy(file, static / file.relative_to(ROOT / "docs"))


def _texts(language: str) -> Iterator[tuple[str, str]]:
    """Each page of Markdown: its name and its text."""
    for file, page in pages(language).items():
        if file.endswith(".md") and (ROOT / file).exists():
            text = _OTHER_LANGUAGE.sub("", _STAMP.sub("", (ROOT / file).read_text(encoding="utf-8")), count=1)
            if page == "lessons/index":
                text = _with_lessons(text, language)
            if page == "documentation":
                yield from _sections(text)
                text = f"---\norphan: true\n---\n\n{text}"
            yield page, _with_pictures(rewritten(_ANCHOR.sub(r"(\1)=", text), file), file)
    if language != ENGLISH:
        yield from _lists(language)


def _lists(language: str) -> Iterator[tuple[str, str]]:
    """The first page of each section for which a language has no such file: its pages' titles, as links."""
    known, translated = pages(language), [to.format(language) for to in PAGES.values()]
    for first in [page for file, page in known.items() if not (ROOT / file).exists()]:
        section = first.partition("/")[0]
        lines = [f"# {_SAID[language][section]}", ""]
        for file in [each for each in translated if known.get(each, "").startswith(f"{section}/")]:
            (heading, *_) = re.findall("^# (.+)$", (ROOT / file).read_text(encoding="utf-8"), flags=re.MULTILINE)
            lines.append(f"- [{heading}]({PurePosixPath(known[file]).name}.md)")
        yield first, "\n".join(lines) + "\n"


def _with_pictures(text: str, file: str) -> str:
    """<picture> has one for each theme, which it chooses by the system's; the site has a switch of its own."""

    def two(match: re.Match[str]) -> str:
        light, dark = (address(match[name], file) for name in ("light", "dark"))
        return "\n\n".join(
            f"```{{image}} {picture}\n:class: {theme}\n:alt: {match['alt']}\n:width: 660\n```"
            for picture, theme in ((light, "only-light"), (dark, "only-dark"))
        )

    return _PICTURE.sub(two, text)


def _with_lessons(text: str, language: str) -> str:
    """The lessons' first page: their table from the home page, then what the lessons' own page says."""
    (home,) = (file for file, page in pages(language).items() if page == "index")
    (here,) = (file for file, page in pages(language).items() if page == "lessons/index")
    tables = re.findall(r"^\|.*\|\n(?:\|.*\|\n)+", (ROOT / home).read_text(encoding="utf-8"), flags=re.MULTILINE)
    (table,) = (table for table in tables if "00_start_here" in table)
    table = table.replace(f"]({PurePosixPath(here).parent}/", "](")
    return f"# {_SAID[language]['lessons']}\n\n{table}\n#{text}"


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """The first page of each folder of docs/ that has none: its block of the list of all pages."""
    for name, folder, block in _BLOCK.findall(text):
        page = f"# {name}\n\n{block[0].upper()}{block[1:]}"
        yield f"{folder}/index", rewritten(page.replace(f"]({folder}/", "]("), f"docs/{folder}/README.md")


def _contents(page: str, texts: dict[str, str], language: str) -> str:
    """The table of contents, for the navigation, of the home page or of a section's first page."""
    said = _SAID.get(language, _SAID[ENGLISH])
    if page == "index":
        sections = [f"{section}/index" for section in ("lessons", *SECTIONS) if f"{section}/index" in texts]
        single = [name for name in texts if "/" not in name and name not in ("index", "documentation")]
        titles = {**{f"{section}/index": words for section, words in said.items()}, "in_the_page": said["labs"]}
        return _toctree([f"{titles[name]} <{name}>" if name in titles else name for name in sections + single])
    folder, _, name = page.rpartition("/")
    if name != "index":
        return ""
    if folder == "lessons":
        return "".join(_toctree(*part) for part in _of_lessons(said, language))
    linked = [name for name in re.findall(r"\]\(([\w.]+)\.md(?:#[^)]*)?\)", texts[page]) if f"{folder}/{name}" in texts]
    return _toctree(list(dict.fromkeys(name for name in linked if name != "index")))


def _of_lessons(said: dict[str, str], language: str) -> Iterator[tuple[list[str], str]]:
    """Lessons, labs, appendices and the rest, each with its caption."""
    files = {page.removeprefix("lessons/"): file for file, page in pages(language).items() if "lessons/" in page}
    kinds = {"lessons": r"\d", "labs": "lab_", "appendices": "appendix_", "more": r"(?!\d|lab_|appendix_|index$)"}
    for kind, pattern in kinds.items():
        names = [name for name in files if re.match(pattern, name)]
        yield (
            [f"{title(files[name])} <{name}>" if files[name].endswith(".ipynb") else name for name in names],
            said[kind],
        )


def _toctree(entries: list[str], caption: str = "") -> str:
    lines = [":hidden:", *([f":caption: {caption}"] if caption else []), "", *entries]
    return "\n```{toctree}\n" + "\n".join(lines) + "\n```\n"


def _copy(file: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, to)
