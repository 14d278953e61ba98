"""Links between files of the repository, as links between pages of the site.

A link to a page of the same tree stays one that Sphinx resolves and checks. One to a page in another language, or to
a file that the site hands out as it is, gets a scheme of its own, which docs/conf.py takes off. One to any other
file leads to the repository. One to a file that is not there is an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from heads import repository

from building.places import ENGLISH, ROOT, SECTIONS, pages, tree_of

SCHEME = "site"
PICTURES = {".gif", ".png", ".svg"}
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\](?:\([^)]*\))?)*)\]\(([^)\s]+)\)")
_CODE = re.compile(r"(^ *```.*?^ *```|`[^`\n]+`)", flags=re.DOTALL | re.MULTILINE)


def is_handed_out(file: str) -> bool:
    """Whether the site has a file as it is: questions to download."""
    return file.endswith(".gift")


def rewritten(text: str, file: str) -> str:
    """Markdown of a file with its links made the site's; ValueError for a link that leads nowhere."""

    def link(match: re.Match[str]) -> str:
        is_picture, words, target = match.groups()
        return f"{is_picture}[{words}]({address(target, file)})"

    return _outside_code(text, lambda plain: _LINK.sub(link, plain))


def address(target: str, file: str) -> str:
    """What a link of a file to `target` is on the site."""
    if re.match(r"[a-z]+:|#", target):
        return target
    name, _, anchor = target.partition("#")
    to = os.path.normpath(PurePosixPath(file).parent / name)
    end = f"#{anchor}" if anchor else ""
    if not (ROOT / to).exists():
        raise ValueError(f"{file}: a link leads to {to}, which is not there")
    if to.removeprefix("docs/") in SECTIONS:
        to = f"docs/{PurePosixPath(to).name}/README.md"
    return _page(to, file, end) or _file(to, file) or f"{repository()}/{_kind(to)}/main/{to}{end}"


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    """Markdown with what is neither a block of code nor a word of code changed; a link's own words may be code."""
    kept: list[str] = []

    def hidden(match: re.Match[str]) -> str:
        kept.append(match[0])
        return f"\0{len(kept) - 1}\0"

    return re.sub(r"\0(\d+)\0", lambda match: kept[int(match[1])], change(_CODE.sub(hidden, text)))


def _page(to: str, file: str, end: str) -> str:
    """The address of a page, or ""."""
    language, mine = tree_of(to) or ENGLISH, tree_of(file) or ENGLISH
    found = pages(language).get(to, "")
    if not found:
        return ""
    here = _folder(file)
    if language == mine:
        return f"{os.path.relpath(found, here)}{Path(to).suffix}{end}"
    scheme = f"{SCHEME}-part" if end else SCHEME
    return f"{scheme}:{os.path.relpath(_root(language) / found, _root(mine) / here)}.html{end}"


def _file(to: str, file: str) -> str:
    """The address of a picture, or of a file that each tree hands out as it is; or ""."""
    if Path(to).suffix in PICTURES:
        return f"/{to}"
    return f"{SCHEME}:{os.path.relpath(to.removeprefix('docs/'), _folder(file))}" if is_handed_out(to) else ""


def _folder(file: str) -> PurePosixPath:
    return PurePosixPath(pages(tree_of(file) or ENGLISH).get(file, "")).parent


def _root(language: str) -> PurePosixPath:
    return PurePosixPath("" if language == ENGLISH else language)


def _kind(to: str) -> str:
    return "tree" if (ROOT / to).is_dir() else "blob"
