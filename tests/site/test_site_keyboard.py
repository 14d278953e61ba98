"""The site without a mouse: Tab goes through the page in its order, and one sees where one is."""

from __future__ import annotations

import pytest

# Where the focus is: which part of the page, what it is, and whether it is seen.
FOCUS = """() => {
    const at = document.activeElement, box = at.getBoundingClientRect(), style = getComputedStyle(at);
    const part = at.closest('#pst-skip-link, header, #pst-primary-sidebar, main, #pst-secondary-sidebar, footer');
    const ring = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0 || style.boxShadow !== 'none';
    return {
        part: !part ? '' : part.matches('header, main, footer') ? part.tagName.toLowerCase() : part.id,
        words: (at.innerText || at.title || at.ariaLabel || at.tagName).trim(),
        seen: box.width > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth,
        ring,
        body: at === document.body,
    };
}"""


def walk(tab, steps):
    places = []
    for _ in range(steps):
        tab.keyboard.press("Tab")
        place = tab.evaluate(FOCUS)
        if not (place["seen"] and place["ring"]):
            tab.wait_for_timeout(500)  # it slides into the page, or the page to it
            place = tab.evaluate(FOCUS)
        places.append(place)
        if places[-1]["body"]:
            break
    return [place for place in places if not place["body"]]


@pytest.mark.parametrize(("page", "width"), [("guide/use.html", 1600), ("zh/lessons/02_loss_scaling.html", 1600)])
def test_tab_goes_through_the_page_and_the_focus_is_seen(visit, page, width):
    tab = visit(page, width)
    places = walk(tab, 160)
    parts = list(dict.fromkeys(place["part"] for place in places))
    assert parts[0] == "pst-skip-link"
    assert parts.index("header") < parts.index("pst-primary-sidebar") < parts.index("main")
    assert not [place for place in places if not (place["seen"] and place["ring"])]


def test_the_first_tab_leads_past_the_navigation(visit):
    tab = visit("guide/use.html")
    tab.keyboard.press("Tab")
    tab.keyboard.press("Enter")
    tab.keyboard.press("Tab")
    assert tab.evaluate(FOCUS)["part"] == "main"


def test_what_scrolls_can_be_scrolled_without_a_mouse(visit):
    tab = visit("lessons/00_start_here.html", width=400)
    tab.wait_for_timeout(500)  # the theme gives them their place in the order when the page is there
    stuck = tab.evaluate("""() => [
        ...document.querySelectorAll('.bd-article pre, .bd-article .pst-scrollable-table-container'),
    ].filter((part) => part.getClientRects().length)
        .filter((part) => part.scrollWidth > part.clientWidth + 1 && part.tabIndex < 0).map((part) => part.textContent)
    """)
    assert not stuck


def test_languages_lead_to_the_same_page_and_back(visit, address):
    tab = visit("lessons/02_loss_scaling.html")
    for name, page, title in (("中文", "zh/lessons", "损失缩放"), ("English", "lessons", "Loss scaling")):
        tab.locator("header a.language", has_text=name).focus()
        tab.keyboard.press("Enter")
        tab.wait_for_url(f"{address}/{page}/02_loss_scaling.html")
        assert title in tab.title()
