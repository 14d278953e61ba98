"""A page of the site, read without a browser: what it links to, what can be linked to, which pictures it has."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

# Pages that are opened in a browser.
LOOKED_AT = (
    "index",
    "lessons/index",
    "lessons/00_start_here",
    "lessons/02_loss_scaling",
    "lessons/09_predicting",
    "guide/use",
    "reference/runs",
    "evidence/look_alikes",
    "teaching/lessons",
    "in_the_page",
    "zh/in_the_page",
    "zh/index",
    "zh/lessons/02_loss_scaling",
)

_NEVER_CLOSED = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


@dataclass
class Page:
    language: str = ""
    links: list[str] = field(default_factory=list)  # of <a>
    loaded: list[str] = field(default_factory=list)  # scripts, styles, pictures
    anchors: list[str] = field(default_factory=list)
    without_words: list[str] = field(default_factory=list)  # pictures that have no alternative
    pictures: int = 0
    out_of_order: list[str] = field(default_factory=list)  # tags closed that are not the last opened
    text: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()
        self.open: list[str] = []

    def handle_starttag(self, tag, attributes):
        has = dict(attributes)
        if tag not in _NEVER_CLOSED:
            self.open.append(tag)
        if tag == "html":
            self.page.language = has.get("lang") or ""
        if "id" in has:
            self.page.anchors.append(has["id"])
        if tag == "a" and has.get("href"):
            self.page.links.append(has["href"])
        if has.get("src") or (tag == "link" and has.get("rel") in {"stylesheet", "icon", "preload", "modulepreload"}):
            self.page.loaded.append(has.get("src") or has["href"])
        if tag == "img":
            self.page.pictures += 1
            if not (has.get("alt") or "").strip():
                self.page.without_words.append(has.get("src", ""))

    def handle_endtag(self, tag):
        if self.open and self.open[-1] == tag:
            self.open.pop()
        elif tag not in _NEVER_CLOSED:
            self.page.out_of_order.append(f"</{tag}> at line {self.getpos()[0]}, where {self.open[-1:]} is open")

    def handle_data(self, data):
        if not {"script", "style"} & set(self.open):
            self.page.text.append(data)


@cache
def read(file: Path) -> Page:
    reader = _Reader()
    reader.feed(file.read_text(encoding="utf-8"))
    reader.close()
    return reader.page
