"""A notebook as a page: its stored outputs, its pictures with their words, and buttons in place of the badge.

Nothing is run. What a reader downloads is the notebook itself, as the repository has it.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import nbformat
from heads import IS_BADGE, title_cell

from building.links import rewritten
from building.places import ROOT

WORDS = {  # what a button says
    "en": ("Open in Colab", "Download notebook"),
    "zh": ("在 Colab 中打开", "下载笔记本"),
}
# myst-nb's names; Pygments' lexer that knows %magics.
_LANGUAGE = {"name": "python", "pygments_lexer": "ipython3"}
WIDTH = 100  # letters that fit beside the navigation
NO_CODE = "remove-input"
_COMMENT = re.compile(r"^<!--.*?-->\n?", flags=re.DOTALL | re.MULTILINE)

Notebook = Any  # nbformat's NotebookNode has no types


def as_page(file: str, language: str) -> Notebook:
    """The notebook at `file`, as myst-nb is to read it."""
    notebook = nbformat.read(ROOT / file, as_version=4)
    notebook.metadata["language_info"] = nbformat.from_dict(_LANGUAGE)
    notebook["cells"] = [part for cell in notebook.cells for part in _by_picture(cell)]
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            text = IS_BADGE.sub(lambda badge: buttons(badge[0], Path(file).name, language), cell.source)
            cell["source"] = _attached(rewritten(_COMMENT.sub("", text), file), cell.pop("attachments", {}))
        cell["metadata"] = nbformat.from_dict(_shown(cell))
    return notebook


def buttons(badge: str, name: str, language: str) -> str:
    """HTML in place of a badge, whose picture would come from elsewhere; name: the notebook beside the page."""
    colab, download = WORDS.get(language, WORDS["en"])
    address = badge.rpartition("](")[2].rstrip(")")
    return f'<p class="buttons"><a href="{address}">{colab}</a> <a href="{name}" download>{download}</a></p>'


def title(file: str) -> str:
    """What the navigation calls a notebook: its number, if it has one, and its title without marks."""
    cell = title_cell(nbformat.read(ROOT / file, as_version=4))
    words = cell.source.partition("\n")[0].removeprefix("# ").replace("`", "")
    number = re.match(r"\d+(?=_)", Path(file).name)
    return f"{number[0]} {words}" if number else words


def _attached(text: str, attachments: dict[str, dict[str, str]]) -> str:
    """A text with its attached pictures in it, which myst-nb would look for beside the page."""
    for name, kinds in attachments.items():
        ((kind, data),) = kinds.items()
        text = text.replace(f"(attachment:{name})", f"(data:{kind};base64,{data})")
    return text


def _by_picture(cell: Any) -> list[Any]:
    """A cell, in parts with a picture each: myst-nb has one alternative text a cell. Further parts show no code."""
    outputs = cell.get("outputs", [])
    ends = [at + 1 for at, output in enumerate(outputs) if "image/png" in output.get("data", {})]
    if len(ends) < 2:
        return [cell]
    cuts = [0, *ends[:-1], len(outputs)]
    parts = [nbformat.from_dict({**cell, "outputs": outputs[begin:end]}) for begin, end in pairwise(cuts)]
    for number, part in enumerate(parts[1:], start=1):
        part.update(source="# as above", id=f"{cell.id}-{number}")  # not shown; myst-nb leaves out a cell without
        part["metadata"] = nbformat.from_dict({"tags": [NO_CODE]})
    return parts


def _shown(cell: Any) -> dict[str, Any]:
    """What myst-nb is told of a cell: what stays folded, which lines may wrap, a picture's words."""
    is_folded = cell.metadata.get("jupyter", {}).get("source_hidden")
    tags = {
        "hide-input": is_folded,
        "long-lines": _has_long_lines(cell),
        NO_CODE: NO_CODE in cell.metadata.get("tags", ()),
    }
    shown: dict[str, Any] = {"tags": [tag for tag, is_so in tags.items() if is_so]}
    words = [_alternative(output) for output in cell.get("outputs", ()) if "image/png" in output.get("data", {})]
    if words:
        shown["mystnb"] = {"image": {"alt": words[0], "classes": "figure dark-light"}}
    return shown


def _has_long_lines(cell: Any) -> bool:
    """Whether an output is of sentences, which a page may wrap, rather than of a table."""
    data = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.get("outputs", ())]
    return any(len(line) > WIDTH for text in data for line in text.splitlines())


def _alternative(output: Any) -> str:
    """A picture's words: those stored with it, or its twin in text, <Figure: …>."""
    stored = output.get("metadata", {}).get("image/png", {}).get("alt")
    return stored or re.sub(r"^<Figure: (.*)>$", r"\1", output["data"].get("text/plain", ""))
