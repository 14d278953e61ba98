"""`make lint` sees what it is for: each rule of the house, broken once in a copy, is named."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import lint_code
import pytest

ROOT = Path(__file__).parent.parent
TOO_MANY = "1: `long` has 8 parameters without defaults; at most 7"


def function(lines=1, parameters="", docstring=""):
    return "\n".join([f"def long({parameters}):", docstring or "    x = 0", *["    x = 1"] * (lines - 2)])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (function(51), ["1: `long` has 51 lines without its docstring; at most 50"]),
        (function(51, docstring='    """One line."""'), []),
        (function(parameters="a, b, c, /, d, e, f, *, g, h"), [TOO_MANY]),
        (function(parameters="a, b, c, d, e, f, g, h=1, *, i=2"), []),
        ("x = 1\n" * 501, ["501: 501 lines; at most 500: one idea a file"]),
    ],
)
def test_lengths_and_parameters(text, said):
    assert list(lint_code.lint(text)) == said


@pytest.mark.parametrize(("lines", "said"), [(9, "1 more than"), (8, ""), (7, ""), (5, "lower that in")])
def test_a_room_may_only_get_smaller(tmp_path, monkeypatch, lines, said):
    monkeypatch.setattr(lint_code, "SLACK", 2)
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "one.py").write_text("pass\n" * lines)
    found = list(lint_code.rooms(tmp_path, {"room": 8}))
    assert [said in sentence for sentence in found] == [True] * bool(said)


def test_no_class_has_the_name_of_another(tmp_path):
    for name, classes in {"one": "class Job: ...", "two": "class Cell:\n    class Job: ..."}.items():
        (tmp_path / f"{name}.py").write_text(classes)
    said = f"{tmp_path}/two.py:2: a class `Job` is in {tmp_path}/one.py:1, too: name one of them otherwise"
    assert list(lint_code.same_names(tmp_path)) == [said]


@pytest.fixture
def copy(tmp_path):
    """A copy of the package and of its settings, to be broken."""
    shutil.copytree(ROOT / "dtk", tmp_path / "dtk", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def tool(name, place, *options):
    """What a linter says in that folder, and its exit code."""
    command = [str(Path(sys.executable).parent / name), *options]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=60)
    return " ".join((done.stdout + done.stderr).split()), done.returncode


def test_imports(copy):
    """Late and upwards, a room without a place, the table of contents, a circle: all in one copy, each is named."""
    for file, text in {
        "view/probe.py": "import dtk\n\n\ndef f():\n    from dtk.runs import run\n    return run\n",
        "new_room.py": "",
        "launch/messages.py": "\n\ndef f():\n    import dtk.launch.warm\n",
    }.items():
        with (copy / "dtk" / file).open("a") as probe:
            probe.write(text)
    words, code = tool("lint-imports", copy, "--no-logo", "--no-cache")
    for said in (
        "dtk.view is not allowed to import",
        "modules are not listed as layers: - dtk.new_room",
        "dtk.view.probe is not allowed to import dtk",
        "No cycles are allowed in dtk.launch",
    ):
        assert said in words, words
    assert code == 1
