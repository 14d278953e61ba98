"""What pages look like: nothing wider than the screen, nothing missing, a header of one line, light and dark.

The pictures are in out/site/views, for people to look at.
"""

from __future__ import annotations

import json

import pytest
from markup import LOOKED_AT

WIDTHS = (400, 1024, 1600)
# Pictures that did not come, and what sticks out of the page; a part that scrolls by itself may be wider.
LOOK = """() => ({
    header: document.querySelector('.bd-header').offsetHeight,
    missing: [...document.images].filter((image) => image.complete && !image.naturalWidth).map((image) => image.src),
    wide: document.documentElement.scrollWidth - window.innerWidth,
    hidden: [...document.querySelectorAll('.bd-article pre, .bd-article table')]
        .filter((part) => part.getClientRects().length && part.getBoundingClientRect().right > window.innerWidth + 1)
        .filter((part) => !scrolls(part))
        .map((part) => part.textContent.slice(0, 80)),
})
"""
SCROLLS = """window.scrolls = (part) => {
    for (let at = part; at && at.tagName !== 'ARTICLE'; at = at.parentElement) {
        if (['auto', 'scroll'].includes(getComputedStyle(at).overflowX)) return true;
    }
    return false;
}
"""


@pytest.fixture(scope="module")
def seconds(reports):
    """By page: seconds until it can be read and used."""
    taken: dict[str, float] = {}
    yield taken
    (reports / "seconds.json").write_text(json.dumps(dict(sorted(taken.items())), indent=1), encoding="utf-8")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("page", LOOKED_AT)
def test_nothing_sticks_out_and_nothing_is_missing(visit, reports, seconds, page, width, theme):
    tab = visit(f"{page}.html", width, theme)
    took = "performance.getEntriesByType('navigation')[0].domInteractive / 1000"
    seconds[f"{page} {width} {theme}"] = round(tab.evaluate(took), 3)
    assert tab.evaluate("document.documentElement.dataset.theme") == theme
    tab.evaluate(SCROLLS)
    seen = tab.evaluate(LOOK)
    place = reports / "views"
    place.mkdir(exist_ok=True)
    tab.screenshot(path=place / f"{page.replace('/', '-')}-{width}-{theme}.png", full_page=True)
    assert seen == {"header": 80, "missing": [], "wide": 0, "hidden": []}


def test_a_picture_keeps_its_ground_on_light_and_loses_it_on_dark(visit):
    style = "getComputedStyle(document.querySelector('img.figure')).filter"
    assert visit("lessons/00_start_here.html", theme="light").evaluate(style) == "none"
    dark = visit("lessons/00_start_here.html", theme="dark")
    assert dark.evaluate(style).count("#dark-figure") == dark.locator("filter#dark-figure").count() == 1
