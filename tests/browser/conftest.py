"""JupyterLab, Notebook 7 and VS Code's widgets in Chromium: `make test-browser`; elsewhere these tests are skipped."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import chromium
import pytest

# What Notebook 7.6 throws while it reads its settings, with an empty notebook as well.
OWN = {"notebook": "Cannot read properties of undefined (reading 'schema')"}
HERE = Path(__file__).parent
# pytest looks into every module for doctests, and this one can't be imported without Playwright.
collect_ignore = [] if importlib.util.find_spec("playwright") else ["notebook_page.py"]


def pytest_collection_modifyitems(config, items):
    named = any(HERE.name in Path(argument).parts or "test_browser" in argument for argument in config.args)
    for item in items:
        if HERE in item.path.parents and not named:
            item.add_marker(pytest.mark.skip(reason="make test-browser runs it"))


@pytest.fixture(scope="session")
def browser():
    with chromium.started() as running:
        yield running


@pytest.fixture
def expect():
    return pytest.importorskip("playwright.sync_api").expect


@pytest.fixture(scope="session", autouse=True)
def own_scratch(tmp_path_factory) -> Iterator[None]:
    """Runs of these kernels, and nobody else's, are listed here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DTK_SCRATCH", str(tmp_path_factory.mktemp("scratch", numbered=True)))
        patch.setenv("DTK_ANSWERS", str(tmp_path_factory.mktemp("answers") / "answers.jsonl"))
        yield


@pytest.fixture
def own_answers() -> Path:
    """The file that these kernels keep answers in, empty."""
    path = Path(os.environ["DTK_ANSWERS"])
    path.unlink(missing_ok=True)
    return path


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    from serving import serve

    with serve(tmp_path_factory.mktemp("lab")) as running:
        yield running


@pytest.fixture(scope="session")
def pictures() -> Path:
    """Where screenshots and the browser's console go: DTK_BROWSER_OUT, or out/browser."""
    place = Path(os.environ.get("DTK_BROWSER_OUT") or HERE.parent.parent / "out" / "browser")
    place.mkdir(parents=True, exist_ok=True)
    return place


@pytest.fixture
def visit(browser, pictures, request):
    """Opens a lesson of a server's in a page of its own, with a new kernel unless it is opened `again`.

    visit(server, "00_start_here", width=1400, dark=False, again=False)
    """
    from notebook_page import NotebookPage

    contexts, said = [], []

    def opened(server, lesson: str, width: int = 1400, dark: bool = False, again: bool = False) -> NotebookPage:
        if not again:
            server.fresh(f"{lesson}.ipynb")
        server.theme("Dark" if dark else "Light")
        context = browser.new_context(viewport={"width": width, "height": 900})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        own = OWN.get(server.app)
        page.on("pageerror", lambda error: said.append(f"{'own' if str(error) == own else 'uncaught'}: {error}"))
        return NotebookPage(page, server.address(lesson), server.notebooks / f"{lesson}.ipynb", pictures).open()

    yield opened
    for context in contexts:
        context.close()
    name = request.node.name.replace("/", "_")
    (pictures / f"{name}.console.txt").write_text("\n".join(said) + "\n")
    assert not [line for line in said if line.startswith("uncaught")], "an error in the page's own programs"
