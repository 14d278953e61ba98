"""What Sphinx lacks for this site: search in Chinese, GitHub's anchors, where the switch of languages leads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.locale import _ as gettext
from sphinx.search.zh import SearchChinese

from building.places import ENGLISH, pages, trees

_CHINESE = r"[\u3400-\u4dbf\u4e00-\u9fff]"
_NAMES = {"en": ("en", "English"), "zh": ("zh-CN", "中文")}
_THEME = {  # what the theme's own catalogue lacks
    "zh": {
        "Collapse Sidebar": "收起侧栏",
        "Expand Sidebar": "展开侧栏",
        "Icon Links": "图标链接",
        "System Settings": "跟随系统",
    }
}


class Pairs(SearchChinese):
    """Chinese by its letters, and each two that are neighbors.

    Sphinx's own search splits pages by jieba, if that is installed, and the reader's query, in the browser, not at all.
    全局批次 is then found nowhere, as the index has 全局 and 批次. Pairs are the same on both sides, and need no
    dictionary.
    """

    language_name = (
        "English"  # the stemmer's; Sphinx 9.0 looks for a ChineseStemmer that is not there (its issue 14229)
    )
    js_splitter_code = (Path(__file__).parent / "pairs.js").read_text(encoding="utf-8")

    def split(self, input: str) -> list[str]:
        found = re.findall(rf"{_CHINESE}+|(?:(?!{_CHINESE})\w)+", input)
        self.latin_terms.update(run for run in found if not re.match(_CHINESE, run))
        return [part for run in found for part in (_pairs(run) if re.match(_CHINESE, run) else [run])]

    def word_filter(self, stemmed_word: str) -> bool:
        return bool(re.match(_CHINESE, stemmed_word)) or super().word_filter(stemmed_word)


def _pairs(run: str) -> list[str]:
    return [*run, *(run[at : at + 2] for at in range(len(run) - 1))]


def name_as_github_does(app: Sphinx, document: nodes.document) -> None:
    """A heading's address is GitHub's, `#dtkrun` or `#预测`, rather than docutils's, `#dtk-run` or `#id3`."""
    taken = set(document.ids)
    for section in document.findall(nodes.section):
        slug = section.get("slug")
        if slug and slug not in taken:
            section["ids"].insert(0, slug)


def add_languages(app: Sphinx, page: str, template: str, context: dict[str, Any], document: Any) -> None:
    """`languages` in templates: for each other one its tag and name, the page's address there, and its home's."""
    mine = app.config.dtk_tree
    up = "../" * (page.count("/") + (mine != ENGLISH))
    said = _THEME.get(mine, {})
    context["_"] = lambda words: said.get(words) or gettext(words)
    context["languages"] = [
        {
            "tag": _NAMES.get(other, (other, other))[0],
            "name": _NAMES.get(other, (other, other))[1],
            "page": f"{up}{_folder(other)}{page}.html" if _has(other, page) else "",
            "home": f"{up}{_folder(other)}index.html",
        }
        for other in trees()
        if other != mine
    ]


def _folder(language: str) -> str:
    return "" if language == ENGLISH else f"{language}/"


def _has(language: str, page: str) -> bool:
    return page in {*pages(language).values(), "search"}


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_config_value("dtk_tree", ENGLISH, "env")
    app.add_search_language(Pairs)
    app.connect("doctree-read", name_as_github_does)
    app.connect("html-page-context", add_languages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
