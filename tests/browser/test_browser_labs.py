"""The labs by mouse and by keyboard, and what a screen reader is told of their controls."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

pytestmark = pytest.mark.timeout(600)

# Names of the elements that the keyboard reaches; "" for one without a name.
_NAMES = """area => [...area.querySelectorAll("input, select, button, [role=slider], [tabindex='0']")].map(control =>
    control.getAttribute("aria-label") || [...(control.labels ?? [])].map(label => label.textContent).join(" ")
    || control.textContent)"""
_BOXES = "labels => labels.map(label => label.getBoundingClientRect()).map(box => [box.top, box.bottom])"


def lab(page, *sources: str):
    """Runs these cells; returns the output of the last."""
    page.menu("Edit", "Clear Outputs of All Cells")
    for source in sources:
        cell = page.run(source)
    page.wait_idle(60)
    return cell.locator(".jp-OutputArea-output").first


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1400, 700])
def test_the_lab_of_loss_scaling(server, visit, expect, width, dark):
    page = visit(server, "02_loss_scaling", width=width, dark=dark)
    output = lab(page, "import dtk", "dtk.plot.loss_scaling_lab(")
    expect(output).to_contain_text("3 + 3.33 = 6.33")
    assert all(output.evaluate(_NAMES))
    page.shot(f"lab-{'dark' if dark else 'light'}-{width}", output)
    output.get_by_role("radio", name="global batch").click()
    expect(output).to_contain_text("The loss and the gradient are one device's")
    output.get_by_role("spinbutton", name="replicas").press("ArrowUp")
    expect(output).to_contain_text("one device: 3.33")
    output.get_by_role("spinbutton", name="examples of each").press("ArrowDown")
    expect(output.get_by_role("spinbutton", name="examples of each")).to_have_value("2")
    output.get_by_role("radio", name="number of replicas").press("Space")
    expect(output).to_contain_text("the step are 2 times too large")
    told = re.compile(r"2 times one device's loss\. 3 replicas with 2 examples each")
    expect(output.get_by_role("img")).to_have_attribute("alt", told)


@pytest.mark.parametrize("width", [1400, 700])
def test_the_fault_lab(server, visit, expect, width):
    from notebook_page import inject_an_exception

    page = visit(server, "07_fault_tolerance", width=width, dark=width == 700)
    cells = "import dtk", "def build():", "dtk.plot.fault_lab("
    output = lab(page, *cells)
    expect(output.get_by_role("radio")).to_have_count(6 + 5)
    assert all(output.evaluate(_NAMES))
    boxes = output.locator(".widget-radio-box").last.locator("label").evaluate_all(_BOXES)
    assert all(above[1] <= below[0] for above, below in pairwise(boxes)), "answers lie upon one another"
    output.get_by_role("button", name="run").click()
    expect(output).to_contain_text("Predict first")
    page.shot(f"fault-lab-before-{width}", output)
    inject_an_exception(output)
    assert server.workers == []
    page.shot(f"fault-lab-after-{width}", output)
