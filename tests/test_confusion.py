"""What `benchmarks/confusion.py` makes of its rows. The rows themselves are measured by that program."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import confusion  # noqa: E402
from gallery import PROGRAMS, all_programs  # noqa: E402


def row(said, slip=None, right="pass", passed=False, also=(), program="p"):
    facts = {"said": said, "slip": slip, "right": right, "passed": passed, "also": list(also), "program": program}
    return {**facts, "why": "because", "kind": confusion.classify(facts)}


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        ("true", {"said": "none", "passed": True}),
        ("true", {"said": "order", "slip": "order"}),
        ("true", {"said": "whole batch", "right": "whole batch"}),
        ("true", {"said": "from_logits", "right": "from_logits", "passed": True}),
        ("its own", {"said": "whole batch", "right": "whole batch", "slip": "order"}),
        ("candidate", {"said": "unknown", "slip": "order", "also": ("order",)}),
        ("unknown", {"said": "unknown", "slip": "order", "also": ("steps",)}),
        ("unknown", {"said": "unknown", "right": "whole batch"}),
        ("false cause", {"said": "unknown"}),  # a right program's run can't fail for a reason
        ("false cause", {"said": "order", "slip": "steps"}),
        ("false cause", {"said": "order"}),
        ("false cause", {"said": "learning rate", "passed": True}),
        ("false pass", {"said": "none", "slip": "order", "passed": True}),
        ("false pass", {"said": "none", "right": "whole batch", "passed": True}),
    ],
)
def test_a_row_is_judged_by_what_is_true(kind, facts):
    assert row(**facts)["kind"] == kind


def test_the_matrix_counts_each_row_once():
    rows = [
        row("none", passed=True),
        row("order", slip="order"),
        row("order", slip="order"),
        row("steps", slip="order"),
    ]
    assert confusion.matrix(rows).splitlines() == [
        "| truth | none | order | steps | all |",
        "|---|---|---|---|---|",
        "| none | 1 |  |  | 1 |",
        "| order |  | 2 | 1 | 3 |",
    ]
    assert "| false cause | 1 |" in confusion.totals(rows)
    assert confusion.exceptions(rows) == "- false cause: `p`, order: because"


def test_an_interrupted_night_goes_on_where_nothing_has_changed(tmp_path):
    out = tmp_path / "out" / "confusion.json"
    assert confusion.kept(out, "now") == []
    confusion.save([{"program": "p", "version": "now"}, {"program": "q", "version": "before"}], out)
    assert confusion.kept(out, "now") == [{"program": "p", "version": "now"}]
    assert confusion.version() == confusion.version()


def test_the_page_has_the_programs_of_the_gallery():
    """After a program has come or changed: `python benchmarks/confusion.py --docs docs/explanation/gallery.md`."""
    page = ROOT / "docs" / "explanation" / "gallery.md"
    all_programs()
    if not PROGRAMS:
        pytest.skip("the gallery has no programs yet")
    assert confusion.programs_table(PROGRAMS) in page.read_text(encoding="utf-8")
