"""Lessons in Chinese in a browser, light and dark: figures, questions, checks and the live view speak Chinese."""

from __future__ import annotations

import re

import nbformat
import pytest
from test_browser_lessons import passes, unexpected

CHINESE = re.compile(r"[\u4e00-\u9fff]")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("lesson", ["00_start_here", "05_custom_loop"])
def test_run_all_in_chinese(server, visit, lesson, dark):
    page = visit(server, f"zh/{lesson}", dark=dark)
    stored = nbformat.read(page.path, 4)
    look = "dark" if dark else "light"
    page.shot(f"zh-{look}-start")
    page.run_all()
    page.wait_all_ran(600)
    view = page.dashboards.first
    page.shot(f"zh-{look}-view", view)
    assert CHINESE.search(view.text_content())
    figures = page.notebook.locator(".jp-OutputArea-output img")
    for number in range(figures.count()):
        page.shot(f"zh-{look}-figure-{number}", figures.nth(number))
    notebook = page.save()
    assert unexpected(notebook) == []
    assert passes(notebook) == passes(stored) != []
