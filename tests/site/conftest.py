"""The built site, served and looked at: `make test-site`; elsewhere these tests are skipped.

These files need no TensorFlow: pytest is told to look no further up than here (--confcutdir).
"""

from __future__ import annotations

import functools
import http.server
import importlib.util
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(ROOT / "docs"), str(ROOT / "tools")]

import chromium  # noqa: E402

# pytest looks into every module for doctests, and these can't be imported without Sphinx.
collect_ignore = [] if importlib.util.find_spec("sphinx") else ["test_site_search.py"]


def pytest_collection_modifyitems(config, items):
    named = any("site" in Path(argument).parts or "test_site" in argument for argument in config.args)
    for item in items:
        if HERE in item.path.parents and not named:
            item.add_marker(pytest.mark.skip(reason="make test-site runs it"))


@pytest.fixture(scope="session")
def site() -> Path:
    """The folder of the built site: DTK_SITE, or out/site/html."""
    found = Path(os.environ.get("DTK_SITE") or ROOT / "out" / "site" / "html")
    if not (found / "index.html").is_file():
        pytest.skip(f"no site in {found}: `make docs` builds it")
    return found


@pytest.fixture(scope="session")
def reports() -> Path:
    """Where screenshots and reports go: DTK_SITE_OUT, or out/site."""
    place = Path(os.environ.get("DTK_SITE_OUT") or ROOT / "out" / "site")
    place.mkdir(parents=True, exist_ok=True)
    return place


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *said) -> None:
        pass


@pytest.fixture(scope="session")
def address(site) -> Iterator[str]:
    """The site's own, served on this machine."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="session")
def browser():
    with chromium.started() as running:
        yield running


@pytest.fixture
def visit(browser, address):
    """Opens a page: visit("lessons/02_loss_scaling.html", width=1600, theme="light").

    Fails at the test's end where a page's own program failed, or something was asked for that is not there or not here.
    """
    contexts, wrong = [], []

    def opened(page: str, width: int = 1600, theme: str = "light"):
        context = browser.new_context(viewport={"width": width, "height": 1000}, color_scheme=theme)
        contexts.append(context)
        tab = context.new_page()
        tab.on("pageerror", lambda error: wrong.append(f"{page}: {error}"))
        tab.on("requestfailed", lambda request: wrong.append(f"{page}: {request.url} failed"))
        tab.on("request", lambda request: _is_here(request.url, address) or wrong.append(f"{page}: {request.url}"))
        tab.on("response", lambda said: said.status < 400 or wrong.append(f"{page}: {said.url} is {said.status}"))
        tab.goto(f"{address}/{page}")
        tab.wait_for_load_state("load")
        return tab

    yield opened
    for context in contexts:
        context.close()
    assert not wrong


def _is_here(url: str, address: str) -> bool:
    return url.startswith((address, "data:", "blob:"))
