"""How `benchmarks/confusion.py` judges its rows, and that its page has the programs of the gallery."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import confusion  # noqa: E402
from gallery import all_programs  # noqa: E402

RIGHT = {"slip": None, "right": "pass", "passed": False, "also": ()}


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
    assert confusion.classify({**RIGHT, **facts}) == kind


def test_the_page_has_the_programs_of_the_gallery():
    """After a program has come or changed: `python benchmarks/confusion.py --docs docs/explanation/gallery.md`."""
    page = ROOT / "docs" / "explanation" / "gallery.md"
    assert confusion.programs_table(all_programs()) in page.read_text(encoding="utf-8")
