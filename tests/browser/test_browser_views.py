"""The live view of a run that takes a while: it moves, it fits the window, its logs open by keyboard while it goes."""

from __future__ import annotations

import pytest

RUN = "slow = dtk.run(train, workers=2, faults=[dtk.faults.slow(worker=0, seconds_per_step=0.2)])"
# Elements of the live view that are wider than the room they have.
_WIDE = """view => [...view.querySelectorAll("*")].filter(part => part.getBoundingClientRect().right >
    view.getBoundingClientRect().right + 1).map(part => part.outerHTML.slice(0, 200))"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1400, 700])
def test_the_live_view_moves_and_fits(server, visit, width, dark):
    from playwright.sync_api import expect

    page = visit(server, "00_start_here", width=width, dark=dark)
    page.menu("Edit", "Clear Outputs of All Cells")
    page.watch()
    for source in ("import dtk", "def train(strategy, global_batch=128):"):
        page.run(source)
    page.type(RUN)
    page.run("slow = dtk.run")
    view, name = page.dashboards.first, f"view-{'dark' if dark else 'light'}-{width}"
    view.wait_for(timeout=60_000)
    page.shot(f"{name}-1-start", view)
    page.wait_step(10)
    view.get_by_role("radio", name="worker 1").press("Space")
    expect(view.locator("pre:visible")).to_have_count(1)
    assert page.moves[0][-1] < 40, "it was still training"
    page.shot(f"{name}-2-middle", view)
    page.wait_idle(120)
    page.shot(f"{name}-3-end", view)
    assert view.evaluate(_WIDE) == []
    steps = [step for view in page.moves for step in view]  # the last frame is drawn anew
    assert steps == sorted(steps)
    assert len(steps) > 5, steps
    assert steps[-1] == 40
    assert "finished in" in view.text_content()
