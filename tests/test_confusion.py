"""How `benchmarks/confusion.py` judges its rows, and that its page has the programs of the gallery."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import confusion  # noqa: E402
from gallery import all_programs  # noqa: E402


def test_the_page_has_the_programs_of_the_gallery():
    """After a program has come or changed: `python benchmarks/confusion.py --docs docs/explanation/gallery.md`."""
    page = ROOT / "docs" / "explanation" / "gallery.md"
    assert confusion.programs_table(all_programs()) in page.read_text(encoding="utf-8")
