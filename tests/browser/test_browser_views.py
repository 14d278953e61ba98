"""The live view of a run that takes a while: it moves, it fits the window, its logs open by keyboard while it goes."""

from __future__ import annotations

import io

import pytest
from matplotlib.pyplot import imread

# Elements of the live view that are wider than the room they have.
_WIDE = """view => [...view.querySelectorAll("*")].filter(part => part.getBoundingClientRect().right >
    view.getBoundingClientRect().right + 1).map(part => part.outerHTML.slice(0, 200))"""
# The places of the pictures in the live view.
_PLACES = """view => [...view.querySelectorAll("svg[role=img], img")].map(part => [part.getBoundingClientRect(),
    view.getBoundingClientRect()]).map(([part, all]) => [part.left - all.left, part.top - all.top, part.width])"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1400, 700])
def test_the_live_view_moves_and_fits(server, visit, width, dark):
    page = visit(server, "00_start_here", width=width, dark=dark)
    page.start_slow()
    view, name = page.dashboards.first, f"view-{'dark' if dark else 'light'}-{width}"
    view.wait_for(timeout=60_000)
    page.shot(f"{name}-1-start", view)
    page.open_log_at_work(view)
    page.shot(f"{name}-2-middle", view)
    places = view.evaluate(_PLACES)
    assert len(places) == 1, "the loss"
    page.wait_idle(120)
    page.shot(f"{name}-3-end", view)
    assert view.bounding_box()["height"] < (60 if width > 1000 else 61), "a line (narrow: two), which a click opens"
    view.locator("summary").first.click()
    page.shot(f"{name}-4-open", view)
    assert [place[::2] for place in view.evaluate(_PLACES)] == [place[::2] for place in places], "as it was"
    assert view.evaluate(_WIDE) == []
    page.assert_came_to_its_end(view)


@pytest.mark.timeout(300)
def test_a_figure_follows_the_theme(server, visit):
    page = visit(server, "00_start_here")
    page.run("import dtk")
    words = "(ax,) = dtk.plot.axes(None)\ndtk.plot.headline(ax, 'A figure', 'light or dark')"
    cell = page.type(f"{words}\nax.plot([1, 2, 3], label='a line')")
    page.run_cell(cell)
    page.wait_idle(120)
    picture = cell.locator(".jp-OutputArea-output img")
    assert picture.get_attribute("src").startswith("data:image/svg+xml")
    point = cell.locator(".jp-OutputArea-output [title]").nth(1)
    assert point.get_attribute("title").split() == ["a", "line", "1", "2"]
    point.hover()  # which fails where another element lies on it
    near, whole = point.bounding_box(), picture.bounding_box()
    assert 0.4 < (near["x"] + near["width"] / 2 - whole["x"]) / whole["width"] < 0.6
    for theme, ground in (("Light", [1, 1, 1]), ("Dark", [17 / 255] * 3), ("Light", [1, 1, 1])):
        change = f"jupyterapp.commands.execute('apputils:change-theme', {{theme: 'JupyterLab {theme}'}})"
        page.page.evaluate(change)
        page.page.wait_for_function(
            "light => document.body.dataset.jpThemeLight === light", arg=str(theme == "Light").lower()
        )
        page.shot(f"figure-{theme}", picture)
        shown = imread(io.BytesIO(picture.screenshot()), format="png")
        assert shown[3, 3, :3] == pytest.approx(ground)
