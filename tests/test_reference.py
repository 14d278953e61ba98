"""docs/reference has every public name, as its docstring says it now."""

from __future__ import annotations

import re

import pytest
import reference

import dtk
import dtk.datasets
import dtk.faults
import dtk.model
import dtk.places
import dtk.plot
from dtk import cli

MODULES = (dtk.datasets, dtk.faults, dtk.model, dtk.places, dtk.plot)


@pytest.fixture(scope="module")
def pages():
    return reference.pages()


def headings(text):
    return set(re.findall(r"^## `([^`]+)`$", text, flags=re.MULTILINE))


def test_the_reference_is_up_to_date(pages):
    """After a docstring has changed: `make reference`."""
    stored = {path.name: path.read_text(encoding="utf-8") for path in reference.FOLDER.glob("*.md")}
    old = sorted(name for name in {*stored, *pages} if stored.get(name) != pages.get(name))
    assert not old, f"out of date in docs/reference: {', '.join(old)}; `make reference` writes them anew"


def test_no_public_name_is_missing(pages):
    there = headings("\n".join(pages.values()))
    modules = {name for name in dtk.__all__ if name in dtk._MODULES}
    assert {f"dtk.{name}" for name in dtk.__all__} - {f"dtk.{name}" for name in modules} <= there
    assert modules == {page.module.removeprefix("dtk.") for page in reference.PAGES.values() if page.module != "dtk"}
    for module in MODULES:
        assert {f"{module.__name__}.{name}" for name in module.__all__} <= there
    assert {f"dtk {name}" for name in reference.commands(cli.parser())} == headings(pages["command_line.md"])


def test_each_public_name_has_a_docstring_of_its_own():
    plain = [
        name
        for page in reference.PAGES.values()
        for name, thing in reference.listed(page)
        if callable(thing) and not reference.as_markdown(thing.__doc__ or "")
    ]
    assert plain == []


def test_a_name_on_no_page_is_refused(monkeypatch):
    monkeypatch.setattr(dtk, "__all__", [*dtk.__all__, "quickly"])
    with pytest.raises(ValueError, match="no page has quickly"):
        reference.pages()
