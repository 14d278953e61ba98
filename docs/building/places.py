"""Which file of the repository is which page of the site.

English is at the site's root, every other language in a folder of its name; the same page has the same name in both,
such as `lessons/02_loss_scaling` and `zh/lessons/02_loss_scaling`. What is translated, tools/translations.py knows.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from translations import PAGES, languages

ROOT = Path(__file__).parent.parent.parent
ENGLISH = "en"
SECTIONS = ("guide", "reference", "explanation", "evidence", "teaching")  # folders of docs/
_INDEX = "docs/README.md"


def trees() -> list[str]:
    """The languages of the site: "en" first."""
    return [ENGLISH, *languages()]


@cache
def pages(language: str) -> dict[str, str]:
    """The pages in a language: file, as the repository names it, to page, as the language's tree names it.

    Each section that has pages has a first one, also where there is no such file: building.pages makes it.
    """
    if language == ENGLISH:
        sections = {f"docs/{section}/README.md": f"{section}/index" for section in SECTIONS}
        return {"README.md": "index", _INDEX: "documentation", **sections, **_of_docs(), **_of_notebooks()}
    own = {_translated(file, language): page for file, page in pages(ENGLISH).items()}
    found = {file: page for file, page in own.items() if file and (ROOT / file).is_file()}
    begun = {page.partition("/")[0] for page in found.values()}
    return {f"docs/{each}/README.{language}.md": f"{each}/index" for each in SECTIONS if each in begun} | found


def tree_of(file: str) -> str | None:
    """The language whose tree has a file, or None."""
    return next((language for language in trees() if file in pages(language)), None)


def _of_docs() -> dict[str, str]:
    folders = [ROOT / "docs", *(ROOT / "docs" / section for section in SECTIONS)]
    found = [file for folder in folders for file in sorted(folder.glob("*.md"))]
    names = [file.relative_to(ROOT / "docs").with_suffix("").as_posix() for file in found]
    is_translated = re.compile(rf"\.({'|'.join(languages())})$")
    return {
        f"docs/{name}.md": re.sub(r"README$", "index", name)
        for name in names
        if f"docs/{name}.md" != _INDEX and not is_translated.search(name)
    }


def _of_notebooks() -> dict[str, str]:
    files = [file for file in sorted((ROOT / "notebooks").iterdir()) if file.suffix in {".md", ".ipynb"}]
    return {f"notebooks/{file.name}": f"lessons/{re.sub('README$', 'index', file.stem)}" for file in files}


def _translated(file: str, language: str) -> str:
    """Where a language has a file's translation, or ""."""
    if file.endswith(".ipynb"):
        return file.replace("notebooks/", f"notebooks/{language}/")
    return PAGES.get(file, "").format(language)
