"""Public docstrings: one form, and every parameter and attribute is in them."""

from __future__ import annotations

import inspect
import re
from dataclasses import is_dataclass
from typing import Any

import pytest

import dtk

SECTIONS = ("Args", "Attributes", "Returns", "Raises")
MODULES = ("faults", "model", "plot")  # of which each public name is documented for learners


def names() -> dict[str, Any]:
    """The public functions and classes by dotted name, those of public modules included; no errors."""
    found = {name: getattr(dtk, name) for name in dtk.__all__}
    for module in MODULES:
        found |= {f"{module}.{name}": getattr(found[module], name) for name in found[module].__all__}
    found["datasets.load"] = found["datasets"].load
    wanted = {name: each for name, each in found.items() if inspect.isfunction(each) or inspect.isclass(each)}
    return {name: each for name, each in wanted.items() if not (inspect.isclass(each) and issubclass(each, Exception))}


PUBLIC = names()


def section(doc: str, name: str) -> str:
    """The lines of a section, without its heading; "" where there is none."""
    found = re.search(rf"^{name}:\n((?:    .*\n|\n)*)", doc + "\n", re.MULTILINE)
    return found[1] if found else ""


def listed(doc: str, name: str) -> list[str]:
    """The names that a section lists, "args, kwargs: ..." as two."""
    heads = re.findall(r"^    (\w[\w, ]*): ", section(doc, name), re.MULTILINE)
    return [each.strip() for head in heads for each in head.split(",")]


@pytest.mark.parametrize("name", sorted(each for each in PUBLIC if inspect.isfunction(PUBLIC[each])))
def test_a_function_documents_each_parameter_in_args(name):
    doc, parameters = inspect.getdoc(PUBLIC[name]) or "", inspect.signature(PUBLIC[name]).parameters
    assert sorted(listed(doc, "Args")) == sorted(parameters)


@pytest.mark.parametrize("name", sorted(each for each in PUBLIC if is_dataclass(PUBLIC[each])))
def test_a_dataclass_documents_each_field_in_attributes(name):
    doc = inspect.getdoc(PUBLIC[name]) or ""
    fields = [field for field in PUBLIC[name].__dataclass_fields__ if not field.startswith("_")]
    assert sorted(listed(doc, "Attributes")) == sorted(fields)


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_sections_come_in_one_order_after_a_first_sentence(name):
    doc = inspect.getdoc(PUBLIC[name]) or ""
    first, *rest = doc.split("\n")
    assert first.endswith((".", ":")), first
    assert not rest or rest[0] == ""
    heads = re.findall(r"^(\w+):$", doc, re.MULTILINE)
    assert heads == [each for each in SECTIONS if each in heads]


@pytest.mark.parametrize("name", ["VerificationError", "WorkerFailed", "WorkerStalled", "RunTimeout", "DtkError"])
def test_an_error_documents_what_it_carries(name):
    error = getattr(dtk, name)
    made = error("sentence", worker=0) if name == "WorkerFailed" else error("sentence")
    documented = {
        attribute
        for kind in error.__mro__
        if kind.__module__ in ("dtk.errors", "dtk.records.tables")
        for attribute in listed(inspect.getdoc(kind) or "", "Attributes")
    }
    assert set(vars(made)) <= documented
