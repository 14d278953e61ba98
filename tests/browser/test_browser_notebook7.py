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


def test_the_lab_of_loss_scaling(notebook7, visit):
    from notebook_page import divide_by_the_global_batch
    from playwright.sync_api import expect

    page = visit(notebook7, "02_loss_scaling")
    page.menu("Edit", "Clear Outputs of All Cells")
    page.run("import dtk")
    lab = page.run("dtk.plot.loss_scaling_lab(").locator(".jp-OutputArea-output").first
    expect(lab).to_contain_text("3 + 3.33 = 6.33", timeout=60_000)
    divide_by_the_global_batch(lab)
    page.shot("notebook7-lab", lab)
