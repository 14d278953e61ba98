"""Other places than a folder of one's own: behind a base URL, read-only, another Python's kernel, no widgets."""

from __future__ import annotations

import nbformat
import pytest
from serving import serve

pytestmark = pytest.mark.timeout(600)
LESSON = "00_start_here"


def train_two_workers(page):
    """Runs the cells up to the first cluster, from an empty notebook; returns the cell that ran it."""
    page.menu("Edit", "Clear Outputs of All Cells")
    for source in ("import dtk", "def train(strategy, global_batch=128"):
        page.run(source)
    cell = page.run("run = dtk.run(train, workers=2)")
    page.wait_idle(120)
    shown = cell.locator(".jp-OutputArea").text_content()
    assert "cluster of 2 workers: finished in" in shown
    assert "step 40/40" in shown
    return cell


def test_behind_a_base_url(tmp_path, visit):
    with serve(tmp_path, ["--ServerApp.base_url=/user/x/"]) as server:
        assert server.url.endswith("/user/x/")
        page = visit(server, LESSON)
        train_two_workers(page)
        assert page.dashboards.count() == 1


def test_a_folder_that_cant_be_written(tmp_path, visit):
    with serve(tmp_path, read_only=True) as server:
        before = nbformat.read(server.notebooks / f"{LESSON}.ipynb", 4)
        page = visit(server, LESSON)
        train_two_workers(page)
        page.page.keyboard.press("Control+s")
        page.page.get_by_text("is read-only. Use").wait_for()
        page.shot("read-only")
        assert nbformat.read(page.path, 4) == before


def test_a_jupyterlab_without_widgets_shows_the_last_frame(tmp_path, visit):
    with serve(tmp_path, widgets=False) as server:
        page = visit(server, LESSON)
        cell = train_two_workers(page)
        cell.locator("summary").first.click()  # the last frame is folded into its line
        assert cell.get_by_role("img", name="loss").count() == 1
        page.shot("without-widgets", cell)


def test_a_saved_lesson_opened_another_day(tmp_path, visit):
    """Another JupyterLab, another kernel: nobody knows the widgets any more."""
    with serve(tmp_path / "first") as server:
        page = visit(server, LESSON)
        train_two_workers(page)
        page.save()
        saved = page.path.read_bytes()
        page.page.close()
    with serve(tmp_path / "second") as server:
        (server.notebooks / f"{LESSON}.ipynb").write_bytes(saved)
        page = visit(server, LESSON, again=True)
        page.wait_idle(60)
        cell = page.cell("run = dtk.run(train, workers=2)")
        cell.locator("summary").first.click()
        page.shot("another-day", cell)
        assert "finished in" in cell.locator(".jp-OutputArea").text_content()
        # Not trusted, as one that came by mail: JupyterLab drops what it doesn't know to be harmless.
        curves = cell.get_by_role("img").evaluate_all("curves => curves.map(curve => curve.naturalWidth > 0)")
        assert curves == [True] * 2, "the loss, and the picture of the processes"
