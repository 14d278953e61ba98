"""What every lesson begins with: an "Open in Colab" badge under its title, and one set-up cell before all others.

Both name the repository, which `[project.urls]` in pyproject.toml says. The badge opens the lesson without outputs, at
the tag that .github/workflows/release.yml makes for `dtk.__version__`; the cell installs the wheel of that release,
called as `[project]` says: change it there, then `python tools/notebooks.py --heads
notebooks/*.ipynb notebooks/*/*.ipynb` rewrites all lessons without running them. The wheel is the GitHub release's, and
not PyPI's: a name there is anybody's until it is taken, and the badge trusts the repository already.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from nbformat.v4 import new_code_cell

ROOT = Path(__file__).parent.parent
IS_BADGE = re.compile(r"^\[!\[[^\]]*\]\([^)]*colab[^)]*\)\]\([^)]*\)$", flags=re.MULTILINE)
IS_SETUP = 'find_spec("dtk")'
_SETUP = """\
# Installs dtk where it is not, as on Colab; elsewhere this does nothing.
import importlib.util

if importlib.util.find_spec("dtk") is None:
    %pip install --quiet {wheel}"""

Notebook = Any  # nbformat's NotebookNode has no types


def _stated(path: str, pattern: str) -> str:
    """What a file of the project says of itself; ValueError where it does not."""
    match = re.search(pattern, (ROOT / path).read_text(encoding="utf-8"), flags=re.MULTILINE)
    if match is None:
        raise ValueError(f"{path} has no line like {pattern}")
    return match[1]


def repository() -> str:
    """The repository's address, without a slash or .git at its end."""
    return re.sub(r"(\.git|/)+$", "", _stated("pyproject.toml", r'^Repository = "(https://[^"]+)"$'))


def _version() -> str:
    return _stated("dtk/__init__.py", r'^__version__ = "([^"]+)"$')


def wheel() -> str:
    """The address of this version's wheel, in the release that .github/workflows/release.yml makes of the tag."""
    name = _stated("pyproject.toml", r'^name = "([^"]+)"').replace("-", "_")
    return f"{repository()}/releases/download/v{_version()}/{name}-{_version()}-py3-none-any.whl"


def place_of(path: Path) -> str:
    """A lesson's place in notebooks/, such as "02_loss_scaling.ipynb" or "zh/02_loss_scaling.ipynb"."""
    lessons, path = ROOT / "notebooks", path.resolve()
    return path.relative_to(lessons).as_posix() if path.is_relative_to(lessons) else path.name


def badge(name: str) -> str:
    """The Markdown of a lesson's badge; name: the notebook's place in notebooks/. It takes a repository on GitHub."""
    project = repository().removeprefix("https://github.com/")
    address = f"https://colab.research.google.com/github/{project}/blob/colab-v{_version()}/notebooks/{name}"
    return f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({address})"


def setup_source() -> str:
    """The set-up cell's code, the same in all lessons; `%pip` takes the release's own dtk."""
    return _SETUP.format(wheel=wheel())


def title_cell(notebook: Notebook) -> Any | None:
    """The first Markdown cell that begins with a heading of the first level."""
    titles = (cell for cell in notebook.cells if cell.cell_type == "markdown" and cell.source.startswith("# "))
    return next(titles, None)


def write_heads(notebook: Notebook, name: str) -> None:
    """Puts badge and set-up cell where they belong, in place; what was there of either is replaced."""
    title = title_cell(notebook)
    if title is None:
        raise ValueError(f"{name}: no Markdown cell begins with a title, as in '# All-reduce by hand'")
    rest = IS_BADGE.sub("", title.source)
    head, _, text = rest.partition("\n")
    title["source"] = f"{head}\n\n{badge(name)}\n\n{text.strip()}".strip()
    first = next((cell for cell in notebook.cells if cell.cell_type == "code"), None)
    if first is not None and IS_SETUP in first.source:
        first["source"] = setup_source()
    else:
        notebook.cells.insert(notebook.cells.index(title) + 1, new_code_cell(setup_source(), id="setup"))
