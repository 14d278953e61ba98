"""VS Code's own program for widgets, in an ordinary page with a real kernel: live view and labs. No VS Code is run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from lessons import cells_of

PROGRAM = Path(sys.prefix) / "vscode" / "package" / "dist" / "ipywidgets.js"
PAGE = Path(__file__).with_name("vscode_page.html")
# How bright each text that is seen is, from 0 for black to 255 for white; not a button's, which has its own ground.
_BRIGHTNESS = """view => [...view.querySelectorAll(":not(button)")].filter(part => part.checkVisibility() &&
    [...part.childNodes].some(node => node.nodeType === Node.TEXT_NODE && node.data.trim())).map(part => [
    Math.max(...getComputedStyle(part).color.match(/[\\d.]+/g).slice(0, 3).map(Number)), part.textContent])"""

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not PROGRAM.is_file(), reason="VS Code's widgets are not here: make test-browser gets them by npm"
    ),
]


@pytest.fixture
def vscode(browser, server, pictures):
    """Opens the page with a kernel of its own: vscode(dark=False)."""
    from notebook_page import NotebookPage

    uncaught = []

    def opened(dark: bool = False) -> NotebookPage:
        page = context.new_page()
        page.emulate_media(color_scheme="dark" if dark else "light")
        page.on("pageerror", lambda error: uncaught.append(error.stack))
        page.route(f"{server.url}vscode/", lambda route: route.fulfill(path=PAGE))
        page.route(f"{server.url}vscode/{PROGRAM.name}", lambda route: route.fulfill(path=PROGRAM))
        page.goto(f"{server.url}vscode/")
        page.evaluate("dark => document.body.classList.toggle('dark', dark)", dark)
        lab = "document.querySelector('iframe').contentWindow.jupyterapp?.serviceManager"
        page.wait_for_function(f"window.vscode && {lab}", timeout=90_000)
        page.evaluate("window.vscode.start()")
        return NotebookPage(page, page.url, Path("vscode"), pictures)

    context = browser.new_context(viewport={"width": 1000, "height": 900})
    yield opened
    before = list(uncaught)  # the end of a kernel that still runs something is one more
    for page in context.pages:
        page.evaluate("window.vscode?.end()")
    context.close()
    assert before == []


def cells(lesson: str, *sources: str) -> str:
    """The lesson's cells that have these texts."""
    found = cells_of(lesson)
    return "\n".join(next(cell.source for cell in found if source in cell.source) for source in sources)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_live_view_moves_and_ends(vscode, dark):
    from notebook_page import SLOW

    page, name = vscode(dark), "dark" if dark else "light"
    page.watch()
    code = cells("00_start_here", "import dtk", "def train(strategy, global_batch=128")
    page.page.evaluate("code => { window.ran = window.vscode.run(code) }", f"{code}\n{SLOW.format(0.2)}")
    view = page.page.locator(".output")
    page.open_log_at_work(view)
    page.shot(f"{name}-middle", view)
    page.page.evaluate("window.ran")
    assert view.count() == 1
    page.shot(f"{name}-end", view)
    page.assert_came_to_its_end(view)
    assert_readable(view)


def test_the_fault_lab(vscode):
    from notebook_page import inject_an_exception

    page = vscode(dark=True)
    sources = "import dtk", "def build():", "dtk.plot.fault_lab("
    page.page.evaluate("code => window.vscode.run(code)", cells("07_fault_tolerance", *sources))
    lab = page.page.locator(".output").last  # below a live view
    inject_an_exception(lab)
    page.shot("fault-lab", lab)
    assert_readable(lab)


def assert_readable(view) -> None:
    """VS Code sets widgets on white, in its dark theme as well; and its own modules, no others, are what was needed."""
    texts = view.evaluate(_BRIGHTNESS)
    assert texts
    assert [text for brightness, text in texts if brightness > 130] == []
    assert set(view.page.evaluate("[...window.vscode.loaded]")) == {
        "@jupyter-widgets/base",
        "@jupyter-widgets/controls",
    }
