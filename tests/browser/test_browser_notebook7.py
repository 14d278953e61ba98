"""Notebook 7: the live view of a run and a lab, by the same page as JupyterLab's and by keyboard."""

from __future__ import annotations

import pytest
from serving import serve

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def notebook7(tmp_path_factory):
    pytest.importorskip("notebook", reason="no Notebook 7 here: make test-browser installs it")
    with serve(tmp_path_factory.mktemp("notebook7"), app="notebook") as running:
        yield running


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_live_view_moves_and_ends(notebook7, visit, dark):
    page, name = visit(notebook7, "00_start_here", dark=dark), f"notebook7-{'dark' if dark else 'light'}"
    assert page.page.evaluate("window.jupyterapp.name") == "Jupyter Notebook"
    page.start_slow()
    view = page.dashboards.first
    page.open_log_at_work(view)
    page.shot(f"{name}-middle", view)
    page.wait_idle(120)
    page.shot(f"{name}-end", view)
    page.assert_came_to_its_end(view)
