"""What axe-core finds in a dozen pages: nothing serious or critical. All that it finds is in out/site/axe."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from markup import LOOKED_AT

PAGES = (*LOOKED_AT, "documentation", "lessons/04_keras_fit", "lessons/glossary", "search")
BAD = {"serious", "critical"}


@pytest.fixture(scope="session")
def axe() -> str:
    """Axe-core's program: DTK_AXE, or where `make test-site` puts it."""
    place = Path(os.environ.get("DTK_AXE") or Path(sys.prefix) / "axe" / "axe.min.js")
    if not place.is_file():
        pytest.skip("no axe-core here: make test-site gets it by npm")
    return place.read_text(encoding="utf-8")


def findings(tab, axe):
    tab.wait_for_timeout(500)  # the theme makes what scrolls reachable when the page is there
    tab.evaluate(axe)
    return tab.evaluate("axe.run()")["violations"]


def serious(found, reports, name):
    """What people can't read or reach, of what was found, all of which is kept."""
    place = reports / "axe"
    place.mkdir(exist_ok=True)
    (place / f"{name}.json").write_text(json.dumps(found, indent=1, ensure_ascii=False), encoding="utf-8")
    return [
        (one["id"], one["help"], [node["html"][:200] for node in one["nodes"]]) for one in found if one["impact"] in BAD
    ]


@pytest.mark.parametrize(("theme", "width"), [("light", 1600), ("dark", 400)])
@pytest.mark.parametrize("page", PAGES)
def test_axe_finds_nothing_serious(visit, reports, axe, page, theme, width):
    name = f"{page.replace('/', '-')}-{width}-{theme}"
    assert not serious(findings(visit(f"{page}.html", width, theme), axe), reports, name)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_labs_that_were_answered(visit, reports, axe, theme):
    tab = visit("in_the_page.html?ring.1=5", 900, theme)
    labs = tab.locator(".dtk-lab")
    for lab in [labs.nth(k) for k in range(labs.count())]:
        lab.locator("input[type=radio]").first.check()
        lab.locator("button").first.click()
        lab.locator("svg").first.wait_for()
    labs.locator("select").last.select_option("even")
    assert tab.url.endswith("?ring.1=5&replay.1=even")  # a link to what is set
    assert labs.nth(1).locator("output").first.inner_text() == "5"
    tab.screenshot(path=reports / "views" / f"labs-900-{theme}.png", full_page=True)
    assert not serious(findings(tab, axe), reports, f"labs-900-{theme}")
