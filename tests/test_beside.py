"""Modules that lie beside the notebook: found by what a function imports, without importing them."""

from __future__ import annotations

import sys

import cloudpickle
import pytest

from dtk.places import engine


def uses_them():
    import one
    from helpers.data import rows  # has no __init__.py
    from package import first

    return rows, first, one


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for path, text in {
        "one.py": "raise RuntimeError('imported where it is only looked for')",
        "helpers/data.py": "import json, two\ndef rows(): pass",
        "helpers/unused.py": "",
        "two.py": "import one\nimport numpy.linalg",
        "package/__init__.py": "from . import first\nfrom .second import deep\nfrom ... import beyond",
        "package/first.py": "",
        "package/second/__init__.py": "",
        "package/second/deep.py": "import broken",
        "broken.py": "this is no Python",
        "rows/picture.py": "",
        "unused.py": "",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    return tmp_path


def pickled(fn):
    fn.__module__ = "__main__"  # as one of a cell
    return cloudpickle.dumps((fn, (), {}))


def test_what_a_function_imports_inside_travels_with_what_that_imports(folder):
    found = engine.modules(engine.named(pickled(uses_them)) - engine.named())  # which has all that pytest imported
    mine = {path: text for path, text in found.items() if (folder / path).exists()}
    assert sorted(mine) == [
        "broken.py",
        "helpers/data.py",
        "one.py",
        "package/__init__.py",
        "package/first.py",
        "package/second/__init__.py",
        "package/second/deep.py",
        "two.py",
    ]
    assert mine["two.py"] == b"import one\nimport numpy.linalg"
    assert not {"one", "two", "helpers", "package"} & {*sys.modules}, "looking for a module imports none"


def test_what_was_installed_stays_at_home(folder):
    found = engine.modules(["numpy", "json", "pytest", "dtk.runs", "no_such_module", "one.attribute"])
    assert list(found) == ["one.py"]


def test_imported_modules_travel_also_where_the_path_has_changed(folder, monkeypatch):
    (folder / "later.py").write_text("answer = 42")
    __import__("later")
    monkeypatch.setattr(sys, "path", sys.path[1:])
    try:
        assert "later" in engine.named()
        assert engine.modules(["later"])["later.py"] == b"answer = 42"
    finally:
        del sys.modules["later"]
