"""Chromium, for the tests that look at pages: found on this machine, and driven by Playwright; or they are skipped."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--no-sandbox",  # containers have no user namespaces for it, and the only pages are our own
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextlib.contextmanager
def started() -> Iterator[Any]:
    """A browser of Playwright's; the test is skipped where there is no Chromium, or no Playwright."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright here: see the target in the Makefile")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=_path(), args=list(_FLAGS))
        yield browser
        browser.close()


def _path() -> str:
    """DTK_CHROMIUM, or the first that is installed."""
    asked = os.environ.get("DTK_CHROMIUM")
    found = asked or next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip("no Chromium here: `apt install chromium`, or set DTK_CHROMIUM to the path of one")
    assert Path(found).is_file(), f"DTK_CHROMIUM={found}: there is no such file"
    return found
